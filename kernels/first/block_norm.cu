// RMSNorm of each row of a matrix: one block for each row.
#include <cuda_fp16.h>

constexpr int BLOCK = 128;  // threads of a block

extern "C" __global__ void __launch_bounds__(BLOCK) rms_norm(
    const half* x,       // [R, C]
    const half* weight,  // [C]
    half* out,           // [R, C]
    int columns, float epsilon) {
  __shared__ float sums[BLOCK];
  const int row = blockIdx.x, thread = threadIdx.x;
  float sum = 0.f;
  for (int c = thread; c < columns; c += BLOCK) {
    const float value = __half2float(x[(size_t)row * columns + c]);
    sum += value * value;
  }
  sums[thread] = sum;
  __syncthreads();
  float total = 0.f;
  for (int i = 0; i < BLOCK; ++i) total += sums[i];
  const float scale = rsqrtf(total / columns + epsilon);
  for (int c = thread; c < columns; c += BLOCK) {
    const size_t place = (size_t)row * columns + c;
    out[place] = __float2half(__half2float(x[place]) * scale * __half2float(weight[c]));
  }
}
