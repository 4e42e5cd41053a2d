// Needs sm_80. A block has one tile of the output: it loads a slice of A and one of B into shared
// memory, waits, multiplies them on matrix instructions, waits, and takes the next slices.
#include "product.cuh"

constexpr int STRIDE = TILE_K + PAD;  // elements from one row of a slice to the next

// A slice of ROWS rows from (first_row, first) on, of a matrix [rows, depth].
template <int ROWS>
__device__ __forceinline__ void load_slice(Element* slice_smem, const Element* matrix,
                                           int first_row, int rows, int first, int depth) {
  for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
    const int row = i / CHUNKS, column = i % CHUNKS * CHUNK;
    const Element* from = matrix + (size_t)(first_row + row) * depth + first + column;
    const int there = first_row + row < rows ? depth - first - column : 0;
    uint4 chunk = make_uint4(0, 0, 0, 0);
#if WHOLE_CHUNKS  // of every row
    if (there > 0) chunk = *reinterpret_cast<const uint4*>(from);
#else
    chunk = gather_chunk(from, there);
#endif
    *reinterpret_cast<uint4*>(slice_smem + row * STRIDE + column) = chunk;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) gemm_g00(
    const Element* __restrict__ a,  // [M, K]
    const Element* __restrict__ b,  // [N, K]
    Element* __restrict__ out,      // [M, N]
    int rows, int columns, int depth) {
  __shared__ __align__(16) Element a_smem[TILE_M * STRIDE], b_smem[TILE_N * STRIDE];
  const int across = (columns + TILE_N - 1) / TILE_N;
  const int tile_row = blockIdx.x / across * TILE_M, tile_column = blockIdx.x % across * TILE_N;

  Sums sums;
#pragma unroll 1
  for (int first = 0; first < depth; first += TILE_K) {
    load_slice<TILE_M>(a_smem, a, tile_row, rows, first, depth);
    load_slice<TILE_N>(b_smem, b, tile_column, columns, first, depth);
    __syncthreads();
    add_slice(
        sums, [&](int row, int chunk) { return a_smem + row * STRIDE + chunk * CHUNK; },
        [&](int row, int chunk) { return b_smem + row * STRIDE + chunk * CHUNK; });
    __syncthreads();  // nobody may overwrite a slice while somebody still reads it
  }
  store_sums(out, sums, tile_row, tile_column, rows, columns);
}
