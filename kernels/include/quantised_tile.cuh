// One tile of a quantised cache in shared memory, for r10 and r11. Needs KV_BITS and, of the
// launch, K_GROUP: the tokens that share K's scales.
#pragma once
#include "mma.cuh"

constexpr int KEYS = TILE / 8;  // neighbouring keys of one tile whose scores a lane has
constexpr int ROW_BYTES = HEAD_DIM * KV_BITS / 8;
constexpr int CHUNKS = ROW_BYTES / 16;  // 16-byte chunks of a row
constexpr int K_STEPS = HEAD_DIM / 16;
constexpr int DIM_TILES = HEAD_DIM / 16;
static_assert(HEAD_DIM == 128, "a lane owns 32 dims of K and 16 of V");
static_assert(GROUP_SIZE <= 8, "the query heads of a group are the 8 columns of one product");
static_assert(K_GROUP % (RUN * TILE) == 0, "a run of tiles has one set of K's scales");
static_assert(TILE % 32 == 0, "a lane has pairs of keys");

struct Slot {
  uint4 k[TILE * CHUNKS], v[TILE * CHUNKS];
  uint4 k_scale_and_bias[2 * HEAD_DIM / 8];  // of the first tile of a run
  uint4 v_scale_and_bias[2 * TILE / 8];
};

// Key KEYS g + 2 j + i is row g + 8 i of the j-th product with K, and so row g + 8 i of the product
// with V. Lane (g, c) then owns KEYS neighbouring keys, and reads their scales with one load.
//
// Chunks stand where their row has them, but for three bits that the row's g moves: so neither the
// copies, nor the rows of two neighbouring g (read for K), nor those of all eight (read for V) meet
// in a bank. Where the place of one chunk is known, 2 j keys on is a constant further, and a chunk
// is one exclusive or away.
__device__ __forceinline__ constexpr int moved_by(int g) { return g % 2 * 4 + g / 2 % 4; }
__device__ __forceinline__ int place_of(int key, int chunk) {
  return (key * CHUNKS + chunk) ^ moved_by(key / KEYS);
}

__device__ __forceinline__ half2 as_half2(unsigned bits) {
  half2 pair;
  memcpy(&pair, &bits, 4);
  return pair;
}
__device__ __forceinline__ unsigned as_bits(half2 pair) {
  unsigned bits;
  memcpy(&bits, &pair, 4);
  return bits;
}

// Registers whose content does not matter: rows of an operand that nobody looks at.
__device__ __forceinline__ unsigned anything() {
#ifdef __CUDA_ARCH__
  unsigned bits;
  asm("" : "=r"(bits));
  return bits;
#else
  return 0;
#endif
}
