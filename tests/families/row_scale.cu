// RMSNorm with one block a row, every method a knob: the smallest family that a loop can work on.
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

#define CHUNK (WIDE ? 8 : 1)  // elements of one load
struct alignas(2 * CHUNK) Chunk {
  Element x[CHUNK];
};

__device__ __forceinline__ Chunk load_chunk(const Element* source) {
  Chunk chunk;
#if WIDE
  *reinterpret_cast<uint4*>(&chunk) = *reinterpret_cast<const uint4*>(source);
#else
  chunk.x[0] = *source;
#endif
  return chunk;
}

// Sum over the block, to every thread.
__device__ __forceinline__ float sum_of_block(float value) {
  __shared__ float partial_smem[THREADS];
  const int thread = threadIdx.x;
#if SHUFFLE
  value = warp_sum(value);
  if (thread % 32 == 0) partial_smem[thread / 32] = value;
  __syncthreads();
  value = 0.f;
  for (int warp = 0; warp < THREADS / 32; ++warp) value += partial_smem[warp];
#else
  partial_smem[thread] = value;
  __syncthreads();
  for (int half_way = THREADS / 2; half_way; half_way /= 2) {
    if (thread < half_way) partial_smem[thread] += partial_smem[thread + half_way];
    __syncthreads();
  }
  value = partial_smem[0];
#endif
  return value;
}

// Ask for the weights before the sum is there.
__device__ __forceinline__ void ask_early(const Element* weight) {
#if EARLY == 1  // a load that nobody uses: the compiler drops it
  const Element asked = weight[threadIdx.x];
  (void)asked;
#elif EARLY == 2 && defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(weight + threadIdx.x));
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) row_scale(
    const Element* __restrict__ x,       // [R, C]
    const Element* __restrict__ weight,  // [C]
    Element* __restrict__ out,           // [R, C]
    int columns, float epsilon) {
  const size_t first = (size_t)blockIdx.x * columns;
  const Element *x_row = x + first;
  Element* out_row = out + first;
  if ((int)threadIdx.x < columns) ask_early(weight);

  // Only where rows are so long does every row begin at a multiple of a chunk.
  const int whole = columns % CHUNK == 0 ? columns : 0;
  float sum = 0.f;
  for (int c = threadIdx.x * CHUNK; c < whole; c += THREADS * CHUNK) {
    const Chunk chunk = load_chunk(x_row + c);
#pragma unroll
    for (int i = 0; i < CHUNK; ++i) sum += widen(chunk.x[i]) * widen(chunk.x[i]);
  }
  for (int c = whole + threadIdx.x; c < columns; c += THREADS)
    sum += widen(x_row[c]) * widen(x_row[c]);
  const float scale = 1.f / sqrtf(sum_of_block(sum) / columns + epsilon);

  for (int c = threadIdx.x * CHUNK; c < whole; c += THREADS * CHUNK) {
    const Chunk chunk = load_chunk(x_row + c), by = load_chunk(weight + c);
    Chunk scaled;
#pragma unroll
    for (int i = 0; i < CHUNK; ++i) scaled.x[i] = narrow(widen(chunk.x[i]) * scale * widen(by.x[i]));
#if WIDE
    *reinterpret_cast<uint4*>(out_row + c) = *reinterpret_cast<const uint4*>(&scaled);
#else
    out_row[c] = scaled.x[0];
#endif
  }
  for (int c = whole + threadIdx.x; c < columns; c += THREADS)
    out_row[c] = narrow(widen(x_row[c]) * scale * widen(weight[c]));
}
