// Needs sm_80. How four-bit codes become the fp16 operands of the matrix products.
constexpr int KV_BITS = 4;
#define DECODE_ENTRY decode_r11
#include "async_copy.cuh"
#include "quantised_tile.cuh"

// A code u in the low bits of an fp16 is the subnormal u 2^-24, which a tensor core multiplies as
// it is; in the next four bits it is 16 times that. A byte is two codes, u0 + 16 u1. It is taken
// whole and as u0 alone, which is one instruction less for a word than to take both codes apart:
// u0 q0 + u1 q1 = (u0 + 16 u1) q1 / 16 + u0 (q0 - q1 / 16), and for V the difference of the two
// sums is that of 16 u1. The offsets, -136 and -8, are multiplied apart from them: by q for K, once
// for a run of tiles, by the weights for V.
constexpr float CODE_UNIT = 16777216.f;
constexpr unsigned K_OFFSET[2] = {0x80888088u, 0x80088008u};
__device__ constexpr unsigned V_OFFSET[4] = {0x80888088u, 0x80088008u, 0x80888088u, 0x80088008u};
constexpr int K_STEPS_A_CHUNK = 8;  // products whose dims of one lane lie in one 16-byte chunk
constexpr unsigned LOW = 0x000f000fu;

// The bytes `i` (0 or 1) of both halves of a word.
__device__ __forceinline__ unsigned bytes_of(unsigned word, int i) {
  return i ? __byte_perm(word, 0, 0x4341) : word & 0x00ff00ffu;
}

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

// q times K's scale, rounded, for bytes and for low codes; and operands that times it give twice
// the square of q times scale, in codes of unit 1. (The square itself would need it in two places,
// and so in two registers.)
__device__ __forceinline__ void scale_q(half2 (&scaled)[2], half2 (&squares)[2],
                                        const unsigned (&q)[2], const unsigned (&scale)[2]) {
  const half2 low = __hmul2(as_half2(q[0]), as_half2(scale[0]));
  const half2 high = __hmul2(as_half2(q[1]), as_half2(scale[1]));
  scaled[0] = __hmul2(high, __float2half2_rn(1.f / 16));
  scaled[1] = __hfma2(as_half2(q[0]), as_half2(scale[0]), __hneg2(scaled[0]));
  squares[1] = __hadd2(low, low);
  squares[0] = __hfma2(high, __float2half2_rn(32.f), squares[1]);
}
// What the rounding took.
__device__ __forceinline__ void rest_of_q(half2 (&rest)[2], const unsigned (&q)[2],
                                          const unsigned (&scale)[2], const half2 (&scaled)[2]) {
  float2 exact[2], rounded[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float2 a = __half22float2(as_half2(q[i])), b = __half22float2(as_half2(scale[i]));
    exact[i] = make_float2(a.x * b.x, a.y * b.y);
    rounded[i] = __half22float2(scaled[i]);
  }
  const float2 of_bytes =
      make_float2(exact[1].x / 16 - rounded[0].x, exact[1].y / 16 - rounded[0].y);
  rest[0] = __float22half2_rn(of_bytes);
  rest[1] = __float22half2_rn(make_float2(exact[0].x - rounded[0].x - rounded[1].x - of_bytes.x,
                                          exact[0].y - rounded[0].y - rounded[1].y - of_bytes.y));
}

// Adds the products of 16 keys with all dims; a lane has one chunk of two of the keys.
__device__ __forceinline__ void take_k(float (&sum)[4], float (&second)[4], uint4 upper,
                                       uint4 lower, const unsigned long long (&q)[K_STEPS],
                                       int step) {
  const unsigned up[4] = {upper.x, upper.y, upper.z, upper.w};
  const unsigned low[4] = {lower.x, lower.y, lower.z, lower.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const unsigned u = bytes_of(up[i / 2], i % 2), l = bytes_of(low[i / 2], i % 2);
    const unsigned a[4] = {u, l, u & LOW, l & LOW};
    mma_m16n8k16<half>(i % 2 ? second : sum, a, q[step + i]);
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
      const unsigned first = bytes_of(words[i / 2 * 2], i % 2);
      const unsigned second = bytes_of(words[i / 2 * 2 + 1], i % 2);
      const unsigned a[4] = {first, first & LOW, second, second & LOW};
      mma_m16n8k16<half>(acc[2 * chunk + i], a, weights[0], weights[1]);
    }
  }
}

// Two neighbouring dims, of rows g and g + 8 of an output tile: of bytes and of low codes.
__device__ __forceinline__ float2 two_dims(float bytes, float low, float2 bias) {
  return make_float2(fmaf(low, CODE_UNIT, bias.x), fmaf(bytes - low, CODE_UNIT / 16, bias.y));
}

// A lane's rows of two output tiles are four neighbouring dims.
__device__ __forceinline__ void store_share(Element* row, int j, float4 x) {
  *reinterpret_cast<uint2*>(row + 4 * j) =
      make_uint2(pack_pair<Element>(x.x, x.y), pack_pair<Element>(x.z, x.w));
}

#include "quantised_decode.cuh"
