// Needs sm_80. How eight-bit codes become the fp16 operands of the matrix products.
constexpr int KV_BITS = 8;
#define DECODE_ENTRY decode_r10
#include "async_copy.cuh"
#include "quantised_tile.cuh"

// A code u in the low bits of an fp16 is the subnormal u 2^-24, which a tensor core multiplies as
// it is, so that codes are only spread. Their offset, -128 2^-24, is multiplied apart from them: by
// q for K, once for a run of tiles, by the weights for V.
constexpr float CODE_UNIT = 16777216.f;
constexpr unsigned K_OFFSET[2] = {0x80808080u, 0x80808080u};
__device__ constexpr unsigned V_OFFSET[4] = {0x80808080u, 0x80808080u, 0x80808080u, 0x80808080u};
constexpr int K_STEPS_A_CHUNK = 4;  // products whose dims of one lane lie in one 16-byte chunk

// Lane (g, c) owns the dims 16 c .. 16 c + 15 and 64 more than those: two chunks of a row of K.
//
// Where a row of fp16 has a lane's dims for products `step` and `step + 1`, in eights, and what
// pairs of neighbouring dims they are.
__device__ __forceinline__ int eight_of(int c, int step) {
  return 2 * c + 8 * (step / 4) + step % 4 / 2;
}
__device__ __forceinline__ void take_pairs(unsigned (&pairs)[2][2], const uint4& eight) {
  pairs[0][0] = eight.x;
  pairs[0][1] = eight.y;
  pairs[1][0] = eight.z;
  pairs[1][1] = eight.w;
}

// q times K's scale, rounded; and operands that times it give twice its square, in codes of unit 1.
// (The square itself would need it in two places, and so in two registers.)
__device__ __forceinline__ void scale_q(half2 (&scaled)[2], half2 (&squares)[2],
                                        const unsigned (&q)[2], const unsigned (&scale)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    scaled[i] = __hmul2(as_half2(q[i]), as_half2(scale[i]));
    squares[i] = __hadd2(scaled[i], scaled[i]);
  }
}
// What the rounding took.
__device__ __forceinline__ void rest_of_q(half2 (&rest)[2], const unsigned (&q)[2],
                                          const unsigned (&scale)[2], const half2 (&scaled)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    rest[i] = __hfma2(as_half2(q[i]), as_half2(scale[i]), __hneg2(scaled[i]));
}

// Adds the products of 16 keys with four steps' dims; a lane has one chunk of two of the keys.
__device__ __forceinline__ void take_k(float (&sum)[4], float (&second)[4], uint4 upper,
                                       uint4 lower, const unsigned long long (&q)[K_STEPS],
                                       int step) {
  const unsigned up[4] = {upper.x, upper.y, upper.z, upper.w};
  const unsigned low[4] = {lower.x, lower.y, lower.z, lower.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const unsigned a[4] = {__byte_perm(up[w], 0, 0x4140), __byte_perm(low[w], 0, 0x4140),
                           __byte_perm(up[w], 0, 0x4342), __byte_perm(low[w], 0, 0x4342)};
    mma_m16n8k16<half>(w % 2 ? second : sum, a, q[step + w]);
  }
}

// acc += V^T P^T for the 16 keys of one product; `v` is the chunk that this lane names. The two
// bytes that a lane gets of each key are two neighbouring dims: rows g and g + 8 of the output tile
// of their chunk.
__device__ __forceinline__ void take_v(float (&acc)[DIM_TILES][4], SharedAddress v,
                                       const unsigned (&weights)[2]) {
#pragma unroll
  for (int chunk = 0; chunk < CHUNKS; chunk += 2) {
    unsigned words[4];
    ldmatrix_x4_trans(words, v ^ 16 * chunk);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned first = words[2 * i], second = words[2 * i + 1];
      const unsigned a[4] = {first & 0x00ff00ffu, __byte_perm(first, 0, 0x4341),
                             second & 0x00ff00ffu, __byte_perm(second, 0, 0x4341)};
      mma_m16n8k16<half>(acc[chunk + i], a, weights[0], weights[1]);
    }
  }
}

// Two neighbouring dims, of rows g and g + 8 of an output tile.
__device__ __forceinline__ float2 two_dims(float upper, float lower, float2 bias) {
  return make_float2(fmaf(upper, CODE_UNIT, bias.x), fmaf(lower, CODE_UNIT, bias.y));
}

// A lane's rows of two output tiles are two neighbouring dims, and two 16 further on.
__device__ __forceinline__ void store_share(Element* row, int j, float4 x) {
  unsigned* pairs = reinterpret_cast<unsigned*>(row + j / 8 * 32) + j % 8;
  pairs[0] = pack_pair<Element>(x.x, x.y);
  pairs[8] = pack_pair<Element>(x.z, x.w);
}

#include "quantised_decode.cuh"
