// The cache of a sequence cut into SPLIT pieces, each served by a block of its own, and the launch
// that joins what they found. With SPLIT == 1 there is one piece, which writes the output itself.
#pragma once
#include "ladder.cuh"
#include "row.cuh"

#ifndef SPLIT
#define SPLIT 1
#endif

struct Range {
  int begin, end;
};

// The rows of one piece; behind the end of a short sequence a piece is empty.
__device__ __forceinline__ Range rows_of_piece(int length, int piece) {
  if (SPLIT == 1) return {0, length};
  const int rows = (length + SPLIT - 1) / SPLIT;
  const int begin = min(piece * rows, length);
  return {begin, min(begin + rows, length)};
}

// What is known of some rows: their largest score, the weights' sum and the weighted sum of v.
template <int N>
struct Partial {
  float score_max = -INFINITY, weight_sum = 0.f;
  Row<N> acc = {};
};

constexpr int PARTIAL_ROW = HEAD_DIM + 2;  // a row of partial results: acc, maximum, sum

#if SPLIT > 1
using Result = float;  // [B, Hq, SPLIT, D + 2]: partial results, for the merge
#else
using Result = half;  // [B, Hq, D]: the output
#endif

// Writes a thread's share of the piece's result, which is D wide from dim on.
template <int N>
__device__ __forceinline__ void store_result(Result* result, size_t qo_row, int piece, int dim,
                                             const Partial<N>& mine) {
#if SPLIT > 1
  float* target = result + (qo_row * SPLIT + piece) * PARTIAL_ROW;
#pragma unroll
  for (int i = 0; i < N; ++i) target[dim + i] = mine.acc.x[i];
  if (dim == 0) {
    target[HEAD_DIM] = mine.score_max;
    target[HEAD_DIM + 1] = mine.weight_sum;
  }
#else
  store_row(result + qo_row * HEAD_DIM + dim, mine.acc, 1.f / mine.weight_sum);
#endif
}

#if SPLIT > 1
// One block joins the pieces of one (sequence, query head); a thread owns one dim.
extern "C" __global__ void __launch_bounds__(HEAD_DIM) merge_pieces(
    const float* __restrict__ partial,  // [B, Hq, SPLIT, D + 2]
    half* __restrict__ out) {           // [B, Hq, D]
  const size_t qo_row = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
  const float* mine = partial + qo_row * SPLIT * PARTIAL_ROW;
  float largest = -INFINITY;
#pragma unroll
  for (int s = 0; s < SPLIT; ++s) largest = fmaxf(largest, mine[s * PARTIAL_ROW + HEAD_DIM]);
  float weight_sum = 0.f, acc = 0.f;
#pragma unroll
  for (int s = 0; s < SPLIT; ++s) {
    // An empty piece has the maximum -infinity: its factor is 0, and so are its sums.
    const float factor = exp2f(mine[s * PARTIAL_ROW + HEAD_DIM] - largest);
    weight_sum += factor * mine[s * PARTIAL_ROW + HEAD_DIM + 1];
    acc += factor * mine[s * PARTIAL_ROW + threadIdx.x];
  }
  out[qo_row * HEAD_DIM + threadIdx.x] = __float2half(acc / weight_sum);
}
#endif
