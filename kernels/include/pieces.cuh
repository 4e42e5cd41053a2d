// The rows of a sequence cut into pieces, each served by a block of its own, and the launch that
// joins what the blocks found. How many pieces there are is known at run time only.
#pragma once
#include "ladder.cuh"
#include "row.cuh"

struct Rows {
  int begin, end;
};

// The rows of one piece; behind the end of a short sequence a piece is empty.
__device__ __forceinline__ Rows rows_of_piece(int length, int piece, int num_pieces) {
  const int each = (length + num_pieces - 1) / num_pieces;
  const int begin = min(piece * each, length);
  return {begin, min(begin + each, length)};
}

// A partial result: the weighted sum of the piece's rows of v, relative to the piece's largest
// score, then that score and the weights' sum. An empty piece has 0, -infinity and 0.
constexpr int PARTIAL_ROW = HEAD_DIM + 2;

// Writes a thread's share of a partial result, N dims from dim on.
template <int N>
__device__ __forceinline__ void store_partial(float* partial_row, int dim, const Row<N>& acc,
                                              float score_max, float weight_sum) {
#pragma unroll
  for (int i = 0; i < N; ++i) partial_row[dim + i] = acc.x[i];
  if (dim == 0) {
    partial_row[HEAD_DIM] = score_max;
    partial_row[HEAD_DIM + 1] = weight_sum;
  }
}

// One block joins the pieces of one (sequence, query head); a thread owns one dim. Several pieces
// are asked for at a time, so that their loads are under way together.
extern "C" __global__ void __launch_bounds__(HEAD_DIM) merge_pieces(
    const float* __restrict__ partial,  // [B, Hq, pieces, D + 2]
    half* __restrict__ out,             // [B, Hq, D]
    int num_pieces) {
  constexpr int AT_ONCE = 8;
  const size_t qo_row = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
  const float* mine = partial + qo_row * num_pieces * PARTIAL_ROW;
  float largest = -INFINITY, weight_sum = 0.f, acc = 0.f;
#pragma unroll 1
  for (int first = 0; first < num_pieces; first += AT_ONCE) {
    float value[AT_ONCE], score_max[AT_ONCE], sum[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {  // behind the end stands the last piece again, for nothing
      const float* row = mine + min(first + i, num_pieces - 1) * PARTIAL_ROW;
      value[i] = row[threadIdx.x];
      sum[i] = row[HEAD_DIM + 1];
      score_max[i] = first + i < num_pieces ? row[HEAD_DIM] : -INFINITY;
    }
    float new_max = largest;
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) new_max = fmaxf(new_max, score_max[i]);
    // The first piece has rows, so the maximum is a number from here on.
    const float rescale = exp2f(largest - new_max);
    weight_sum *= rescale;
    acc *= rescale;
    largest = new_max;
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const float factor = exp2f(score_max[i] - largest);
      weight_sum += factor * sum[i];
      acc += factor * value[i];
    }
  }
  out[qo_row * HEAD_DIM + threadIdx.x] = __float2half(acc / weight_sum);
}
