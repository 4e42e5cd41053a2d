// Each row sorted upwards in shared memory, two elements a thread.
#include <math_constants.h>

template <int SIZE>
__global__ void bitonic_sort(const float* __restrict__ in,  // [rows, columns]
                             float* __restrict__ out,       // [rows, columns]
                             int columns) {
  __shared__ float keys[SIZE];
  const size_t first = (size_t)blockIdx.x * columns;
  for (int i = threadIdx.x; i < SIZE; i += SIZE / 2) keys[i] = i < columns ? in[first + i] : CUDART_INF_F;
  for (int size = 2; size <= SIZE; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const int low = 2 * threadIdx.x - (threadIdx.x & (stride - 1)), high = low + stride;
      const bool upwards = (low & size) == 0;
      const float a = keys[low], b = keys[high];
      if ((a > b) == upwards) {
        keys[low] = b;
        keys[high] = a;
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += SIZE / 2) out[first + i] = keys[i];
}
