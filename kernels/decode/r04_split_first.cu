#define DIMS_PER_THREAD (HEAD_DIM / 32)  // a block is one warp: a lane owns HEAD_DIM / 32 dims
#include "ladder.cuh"
#include "pieces.cuh"
#include "row.cuh"
#include "warp.cuh"

constexpr int NUM_THREADS = HEAD_DIM / DIMS_PER_THREAD;

// One warp serves one piece of one (sequence, query head); merge_pieces joins the pieces.
extern "C" __global__ void BOUNDED(NUM_THREADS) decode_r04(
    const half* __restrict__ q,        // [B, Hq, D]
    const half* __restrict__ k,        // [B, Hkv, S, D]
    const half* __restrict__ v,        // [B, Hkv, S, D]
    const int* __restrict__ seq_lens,  // [B]
    float* __restrict__ partial,       // [B, Hq, pieces, D + 2]
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  const int head = blockIdx.x, sequence = blockIdx.y, num_qo_heads = gridDim.x;
  const int dim = threadIdx.x * DIMS_PER_THREAD;
  const Rows rows = rows_of_piece(seq_lens[sequence], blockIdx.z, gridDim.z);
  const size_t qo_row = (size_t)sequence * num_qo_heads + head;
  const size_t kv_head = (size_t)sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  const half* k_head = k + kv_head * kv_len * HEAD_DIM + dim;
  const half* v_head = v + kv_head * kv_len * HEAD_DIM + dim;

  Row<DIMS_PER_THREAD> q_rmem = load_row<DIMS_PER_THREAD>(q + qo_row * HEAD_DIM + dim);
  for (float& x : q_rmem.x) x *= sm_scale_log2;

  float score_max = -INFINITY, weight_sum = 0.f;
  Row<DIMS_PER_THREAD> acc = {};
#pragma unroll UNROLL
  for (int n = rows.begin; n < rows.end; ++n) {
    const auto k_rmem = load_row<DIMS_PER_THREAD>(k_head + (size_t)n * HEAD_DIM);
    const auto v_rmem = load_row<DIMS_PER_THREAD>(v_head + (size_t)n * HEAD_DIM);
    const float score = warp_sum(dot(q_rmem, k_rmem));

    const float new_max = fmaxf(score_max, score);
    const float rescale = exp2f(score_max - new_max), weight = exp2f(score - new_max);
    weight_sum = weight_sum * rescale + weight;
    accumulate(acc, rescale, v_rmem, weight);
    score_max = new_max;
  }
  store_partial(partial + (qo_row * gridDim.z + blockIdx.z) * PARTIAL_ROW, dim, acc, score_max,
                weight_sum);
}
