// Several rows at once: R scores, then one maximum and one rescaling for all of them.
#pragma once
#include "split.cuh"

// Folds R rows into what is known. A masked row has the score -infinity and weighs nothing.
template <int R, int N>
__device__ __forceinline__ void fold_rows(Partial<N>& mine, const float (&score)[R],
                                          const Row<N> (&v_rmem)[R]) {
  float new_max = mine.score_max;
#pragma unroll
  for (int r = 0; r < R; ++r) new_max = fmaxf(new_max, score[r]);
  const float rescale = exp2f(mine.score_max - new_max);
  mine.score_max = new_max;
  mine.weight_sum *= rescale;
#pragma unroll
  for (int i = 0; i < N; ++i) mine.acc.x[i] *= rescale;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const float weight = exp2f(score[r] - new_max);
    mine.weight_sum += weight;
    accumulate(mine.acc, 1.f, v_rmem[r], weight);
  }
}

// Loads R rows from n on. Rows behind the end are the last one again: they may not be read.
template <int R, int N, bool MASKED>
__device__ __forceinline__ void load_rows(Row<N> (&rows)[R], const half* head, int n, int end) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = MASKED ? min(n + r, end - 1) : n + r;
    rows[r] = load_row<N>(head + (size_t)row * HEAD_DIM);
  }
}
