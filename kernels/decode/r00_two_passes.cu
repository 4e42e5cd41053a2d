#include "block.cuh"
#include "ladder.cuh"
#include "row.cuh"

constexpr int NUM_THREADS = HEAD_DIM / DIMS_PER_THREAD;
constexpr int NUM_WARPS = NUM_THREADS / 32;

// One block serves one (sequence, query head); a thread owns DIMS_PER_THREAD dims.
extern "C" __global__ void BOUNDED(NUM_THREADS) decode_r00(
    const half* __restrict__ q,        // [B, Hq, D]
    const half* __restrict__ k,        // [B, Hkv, S, D]
    const half* __restrict__ v,        // [B, Hkv, S, D]
    const int* __restrict__ seq_lens,  // [B]
    float* scores,                     // [B, Hq, S], workspace
    half* __restrict__ out,            // [B, Hq, D]
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  const int head = blockIdx.x, sequence = blockIdx.y, num_qo_heads = gridDim.x;
  const int dim = threadIdx.x * DIMS_PER_THREAD;
  const int length = seq_lens[sequence];
  const size_t qo_row = (size_t)sequence * num_qo_heads + head;
  const size_t kv_head = (size_t)sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  const half* k_head = k + kv_head * kv_len * HEAD_DIM + dim;
  const half* v_head = v + kv_head * kv_len * HEAD_DIM + dim;
  float* my_scores = scores + qo_row * kv_len;

  Row<DIMS_PER_THREAD> q_rmem = load_row<DIMS_PER_THREAD>(q + qo_row * HEAD_DIM + dim);
  for (float& x : q_rmem.x) x *= sm_scale_log2;

  // First pass: every score, and the largest of them.
  float score_max = -INFINITY;
#pragma unroll UNROLL
  for (int n = 0; n < length; ++n) {
    const auto k_rmem = load_row<DIMS_PER_THREAD>(k_head + (size_t)n * HEAD_DIM);
    const float score = block_sum<NUM_WARPS>(dot(q_rmem, k_rmem));
    if (threadIdx.x == 0) my_scores[n] = score;
    score_max = fmaxf(score_max, score);
  }
  __syncthreads();  // makes thread 0's scores visible to the block

  // Second pass: the weights and their sum over v.
  float weight_sum = 0.f;
  Row<DIMS_PER_THREAD> acc = {};
#pragma unroll UNROLL
  for (int n = 0; n < length; ++n) {
    const float weight = exp2f(my_scores[n] - score_max);
    const auto v_rmem = load_row<DIMS_PER_THREAD>(v_head + (size_t)n * HEAD_DIM);
    weight_sum += weight;
    accumulate(acc, 1.f, v_rmem, weight);
  }
  store_row(out + qo_row * HEAD_DIM + dim, acc, 1.f / weight_sum);
}
