// Needs sm_80. How four-bit codes become the fp16 operands of the matrix products.
constexpr int KV_BITS = 4;
#define DECODE_ENTRY decode_r11
#include "quantised_tile.cuh"

// A code u in the low bits of an fp16 is the subnormal u 2^-24, which a tensor core multiplies as
// it is; in the next four bits it is 16 times that. So codes are only masked: q of K's dims in the
// high place is a 16th, and so is the unit of V's. The offset, -8 2^-24 or 16 times that, is
// multiplied once a tile: by q for K, by the sum of the weights for V.
constexpr float CODE_UNIT = 16777216.f;
__device__ constexpr unsigned K_OFFSET[4] = {0x80088008u, 0x80088008u, 0x80808080u, 0x80808080u};
__device__ constexpr unsigned V_OFFSET[4] = {0x80088008u, 0x80808080u, 0x80088008u, 0x80808080u};
__device__ constexpr float V_UNIT[2] = {CODE_UNIT, CODE_UNIT / 16};  // of rows g and g + 8
constexpr int K_STEPS_A_CHUNK = 8;  // products whose dims of one lane lie in one 16-byte chunk
constexpr unsigned LOW = 0x000f000fu, HIGH = 0x00f000f0u;

// Lane (g, c) owns the dims 32 c .. 32 c + 31: one chunk of a row of K.
__device__ __forceinline__ int k_chunk(int c, int step) { return c; }

// A word of eight codes gives the pairs of dims (0, 4), (1, 5), (2, 6) and (3, 7): the same pairs
// of a row of fp16, for products `step` and `step + 1`.
__device__ __forceinline__ void take_pairs(unsigned (&pairs)[2][2], const uint4* row, int c,
                                           int step) {
  const uint4 eight = row[4 * c + step / 2];
  pairs[0][0] = __byte_perm(eight.x, eight.z, 0x5410);
  pairs[0][1] = __byte_perm(eight.x, eight.z, 0x7632);
  pairs[1][0] = __byte_perm(eight.y, eight.w, 0x5410);
  pairs[1][1] = __byte_perm(eight.y, eight.w, 0x7632);
}

__device__ __forceinline__ void scale_q(unsigned (&scaled)[2], const unsigned (&q)[2],
                                        const unsigned (&scale)[2]) {
  scaled[0] = as_bits(__hmul2(as_half2(q[0]), as_half2(scale[0])));
  const half2 whole = __hmul2(as_half2(q[1]), as_half2(scale[1]));
  scaled[1] = as_bits(__hmul2(whole, __float2half2_rn(1.f / 16)));
}

// Adds the products of 16 keys with all dims; a lane has one chunk of two of the keys.
__device__ __forceinline__ void take_k(float (&sum)[4], uint4 upper, uint4 lower,
                                       const unsigned (&q)[K_STEPS][2], int step) {
  const unsigned up[4] = {upper.x, upper.y, upper.z, upper.w};
  const unsigned low[4] = {lower.x, lower.y, lower.z, lower.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const unsigned u = up[i / 2] >> (8 * (i % 2)), l = low[i / 2] >> (8 * (i % 2));
    const unsigned a[4] = {u & LOW, l & LOW, u & HIGH, l & HIGH};
    mma_m16n8k16<half>(sum, a, q[step + i][0], q[step + i][1]);
  }
}

// Four codes of the same dims of two keys, as four fp16 pairs: low and high place in turn.
__device__ __forceinline__ void split_up(unsigned (&pairs)[4], unsigned both) {
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = both >> (i / 2 * 8) & (i % 2 ? HIGH : LOW);
}

// acc += V^T P^T for the 16 keys of product j. Lane (g, c) owns the dims 16 g .. 16 g + 15: rows g
// and g + 8 of output tile t are the dims 16 g + 2 t and 16 g + 2 t + 1.
__device__ __forceinline__ void take_v(float (&acc)[DIM_TILES][4], const uint4* v, int g, int c,
                                       int j, const unsigned (&weights)[2]) {
  uint2 row[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int place = place_of_v(c, KEYS * (i % 2) + 2 * j + i / 2, g / 2);
    row[i] = reinterpret_cast<const uint2*>(v)[2 * place + g % 2];
  }
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    const auto word = [&](int i) { return w == 0 ? row[i].x : row[i].y; };
#pragma unroll
    for (int four = 0; four < 2; ++four) {
      const unsigned which = four ? 0x7632 : 0x5410;
      unsigned low[4], high[4];
      split_up(low, __byte_perm(word(0), word(1), which));
      split_up(high, __byte_perm(word(2), word(3), which));
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        const unsigned a[4] = {low[2 * t], low[2 * t + 1], high[2 * t], high[2 * t + 1]};
        mma_m16n8k16<half>(acc[4 * w + 2 * four + t], a, weights[0], weights[1]);
      }
    }
  }
}

#include "quantised_decode.cuh"
