#define DIMS_PER_THREAD (HEAD_DIM / 32)  // a warp holds a whole row: a lane owns HEAD_DIM / 32 dims
#include "tile.cuh"
#include "warp.cuh"

#ifndef WARPS  // warps of one block
#define WARPS 4
#endif
#ifndef ROWS  // KV rows that a warp takes at a time
#define ROWS 2
#endif

using Share = Row<DIMS_PER_THREAD>;

template <bool MASKED>
__device__ __forceinline__ void take_rows(Partial<DIMS_PER_THREAD>& mine, const Share& q_rmem,
                                          const half* k_head, const half* v_head, int n, int end) {
  Share k_rmem[ROWS], v_rmem[ROWS];
  load_rows<ROWS, DIMS_PER_THREAD, MASKED>(k_rmem, k_head, n, end);
  load_rows<ROWS, DIMS_PER_THREAD, MASKED>(v_rmem, v_head, n, end);
  float score[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    score[r] = warp_sum(dot(q_rmem, k_rmem[r]));
    if (MASKED && n + r >= end) score[r] = -INFINITY;
  }
  fold_rows(mine, score, v_rmem);
}

// One block serves one (sequence, query head, piece); its warps take turns at groups of ROWS rows
// and meet only at the end.
extern "C" __global__ void BOUNDED(32 * WARPS) decode_s05(
    const half* __restrict__ q,        // [B, Hq, D]
    const half* __restrict__ k,        // [B, Hkv, S, D]
    const half* __restrict__ v,        // [B, Hkv, S, D]
    const int* __restrict__ seq_lens,  // [B]
    Result* __restrict__ result,       // see split.cuh
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  __shared__ float max_smem[WARPS], sum_smem[WARPS];
  __shared__ float acc_smem[WARPS][HEAD_DIM];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int dim = lane * DIMS_PER_THREAD;
  const int head = blockIdx.x, sequence = blockIdx.y, piece = blockIdx.z;
  const int num_qo_heads = gridDim.x;
  const Range rows = rows_of_piece(seq_lens[sequence], piece);
  const size_t qo_row = (size_t)sequence * num_qo_heads + head;
  const size_t kv_head = (size_t)sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  const half* k_head = k + kv_head * kv_len * HEAD_DIM + dim;
  const half* v_head = v + kv_head * kv_len * HEAD_DIM + dim;

  Share q_rmem = load_row<DIMS_PER_THREAD>(q + qo_row * HEAD_DIM + dim);
  for (float& x : q_rmem.x) x *= sm_scale_log2;

  Partial<DIMS_PER_THREAD> mine;
  int n = rows.begin + warp * ROWS;
#pragma unroll 1
  for (; n + ROWS <= rows.end; n += WARPS * ROWS)
    take_rows<false>(mine, q_rmem, k_head, v_head, n, rows.end);
  if (ROWS > 1 && n < rows.end) take_rows<true>(mine, q_rmem, k_head, v_head, n, rows.end);

  if (lane == 0) {
    max_smem[warp] = mine.score_max;
    sum_smem[warp] = mine.weight_sum;
  }
#pragma unroll
  for (int i = 0; i < DIMS_PER_THREAD; ++i) acc_smem[warp][dim + i] = mine.acc.x[i];
  __syncthreads();
  float largest = -INFINITY;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) largest = fmaxf(largest, max_smem[w]);
  float factor[WARPS];
#pragma unroll
  for (int w = 0; w < WARPS; ++w)  // a warp without rows has -infinity; so have all in no rows
    factor[w] = max_smem[w] > -INFINITY ? exp2f(max_smem[w] - largest) : 0.f;
#pragma unroll
  for (int d = threadIdx.x; d < HEAD_DIM; d += 32 * WARPS) {
    Partial<1> whole;
    whole.score_max = largest;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      whole.weight_sum += factor[w] * sum_smem[w];
      whole.acc.x[0] += factor[w] * acc_smem[w][d];
    }
    store_result(result, qo_row, piece, d, whole);
  }
}
