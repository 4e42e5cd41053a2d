#define DIMS_PER_THREAD (HEAD_DIM / 32)  // a warp holds a whole row: a lane owns HEAD_DIM / 32 dims
#include "ladder.cuh"
#include "pieces.cuh"
#include "row.cuh"
#include "warp.cuh"

#ifndef ROWS  // KV rows that a warp asks for before it uses any of them
#define ROWS 8
#endif
#ifndef WARPS  // warps of one block
#define WARPS 4
#endif

constexpr int NUM_THREADS = 32 * WARPS;
using Share = Row<DIMS_PER_THREAD>;

struct State {
  float score_max, weight_sum;
  Share acc;
};

// Takes ROWS rows from n on: all loads first, then the sums side by side, then one rescaling.
// Rows behind the end are the last one again, and weigh nothing.
template <bool MASKED>
__device__ __forceinline__ void take_rows(State& mine, const Share& q_rmem, const half* k_head,
                                          const half* v_head, int n, int end) {
  Share k_rmem[ROWS], v_rmem[ROWS];
  float score[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const size_t row = MASKED ? min(n + r, end - 1) : n + r;
    k_rmem[r] = load_row<DIMS_PER_THREAD>(k_head + row * HEAD_DIM);
    v_rmem[r] = load_row<DIMS_PER_THREAD>(v_head + row * HEAD_DIM);
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) score[r] = dot(q_rmem, k_rmem[r]);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) score[r] = warp_sum(score[r]);
  float new_max = mine.score_max;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (MASKED && n + r >= end) score[r] = -INFINITY;
    new_max = fmaxf(new_max, score[r]);
  }
  float rescale = exp2f(mine.score_max - new_max);
  mine.score_max = new_max;
  mine.weight_sum *= rescale;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const float weight = exp2f(score[r] - new_max);
    mine.weight_sum += weight;
    accumulate(mine.acc, rescale, v_rmem[r], weight);
    rescale = 1.f;
  }
}

// One block serves one piece of one (sequence, query head). Its warps take turns at groups of ROWS
// rows and meet once, at the end; merge_pieces joins the pieces.
extern "C" __global__ void BOUNDED(NUM_THREADS) decode_r08(
    const half* __restrict__ q,        // [B, Hq, D]
    const half* __restrict__ k,        // [B, Hkv, S, D]
    const half* __restrict__ v,        // [B, Hkv, S, D]
    const int* __restrict__ seq_lens,  // [B]
    float* __restrict__ partial,       // [B, Hq, pieces, D + 2], not used if there is one piece
    half* __restrict__ out,            // [B, Hq, D], not used if there are more
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  const int head = blockIdx.x, sequence = blockIdx.y, num_qo_heads = gridDim.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int dim = lane * DIMS_PER_THREAD;
  const Rows rows = rows_of_piece(seq_lens[sequence], blockIdx.z, gridDim.z);
  const size_t qo_row = (size_t)sequence * num_qo_heads + head;
  const size_t kv_head = (size_t)sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  const half* k_head = k + kv_head * kv_len * HEAD_DIM + dim;
  const half* v_head = v + kv_head * kv_len * HEAD_DIM + dim;

  Share q_rmem = load_row<DIMS_PER_THREAD>(q + qo_row * HEAD_DIM + dim);
  for (float& x : q_rmem.x) x *= sm_scale_log2;

  State mine = {-INFINITY, 0.f, {}};
  int n = rows.begin + warp * ROWS;
#pragma unroll 1
  for (; n + ROWS <= rows.end; n += WARPS * ROWS)
    take_rows<false>(mine, q_rmem, k_head, v_head, n, rows.end);
  if (ROWS > 1 && n < rows.end) take_rows<true>(mine, q_rmem, k_head, v_head, n, rows.end);

  // The warps meet: warp 0 adds up what the others left in shared memory.
  __shared__ State state_smem[WARPS][32];
  if (warp > 0) state_smem[warp][lane] = mine;
  __syncthreads();
  if (warp > 0) return;
#pragma unroll
  for (int w = 1; w < WARPS; ++w) {
    const State other = state_smem[w][lane];
    const float largest = fmaxf(mine.score_max, other.score_max);
    if (largest == -INFINITY) continue;  // no rows yet
    const float mine_factor = exp2f(mine.score_max - largest);
    const float other_factor = exp2f(other.score_max - largest);
    mine.score_max = largest;
    mine.weight_sum = mine.weight_sum * mine_factor + other.weight_sum * other_factor;
    accumulate(mine.acc, mine_factor, other.acc, other_factor);
  }
  if (gridDim.z == 1) {
    store_row(out + qo_row * HEAD_DIM + dim, mine.acc, 1.f / mine.weight_sum);
  } else {
    store_partial(partial + (qo_row * gridDim.z + blockIdx.z) * PARTIAL_ROW, dim, mine.acc,
                  mine.score_max, mine.weight_sum);
  }
}
