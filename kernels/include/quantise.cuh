// A KV cache in eight or four bits, to the bit as labtools/problem/quantise.py has it.
//
// An element is scale * c + bias with c = u - 2^(BITS - 1); u is stored, scale and bias are fp16.
// A rung names its packers, which are launches of their own that run before the timed ones:
//
//   QUANTISE_ROWS(quantise_k, 8, HEAD_DIM)      a scale for every GROUP dims of a row
//   QUANTISE_CHANNELS_BIASED(quantise_k, 4, 64) a scale and a bias for a dim of GROUP tokens
//
// Rows behind a length are not read. Their scales and biases become 0, and in a contiguous cache
// their codes too, so that a kernel may copy whole tiles.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifdef BF16
using CacheElement = __nv_bfloat16;
#else
using CacheElement = half;
#endif

#define QUANTISE_ROWS_A_BLOCK 64  // rows that one block of a row packer takes; scales are padded so

namespace quantised {

// ---- one element ----

// 2^23 + u holds u in its low bits, so a code becomes a float by one permutation of bytes and one
// exact subtraction; a conversion instruction runs at a fraction of their rate.
template <int BITS>
__device__ __forceinline__ float centred(unsigned bytes, int which) {
  return __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7650u | which)) -
         (8388608.f + float(1 << (BITS - 1)));
}

// c of N neighbouring dims, from their codes in neighbouring bits, the first lowest.
template <int BITS, int N>
__device__ __forceinline__ void centre_codes(unsigned codes, float (&c)[N]) {
  if (BITS == 8) {
#pragma unroll
    for (int i = 0; i < N; ++i) c[i] = centred<BITS>(codes, i);
  } else {  // a nibble a byte: the even dims, and the odd ones
    const unsigned even = codes & 0x0f0f0f0fu, odd = codes >> 4 & 0x0f0f0f0fu;
#pragma unroll
    for (int i = 0; i < N; ++i) c[i] = centred<BITS>(i % 2 ? odd : even, i / 2);
  }
}

// The inverse of the packers.
template <int BITS>
__device__ __forceinline__ float dequantised(unsigned u, float scale, float bias) {
  return __fadd_rn(__fmul_rn(scale, centred<BITS>(u, 0)), bias);
}

template <int BITS, bool BIASED>
__device__ __forceinline__ unsigned code_of(float x, float scale, float bias) {
  constexpr int HALF_RANGE = 1 << (BITS - 1);
  if (!(scale > 0.f)) return HALF_RANGE;
  const float c = __fdiv_rn(BIASED ? __fsub_rn(x, bias) : x, scale);
  const float lowest = BIASED ? -HALF_RANGE : 1 - HALF_RANGE, highest = HALF_RANGE - 1;
  return __float2int_rn(fminf(fmaxf(c, lowest), highest)) + HALF_RANGE;
}

// fp16, at most its largest number.
__device__ __forceinline__ half half_of(float x) {
  return __float2half_rn(fminf(fmaxf(x, -65504.f), 65504.f));
}

template <int BITS, bool BIASED>
__device__ __forceinline__ void choose_scale(float lowest, float highest, half& scale,
                                             half& bias) {
  constexpr float HALF_RANGE = 1 << (BITS - 1);
  if (BIASED) {
    scale = half_of(__fdiv_rn(__fsub_rn(highest, lowest), 2.f * HALF_RANGE - 1.f));
    bias = half_of(__fadd_rn(lowest, __fmul_rn(__half2float(scale), HALF_RANGE)));
  } else {
    scale = half_of(__fdiv_rn(fmaxf(fabsf(lowest), fabsf(highest)), HALF_RANGE - 1.f));
    bias = __float2half_rn(0.f);
  }
}

// ---- a lane's share of a row: HEAD_DIM / 32 neighbouring dims ----

constexpr int DIMS = HEAD_DIM / 32;

struct Values {
  float x[DIMS];
};

__device__ __forceinline__ Values load_values(const CacheElement* source) {
  Values values;
#pragma unroll
  for (int i = 0; i < DIMS; ++i) {
#ifdef BF16
    values.x[i] = __bfloat162float(source[i]);
#else
    values.x[i] = __half2float(source[i]);
#endif
  }
  return values;
}

// Codes of neighbouring dims in neighbouring bits, the first lowest: a byte each, or a nibble.
template <int BITS, bool BIASED>
__device__ __forceinline__ void store_codes(unsigned char* target, const Values& values,
                                            const float (&scale)[DIMS],
                                            const float (&bias)[DIMS]) {
  unsigned word = 0;
#pragma unroll
  for (int i = 0; i < DIMS; ++i)
    word |= code_of<BITS, BIASED>(values.x[i], scale[i], bias[i]) << (BITS * i);
#pragma unroll
  for (int byte = 0; byte < DIMS * BITS / 8; ++byte) target[byte] = word >> (8 * byte);
}

// Codes of a row behind a length: nobody's business, but not left to chance.
template <int BITS>
__device__ __forceinline__ void clear_codes(unsigned char* target) {
#pragma unroll
  for (int byte = 0; byte < DIMS * BITS / 8; ++byte) target[byte] = 0;
}

// ---- where a row lies ----

// The number of row n of a sequence, in rows of HEAD_DIM elements.
__device__ __forceinline__ size_t row_number(const int* page_table, int kv_head, int num_kv_heads,
                                             int sequence, int n, int kv_len) {
#ifdef PAGE_SIZE
  const int max_pages = (kv_len + PAGE_SIZE - 1) / PAGE_SIZE;
  const size_t page = page_table[(size_t)sequence * max_pages + n / PAGE_SIZE];
  return (page * num_kv_heads + kv_head) * PAGE_SIZE + n % PAGE_SIZE;
#else
  return ((size_t)sequence * num_kv_heads + kv_head) * kv_len + n;
#endif
}

// ---- the packers: one warp a block ----

// Block (chunk of 64 rows, KV head, sequence). GROUP dims of a row share a scale. The scales have
// room for whole chunks: [B, Hkv, S_pad, D / GROUP], or in pages [pages, Hkv, PAGE_SIZE, D / GROUP].
template <int BITS, int GROUP, bool BIASED>
__device__ __forceinline__ void quantise_rows(const CacheElement* x, const int* seq_lens,
                                              const int* page_table, unsigned char* codes,
                                              half* scale, half* bias, int kv_len) {
  constexpr int LANES = GROUP / DIMS, GROUPS = HEAD_DIM / GROUP;
  const int dim = threadIdx.x * DIMS, group = dim / GROUP;
  const int kv_head = blockIdx.y, sequence = blockIdx.z, num_kv_heads = gridDim.y;
  const int length = seq_lens[sequence], first = blockIdx.x * QUANTISE_ROWS_A_BLOCK;
#ifdef PAGE_SIZE  // the last page has scales behind the length; there is no page behind it
  const int whole_pages = (length + PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE;
  const int end = min(first + QUANTISE_ROWS_A_BLOCK, whole_pages);
#else
  const int end = first + QUANTISE_ROWS_A_BLOCK;
  const int padded = gridDim.x * QUANTISE_ROWS_A_BLOCK;
#endif
  for (int n = first; n < end; ++n) {
    size_t row = 0;
    if (n < length) row = row_number(page_table, kv_head, num_kv_heads, sequence, n, kv_len);
#ifdef PAGE_SIZE
    const size_t place = row_number(page_table, kv_head, num_kv_heads, sequence, n, kv_len);
#else
    const size_t place = ((size_t)sequence * num_kv_heads + kv_head) * padded + n;
#endif
    half row_scale = __float2half_rn(0.f), row_bias = row_scale;
    if (n < length) {
      const Values values = load_values(x + row * HEAD_DIM + dim);
      float lowest = values.x[0], highest = values.x[0];
#pragma unroll
      for (int i = 1; i < DIMS; ++i) {
        lowest = fminf(lowest, values.x[i]);
        highest = fmaxf(highest, values.x[i]);
      }
#pragma unroll
      for (int offset = LANES / 2; offset > 0; offset >>= 1) {
        lowest = fminf(lowest, __shfl_xor_sync(0xffffffffu, lowest, offset));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, offset));
      }
      choose_scale<BITS, BIASED>(lowest, highest, row_scale, row_bias);
      float wide_scale[DIMS], wide_bias[DIMS];
#pragma unroll
      for (int i = 0; i < DIMS; ++i) {
        wide_scale[i] = __half2float(row_scale);
        wide_bias[i] = __half2float(row_bias);
      }
      store_codes<BITS, BIASED>(codes + (row * HEAD_DIM + dim) * BITS / 8, values, wide_scale,
                                wide_bias);
    }
#ifndef PAGE_SIZE
    else if (n < kv_len)
      clear_codes<BITS>(codes + (((size_t)sequence * num_kv_heads + kv_head) * kv_len + n) *
                                    (HEAD_DIM * BITS / 8) + dim * BITS / 8);
#endif
    if (dim % GROUP == 0) {
      scale[place * GROUPS + group] = row_scale;
      if (BIASED) bias[place * GROUPS + group] = row_bias;
    }
  }
}

// Block (group of GROUP tokens, KV head, sequence). Scales: [B, Hkv, ceil(S / GROUP), D].
template <int BITS, int GROUP, bool BIASED>
__device__ __forceinline__ void quantise_channels(const CacheElement* x, const int* seq_lens,
                                                  const int* page_table, unsigned char* codes,
                                                  half* scale, half* bias, int kv_len) {
  const int dim = threadIdx.x * DIMS;
  const int kv_head = blockIdx.y, sequence = blockIdx.z, num_kv_heads = gridDim.y;
  const int first = blockIdx.x * GROUP, end = min(first + GROUP, seq_lens[sequence]);
  const size_t group = ((size_t)sequence * num_kv_heads + kv_head) * gridDim.x + blockIdx.x;
  Values lowest = {}, highest = {};
  for (int n = first; n < end; ++n) {
    const size_t row = row_number(page_table, kv_head, num_kv_heads, sequence, n, kv_len);
    const Values values = load_values(x + row * HEAD_DIM + dim);
#pragma unroll
    for (int i = 0; i < DIMS; ++i) {
      lowest.x[i] = n == first ? values.x[i] : fminf(lowest.x[i], values.x[i]);
      highest.x[i] = n == first ? values.x[i] : fmaxf(highest.x[i], values.x[i]);
    }
  }
  float wide_scale[DIMS], wide_bias[DIMS];
#pragma unroll
  for (int i = 0; i < DIMS; ++i) {
    half dim_scale, dim_bias;  // of a group that holds no token: lowest = highest = 0, and so 0
    choose_scale<BITS, BIASED>(lowest.x[i], highest.x[i], dim_scale, dim_bias);
    scale[group * HEAD_DIM + dim + i] = dim_scale;
    if (BIASED) bias[group * HEAD_DIM + dim + i] = dim_bias;
    wide_scale[i] = __half2float(dim_scale);
    wide_bias[i] = __half2float(dim_bias);
  }
  for (int n = first; n < end; ++n) {
    const size_t row = row_number(page_table, kv_head, num_kv_heads, sequence, n, kv_len);
    const Values values = load_values(x + row * HEAD_DIM + dim);
    store_codes<BITS, BIASED>(codes + (row * HEAD_DIM + dim) * BITS / 8, values, wide_scale,
                              wide_bias);
  }
#ifndef PAGE_SIZE
  for (int n = max(first, end); n < min(first + GROUP, kv_len); ++n)
    clear_codes<BITS>(codes + (row_number(page_table, kv_head, num_kv_heads, sequence, n, kv_len) *
                                   HEAD_DIM + dim) * BITS / 8);
#endif
}

}  // namespace quantised

#ifdef PAGE_SIZE
#define QUANTISE_PAGES_ const int *__restrict__ page_table, /* [B, max_pages] */
#define QUANTISE_NO_PAGES_
#else
#define QUANTISE_PAGES_
#define QUANTISE_NO_PAGES_ const int* page_table = nullptr;
#endif

// x is k or v as the workload has it; codes as x with D * BITS / 8 bytes a row.
#define QUANTISE_(name, pack, bits, group)                                                     \
  extern "C" __global__ void __launch_bounds__(32)                                             \
      name(const CacheElement* __restrict__ x, const int* __restrict__ seq_lens,               \
           QUANTISE_PAGES_ unsigned char* __restrict__ codes, half* __restrict__ scale,        \
           int kv_len) {                                                                       \
    QUANTISE_NO_PAGES_                                                                         \
    quantised::pack<bits, group, false>(x, seq_lens, page_table, codes, scale, nullptr, kv_len); \
  }
#define QUANTISE_BIASED_(name, pack, bits, group)                                              \
  extern "C" __global__ void __launch_bounds__(32)                                             \
      name(const CacheElement* __restrict__ x, const int* __restrict__ seq_lens,               \
           QUANTISE_PAGES_ unsigned char* __restrict__ codes, half* __restrict__ scale,        \
           half* __restrict__ bias, int kv_len) {                                              \
    QUANTISE_NO_PAGES_                                                                         \
    quantised::pack<bits, group, true>(x, seq_lens, page_table, codes, scale, bias, kv_len);   \
  }
#define QUANTISE_ROWS(name, bits, group) QUANTISE_(name, quantise_rows, bits, group)
#define QUANTISE_ROWS_BIASED(name, bits, group) QUANTISE_BIASED_(name, quantise_rows, bits, group)
#define QUANTISE_CHANNELS(name, bits, group) QUANTISE_(name, quantise_channels, bits, group)
#define QUANTISE_CHANNELS_BIASED(name, bits, group) \
  QUANTISE_BIASED_(name, quantise_channels, bits, group)
