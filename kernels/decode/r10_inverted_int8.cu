// Needs sm_80. How eight-bit codes become the fp16 operands of the matrix products.
constexpr int KV_BITS = 8;
#define DECODE_ENTRY decode_r10
#include "quantised_tile.cuh"

// A code u in the low bits of an fp16 is the subnormal u 2^-24, which a tensor core multiplies as
// it is, so that codes are only spread. Their offset, -128 2^-24, is multiplied once a tile: by q
// for K, by the sum of the weights for V.
constexpr float CODE_UNIT = 16777216.f;
__device__ constexpr unsigned K_OFFSET[4] = {0x80808080u, 0x80808080u, 0x80808080u, 0x80808080u};
__device__ constexpr unsigned V_OFFSET[4] = {0x80808080u, 0x80808080u, 0x80808080u, 0x80808080u};
__device__ constexpr float V_UNIT[2] = {CODE_UNIT, CODE_UNIT};  // of rows g and g + 8
constexpr int K_STEPS_A_CHUNK = 4;  // products whose dims of one lane lie in one 16-byte chunk

// Lane (g, c) owns the dims 16 c .. 16 c + 15 and 64 more than those: two chunks of a row of K.
__device__ __forceinline__ int k_chunk(int c, int step) { return c + 4 * (step / 4); }

// A lane's pairs of neighbouring dims for products `step` and `step + 1`, from a row of fp16.
__device__ __forceinline__ void take_pairs(unsigned (&pairs)[2][2], const uint4* row, int c,
                                           int step) {
  const uint4 eight = row[2 * c + 8 * (step / 4) + step % 4 / 2];
  pairs[0][0] = eight.x;
  pairs[0][1] = eight.y;
  pairs[1][0] = eight.z;
  pairs[1][1] = eight.w;
}

__device__ __forceinline__ void scale_q(unsigned (&scaled)[2], const unsigned (&q)[2],
                                        const unsigned (&scale)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) scaled[i] = as_bits(__hmul2(as_half2(q[i]), as_half2(scale[i])));
}

// Adds the products of 16 keys with four steps' dims; a lane has one chunk of two of the keys.
__device__ __forceinline__ void take_k(float (&sum)[4], uint4 upper, uint4 lower,
                                       const unsigned (&q)[K_STEPS][2], int step) {
  const unsigned up[4] = {upper.x, upper.y, upper.z, upper.w};
  const unsigned low[4] = {lower.x, lower.y, lower.z, lower.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const unsigned a[4] = {__byte_perm(up[w], 0, 0x4140), __byte_perm(low[w], 0, 0x4140),
                           __byte_perm(up[w], 0, 0x4342), __byte_perm(low[w], 0, 0x4342)};
    mma_m16n8k16<half>(sum, a, q[step + w][0], q[step + w][1]);
  }
}

// The bytes of the same dims of two keys, as four fp16 pairs.
__device__ __forceinline__ void pair_up(unsigned (&pairs)[4], unsigned first, unsigned second) {
  const unsigned both[2] = {__byte_perm(first, second, 0x5140), __byte_perm(first, second, 0x7362)};
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = __byte_perm(both[i / 2], 0, i % 2 ? 0x4342 : 0x4140);
}

// acc += V^T P^T for the 16 keys of product j. Lane (g, c) owns the dims 16 g .. 16 g + 15: rows g
// and g + 8 of output tile t are the dims 16 g + 2 t and 16 g + 2 t + 1.
__device__ __forceinline__ void take_v(float (&acc)[DIM_TILES][4], const uint4* v, int g, int c,
                                       int j, const unsigned (&weights)[2]) {
  uint4 row[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) row[i] = v[place_of_v(c, KEYS * (i % 2) + 2 * j + i / 2, g)];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const auto word = [&](int i) {
      return w == 0 ? row[i].x : w == 1 ? row[i].y : w == 2 ? row[i].z : row[i].w;
    };
    unsigned low[4], high[4];
    pair_up(low, word(0), word(1));
    pair_up(high, word(2), word(3));
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const unsigned a[4] = {low[2 * t], low[2 * t + 1], high[2 * t], high[2 * t + 1]};
      mma_m16n8k16<half>(acc[2 * w + t], a, weights[0], weights[1]);
    }
  }
}

#include "quantised_decode.cuh"
