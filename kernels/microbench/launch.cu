// Kernels that do next to nothing, to time their launch.
#define DEVICE __device__ __forceinline__

extern "C" __global__ void empty() {}
extern "C" __global__ void empty_too() {}  // another kernel, for graphs of two that take turns

// Shared memory that is declared and, for all the compiler knows, used.
#define WITH_SHARED(KB)                                                                  \
  extern "C" __global__ void shared_##KB##_kb(unsigned* sink, int never) {               \
    __shared__ unsigned room[KB * 256];                                                  \
    if (never) {                                                                         \
      for (int i = threadIdx.x; i < KB * 256; i += blockDim.x) room[i] = sink[i];        \
      __syncthreads();                                                                   \
      sink[threadIdx.x] = room[(threadIdx.x * never) % (KB * 256)];                      \
    }                                                                                    \
  }
WITH_SHARED(1)
WITH_SHARED(48)

// Registers likewise: COUNT words are alive at once.
template <int COUNT>
DEVICE void hold(unsigned* sink, int never) {
  if (never) {
    unsigned words[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(words[i]) : "l"(sink + i) : "memory");
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(sink + COUNT - i), "r"(words[i])
                   : "memory");
  }
}
extern "C" __global__ void __launch_bounds__(512) registers_32(unsigned* sink, int never) {
  hold<22>(sink, never);
}
extern "C" __global__ void __launch_bounds__(512) registers_128(unsigned* sink, int never) {
  hold<112>(sink, never);
}

// Parameters, special registers and one comparison, as every kernel begins.
extern "C" __global__ void parameters(unsigned* sink, int first, int second, int never) {
  const int mine = blockIdx.x * blockDim.x + threadIdx.x;
  if (mine + first == never && second == never) sink[0] = mine;
}

// The same, and one load that decides whether anything is written.
extern "C" __global__ void one_load(unsigned* sink, const unsigned* source, unsigned never) {
  unsigned word;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(source + threadIdx.x));
  if (word == never) sink[blockIdx.x * blockDim.x + threadIdx.x] = word;
}

// Cycles and nanoseconds of one stretch: the SM's clock while it works.
extern "C" __global__ void clock_rate(long long* out, float* sink, float x, long long cycles) {
  float v = x + threadIdx.x;
  long long begin, end, begin_ns, end_ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin_ns)::"memory");
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(begin)::"memory");
  do {
#pragma unroll
    for (int i = 0; i < 64; ++i) asm volatile("fma.rn.ftz.f32 %0, %0, %1, %1;" : "+f"(v) : "f"(x));
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(end)::"memory");
  } while (end - begin < cycles);
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end_ns)::"memory");
  if (threadIdx.x == 0) {
    out[2 * blockIdx.x] = end - begin;
    out[2 * blockIdx.x + 1] = end_ns - begin_ns;
  }
  sink[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
