// Decode attention in one launch: a block a (sequence, head), its scores in shared memory.
#include <cuda_fp16.h>

constexpr int HEAD_DIM = 128, THREADS = 256, WARPS = THREADS / 32;

template <bool MAXIMUM>
__device__ float block_reduce(float x, float* scratch) {
  for (int mask = 16; mask > 0; mask >>= 1) {
    const float other = __shfl_xor_sync(0xffffffffu, x, mask);
    x = MAXIMUM ? fmaxf(x, other) : x + other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  x = scratch[0];
  for (int i = 1; i < WARPS; ++i) x = MAXIMUM ? fmaxf(x, scratch[i]) : x + scratch[i];
  return x;
}

__global__ void __launch_bounds__(THREADS)
    fused_decode_attention(const half* __restrict__ q,        // [batch, num_heads, HEAD_DIM]
                           const half* __restrict__ k_cache,  // [batch, num_kv_heads, max_len, HEAD_DIM]
                           const half* __restrict__ v_cache,  // [batch, num_kv_heads, max_len, HEAD_DIM]
                           const int* __restrict__ lengths,   // [batch]
                           half* __restrict__ out,            // [batch, num_heads, HEAD_DIM]
                           int num_kv_heads, int max_len, float scale) {
  extern __shared__ float scores[];  // [max_len]
  __shared__ float scratch[WARPS];
  __shared__ float2 partial[WARPS][HEAD_DIM / 2];
  const int head = blockIdx.x, num_heads = gridDim.x, seq = blockIdx.y;
  const int kv_head = head / (num_heads / num_kv_heads), length = lengths[seq];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const half* q_row = q + (seq * num_heads + head) * HEAD_DIM;
  const size_t cache = ((size_t)seq * num_kv_heads + kv_head) * max_len * HEAD_DIM;

  const half2* q2 = reinterpret_cast<const half2*>(q_row) + lane * 2;
  const float2 q_low = __half22float2(q2[0]), q_high = __half22float2(q2[1]);
  float most = -INFINITY;
  for (int t = warp; t < length; t += WARPS) {
    const half2* k2 = reinterpret_cast<const half2*>(k_cache + cache + (size_t)t * HEAD_DIM) + lane * 2;
    const float2 k_low = __half22float2(k2[0]), k_high = __half22float2(k2[1]);
    float dot = q_low.x * k_low.x + q_low.y * k_low.y + q_high.x * k_high.x + q_high.y * k_high.y;
    for (int mask = 16; mask > 0; mask >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, mask);
    dot *= scale;
    if (lane == 0) scores[t] = dot;
    most = fmaxf(most, dot);
  }
  most = block_reduce<true>(most, scratch);

  float sum = 0.0f;
  for (int t = threadIdx.x; t < length; t += THREADS) {
    scores[t] = __expf(scores[t] - most);
    sum += scores[t];
  }
  sum = block_reduce<false>(sum, scratch);

  // A warp takes every WARPS-th row of V, a lane four of its elements.
  float2 low = {0.0f, 0.0f}, high = {0.0f, 0.0f};
  for (int t = warp; t < length; t += WARPS) {
    const half2* v2 = reinterpret_cast<const half2*>(v_cache + cache + (size_t)t * HEAD_DIM) + lane * 2;
    const float2 v_low = __half22float2(v2[0]), v_high = __half22float2(v2[1]);
    const float p = scores[t];
    low.x += p * v_low.x;
    low.y += p * v_low.y;
    high.x += p * v_high.x;
    high.y += p * v_high.y;
  }
  partial[warp][lane * 2] = low;
  partial[warp][lane * 2 + 1] = high;
  __syncthreads();
  if (threadIdx.x < HEAD_DIM / 2) {
    float2 all = {0.0f, 0.0f};
    for (int w = 0; w < WARPS; ++w) {
      all.x += partial[w][threadIdx.x].x;
      all.y += partial[w][threadIdx.x].y;
    }
    reinterpret_cast<half2*>(out + (seq * num_heads + head) * HEAD_DIM)[threadIdx.x] =
        __floats2half2_rn(all.x / sum, all.y / sum);
  }
}
