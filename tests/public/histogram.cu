// A histogram of 256 bins, each block's in shared memory first.
#define NUM_BINS 256

__global__ void histogram_kernel(const int* __restrict__ values,  // [n]
                                 int* bins,                       // [NUM_BINS]
                                 int n) {
  __shared__ int local[NUM_BINS];
  for (int i = threadIdx.x; i < NUM_BINS; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(&local[values[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < NUM_BINS; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}
