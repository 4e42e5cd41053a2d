// What the tiled matrix products share: the part of a warp in a tile, from slices of A and B in
// shared memory to the stored output. Sizes are macros: TILE_M, TILE_N, TILE_K, WARPS_M, WARPS_N.
#pragma once
#include "mma.cuh"

constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int CHUNK = 8;                         // elements of 16 bytes
constexpr int CHUNKS = TILE_K / CHUNK;           // of a row of a slice
constexpr int WARP_ROWS = TILE_M / WARPS_M;      // of the output, for one warp
constexpr int WARP_COLUMNS = TILE_N / WARPS_N;
constexpr int M_STEPS = WARP_ROWS / 16;          // pieces of 16 x 16 of the output
constexpr int N_STEPS = WARP_COLUMNS / 16;
static_assert(TILE_M % (16 * WARPS_M) == 0, "a warp takes whole rows of products");
static_assert(TILE_N % (16 * WARPS_N) == 0, "a warp takes whole pairs of products");
static_assert(TILE_K % 16 == 0, "a slice has whole products");

// One 16-byte chunk of a row of which `there` elements are left, element by element: for rows that
// do not begin at a multiple of 16 bytes. Zeros behind the end.
__device__ __forceinline__ uint4 gather_chunk(const Element* row, int there) {
  const unsigned short* bits = reinterpret_cast<const unsigned short*>(row);
  unsigned word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned low = 2 * i < there ? bits[2 * i] : 0;
    const unsigned high = 2 * i + 1 < there ? bits[2 * i + 1] : 0;
    word[i] = low | high << 16;
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

// The sums of one warp: two products of 8 columns for every 16.
struct Sums {
  float x[M_STEPS][2 * N_STEPS][4] = {};
};

// Adds the products of one slice. `a` and `b` say where chunk `chunk` of row `row` stands.
template <class A, class B>
__device__ __forceinline__ void add_slice(Sums& sums, A a, B b) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_row = warp / WARPS_N * WARP_ROWS, first_column = warp % WARPS_N * WARP_COLUMNS;
#pragma unroll
  for (int step = 0; step < TILE_K / 16; ++step) {
    unsigned left[M_STEPS][4], right[N_STEPS][4];
#pragma unroll
    for (int i = 0; i < M_STEPS; ++i)
      ldmatrix_x4(left[i], a(first_row + 16 * i + lane % 16, 2 * step + lane / 16));
#pragma unroll
    for (int j = 0; j < N_STEPS; ++j)
      ldmatrix_x4(right[j],
                  b(first_column + 16 * j + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < M_STEPS; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * N_STEPS; ++j)
        mma_m16n8k16<Element>(sums.x[i][j], left[i], right[j / 2][j % 2 * 2],
                              right[j / 2][j % 2 * 2 + 1]);
    }
  }
}

// Stores the sums of a tile that begins at (tile_row, tile_column); what lies outside is dropped.
__device__ __forceinline__ void store_sums(Element* out, const Sums& sums, int tile_row,
                                           int tile_column, int rows, int columns) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
#pragma unroll
  for (int i = 0; i < M_STEPS; ++i) {
#pragma unroll
    for (int half_tile = 0; half_tile < 2; ++half_tile) {
      const int row = tile_row + warp / WARPS_N * WARP_ROWS + 16 * i + 8 * half_tile + g;
      if (row >= rows) continue;
      unsigned short* out_row = reinterpret_cast<unsigned short*>(out) + (size_t)row * columns;
#pragma unroll
      for (int j = 0; j < 2 * N_STEPS; ++j) {
        const int column = tile_column + warp % WARPS_N * WARP_COLUMNS + 8 * j + 2 * c;
        const unsigned pair =
            pack_pair<Element>(sums.x[i][j][2 * half_tile], sums.x[i][j][2 * half_tile + 1]);
        if (columns % 2 == 0) {  // every pair begins at a multiple of 4 bytes
          if (column < columns) *reinterpret_cast<unsigned*>(out_row + column) = pair;
        } else {
          if (column < columns) out_row[column] = (unsigned short)pair;
          if (column + 1 < columns) out_row[column + 1] = (unsigned short)(pair >> 16);
        }
      }
    }
  }
}
