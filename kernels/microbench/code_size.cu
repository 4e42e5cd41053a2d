// Straight-line code of a given size, run several times: the first pass finds the instruction
// caches cold where another kernel ran before, the later ones show which level holds the code.
#ifndef CODE_KB  // of multiplications, 16 bytes each
#define CODE_KB 4
#endif

#define DEVICE __device__ __forceinline__
#define ONE "fma.rn.ftz.f32 %0, %0, %4, %5; fma.rn.ftz.f32 %1, %1, %4, %5;" \
            "fma.rn.ftz.f32 %2, %2, %4, %5; fma.rn.ftz.f32 %3, %3, %4, %5;"
#define FOUR ONE ONE ONE ONE
#define SIXTEEN FOUR FOUR FOUR FOUR

DEVICE long long now() {
  long long cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
}

// 64 multiplications in 4 chains: 1 KB.
DEVICE void kilobyte(float (&v)[4], float x, float y) {
  asm volatile(SIXTEEN : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3]) : "f"(x), "f"(y));
}

extern "C" __global__ void __launch_bounds__(1024) straight(
    long long* out,  // [blocks, warps, passes, 2] begin and end
    float* sink, float x, float y, int passes) {
  float v[4] = {x, x + 1, x + 2, x + threadIdx.x};
  long long* mine = out + 2ll * passes * (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
    const long long begin = now();
#pragma unroll
    for (int k = 0; k < CODE_KB; ++k) kilobyte(v, x, y);
    const long long end = now();
    if (threadIdx.x % 32 == 0) {
      mine[2 * pass] = begin;
      mine[2 * pass + 1] = end;
    }
  }
  sink[blockIdx.x * blockDim.x + threadIdx.x] = v[0] + v[1] + v[2] + v[3];
}
