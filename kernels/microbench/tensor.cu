// What tensor cores at work do to the SM's clock: one thread chases through the L2 while the other
// warp of its block multiplies matrices, or does sums. Both counters are read, cycles and
// nanoseconds.
#define DEVICE __device__ __forceinline__

DEVICE long long now() {
  long long cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
}

DEVICE long long now_ns() {
  long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

DEVICE void product(float* sum) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(0x2c003c00u));
}
DEVICE void addition(float* sum) {
  asm volatile("fma.rn.ftz.f32 %0, %0, %1, %1;" : "+f"(sum[0]) : "f"(0.5f));
}

#define BESIDE(NAME, STEP)                                                                       \
  extern "C" __global__ void NAME(long long* out, float* sink, const char* start, int apart,     \
                                  int warm, int steps) {                                         \
    __shared__ volatile int done;                                                                \
    if (threadIdx.x == 0) done = 0;                                                              \
    __syncthreads();                                                                             \
    if (threadIdx.x >= 32) {                                                                     \
      float sum[4] = {};                                                                         \
      while (!done) {                                                                            \
        _Pragma("unroll") for (int i = 0; i < 8; ++i) STEP(sum);                                 \
      }                                                                                          \
      sink[blockIdx.x * 32 + threadIdx.x - 32] = sum[0] + sum[1] + sum[2] + sum[3];              \
    } else if (threadIdx.x == 0) {                                                               \
      unsigned long long cell = (unsigned long long)start + (unsigned long long)apart * blockIdx.x; \
      _Pragma("unroll 1") for (int i = 0; i < warm; ++i)                                         \
          asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(cell)::"memory");                     \
      const long long begin_ns = now_ns(), begin = now();                                        \
      _Pragma("unroll 1") for (int i = 0; i < steps; i += 16) {                                  \
        _Pragma("unroll") for (int j = 0; j < 16; ++j)                                           \
            asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(cell)::"memory");                   \
      }                                                                                          \
      const long long end = now(), end_ns = now_ns();                                            \
      out[2 * blockIdx.x] = end - begin + (cell == 0);                                           \
      out[2 * blockIdx.x + 1] = end_ns - begin_ns;                                               \
      done = 1;                                                                                  \
    }                                                                                            \
  }
BESIDE(beside_products, product)
BESIDE(beside_sums, addition)
