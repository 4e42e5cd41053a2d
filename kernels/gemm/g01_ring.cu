// Needs sm_80. As g00, but slices come by asynchronous copies into a ring of STAGES slots, so that
// some are on their way while one is multiplied; 16-byte chunks are moved so that no two of those
// read together share a bank.
#include "async_copy.cuh"
#include "product.cuh"
#include "tile_order.cuh"

struct Slot {  // a slice of A and one of B
  uint4 a[TILE_M * CHUNKS], b[TILE_N * CHUNKS];
};

// Where chunk `chunk` of row `row` stands: 8 rows' equal chunks lie in 8 different groups of banks.
__device__ __forceinline__ int swizzled(int row, int chunk) {
  constexpr int PER_LINE = CHUNKS < 8 ? 8 / CHUNKS : 1;  // rows that fill all banks once
  return row * CHUNKS + (chunk ^ (row / PER_LINE % (8 / PER_LINE)));
}

// Starts the copies of ROWS rows from (first_row, first) on, of a matrix [rows, depth]. A thread has
// the same chunk of every AT_ONCE-th row.
template <int ROWS>
__device__ __forceinline__ void copy_slice(uint4* slice_smem, const Element* matrix, int first_row,
                                           int rows, int first, int depth) {
  constexpr int AT_ONCE = THREADS / CHUNKS;
  const int chunk = threadIdx.x % CHUNKS, own_row = threadIdx.x / CHUNKS;
  const int left = depth - first - chunk * CHUNK;
  const Element* from = matrix + (size_t)(first_row + own_row) * depth + first + chunk * CHUNK;
#pragma unroll
  for (int begin = 0; begin < ROWS; begin += AT_ONCE) {
    const int row = begin + own_row;
    if (ROWS % AT_ONCE && row >= ROWS) break;
    const int there = first_row + row < rows ? left : 0;
    uint4* to = slice_smem + swizzled(row, chunk);
#if WHOLE_CHUNKS  // of every row
    copy_async_16(to, from, there > 0);
#else
    *to = gather_chunk(from, there);
#endif
    from += (size_t)AT_ONCE * depth;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) gemm_g01(
    const Element* __restrict__ a,  // [M, K]
    const Element* __restrict__ b,  // [N, K]
    Element* __restrict__ out,      // [M, N]
    int rows, int columns, int depth) {
  extern __shared__ __align__(128) unsigned char smem[];
  Slot* ring = reinterpret_cast<Slot*>(smem);
  const int across = (columns + TILE_N - 1) / TILE_N, down = (rows + TILE_M - 1) / TILE_M;
  const TilePlace place = tile_of(blockIdx.x, down, across);
  const int tile_row = place.down * TILE_M, tile_column = place.across * TILE_N;

  int next = 0, filling = 0;
  const auto copy_next = [&] {
    if (next < depth) {
      copy_slice<TILE_M>(ring[filling].a, a, tile_row, rows, next, depth);
      copy_slice<TILE_N>(ring[filling].b, b, tile_column, columns, next, depth);
    }
    close_copies();  // a slice that is not there is a group without copies
    next += TILE_K;
    filling = filling + 1 == STAGES ? 0 : filling + 1;
  };
#pragma unroll 1
  for (int stage = 0; stage < STAGES - 1; ++stage) copy_next();

  Sums sums;
  int reading = 0;
#pragma unroll 1
  for (int first = 0; first < depth; first += TILE_K) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();  // all copies of this slice have landed, and the slot before is free
    copy_next();
    const Slot& slot = ring[reading];
    add_slice(
        sums, [&](int row, int chunk) { return slot.a + swizzled(row, chunk); },
        [&](int row, int chunk) { return slot.b + swizzled(row, chunk); });
    reading = reading + 1 == STAGES ? 0 : reading + 1;
  }
  wait_for_copies<0>();
  store_sums(out, sums, tile_row, tile_column, rows, columns);
}
