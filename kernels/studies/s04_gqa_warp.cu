#define DIMS_PER_THREAD (HEAD_DIM / 32)  // a block is one warp: a lane owns HEAD_DIM / 32 dims
#include "tile.cuh"
#include "warp.cuh"

#ifndef GROUP  // query heads of one KV head that a warp serves together
#define GROUP 4
#endif
#ifndef ROWS  // KV rows whose loads and sums stand side by side
#define ROWS 1
#endif

using Share = Row<DIMS_PER_THREAD>;

template <bool MASKED>
__device__ __forceinline__ void take_rows(Partial<DIMS_PER_THREAD> (&mine)[GROUP],
                                          const Share (&q_rmem)[GROUP], const half* k_head,
                                          const half* v_head, int n, int end) {
  Share k_rmem[ROWS], v_rmem[ROWS];
  load_rows<ROWS, DIMS_PER_THREAD, MASKED>(k_rmem, k_head, n, end);
  load_rows<ROWS, DIMS_PER_THREAD, MASKED>(v_rmem, v_head, n, end);
  float score[GROUP][ROWS];
#pragma unroll
  for (int g = 0; g < GROUP; ++g)
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      score[g][r] = warp_sum(dot(q_rmem[g], k_rmem[r]));
      if (MASKED && n + r >= end) score[g][r] = -INFINITY;
    }
#pragma unroll
  for (int g = 0; g < GROUP; ++g) fold_rows(mine[g], score[g], v_rmem);
}

// One warp serves GROUP query heads of one (sequence, KV head, piece): a row is read once for all.
extern "C" __global__ void BOUNDED(32) decode_s04(
    const half* __restrict__ q,        // [B, Hq, D]
    const half* __restrict__ k,        // [B, Hkv, S, D]
    const half* __restrict__ v,        // [B, Hkv, S, D]
    const int* __restrict__ seq_lens,  // [B]
    Result* __restrict__ result,       // see split.cuh
    int group_size,                    // query heads of one KV head
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  const int dim = threadIdx.x * DIMS_PER_THREAD;
  // Where a KV head has more than GROUP query heads, several warps share them.
  const int warps_per_kv_head = gridDim.x / num_kv_heads;
  const int kv_head = blockIdx.x / warps_per_kv_head;
  const int first_of_group = blockIdx.x % warps_per_kv_head * GROUP;
  const int sequence = blockIdx.y, piece = blockIdx.z;
  const Range rows = rows_of_piece(seq_lens[sequence], piece);
  const size_t first_qo_row = ((size_t)sequence * num_kv_heads + kv_head) * group_size;
  const size_t kv_row = ((size_t)sequence * num_kv_heads + kv_head) * kv_len;
  const half* k_head = k + kv_row * HEAD_DIM + dim;
  const half* v_head = v + kv_row * HEAD_DIM + dim;

  // A head that the group does not have is its last one once more, and is not stored.
  Share q_rmem[GROUP];
  Partial<DIMS_PER_THREAD> mine[GROUP];
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
    const int member = min(first_of_group + g, group_size - 1);
    q_rmem[g] = load_row<DIMS_PER_THREAD>(q + (first_qo_row + member) * HEAD_DIM + dim);
    for (float& x : q_rmem[g].x) x *= sm_scale_log2;
  }

  int n = rows.begin;
#pragma unroll 1
  for (; n + ROWS <= rows.end; n += ROWS)
    take_rows<false>(mine, q_rmem, k_head, v_head, n, rows.end);
  if (ROWS > 1 && n < rows.end) take_rows<true>(mine, q_rmem, k_head, v_head, n, rows.end);
#pragma unroll
  for (int g = 0; g < GROUP; ++g)
    if (first_of_group + g < group_size)
      store_result(result, first_qo_row + first_of_group + g, piece, dim, mine[g]);
}
