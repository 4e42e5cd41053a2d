// Needs sm_80. A block serves one (sequence, KV head, piece) with all query heads of the group.
#include "piece_merge.cuh"

constexpr int TILE = 16;                     // keys of one tile, the rows of one matrix product
constexpr int CHUNKS = HEAD_DIM / 8;         // 16-byte chunks of a row
constexpr int TILE_CHUNKS = TILE * CHUNKS;   // of K, and as many of V
constexpr int K_STEPS = HEAD_DIM / 16;       // matrix products along the dims of q . k
constexpr int DIM_TILES = HEAD_DIM / 16;     // 16-row tiles of the transposed output
constexpr float FAR_ABOVE = 8.f;             // weights may reach 2^8 before the maximum moves
static_assert(GROUP_SIZE <= 8, "the query heads of a group are the 8 columns of one product");

struct Slot {  // one tile in shared memory
  uint4 k[TILE_CHUNKS], v[TILE_CHUNKS];
};

// Chunk `chunk` of row `row`, moved so that 8 rows' equal chunks lie in 8 different banks.
__device__ __forceinline__ int swizzled(int row, int chunk) {
  return row * CHUNKS + (chunk ^ (row % 8));
}

__device__ __forceinline__ uint4 chunk_of(const Element* rows, int chunk) {
  return reinterpret_cast<const uint4*>(rows)[chunk];
}

// Copies one tile, of which the first `readable` rows are there: all loads first, then all stores.
__device__ __forceinline__ void copy_tile(Slot& slot, const Element* k, const Element* v,
                                          int readable) {
  const int lane = threadIdx.x % 32, left = readable - lane / CHUNKS;
  uint4 k_rmem[TILE_CHUNKS / 32], v_rmem[TILE_CHUNKS / 32];
#pragma unroll
  for (int first = 0; first < TILE_CHUNKS; first += 32) {
    const bool there = first / CHUNKS < left;
    k_rmem[first / 32] = there ? chunk_of(k, first + lane) : make_uint4(0, 0, 0, 0);
    v_rmem[first / 32] = there ? chunk_of(v, first + lane) : make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (int first = 0; first < TILE_CHUNKS; first += 32) {
    const int to = swizzled(first / CHUNKS + lane / CHUNKS, lane % CHUNKS);
    slot.k[to] = k_rmem[first / 32];
    slot.v[to] = v_rmem[first / 32];
  }
}

// The heads of a group as rows of K of a tile, and from there the columns of Q^T. Those past the
// group are copies that nobody looks at.
__device__ __forceinline__ void copy_q(Slot& slot, const Element* q) {
  constexpr int Q_CHUNKS = GROUP_SIZE * CHUNKS;
#pragma unroll
  for (int first = 0; first < Q_CHUNKS; first += 32) {
    const int i = first + threadIdx.x % 32;
    if (Q_CHUNKS % 32 && i >= Q_CHUNKS) break;
    slot.k[swizzled(i / CHUNKS, i % CHUNKS)] = chunk_of(q, i);
  }
}
__device__ __forceinline__ void take_q(unsigned (&q)[K_STEPS][2], const Slot& slot) {
  const int lane = threadIdx.x % 32, head = lane % 8 % GROUP_SIZE;
#pragma unroll
  for (int s = 0; s < K_STEPS; s += 2) {
    unsigned four[4];
    ldmatrix_x4(four, &slot.k[swizzled(head, 2 * s + lane / 8)]);
#pragma unroll
    for (int i = 0; i < 4; ++i) q[s + i / 2][i % 2] = four[i];
  }
}

// What a warp knows of the heads 2c and 2c+1; the rows of acc are dims.
struct Known {
  float score_max[2] = {-INFINITY, -INFINITY};
  float weight_sum[2] = {0.f, 0.f};
  float acc[DIM_TILES][4] = {};
};

// Moves the maxima of both heads to those of the scores seen now.
__device__ __forceinline__ void raise_max(Known& known, const float (&score)[4]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = fmaxf(fmaxf(score[h], score[h + 2]), known.score_max[h]);
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    const float rescale = exp2f(known.score_max[h] - largest);
    known.score_max[h] = largest;
    known.weight_sum[h] *= rescale;
#pragma unroll
    for (int t = 0; t < DIM_TILES; ++t) {
      known.acc[t][h] *= rescale;
      known.acc[t][h + 2] *= rescale;
    }
  }
}

// Folds one tile, of which the first `valid` rows count.
__device__ __forceinline__ void fold_tile(Known& known, const unsigned (&q)[K_STEPS][2],
                                          Slot& slot, int valid, float sm_scale_log2) {
  const int lane = threadIdx.x % 32, g = lane / 4;
  if (valid < TILE) {  // what lies behind the end may be NaN, and 0 * NaN is not 0
    for (int i = valid * CHUNKS + lane; i < TILE_CHUNKS; i += 32)
      slot.v[i] = make_uint4(0, 0, 0, 0);
    __syncwarp();
  }
  // S^T = K Q^T in two sums, so that one product need not wait for the one before.
  float even[4] = {}, odd[4] = {};
#pragma unroll
  for (int s = 0; s < K_STEPS; s += 2) {
    unsigned a[4];
    ldmatrix_x4(a, &slot.k[swizzled(lane % 16, 2 * s + lane / 16)]);
    mma_m16n8k16<Element>(even, a, q[s][0], q[s][1]);
    ldmatrix_x4(a, &slot.k[swizzled(lane % 16, 2 * s + 2 + lane / 16)]);
    mma_m16n8k16<Element>(odd, a, q[s + 1][0], q[s + 1][1]);
  }
  float score[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    score[i] = (even[i] + odd[i]) * sm_scale_log2;
    if (g + 8 * (i / 2) >= valid) score[i] = -INFINITY;
  }
  const bool far_above = fmaxf(score[0], score[2]) > known.score_max[0] + FAR_ABOVE ||
                         fmaxf(score[1], score[3]) > known.score_max[1] + FAR_ABOVE;
  if (__any_sync(0xffffffffu, far_above)) raise_max(known, score);

  unsigned weights[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const unsigned pair = pack_pair<Element>(exp2f(score[2 * row] - known.score_max[0]),
                                    exp2f(score[2 * row + 1] - known.score_max[1]));
    const float2 rounded = unpack_pair<Element>(pair);  // what V really gets is what is summed
    known.weight_sum[0] += rounded.x;
    known.weight_sum[1] += rounded.y;
    weights[row] = movmatrix_trans(pair);
  }
  // O^T += V^T P^T
#pragma unroll
  for (int t = 0; t < DIM_TILES; ++t) {
    unsigned a[4];
    ldmatrix_x4_trans(a, &slot.v[swizzled(lane / 16 * 8 + lane % 8, 2 * t + lane / 8 % 2)]);
    mma_m16n8k16<Element>(known.acc[t], a, weights[0], weights[1]);
  }
}

// A lane's rows of two output tiles are four dims, 8 apart.
__device__ __forceinline__ void store_share(Element* row, int j, float4 x) {
  unsigned short* dims = reinterpret_cast<unsigned short*>(row) + j / 8 * 32 + j % 8;
  const unsigned pairs[2] = {pack_pair<Element>(x.x, x.y), pack_pair<Element>(x.z, x.w)};
#pragma unroll
  for (int i = 0; i < 4; ++i) dims[8 * i] = (unsigned short)(pairs[i / 2] >> (i % 2 * 16));
}
__device__ __forceinline__ void store_share(float* row, int j, float4 x) {
  float* dims = row + j / 8 * 32 + j % 8;
  dims[0] = x.x;
  dims[8] = x.y;
  dims[16] = x.z;
  dims[24] = x.w;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS) decode_s07(
    // First what is needed first: a line of constant memory that is not there yet takes time.
    int kv_len, int piece_len, int num_kv_heads, float sm_scale_log2,
    const Element* __restrict__ q,     // [B, Hq, D]
    const Element* __restrict__ k,     // [B, Hkv, S, D], paged: [pages, Hkv, PAGE_SIZE, D]
    const Element* __restrict__ v,     // as k
    const int* __restrict__ seq_lens,  // [B]
#ifdef PAGE_SIZE
    const int* __restrict__ page_table,  // [B, max_pages]
    int max_pages,
#endif
    Element* __restrict__ out,      // [B, Hq, D], not used if there are several pieces
    float* __restrict__ partial) {  // [B, Hq, pieces, D + 2], not used if there is one
  extern __shared__ __align__(128) unsigned char smem[];
  const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4, warp = threadIdx.x / 32;
  const int piece = blockIdx.x, kv_head = blockIdx.y, sequence = blockIdx.z;
  const int pair = sequence * num_kv_heads + kv_head;
  Slot& slot = reinterpret_cast<Slot*>(smem)[warp];

  const int begin = piece * piece_len, end = min(begin + piece_len, seq_lens[sequence]);
#ifdef PAGE_SIZE
  static_assert(PAGE_SIZE % TILE == 0, "a tile lies in one page");
  page_table += (size_t)sequence * max_pages;
#else
  k += (size_t)pair * kv_len * HEAD_DIM;
  v += (size_t)pair * kv_len * HEAD_DIM;
#endif

  Known known;
  unsigned q_rmem[K_STEPS][2];
  copy_q(slot, q + (size_t)pair * GROUP_SIZE * HEAD_DIM);
  __syncwarp();
  take_q(q_rmem, slot);
  // A warp takes every WARPS-th tile.
#pragma unroll 1
  for (int n = begin + warp * TILE; n < end; n += WARPS * TILE) {
#ifdef PAGE_SIZE
    const int page = page_table[n / PAGE_SIZE];
    const size_t row = ((size_t)page * num_kv_heads + kv_head) * PAGE_SIZE + n % PAGE_SIZE;
#else
    const size_t row = n;
#endif
    __syncwarp();  // every lane has left the tile before
    copy_tile(slot, k + row * HEAD_DIM, v + row * HEAD_DIM, end - n);
    __syncwarp();  // every lane's chunks are there
    fold_tile(known, q_rmem, slot, end - n, sm_scale_log2);
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2)
      known.weight_sum[h] += __shfl_xor_sync(0xffffffffu, known.weight_sum[h], offset);
  }
  __syncthreads();  // nobody reads a tile any more: the results take its place
  MergeSpace& space = *reinterpret_cast<MergeSpace*>(smem);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int head = 2 * c + h;
    if (head >= GROUP_SIZE) break;
#pragma unroll
    for (int t = 0; t < DIM_TILES; t += 2)
      space.rows[warp][head][4 * t + g] = make_float4(known.acc[t][h], known.acc[t][h + 2],
                                                      known.acc[t + 1][h], known.acc[t + 1][h + 2]);
    if (g == 0) space.known[warp][head] = make_float2(known.score_max[h], known.weight_sum[h]);
  }
  __syncthreads();
  merge_warps(space, out, partial, pair);
}
