// Sums of a float array: by shuffles and atomics, and by cooperative groups in two launches.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void reduce_atomic(const float* __restrict__ in,  // [N]
                              float* out,                    // [1]
                              int N) {
  __shared__ float warp_sums[32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x) sum += in[i];
  for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffff, sum, offset);
  if (lane == 0) warp_sums[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = lane < (blockDim.x >> 5) ? warp_sums[lane] : 0.0f;
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) atomicAdd(out, sum);
  }
}

template <class T, unsigned BLOCK>
__global__ void reduce_groups(const T* __restrict__ in,  // [N]
                              T* __restrict__ out,       // [gridDim.x]
                              unsigned N) {
  extern __shared__ T block_smem[];
  cg::thread_block block = cg::this_thread_block();
  T sum = 0;
  for (unsigned i = blockIdx.x * BLOCK * 2 + threadIdx.x; i < N; i += BLOCK * 2 * gridDim.x) {
    sum += in[i];
    if (i + BLOCK < N) sum += in[i + BLOCK];
  }
  block_smem[threadIdx.x] = sum;
  cg::sync(block);
#pragma unroll
  for (unsigned half = BLOCK / 2; half >= 32; half /= 2) {
    if (threadIdx.x < half) block_smem[threadIdx.x] = sum = sum + block_smem[threadIdx.x + half];
    cg::sync(block);
  }
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  if (block.thread_rank() < 32) {
    sum = cg::reduce(warp, sum, cg::plus<T>());
    if (block.thread_rank() == 0) out[blockIdx.x] = sum;
  }
}
