// Sum over the NUM_WARPS warps of a block; every thread gets it. Three barriers.
#pragma once
#include "warp.cuh"

template <int NUM_WARPS>
__device__ __forceinline__ float block_sum(float value) {
  __shared__ float partial_smem[NUM_WARPS];
  __shared__ float total_smem;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  value = warp_sum(value);
  if (lane == 0) partial_smem[warp] = value;
  __syncthreads();
  if (warp == 0) {
    value = warp_sum(lane < NUM_WARPS ? partial_smem[lane] : 0.f);
    if (lane == 0) total_smem = value;
  }
  __syncthreads();
  value = total_smem;
  __syncthreads();  // nobody may overwrite the scratch while somebody still reads it
  return value;
}
