// Bulk copies of tiles by the copy engine, and the barriers in shared memory that count them.
//
// A barrier has phases. A phase ends when as many threads have arrived as init_barrier said and
// every byte that was announced has landed. wait_barrier(b, p) waits for the end of a phase of
// parity p: the first phase has parity 0, and before it ends a wait for parity 1 returns at once.
#pragma once
#include "async_copy.cuh"

// What the copy engine knows of a tensor; the driver writes it. It is a parameter of the kernel.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};

#ifdef __CUDA_ARCH__

using Barrier = unsigned long long;

__device__ __forceinline__ void init_barrier(Barrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(arrivals)
               : "memory");
}
// Makes initialised barriers known to the copy engine; a __syncthreads() has to follow.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Orders this thread's ordinary stores to shared memory before what the copy engine and wgmma do.
__device__ __forceinline__ void publish_stores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier))
               : "memory");
}
// Arrives, and announces bytes that copies will bring in this phase.
__device__ __forceinline__ void arrive_expecting(Barrier& barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_address(&barrier)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait_barrier(Barrier& barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}
// Copies a box of a tensor of three dimensions that begins at (x, y, z); what lies outside is zero.
__device__ __forceinline__ void copy_box(void* shared, const TensorMap& map, int x, int y, int z,
                                         Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
// Copies `bytes`, a multiple of 16, between addresses that are multiples of 16.
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, int bytes,
                                          Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// A barrier of THREADS threads, one of sixteen by number; 0 is that of __syncthreads().
template <int THREADS>
__device__ __forceinline__ void named_sync(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(THREADS) : "memory");
}
template <int THREADS>
__device__ __forceinline__ void named_arrive(int number) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(THREADS) : "memory");
}
// A warpgroup gives registers back, or takes those that others gave.
template <int REGISTERS>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

#else  // the CPU: a copy lands at once, which nobody may rely upon who has not waited for its barrier

struct alignas(8) Barrier {
  unsigned char bytes[8];
};
inline void init_barrier(Barrier& barrier, int arrivals) { lab_phase_init(&barrier, arrivals); }
inline void publish_barriers() {}
inline void publish_stores() {}
inline void arrive(Barrier& barrier) { lab_phase_arrive(&barrier, 1, 0); }
inline void arrive_expecting(Barrier& barrier, int bytes) { lab_phase_arrive(&barrier, 1, bytes); }
inline void wait_barrier(Barrier& barrier, int parity) { lab_phase_wait(&barrier, parity); }
inline void copy_bulk(void* shared, const void* global, int bytes, Barrier& barrier) {
  if (bytes % 16) lab_trap("a bulk copy moves a multiple of 16 bytes");
  for (int i = 0; i < bytes; i += 16)
    *reinterpret_cast<uint4*>((char*)shared + i) =
        *reinterpret_cast<const uint4*>((const char*)global + i);
  lab_phase_arrive(&barrier, 0, -bytes);
}
// Words of a map here: address, sizes of x, y, z, bytes from one y and one z to the next, sizes of
// a box, bytes of a swizzled row (0 for none), bytes of an element.
inline void copy_box(void* shared, const TensorMap& map, int x, int y, int z, Barrier& barrier) {
  const unsigned long long* word = map.words;
  const int size = word[10], row_bytes = word[6] * size, swizzled = word[9];
  if ((unsigned long long)shared % (swizzled ? 1024 : 128))
    lab_trap("a copied box begins at a multiple of 128 bytes, of 1024 where rows are swizzled");
  int done = 0;
  for (int k = 0; k < (int)word[8]; ++k) {
    for (int j = 0; j < (int)word[7]; ++j) {
      for (int i = 0; i < row_bytes; i += 16, done += 16) {
        const long long column = x + i / size, row = y + j, plane = z + k;
        const bool there = column >= 0 && column < (long long)word[1] && row >= 0 &&
                           row < (long long)word[2] && plane >= 0 && plane < (long long)word[3];
        const unsigned long long from =
            word[0] + column * size + row * (long long)word[4] + plane * (long long)word[5];
        const int to = swizzled == 128 ? done ^ (done >> 3 & 0x70) : done;
        *reinterpret_cast<uint4*>((char*)shared + to) =
            there ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
      }
    }
  }
  lab_phase_arrive(&barrier, 0, -(long long)done);
}
inline void prefetch_map(const TensorMap&) {}
template <int THREADS>
inline void named_sync(int number) {
  lab_named_barrier(number, THREADS, 1);
}
template <int THREADS>
inline void named_arrive(int number) {
  lab_named_barrier(number, THREADS, 0);
}
template <int REGISTERS>
inline void give_registers() {}
template <int REGISTERS>
inline void take_registers() {}

#endif
