#include "split.cuh"
#include "warp.cuh"

constexpr int NUM_WARPS = HEAD_DIM / 32;

// One block serves one (sequence, query head, piece); a thread owns one dim.
extern "C" __global__ void BOUNDED(HEAD_DIM) decode_s00(
    const half* __restrict__ q,        // [B, Hq, D]
    const half* __restrict__ k,        // [B, Hkv, S, D]
    const half* __restrict__ v,        // [B, Hkv, S, D]
    const int* __restrict__ seq_lens,  // [B]
    Result* __restrict__ result,       // see split.cuh
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  __shared__ float partial_smem[NUM_WARPS];
  const int dim = threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head = blockIdx.x, sequence = blockIdx.y, piece = blockIdx.z;
  const int num_qo_heads = gridDim.x;
  const Range rows = rows_of_piece(seq_lens[sequence], piece);
  const size_t qo_row = (size_t)sequence * num_qo_heads + head;
  const size_t kv_head = (size_t)sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  const half* k_head = k + kv_head * kv_len * HEAD_DIM + dim;
  const half* v_head = v + kv_head * kv_len * HEAD_DIM + dim;

  const float q_rmem = __half2float(q[qo_row * HEAD_DIM + dim]) * sm_scale_log2;

  Partial<1> mine;
#pragma unroll UNROLL
  for (int n = rows.begin; n < rows.end; ++n) {
    const float k_rmem = __half2float(k_head[(size_t)n * HEAD_DIM]);
    const auto v_rmem = load_row<1>(v_head + (size_t)n * HEAD_DIM);
    float score = warp_sum(q_rmem * k_rmem);
    if (lane == 0) partial_smem[warp] = score;
    __syncthreads();
    score = 0.f;
#pragma unroll
    for (int w = 0; w < NUM_WARPS; ++w) score += partial_smem[w];
    __syncthreads();  // the next row's sums may not overtake the reading of these

    const float new_max = fmaxf(mine.score_max, score);
    const float rescale = exp2f(mine.score_max - new_max), weight = exp2f(score - new_max);
    mine.weight_sum = mine.weight_sum * rescale + weight;
    accumulate(mine.acc, rescale, v_rmem, weight);
    mine.score_max = new_max;
  }
  store_result(result, qo_row, piece, dim, mine);
}
