// The tiles of p00 and p01 in shared memory, how they are filled, and the dot product of two rows.
// Needs HEAD_DIM, BLOCK_M, BLOCK_N, WARPS and PAD.
#pragma once
#include <cuda_fp16.h>

#include "async_copy.cuh"
#include "warp.cuh"

#ifndef INFINITY  // the run-time compiler comes without <math.h>
#define INFINITY __int_as_float(0x7f800000)
#endif

// Halves from one row to the next. With one half of padding a row begins 2 (D + 1) bytes after the
// one before, which is a multiple of 16 for every eighth row only; with eight halves it always is.
constexpr int STRIDE = HEAD_DIM + (PAD ? 8 : 1);
constexpr int ROWS = BLOCK_M / WARPS;  // queries of a warp
constexpr int DIMS = HEAD_DIM / 32;    // of the output that a lane has, in pairs 64 dims apart
constexpr float LOG2E = 1.4426950408889634f;
static_assert(BLOCK_M % WARPS == 0, "every warp has as many queries");

struct Tiles {
  half q[BLOCK_M][STRIDE], k[BLOCK_N][STRIDE], v[BLOCK_N][STRIDE];
  float score[BLOCK_M][BLOCK_N];
};

// Starts the copies of up to ROWS_OF_TILE rows, of which the first `there` exist. A thread has a row.
template <int ROWS_OF_TILE>
__device__ __forceinline__ void copy_rows(half (*tile)[STRIDE], const half* source, int there) {
  for (int row = threadIdx.x; row < ROWS_OF_TILE; row += 32 * WARPS)
    for (int d = 0; d < HEAD_DIM; d += 8)
      copy_async_16(&tile[row][d], source + (size_t)row * HEAD_DIM + d, row < there);
}

__device__ __forceinline__ float dot_rows(const half* a, const half* b) {
  float sum = 0.f;
#pragma unroll
  for (int d = 0; d < HEAD_DIM; d += 2) {
    const float2 x = __half22float2(*reinterpret_cast<const half2*>(a + d));
    const float2 y = __half22float2(*reinterpret_cast<const half2*>(b + d));
    sum += x.x * y.x + x.y * y.y;
  }
  return sum;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}
