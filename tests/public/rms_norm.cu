// RMSNorm in fp16 with sums in float32, by itself and behind the addition of a residual.
#include <cuda_fp16.h>

template <int THREADS>
__device__ float block_sum(float x) {
  __shared__ float partial[32];
  __shared__ float total;
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) x += __shfl_xor_sync(0xffffffff, x, mask);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x < 32) {
    x = threadIdx.x < THREADS / 32 ? partial[threadIdx.x] : 0.0f;
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) x += __shfl_xor_sync(0xffffffff, x, mask);
    if (threadIdx.x == 0) total = x;
  }
  __syncthreads();
  return total;
}

template <int THREADS>
__global__ void rms_norm_kernel(half* __restrict__ out,           // [tokens, hidden]
                                const half* __restrict__ input,   // [tokens, hidden]
                                const half* __restrict__ weight,  // [hidden]
                                const float epsilon, const int hidden) {
  const half2* x = reinterpret_cast<const half2*>(input) + (size_t)blockIdx.x * (hidden / 2);
  half2* y = reinterpret_cast<half2*>(out) + (size_t)blockIdx.x * (hidden / 2);
  const half2* w = reinterpret_cast<const half2*>(weight);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < hidden / 2; i += THREADS) {
    const float2 v = __half22float2(x[i]);
    sum += v.x * v.x + v.y * v.y;
  }
  const float scale = rsqrtf(block_sum<THREADS>(sum) / hidden + epsilon);
  for (int i = threadIdx.x; i < hidden / 2; i += THREADS) {
    const float2 v = __half22float2(x[i]), g = __half22float2(w[i]);
    y[i] = __floats2half2_rn(v.x * scale * g.x, v.y * scale * g.y);
  }
}

template <int THREADS>
__global__ void fused_add_rms_norm_kernel(half* __restrict__ input,         // [tokens, hidden], normalised in place
                                          half* __restrict__ residual,      // [tokens, hidden], the sum in place
                                          const half* __restrict__ weight,  // [hidden]
                                          const float epsilon, const int hidden) {
  half2* x = reinterpret_cast<half2*>(input) + (size_t)blockIdx.x * (hidden / 2);
  half2* r = reinterpret_cast<half2*>(residual) + (size_t)blockIdx.x * (hidden / 2);
  const half2* w = reinterpret_cast<const half2*>(weight);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < hidden / 2; i += THREADS) {
    const half2 z = __hadd2(x[i], r[i]);
    const float2 v = __half22float2(z);
    sum += v.x * v.x + v.y * v.y;
    r[i] = z;
  }
  const float scale = rsqrtf(block_sum<THREADS>(sum) / hidden + epsilon);
  for (int i = threadIdx.x; i < hidden / 2; i += THREADS) {
    const float2 v = __half22float2(r[i]), g = __half22float2(w[i]);
    x[i] = __floats2half2_rn(v.x * scale * g.x, v.y * scale * g.y);
  }
}
