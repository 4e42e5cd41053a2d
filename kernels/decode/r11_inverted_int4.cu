// Needs sm_80. How four-bit codes become the fp16 operands of the matrix products.
constexpr int KV_BITS = 4;
#define DECODE_ENTRY decode_r11
#include "async_copy.cuh"
#include "quantised_tile.cuh"

// A code u in the low bits of an fp16 is the subnormal u 2^-24, which a tensor core multiplies as
// it is; in the next four bits it is 16 times that. So codes are only masked: q of K's dims in the
// high place is a 16th, and so is the unit of V's. The offset, -8 2^-24 or 16 times that, is
// multiplied apart from them: by q for K, once for a run of tiles, by the weights for V.
constexpr float CODE_UNIT = 16777216.f;
constexpr unsigned K_OFFSET[2] = {0x80088008u, 0x80808080u};
__device__ constexpr unsigned V_OFFSET[4] = {0x80088008u, 0x80808080u, 0x80088008u, 0x80808080u};
__device__ constexpr float V_UNIT[2] = {CODE_UNIT, CODE_UNIT / 16};  // of rows g and g + 8
constexpr int K_STEPS_A_CHUNK = 8;  // products whose dims of one lane lie in one 16-byte chunk
constexpr unsigned LOW = 0x000f000fu, HIGH = 0x00f000f0u;

// Lane (g, c) owns the dims 32 c .. 32 c + 31: one chunk of a row of K.
//
// Where a row of fp16 has a lane's dims for products `step` and `step + 1`, in eights. A word of
// eight codes gives the pairs of dims (0, 4), (1, 5), (2, 6) and (3, 7), and so the row does.
__device__ __forceinline__ int eight_of(int c, int step) { return 4 * c + step / 2; }
__device__ __forceinline__ void take_pairs(unsigned (&pairs)[2][2], const uint4& eight) {
  pairs[0][0] = __byte_perm(eight.x, eight.z, 0x5410);
  pairs[0][1] = __byte_perm(eight.x, eight.z, 0x7632);
  pairs[1][0] = __byte_perm(eight.y, eight.w, 0x5410);
  pairs[1][1] = __byte_perm(eight.y, eight.w, 0x7632);
}

// q times K's scale, rounded, in codes' units; `i` says whether the codes are low or high.
__device__ __forceinline__ half2 scale_q(unsigned q, unsigned scale, int i) {
  const half2 whole = __hmul2(as_half2(q), as_half2(scale));
  return i ? __hmul2(whole, __float2half2_rn(1.f / 16)) : whole;
}
// What the rounding took.
__device__ __forceinline__ half2 rest_of_q(unsigned q, unsigned scale, half2 scaled, int i) {
  const half2 whole = i ? __hmul2(scaled, __float2half2_rn(-16.f)) : __hneg2(scaled);
  const half2 rest = __hfma2(as_half2(q), as_half2(scale), whole);
  return i ? __hmul2(rest, __float2half2_rn(1.f / 16)) : rest;
}
// An operand that times `scaled` gives twice its square, in codes of unit 1. (The square itself
// would need `scaled` in two places, and so in two registers.)
__device__ __forceinline__ half2 square_with(half2 scaled, int i) {
  return i ? __hmul2(scaled, __float2half2_rn(512.f)) : __hadd2(scaled, scaled);
}

// Adds the products of 16 keys with all dims; a lane has one chunk of two of the keys.
__device__ __forceinline__ void take_k(float (&sum)[4], uint4 upper, uint4 lower,
                                       const unsigned long long (&q)[K_STEPS], int step) {
  const unsigned up[4] = {upper.x, upper.y, upper.z, upper.w};
  const unsigned low[4] = {lower.x, lower.y, lower.z, lower.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const unsigned u = up[i / 2] >> (8 * (i % 2)), l = low[i / 2] >> (8 * (i % 2));
    const unsigned a[4] = {u & LOW, l & LOW, u & HIGH, l & HIGH};
    mma_m16n8k16<half>(sum, a, q[step + i]);
  }
}

// acc += V^T P^T for the 16 keys of one product; `v` is the chunk that this lane names. The four
// codes that a lane gets of each key are four neighbouring dims: rows g and g + 8 of two output
// tiles.
__device__ __forceinline__ void take_v(float (&acc)[DIM_TILES][4], SharedAddress v,
                                       const unsigned (&weights)[2]) {
#pragma unroll
  for (int chunk = 0; chunk < CHUNKS; chunk += 2) {
    unsigned words[4];
    ldmatrix_x4_trans(words, v ^ 16 * chunk);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned first = words[i / 2 * 2] >> (8 * (i % 2));
      const unsigned second = words[i / 2 * 2 + 1] >> (8 * (i % 2));
      const unsigned a[4] = {first & LOW, first & HIGH, second & LOW, second & HIGH};
      mma_m16n8k16<half>(acc[2 * chunk + i], a, weights[0], weights[1]);
    }
  }
}

// A lane's rows of two output tiles are four neighbouring dims.
__device__ __forceinline__ void store_share(Element* row, int j, float4 x) {
  *reinterpret_cast<uint2*>(row + 4 * j) =
      make_uint2(pack_pair<Element>(x.x, x.y), pack_pair<Element>(x.z, x.w));
}

#include "quantised_decode.cuh"
