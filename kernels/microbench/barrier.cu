// __syncthreads by the number of warps that meet at it, branches, and predicated-off instructions.
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
DEVICE void multiply_add(float& v, float x, float y) {
  asm volatile("fma.rn.ftz.f32 %0, %0, %1, %2;" : "+f"(v) : "f"(x), "f"(y));
}
DEVICE void report(long long* out, long long begin, long long end) {
  const int warps = blockDim.x / 32;
  if (threadIdx.x % 32 == 0) {
    long long* mine = out + 3ll * (blockIdx.x * warps + threadIdx.x / 32);
    mine[0] = begin;
    mine[1] = end;
    mine[2] = this_sm();
  }
}

// BARRIERS a trip. Where `late` names a warp, it does a chain of EXTRA multiplications before each.
template <int BARRIERS, int EXTRA>
DEVICE void meet(long long* out, float* sink, float x, float y, int iterations, int late) {
  float v = x + threadIdx.x;
  const bool does = (int)(threadIdx.x / 32) == late;
  __syncthreads();
  const long long begin = now();
#pragma unroll 1
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int j = 0; j < BARRIERS; ++j) {
      if (EXTRA > 0 && does) {
#pragma unroll
        for (int k = 0; k < EXTRA; ++k) multiply_add(v, x, y);
      }
      asm volatile("bar.sync 0;" ::: "memory");
    }
  }
  const long long end = now();
  report(out, begin, end);
  sink[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
#define MEET(BARRIERS, EXTRA)                                                                 \
  extern "C" __global__ void __launch_bounds__(1024) meet_##BARRIERS##_##EXTRA(               \
      long long* out, float* sink, float x, float y, int iterations, int late) {              \
    meet<BARRIERS, EXTRA>(out, sink, x, y, iterations, late);                                 \
  }
MEET(8, 0)
MEET(16, 0)
MEET(8, 16)
MEET(16, 16)
MEET(8, 64)
MEET(16, 64)

// A loop of BODY multiplications in CHAINS chains: the loop's own cost is what several bodies
// leave when the multiplications are taken away.
template <int BODY, int CHAINS>
DEVICE void turn_round(long long* out, float* sink, float x, float y, int iterations) {
  float v[CHAINS];
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) v[c] = x * c + threadIdx.x;
  long long begin = 0, end = 0;
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {
    begin = now();
#pragma unroll 1
    for (int i = 0; i < iterations; ++i) {
#pragma unroll
      for (int j = 0; j < BODY / CHAINS; ++j)
#pragma unroll
        for (int c = 0; c < CHAINS; ++c) multiply_add(v[c], x, y);
    }
    end = now();
  }
  report(out, begin, end);
  float sum = 0;
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) sum += v[c];
  sink[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#define TURN(BODY)                                                                            \
  extern "C" __global__ void turn_##BODY(long long* out, float* sink, float x, float y,        \
                                         int iterations) {                                    \
    turn_round<BODY, 4>(out, sink, x, y, iterations);                                         \
  }
TURN(4)
TURN(8)
TURN(16)
TURN(64)
TURN(128)

// Instructions whose predicate is false in every lane.
template <int BODY>
DEVICE void skip(long long* out, float* sink, float x, float y, int iterations, int never) {
  float v = x + threadIdx.x;
  long long begin = 0, end = 0;
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {
    begin = now();
#pragma unroll 1
    for (int i = 0; i < iterations; ++i) {
#pragma unroll
      for (int j = 0; j < BODY; ++j)
        asm volatile("{.reg .pred p; setp.ne.s32 p, %3, 0; @p fma.rn.ftz.f32 %0, %0, %1, %2;}"
                     : "+f"(v) : "f"(x), "f"(y), "r"(never));
    }
    end = now();
  }
  report(out, begin, end);
  sink[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
#define SKIP(BODY)                                                                            \
  extern "C" __global__ void skip_##BODY(long long* out, float* sink, float x, float y,        \
                                         int iterations, int never) {                         \
    skip<BODY>(out, sink, x, y, iterations, never);                                           \
  }
SKIP(32)
SKIP(64)
