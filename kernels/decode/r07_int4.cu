#define DIMS_PER_THREAD (HEAD_DIM / 32)  // a block is one warp: a lane owns HEAD_DIM / 32 dims
#include "ladder.cuh"
#include "quantise.cuh"
#include "row.cuh"
#include "warp.cuh"

constexpr int NUM_THREADS = HEAD_DIM / DIMS_PER_THREAD;
constexpr int BITS = 4, ROW_BYTES = HEAD_DIM / 2;

// The cache is written once, before the timed launch: four bits an element, and of V a scale a row.
// K has a scale a row too, or with K_GROUP one for each channel of K_GROUP rows.
#if K_GROUP
QUANTISE_CHANNELS(quantise_k, BITS, K_GROUP)
#else
QUANTISE_ROWS(quantise_k, BITS, HEAD_DIM)
#endif
QUANTISE_ROWS(quantise_v, BITS, HEAD_DIM)

// A lane's share of a row is a nibble a dim, the first dim lowest: at HEAD_DIM 128 four dims in two
// bytes, and the warp's 32 shares are the 64 bytes of the row in order.
__device__ __forceinline__ Row<DIMS_PER_THREAD> load_codes(const unsigned char* source) {
#if HEAD_DIM == 128
  const unsigned codes = *reinterpret_cast<const unsigned short*>(source);
#else
  const unsigned codes = *source;
#endif
  Row<DIMS_PER_THREAD> row;
  quantised::centre_codes<BITS>(codes, row.x);
  return row;
}

// One warp serves one (sequence, query head). A weight takes V's scale. K's goes into the score, or
// once a group into q.
extern "C" __global__ void BOUNDED(NUM_THREADS) decode_r07(
    const half* __restrict__ q,                 // [B, Hq, D]
    const unsigned char* __restrict__ k_codes,  // [B, Hkv, S, D / 2]
    const unsigned char* __restrict__ v_codes,  // [B, Hkv, S, D / 2]
    const half* __restrict__ k_scale,           // [B, Hkv, S_pad], or [B, Hkv, groups of S, D]
    const half* __restrict__ v_scale,           // [B, Hkv, S_pad], S_pad = S rounded up to 64
    const int* __restrict__ seq_lens,           // [B]
    half* __restrict__ out,                     // [B, Hq, D]
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  const int head = blockIdx.x, sequence = blockIdx.y, num_qo_heads = gridDim.x;
  const int dim = threadIdx.x * DIMS_PER_THREAD;
  const int length = seq_lens[sequence];
  const size_t qo_row = (size_t)sequence * num_qo_heads + head;
  const size_t kv_head = (size_t)sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  const unsigned char* k_head = k_codes + kv_head * kv_len * ROW_BYTES + dim / 2;
  const unsigned char* v_head = v_codes + kv_head * kv_len * ROW_BYTES + dim / 2;
  const int padded = (kv_len + 63) / 64 * 64;
#if K_GROUP
  k_scale += kv_head * ((kv_len + K_GROUP - 1) / K_GROUP) * HEAD_DIM + dim;
#else
  k_scale += kv_head * padded;
#endif
  v_scale += kv_head * padded;

  Row<DIMS_PER_THREAD> q_rmem = load_row<DIMS_PER_THREAD>(q + qo_row * HEAD_DIM + dim);
  for (float& x : q_rmem.x) x *= sm_scale_log2;

  float score_max = -INFINITY, weight_sum = 0.f;
  Row<DIMS_PER_THREAD> acc = {};
#if K_GROUP
  const Row<DIMS_PER_THREAD> q_plain = q_rmem;
  for (int first = 0; first < length; first += K_GROUP, k_scale += HEAD_DIM) {
    const int end = min(first + K_GROUP, length);
    const Row<DIMS_PER_THREAD> factors = load_row<DIMS_PER_THREAD>(k_scale);
    for (int i = 0; i < DIMS_PER_THREAD; ++i) q_rmem.x[i] = q_plain.x[i] * factors.x[i];
#else
  {
    const int first = 0, end = length;
#endif
#pragma unroll UNROLL
    for (int n = first; n < end; ++n) {
      const auto k_rmem = load_codes(k_head + (size_t)n * ROW_BYTES);
      const auto v_rmem = load_codes(v_head + (size_t)n * ROW_BYTES);
#if K_GROUP
      const float k_factor = 1.f, v_factor = __half2float(v_scale[n]);
#else
      const float k_factor = __half2float(k_scale[n]), v_factor = __half2float(v_scale[n]);
#endif
      const float score = warp_sum(dot(q_rmem, k_rmem)) * k_factor;

      const float new_max = fmaxf(score_max, score);
      const float rescale = exp2f(score_max - new_max), weight = exp2f(score - new_max);
      weight_sum = weight_sum * rescale + weight;
      accumulate(acc, rescale, v_rmem, weight * v_factor);
      score_max = new_max;
    }
  }
  store_row(out + qo_row * HEAD_DIM + dim, acc, 1.f / weight_sum);
}
