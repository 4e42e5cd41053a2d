// Needs sm_80. A block has 128 x 128 elements of the output. K goes by in slices of 64: those of A and B
// stand in shared memory, and each warp multiplies 16 rows of A by all 128 rows of B. How a row of B's
// slice lies there (LAYOUT) and how it is read (ACCESS) are the knobs; A's slice and its reads stay.
#define TILE_M 128
#define TILE_N 128
#define TILE_K 64
#define WARPS_M 8
#define WARPS_N 1
#include "product.cuh"

#define LDMATRIX 0  // of ACCESS; otherwise the bytes that a lane reads at once, each lane in a row of B
#define XOR 0       // of LAYOUT; otherwise the elements from one row to the next
constexpr int STRIDE = LAYOUT == XOR ? TILE_K : LAYOUT;
constexpr int READ_BYTES = ACCESS == LDMATRIX ? 16 : ACCESS;
static_assert(STRIDE * 2 % READ_BYTES == 0, "a read of n bytes needs every row at a multiple of n");

// Where element `column` of a row stands: chunk c of row r at chunk c ^ (r % 8), or after a stride.
__device__ __forceinline__ int moved(int row, int column) {
  return row * TILE_K + ((column / CHUNK) ^ (row % 8)) * CHUNK + column % CHUNK;
}
__device__ __forceinline__ int place(int row, int column) {
  return LAYOUT == XOR ? moved(row, column) : row * STRIDE + column;
}

// A slice of 128 rows from (first_row, first) on, of a matrix [rows, depth], COUNT elements at a time.
// Reads of less than 16 bytes have their slice filled element by element, whatever the layout.
template <int COUNT, class Place>
__device__ __forceinline__ void load_slice(Element* slice_smem, Place where, const Element* matrix,
                                           int first_row, int rows, int first, int depth) {
#pragma unroll 4
  for (int i = threadIdx.x; i < 128 * TILE_K / COUNT; i += THREADS) {
    const int row = i / (TILE_K / COUNT), column = i % (TILE_K / COUNT) * COUNT;
    const Element* from = matrix + (size_t)(first_row + row) * depth + first + column;
    const int there = first_row + row < rows ? depth - first - column : 0;
    Element* to = slice_smem + where(row, column);
    if (COUNT == 1) {
      const unsigned short bits = there > 0 ? *reinterpret_cast<const unsigned short*>(from) : 0;
      *reinterpret_cast<unsigned short*>(to) = bits;
      continue;
    }
    uint4 chunk = make_uint4(0, 0, 0, 0);
#if WHOLE_CHUNKS  // of every row
    if (there > 0) chunk = *reinterpret_cast<const uint4*>(from);
#else
    chunk = gather_chunk(from, there);
#endif
    *reinterpret_cast<uint4*>(to) = chunk;
  }
}

// Reads 8 elements of shared memory in reads of BYTES. They are volatile, so that no compiler joins
// neighbours to wider ones, or keeps for the next row of A what it has read for this one.
template <int BYTES>
__device__ __forceinline__ void read_chunk(unsigned (&pair)[4], const Element* from) {
#ifdef __CUDA_ARCH__
  const unsigned address = (unsigned)__cvta_generic_to_shared(from);
  if (BYTES == 16) {
    asm volatile("ld.volatile.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(pair[0]), "=r"(pair[1]), "=r"(pair[2]), "=r"(pair[3])
                 : "r"(address));
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (BYTES == 4) {
      asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(pair[i]) : "r"(address + 4 * i));
    } else {
      unsigned short low, high;
      asm volatile("ld.volatile.shared.u16 %0, [%1];" : "=h"(low) : "r"(address + 4 * i));
      asm volatile("ld.volatile.shared.u16 %0, [%1];" : "=h"(high) : "r"(address + 4 * i + 2));
      pair[i] = low | (unsigned)high << 16;
    }
  }
#else  // the CPU
  for (int i = 0; i < 4; ++i) {
    const unsigned short* bits = reinterpret_cast<const unsigned short*>(from) + 2 * i;
    pair[i] = BYTES >= 4 ? *reinterpret_cast<const unsigned*>(bits) : bits[0] | (unsigned)bits[1] << 16;
  }
#endif
}

// The product without matrix instructions: a lane has the columns lane + 32 j of its warp's 16 rows.
struct ScalarSums {
  float x[WARP_ROWS][WARP_COLUMNS / 32] = {};
};

__device__ __forceinline__ void add_scalars(ScalarSums& sums, const Element* a_smem,
                                            const Element* b_smem) {
  const int lane = threadIdx.x % 32, first_row = threadIdx.x / 32 * WARP_ROWS;
#pragma unroll 1
  for (int column = 0; column < TILE_K; column += CHUNK) {
#pragma unroll
    for (int i = 0; i < WARP_ROWS; ++i) {
      unsigned left[4], right[4];
      read_chunk<16>(left, a_smem + moved(first_row + i, column));  // one address for all lanes
#pragma unroll
      for (int j = 0; j < WARP_COLUMNS / 32; ++j) {
        // The elements of a chunk are neighbours in every layout.
        read_chunk<READ_BYTES>(right, b_smem + place(lane + 32 * j, column));
#pragma unroll
        for (int d = 0; d < 4; ++d) {
          const float2 x = unpack_pair<Element>(left[d]), y = unpack_pair<Element>(right[d]);
          sums.x[i][j] += x.x * y.x;
          sums.x[i][j] += x.y * y.y;
        }
      }
    }
  }
}

__device__ __forceinline__ void store_scalars(Element* out, const ScalarSums& sums, int tile_row,
                                              int tile_column, int rows, int columns) {
  const int lane = threadIdx.x % 32, first_row = threadIdx.x / 32 * WARP_ROWS;
#pragma unroll
  for (int i = 0; i < WARP_ROWS; ++i) {
    const int row = tile_row + first_row + i;
    if (row >= rows) continue;
#pragma unroll
    for (int j = 0; j < WARP_COLUMNS / 32; ++j) {
      const int column = tile_column + lane + 32 * j;
      if (column < columns)
        reinterpret_cast<unsigned short*>(out)[(size_t)row * columns + column] =
            (unsigned short)pack_pair<Element>(sums.x[i][j], 0.f);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) gemm_s06(
    const Element* __restrict__ a,  // [M, K]
    const Element* __restrict__ b,  // [N, K]
    Element* __restrict__ out,      // [M, N]
    int rows, int columns, int depth) {
  __shared__ __align__(16) Element a_smem[TILE_M * TILE_K], b_smem[TILE_N * STRIDE];
  const int across = (columns + TILE_N - 1) / TILE_N;
  const int tile_row = blockIdx.x / across * TILE_M, tile_column = blockIdx.x % across * TILE_N;

#if ACCESS == LDMATRIX
  Sums sums;
#else
  ScalarSums sums;
#endif
#pragma unroll 1
  for (int first = 0; first < depth; first += TILE_K) {
    load_slice<CHUNK>(a_smem, moved, a, tile_row, rows, first, depth);
    load_slice<(READ_BYTES < 16 ? 1 : CHUNK)>(b_smem, place, b, tile_column, columns, first, depth);
    __syncthreads();
#if ACCESS == LDMATRIX
    add_slice(
        sums, [&](int row, int chunk) { return a_smem + moved(row, chunk * CHUNK); },
        [&](int row, int chunk) { return b_smem + place(row, chunk * CHUNK); });
#else
    add_scalars(sums, a_smem, b_smem);
#endif
    __syncthreads();  // nobody may overwrite a slice while somebody still reads it
  }
#if ACCESS == LDMATRIX
  store_sums(out, sums, tile_row, tile_column, rows, columns);
#else
  store_scalars(out, sums, tile_row, tile_column, rows, columns);
#endif
}
