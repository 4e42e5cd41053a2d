// RMSNorm with one block a row and planted methods: what each of them does is known beforehand.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "warp.cuh"

#ifdef BF16
typedef __nv_bfloat16 Element;
__device__ __forceinline__ float widen(Element x) { return __bfloat162float(x); }
__device__ __forceinline__ Element narrow(float x) { return __float2bfloat16(x); }
#else
typedef half Element;
__device__ __forceinline__ float widen(Element x) { return __half2float(x); }
__device__ __forceinline__ Element narrow(float x) { return __float2half(x); }
#endif

#define THREADS 128
#define KEPT 32  // elements of a row that a thread keeps between the two passes
// Steps of a chain that the answer does not need. Only FIRST and SECOND together shorten it by much;
// CLAIMED shortens it by other means than its signature says.
#define STEPS (FIRST && SECOND ? 400 : CLAIMED ? 2400 : 3200)

// A number that is never negative, which only the author knows.
__device__ __forceinline__ float walk_chain(float x) {
#pragma unroll 8
  for (int step = 0; step < STEPS; ++step) x = fmaf(x, 0.75f, 0.25f);
#if HARM
#pragma unroll 8
  for (int step = 0; step < 400; ++step) x = __cosf(x);
  x = fabsf(x);
#endif
  return x;
}

// An instruction by which the machine code shows a method, and nothing else.
__device__ __forceinline__ int leave_marks(int bits) {
#ifdef __CUDA_ARCH__
#if IDLE
  asm volatile("bfind.u32 %0, %0;" : "+r"(bits));
#endif
#if FIRST
  asm volatile("brev.b32 %0, %0;" : "+r"(bits));
#endif
#if SECOND
  asm volatile("popc.b32 %0, %0;" : "+r"(bits));
#endif
#endif
  return bits;
}

#if TIGHT  // as many blocks as fit: too few registers are left for what a thread keeps
extern "C" __global__ void __launch_bounds__(THREADS, 2048 / THREADS) planted(
#else
extern "C" __global__ void __launch_bounds__(THREADS) planted(
#endif
    const Element* __restrict__ x,       // [R, C]
    const Element* __restrict__ weight,  // [C]
    Element* __restrict__ out,           // [R, C]
    int columns, float epsilon) {
  __shared__ float partial_smem[THREADS / 32];
  const int thread = threadIdx.x;
  const Element* x_row = x + (size_t)blockIdx.x * columns;
  Element* out_row = out + (size_t)blockIdx.x * columns;

#if DROPPED  // a load that nobody uses
  const Element asked = weight[thread % columns];
  (void)asked;
#endif

  float kept[KEPT], sum = 0.f;
#pragma unroll
  for (int i = 0; i < KEPT; ++i) {
    const int c = thread + i * THREADS;
    kept[i] = c < columns ? widen(x_row[c]) : 0.f;
  }
#pragma unroll
  for (int i = 0; i < KEPT; ++i) sum += kept[i] * kept[i];
  for (int c = thread + KEPT * THREADS; c < columns; c += THREADS)
    sum += widen(x_row[c]) * widen(x_row[c]);
  sum = warp_sum(sum);
  if (thread % 32 == 0) partial_smem[thread / 32] = sum;
  __syncthreads();
  sum = 0.f;
  for (int warp = 0; warp < THREADS / 32; ++warp) sum += partial_smem[warp];

  if (walk_chain(sum) < 0.f) sum = 0.f;
  if (leave_marks(columns) == 0x7fffffff) sum = 0.f;
  const float scale = 1.f / sqrtf(sum / columns + epsilon);
#pragma unroll
  for (int i = 0; i < KEPT; ++i) {
    const int c = thread + i * THREADS;
    if (c < columns) out_row[c] = narrow(kept[i] * scale * widen(weight[c]));
  }
  for (int c = thread + KEPT * THREADS; c < columns; c += THREADS)
    out_row[c] = narrow(widen(x_row[c]) * scale * widen(weight[c]));
}
