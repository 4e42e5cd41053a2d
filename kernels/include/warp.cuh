// Sum over the 32 lanes of a warp; every lane gets it. Five shuffles, each waiting for the last.
#pragma once

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1)
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}
