// Copies of 16 bytes from memory into shared memory that nobody waits for (sm_80 and up).
#pragma once

#ifdef __CUDA_ARCH__

__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(shared)),
               "l"(global)
               : "memory");
}

// An address in shared memory as a number, to move bits of.
using SharedAddress = unsigned;
__device__ __forceinline__ SharedAddress shared_address(const void* shared) {
  return (SharedAddress)__cvta_generic_to_shared(shared);
}

// The same, or 16 zero bytes where there is nothing to read.
__device__ __forceinline__ void copy_async_16(SharedAddress shared, const void* global,
                                              bool there) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(global), "r"(there ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, bool there) {
  copy_async_16(shared_address(shared), global, there);
}

// Closes a group: what this thread has started since the last one.
__device__ __forceinline__ void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most GROUPS of this thread's latest groups are under way.
template <int GROUPS>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

// Loads that start where they stand. A __syncwarp() behind them keeps them in front of the copies
// that follow: the compiler would move them to where their results are needed.
__device__ __forceinline__ void start_load(uint4& to, const void* global) {
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
               : "l"(global));
}
__device__ __forceinline__ void start_load(int& to, const int* global) {
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(to) : "l"(global));
}
// Nothing is done with what was loaded before this.
__device__ __forceinline__ void end_load(uint4& x) {
  asm volatile("" : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w));
}
__device__ __forceinline__ void end_load(int& x) { asm volatile("" : "+r"(x)); }

// Makes a pointer one that the compiler knows nothing of: what is near it is then addressed from
// it, not by a pointer each.
template <class T>
__device__ __forceinline__ void keep_as_base(const T*& pointer) {
  asm volatile("" : "+l"(pointer));
}

// Zero, as `size` is not negative. For all the compiler knows it differs by lane: so a load that it
// is added to is not one of a whole warp, which the compiler would wait for where it stands.
__device__ __forceinline__ int maybe_lane(int size) { return size < 0 ? threadIdx.x % 32 : 0; }

#else  // the CPU
#include <cuda_pipeline_primitives.h>

inline void copy_async_16(void* shared, const void* global) {
  __pipeline_memcpy_async(shared, global, 16);
}
inline void copy_async_16(void* shared, const void* global, bool there) {
  __pipeline_memcpy_async(shared, global, 16, there ? 0 : 16);
}
using SharedAddress = unsigned long long;
inline SharedAddress shared_address(const void* shared) { return (SharedAddress)shared; }
inline void copy_async_16(SharedAddress shared, const void* global, bool there) {
  copy_async_16((void*)shared, global, there);
}
inline void close_copies() { __pipeline_commit(); }
template <int GROUPS>
inline void wait_for_copies() {
  __pipeline_wait_prior(GROUPS);
}
inline void start_load(uint4& to, const void* global) { to = *static_cast<const uint4*>(global); }
inline void start_load(int& to, const int* global) { to = *global; }
template <class T>
inline void end_load(T&) {}
template <class T>
inline void keep_as_base(const T*&) {}
inline int maybe_lane(int) { return 0; }

#endif
