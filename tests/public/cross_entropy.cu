// The loss of each row of logits against its target, a block a row.
#include <cfloat>

struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

template <class Combine>
__device__ float block_reduce(float value, float neutral, Combine combine) {
  __shared__ float of_warps[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / 32 ? of_warps[lane] : neutral;
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  __syncthreads();
  return value;
}

__global__ void cross_entropy_forward(float* __restrict__ losses,        // [rows]
                                      const float* __restrict__ logits,  // [rows, V]
                                      const int* __restrict__ targets,   // [rows]
                                      int V) {
  const float* row = logits + (size_t)blockIdx.x * V;
  float most = -FLT_MAX;
  for (int i = threadIdx.x; i < V; i += blockDim.x) most = fmaxf(most, row[i]);
  most = block_reduce(most, -FLT_MAX, Larger{});
  float sum = 0.0f;
  for (int i = threadIdx.x; i < V; i += blockDim.x) sum += expf(row[i] - most);
  sum = block_reduce(sum, 0.0f, Plus{});
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(sum) + most - row[targets[blockIdx.x]];
}
