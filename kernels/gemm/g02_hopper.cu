// Needs sm_90a. One warp starts copies of whole slices into a ring of STAGES slots, and warpgroups
// multiply from it with wgmma, 64 rows of the left factor each. A block goes on to its next tile
// while nothing is waited for but the last products. Where there are few tiles, SPLIT blocks share
// the slices of one, and the last of them to finish adds what all of them have.
// SWAP takes B for the left factor, so that 64 rows are full where A has few.
#include "bulk_copy.cuh"
#include "tile_order.cuh"
#include "wgmma.cuh"

constexpr int TILE_L = 64 * WARPGROUPS, TILE_R = TILE_N, TILE_K = 64;  // of left, right and depth
constexpr int WORKERS = 128 * WARPGROUPS;  // threads that multiply
constexpr int SUMS = TILE_R / 2;           // of a thread
// The copying warps give registers to the others, whose sums have no room in an equal share.
constexpr bool UNEQUAL = WARPGROUPS > 1;
constexpr int GIVEN = WARPGROUPS == 2 ? 40 : 32, TAKEN = WARPGROUPS == 2 ? 232 : 160;

struct Ring {
  Element left[STAGES][TILE_L * TILE_K], right[STAGES][TILE_R * TILE_K];
  Barrier full[STAGES], empty[STAGES];
  bool is_last;  // of the blocks that share a tile
};

// Where the ring stands: the parity flips each time round.
struct Place {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void step() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// Four lanes side by side exchange four words each: word j of lane i becomes word i of lane j.
__device__ __forceinline__ void transpose_words(unsigned (&word)[4]) {
#pragma unroll
  for (int offset = 1; offset < 4; offset *= 2) {
    const bool upper = threadIdx.x & offset;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      unsigned &low = word[offset == 1 ? 2 * j : j], &high = word[offset == 1 ? 2 * j + 1 : j + 2];
      const unsigned other = __shfl_xor_sync(0xffffffffu, upper ? low : high, offset);
      if (upper) {
        low = other;
      } else {
        high = other;
      }
    }
  }
}

__device__ __forceinline__ void store_element(Element* out, float x) {
  const unsigned short bits = (unsigned short)pack_pair<Element>(x, 0.f);
  *reinterpret_cast<unsigned short*>(out) = bits;
}

// Stores a thread's sums of a tile that begins at (first_left, first_right).
__device__ __forceinline__ void store_tile(Element* out, const float (&sum)[SUMS], int first_left,
                                           int first_right, int left_rows, int right_rows) {
  const int thread = threadIdx.x - 128, lane = thread % 32, g = lane / 4, c = lane % 4;
  const int row = first_left + thread / 32 * 16 + g;
  if (!SWAP && TILE_R % 32 == 0 && right_rows % 8 == 0) {  // 16 bytes at a time
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int t = 0; t < TILE_R / 8; t += 4) {
        unsigned word[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
          word[j] = pack_pair<Element>(sum[4 * (t + j) % SUMS + 2 * h],
                                       sum[4 * (t + j) % SUMS + 2 * h + 1]);
        transpose_words(word);
        const int column = first_right + 8 * (t + c);
        if (row + 8 * h < left_rows && column < right_rows)
          *reinterpret_cast<uint4*>(out + (size_t)(row + 8 * h) * right_rows + column) =
              make_uint4(word[0], word[1], word[2], word[3]);
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int left = row + i % 4 / 2 * 8, right = first_right + i / 4 * 8 + 2 * c + i % 2;
    if (left >= left_rows || right >= right_rows) continue;
    store_element(SWAP ? out + (size_t)right * left_rows + left
                       : out + (size_t)left * right_rows + right, sum[i]);
  }
}

// Adds the sums of the blocks that share a tile, in the order of their parts. Returns whether this
// block was the last and has them.
__device__ __forceinline__ bool add_parts(float (&sum)[SUMS], float* parts, unsigned* finished,
                                          int tile, int part, bool& is_last) {
  const int thread = threadIdx.x - 128;
  float* own = parts + (size_t)tile * SPLIT * SUMS * WORKERS + thread;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) own[(part * SUMS + i) * WORKERS] = sum[i];
  named_sync<WORKERS>(1);
  // What the block wrote is there before the count says so, and is read after it. The count goes
  // back to zero by itself, ready for the next call.
  if (thread == 0) {
    __threadfence();
    is_last = atomicInc(finished + tile, SPLIT - 1) == SPLIT - 1;
    __threadfence();
  }
  named_sync<WORKERS>(1);
  if (!is_last) return false;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    float part_sum[SPLIT];
#pragma unroll
    for (int p = 0; p < SPLIT; ++p) part_sum[p] = __ldcg(own + (p * SUMS + i) * WORKERS);
    sum[i] = 0.f;
#pragma unroll
    for (int p = 0; p < SPLIT; ++p) sum[i] += part_sum[p];
  }
  return true;
}

extern "C" __global__ void __launch_bounds__(WORKERS + 128) gemm_g02(
    const __grid_constant__ TensorMap left,   // [1, L, K]
    const __grid_constant__ TensorMap right,  // [1, R, K]
    Element* __restrict__ out,                // [L, R], or with SWAP [R, L]
    float* __restrict__ parts,                // [tiles, SPLIT, SUMS, WORKERS]
    unsigned* __restrict__ finished,          // [tiles], zero between two calls
    int left_rows, int right_rows, int depth) {
  extern __shared__ __align__(1024) unsigned char smem[];
  Ring& ring = *reinterpret_cast<Ring*>(smem);
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int down = (left_rows + TILE_L - 1) / TILE_L, across = (right_rows + TILE_R - 1) / TILE_R;
  const int slices = (depth + TILE_K - 1) / TILE_K;
  const int items = down * across * SPLIT;  // parts of tiles, the parts of one side by side
  const auto first_slice = [&](int part) { return (int)((long long)slices * part / SPLIT); };

  if (threadIdx.x == 0) {
#pragma unroll
    for (int s = 0; s < STAGES; ++s) {
      init_barrier(ring.full[s], 1);
      init_barrier(ring.empty[s], 4 * WARPGROUPS);
    }
    publish_barriers();
  }
  __syncthreads();

  Place place;
  if (warpgroup == 0) {
    if (UNEQUAL) give_registers<GIVEN>();
    if (threadIdx.x == 0) {
      prefetch_map(left);
      prefetch_map(right);
#pragma unroll 1
      for (int item = blockIdx.x; item < items; item += gridDim.x) {
        const TilePlace tile = tile_of(item / SPLIT, down, across);
        const int end = first_slice(item % SPLIT + 1);
#pragma unroll 1
        for (int slice = first_slice(item % SPLIT); slice < end; ++slice) {
          Barrier& full = ring.full[place.stage];
          wait_barrier(ring.empty[place.stage], place.parity ^ 1);
          arrive_expecting(full, sizeof(ring.left[0]) + sizeof(ring.right[0]));
          copy_box(ring.left[place.stage], left, slice * TILE_K, tile.down * TILE_L, 0, full);
          copy_box(ring.right[place.stage], right, slice * TILE_K, tile.across * TILE_R, 0, full);
          place.step();
        }
      }
    }
    return;
  }
  if (UNEQUAL) take_registers<TAKEN>();
  const int own_rows = (warpgroup - 1) * 64 * TILE_K;
  const auto release = [&](Barrier& empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty);
  };
#pragma unroll 1
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const TilePlace tile = tile_of(item / SPLIT, down, across);
    const int first = first_slice(item % SPLIT), end = first_slice(item % SPLIT + 1);
    float sum[SUMS];
#pragma unroll
    for (float& x : sum) x = 0.f;
    int reading = place.stage;
#pragma unroll 1
    for (int slice = first; slice < end; ++slice) {
      wait_barrier(ring.full[place.stage], place.parity);
      const TileDescriptor a = tile_descriptor(ring.left[place.stage] + own_rows);
      const TileDescriptor b = tile_descriptor(ring.right[place.stage]);
      open_products();
#pragma unroll
      for (int k = 0; k < TILE_K / 16; ++k)
        wgmma_shared<Element, TILE_R>(sum, a + 2 * k, b + 2 * k, true);
      close_products();
      // The products before these are done: their slot is free.
      wait_for_products<1>();
      if (slice > first) release(ring.empty[reading]);
      reading = place.stage;
      place.step();
    }
    wait_for_products<0>();
    hold(sum);
    if (end > first) release(ring.empty[reading]);
    if (SPLIT == 1 ||
        add_parts(sum, parts, finished, item / SPLIT, item % SPLIT, ring.is_last))
      store_tile(out, sum, tile.down * TILE_L, tile.across * TILE_R, left_rows, right_rows);
  }
}

// The preparation: the counters are zero before the first call, and every call leaves them so.
extern "C" __global__ void __launch_bounds__(128) reset_counters(
    unsigned* __restrict__ finished,  // [tiles]
    int count) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i < count) finished[i] = 0;
}
