#define DIMS_PER_THREAD (HEAD_DIM / 32)  // a block is one warp
#include "ladder.cuh"
#include "row.cuh"
#include "warp.cuh"

extern "C" __global__ void BOUNDED(32) two_rows(
    const half* __restrict__ q,        // [B, Hq, D]
    const half* __restrict__ k,        // [B, Hkv, S, D]
    const half* __restrict__ v,        // [B, Hkv, S, D]
    const int* __restrict__ seq_lens,  // [B]
    half* __restrict__ out,            // [B, Hq, D]
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  const int head = blockIdx.x, sequence = blockIdx.y, num_qo_heads = gridDim.x;
  const int dim = threadIdx.x * DIMS_PER_THREAD;
  const int length = seq_lens[sequence];
  const size_t qo_row = (size_t)sequence * num_qo_heads + head;
  const size_t kv_head = (size_t)sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  const half* k_head = k + kv_head * kv_len * HEAD_DIM + dim;
  const half* v_head = v + kv_head * kv_len * HEAD_DIM + dim;

  Row<DIMS_PER_THREAD> q_rmem = load_row<DIMS_PER_THREAD>(q + qo_row * HEAD_DIM + dim);
  for (float& x : q_rmem.x) x *= sm_scale_log2;

  float score_max = -INFINITY, weight_sum = 0.f;
  Row<DIMS_PER_THREAD> acc = {};
#pragma unroll UNROLL
  for (int n = 0; n < length; n += 2) {
    // An odd length leaves one row over: the second then repeats the first, with no weight.
    const bool pair = n + 1 < length;
    const size_t first = (size_t)n * HEAD_DIM, second = first + (pair ? HEAD_DIM : 0);
    const auto k0 = load_row<DIMS_PER_THREAD>(k_head + first);
    const auto k1 = load_row<DIMS_PER_THREAD>(k_head + second);
    const auto v0 = load_row<DIMS_PER_THREAD>(v_head + first);
    const auto v1 = load_row<DIMS_PER_THREAD>(v_head + second);
    const float score0 = warp_sum(dot(q_rmem, k0));
    const float score1 = warp_sum(dot(q_rmem, k1));

    const float new_max = fmaxf(score_max, fmaxf(score0, score1));
    const float rescale = exp2f(score_max - new_max);
    const float weight0 = exp2f(score0 - new_max);
    const float weight1 = pair ? exp2f(score1 - new_max) : 0.f;
    weight_sum = weight_sum * rescale + weight0 + weight1;
    accumulate(acc, rescale, v0, weight0);
    accumulate(acc, 1.f, v1, weight1);
    score_max = new_max;
  }
  store_row(out + qo_row * HEAD_DIM + dim, acc, 1.f / weight_sum);
}
