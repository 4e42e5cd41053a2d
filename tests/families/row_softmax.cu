// Softmax of rows with one warp a row: a family whose Python brings its own problem.
#include <cuda_fp16.h>

#include "warp.cuh"

__device__ __forceinline__ float warp_max(float value) {
  for (int step = 16; step; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) row_softmax(
    const half* __restrict__ x,  // [R, C]
    half* __restrict__ out,      // [R, C]
    int rows, int columns) {
  const int lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32;
  if (row >= rows) return;
  const half* x_row = x + (size_t)row * columns;
  half* out_row = out + (size_t)row * columns;
  float row_max = -1e30f, row_sum = 0.f;
#if ONLINE
  for (int c = lane; c < columns; c += 32) {
    const float value = __half2float(x_row[c]), larger = fmaxf(row_max, value);
    row_sum = row_sum * __expf(row_max - larger) + __expf(value - larger);
    row_max = larger;
  }
  const float largest = warp_max(row_max);
  row_sum *= __expf(row_max - largest);
  row_max = largest;
#else
  for (int c = lane; c < columns; c += 32) row_max = fmaxf(row_max, __half2float(x_row[c]));
  row_max = warp_max(row_max);
  for (int c = lane; c < columns; c += 32) row_sum += __expf(__half2float(x_row[c]) - row_max);
#endif
  const float scale = 1.f / warp_sum(row_sum);
  for (int c = lane; c < columns; c += 32)
    out_row[c] = __float2half(__expf(__half2float(x_row[c]) - row_max) * scale);
}
