// Copies of several rows that lie anywhere, and a wait for all of them: a warp goes on when the
// slowest is there.
#define DEVICE __device__ __forceinline__

DEVICE long long now() {
  long long cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
}
DEVICE unsigned this_sm() {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  return sm;
}

// Whether this block's SM is the one to measure on; -1 takes all. The grid has one block for each
// SM, and a block that ended at once would leave its place to another one's.
DEVICE bool chosen(int wanted_sm) {
  if (wanted_sm < 0) return true;
  const long long until = now() + 8000;
  while (now() < until) {
  }
  return (int)this_sm() == wanted_sm;
}

constexpr int ROW = 512;  // bytes from one place to the next

DEVICE unsigned scattered(unsigned number) {
  number *= 0x9e3779b1u;
  number ^= number >> 15;
  number *= 0x85ebca77u;
  return number ^ number >> 13;
}

#if __CUDA_ARCH__ >= 800
// PLACES rows of BYTES a lane, each at one of last_row + 1 places, and a wait. One warp a block.
template <int BYTES, int PLACES>
DEVICE void copy_apart(long long* out, const char* rows, unsigned last_row, int warm, int steps,
                       int wanted_sm) {
  __shared__ alignas(16) char room[PLACES * 32 * BYTES];
  if (!chosen(wanted_sm)) return;
  const unsigned target = (unsigned)__cvta_generic_to_shared(room) + (threadIdx.x % 32) * BYTES;
  const char* lane = rows + (threadIdx.x % 32) * BYTES;
  unsigned number = blockIdx.x * 65536;
  long long begin = 0, end = 0;
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {  // the first one is not counted
    const int count = round == 0 ? warm : steps;
    begin = now();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      unsigned long long source[PLACES];
#pragma unroll
      for (int j = 0; j < PLACES; ++j)
        source[j] = (unsigned long long)lane + (unsigned long long)ROW * (scattered(number++) & last_row);
#pragma unroll
      for (int j = 0; j < PLACES; ++j) {
        if (BYTES == 16)
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::
                       "r"(target + j * 32 * BYTES), "l"(source[j]) : "memory");
        else
          asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::
                       "r"(target + j * 32 * BYTES), "l"(source[j]), "n"(BYTES) : "memory");
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    end = now();
  }
  if (threadIdx.x % 32 == 0) {
    out[3 * blockIdx.x] = begin;
    out[3 * blockIdx.x + 1] = end;
    out[3 * blockIdx.x + 2] = this_sm();
  }
}
#define APART(BYTES, PLACES)                                                                      \
  extern "C" __global__ void apart_##BYTES##_##PLACES(long long* out, const char* rows,          \
                                                      unsigned last_row, int warm, int steps,    \
                                                      int wanted_sm) {                           \
    copy_apart<BYTES, PLACES>(out, rows, last_row, warm, steps, wanted_sm);                      \
  }
#define APARTS(PLACES) APART(4, PLACES) APART(8, PLACES) APART(16, PLACES)
APARTS(1)
APARTS(2)
APARTS(4)
APARTS(8)
APARTS(16)
#endif
