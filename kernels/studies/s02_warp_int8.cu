#define DIMS_PER_THREAD (HEAD_DIM / 32)  // a block is one warp: a lane owns HEAD_DIM / 32 dims
#include "tile.cuh"
#include "warp.cuh"

#ifndef ROWS  // KV rows whose loads, sums and exponentials stand side by side
#define ROWS 4
#endif

using Share = Row<DIMS_PER_THREAD>;
constexpr float LARGEST = 127.f;

// A lane's share of one quantised row, without its scale.
__device__ __forceinline__ Share load_codes(const signed char* source) {
#if HEAD_DIM == 128
  const char4 codes = *reinterpret_cast<const char4*>(source);
  return {{float(codes.x), float(codes.y), float(codes.z), float(codes.w)}};
#else
  const char2 codes = *reinterpret_cast<const char2*>(source);
  return {{float(codes.x), float(codes.y)}};
#endif
}

__device__ __forceinline__ void store_codes(signed char* target, const Share& row, float factor) {
  int codes[DIMS_PER_THREAD];
#pragma unroll
  for (int i = 0; i < DIMS_PER_THREAD; ++i) codes[i] = __float2int_rn(row.x[i] * factor);
#if HEAD_DIM == 128
  *reinterpret_cast<char4*>(target) = make_char4(codes[0], codes[1], codes[2], codes[3]);
#else
  *reinterpret_cast<char2*>(target) = make_char2(codes[0], codes[1]);
#endif
}

// One warp writes one row: codes of -127..127 and the scale that turns them back.
__device__ __forceinline__ void quantise_row(const half* source, signed char* codes, float* scale,
                                             size_t row, int dim) {
  const Share share = load_row<DIMS_PER_THREAD>(source + row * HEAD_DIM + dim);
  float largest = 0.f;
#pragma unroll
  for (int i = 0; i < DIMS_PER_THREAD; ++i) largest = fmaxf(largest, fabsf(share.x[i]));
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  store_codes(codes + row * HEAD_DIM + dim, share, largest > 0.f ? LARGEST / largest : 0.f);
  if (dim == 0) scale[row] = largest / LARGEST;
}

// The preparation: one warp a (sequence, KV head) and chunk of 64 rows. Nothing is written behind
// a sequence's end, where the cache holds nothing either.
extern "C" __global__ void __launch_bounds__(32) quantise_cache(
    const half* __restrict__ k,        // [B, Hkv, S, D]
    const half* __restrict__ v,        // [B, Hkv, S, D]
    const int* __restrict__ seq_lens,  // [B]
    signed char* __restrict__ k_codes,  // [B, Hkv, S, D]
    signed char* __restrict__ v_codes,  // [B, Hkv, S, D]
    float* __restrict__ k_scale,        // [B, Hkv, S]
    float* __restrict__ v_scale,        // [B, Hkv, S]
    int kv_len) {
  const int dim = threadIdx.x * DIMS_PER_THREAD;
  const int kv_head = blockIdx.y, sequence = blockIdx.z;
  const size_t first = ((size_t)sequence * gridDim.y + kv_head) * kv_len;
  const int begin = blockIdx.x * 64, end = min(begin + 64, seq_lens[sequence]);
  for (int n = begin; n < end; ++n) {
    quantise_row(k, k_codes, k_scale, first + n, dim);
    quantise_row(v, v_codes, v_scale, first + n, dim);
  }
}

template <bool MASKED>
__device__ __forceinline__ void take_rows(Partial<DIMS_PER_THREAD>& mine, const Share& q_rmem,
                                          const signed char* k_head, const signed char* v_head,
                                          const float* k_scale, const float* v_scale, int n,
                                          int end) {
  Share k_rmem[ROWS], v_rmem[ROWS];
  float k_factor[ROWS], v_factor[ROWS], score[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int row = MASKED ? min(n + r, end - 1) : n + r;
    k_rmem[r] = load_codes(k_head + (size_t)row * HEAD_DIM);
    v_rmem[r] = load_codes(v_head + (size_t)row * HEAD_DIM);
    k_factor[r] = k_scale[row];
    v_factor[r] = v_scale[row];
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) score[r] = warp_sum(dot(q_rmem, k_rmem[r])) * k_factor[r];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (MASKED && n + r >= end) score[r] = -INFINITY;
#pragma unroll
    for (int i = 0; i < DIMS_PER_THREAD; ++i) v_rmem[r].x[i] *= v_factor[r];
  }
  fold_rows(mine, score, v_rmem);
}

// One warp serves one (sequence, query head, piece), ROWS rows at a time.
extern "C" __global__ void BOUNDED(32) decode_s02(
    const half* __restrict__ q,               // [B, Hq, D]
    const signed char* __restrict__ k_codes,  // [B, Hkv, S, D]
    const signed char* __restrict__ v_codes,  // [B, Hkv, S, D]
    const float* __restrict__ k_scale,        // [B, Hkv, S]
    const float* __restrict__ v_scale,        // [B, Hkv, S]
    const int* __restrict__ seq_lens,         // [B]
    Result* __restrict__ result,              // see split.cuh
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  const int dim = threadIdx.x * DIMS_PER_THREAD;
  const int head = blockIdx.x, sequence = blockIdx.y, piece = blockIdx.z;
  const int num_qo_heads = gridDim.x;
  const Range rows = rows_of_piece(seq_lens[sequence], piece);
  const size_t qo_row = (size_t)sequence * num_qo_heads + head;
  const size_t kv_head = (size_t)sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  k_codes += kv_head * kv_len * HEAD_DIM + dim;
  v_codes += kv_head * kv_len * HEAD_DIM + dim;
  k_scale += kv_head * kv_len;
  v_scale += kv_head * kv_len;

  Share q_rmem = load_row<DIMS_PER_THREAD>(q + qo_row * HEAD_DIM + dim);
  for (float& x : q_rmem.x) x *= sm_scale_log2;

  Partial<DIMS_PER_THREAD> mine;
  int n = rows.begin;
#pragma unroll 1
  for (; n + ROWS <= rows.end; n += ROWS)
    take_rows<false>(mine, q_rmem, k_codes, v_codes, k_scale, v_scale, n, rows.end);
  if (ROWS > 1 && n < rows.end)
    take_rows<true>(mine, q_rmem, k_codes, v_codes, k_scale, v_scale, n, rows.end);
  store_result(result, qo_row, piece, dim, mine);
}
