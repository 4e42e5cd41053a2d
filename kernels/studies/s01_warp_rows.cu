#define DIMS_PER_THREAD (HEAD_DIM / 32)  // a block is one warp: a lane owns HEAD_DIM / 32 dims
#include "tile.cuh"
#include "warp.cuh"

#ifndef ROWS  // KV rows whose loads, sums and exponentials stand side by side
#define ROWS 4
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
  for (int r = 0; r < ROWS; ++r) score[r] = dot(q_rmem, k_rmem[r]);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) score[r] = warp_sum(score[r]);
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
    if (MASKED && n + r >= end) score[r] = -INFINITY;
  fold_rows(mine, score, v_rmem);
}

// One warp serves one (sequence, query head, piece), ROWS rows at a time.
extern "C" __global__ void BOUNDED(32) decode_s01(
    const half* __restrict__ q,        // [B, Hq, D]
    const half* __restrict__ k,        // [B, Hkv, S, D]
    const half* __restrict__ v,        // [B, Hkv, S, D]
    const int* __restrict__ seq_lens,  // [B]
    Result* __restrict__ result,       // see split.cuh
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  const int dim = threadIdx.x * DIMS_PER_THREAD;
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
  int n = rows.begin;
#pragma unroll 1
  for (; n + ROWS <= rows.end; n += ROWS)
    take_rows<false>(mine, q_rmem, k_head, v_head, n, rows.end);
  if (ROWS > 1 && n < rows.end) take_rows<true>(mine, q_rmem, k_head, v_head, n, rows.end);
  store_result(result, qo_row, piece, dim, mine);
}
