// A convolution along a vector with zeros at its ends; each block has its elements and a halo to
// either side in shared memory.
template <int RADIUS, int THREADS>
__global__ void conv1d_shared(const float* __restrict__ in,    // [n]
                              const float* __restrict__ mask,  // [2 * RADIUS + 1]
                              float* __restrict__ out,         // [n]
                              int n) {
  __shared__ float tile[THREADS + 2 * RADIUS];
  const int i = blockIdx.x * THREADS + threadIdx.x;
  tile[threadIdx.x + RADIUS] = i < n ? in[i] : 0.0f;
  if (threadIdx.x < RADIUS) {
    const int left = i - RADIUS, right = i + THREADS;
    tile[threadIdx.x] = left >= 0 ? in[left] : 0.0f;
    tile[threadIdx.x + THREADS + RADIUS] = right < n ? in[right] : 0.0f;
  }
  __syncthreads();
  if (i >= n) return;
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j <= 2 * RADIUS; ++j) sum += tile[threadIdx.x + j] * mask[j];
  out[i] = sum;
}
