// The merge of r08 behind warps that leave their results as r09's do: the warps of a block merge in
// shared memory, and the pieces of a sequence in a second launch, `merge_pieces`.
#pragma once
#include "merge.cuh"
#include "pieces.cuh"

// Defined by the kernel: writes the dims that share `j` of a head has, to the head's partial row.
__device__ __forceinline__ void store_share(float* row, int j, float4 x);

// Merges the warps' results in `space`; every thread of the block calls it behind a barrier. Writes
// the output if there is one piece, or else this piece's partial results.
__device__ __forceinline__ void merge_warps(
    const MergeSpace& space,
    Element* __restrict__ out,    // [B, Hq, D]
    float* __restrict__ partial,  // [B, Hq, pieces, D + 2]
    int pair) {                   // number of the (sequence, KV head)
  const size_t first_head = (size_t)pair * GROUP_SIZE;
#pragma unroll
  for (int begin = 0; begin < MERGE_SHARES; begin += MERGE_THREADS) {
    const int i = begin + threadIdx.x, head = i / SHARES, j = i % SHARES;
    if (MERGE_SHARES % MERGE_THREADS && i >= MERGE_SHARES) break;
    float4 rows[WARPS];
    float2 known[WARPS];
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      rows[w] = space.rows[w][head][j];
      known[w] = space.known[w][head];
    }
    Share share;
    share.join(rows, known);
    if (gridDim.x == 1) {
      share.store(out + first_head * HEAD_DIM, i);
      continue;
    }
    float* row = partial + ((first_head + head) * gridDim.x + blockIdx.x) * PARTIAL_ROW;
    store_share(row, j, share.row);
    if (j == 0) {
      row[HEAD_DIM] = share.score_max;
      row[HEAD_DIM + 1] = share.weight_sum;
    }
  }
}
