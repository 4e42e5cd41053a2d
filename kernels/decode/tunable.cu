// Needs sm_80. One source for a family of decode kernels: what the rungs do one after the other can
// be done here, or left out, method by method. A knob is a definition of its name in upper case
// (tunable.py says what each changes); beside them stand
//   GROUP_SIZE  query heads that a block serves: those of a KV head with GQA, else 1
//   IS_SPLIT    1 where a sequence is cut into pieces, a block each
//   CLUSTER     pieces that join through each other's shared memory, with MERGE 2
#include "async_copy.cuh"
#include "ladder.cuh"
#include "merge.cuh"
#include "pieces.cuh"
#include "row.cuh"
#include "warp.cuh"

#if BOUNDS == 0
#define LIMITED
#elif BOUNDS == 1
#define LIMITED __launch_bounds__(32 * WARPS)
#else  // 32 resident warps leave a thread 64 registers
#define LIMITED __launch_bounds__(32 * WARPS, 32 / WARPS)
#endif

#if WIDTH == 16
using Bits = uint4;
#else
using Bits = uint2;
#endif

constexpr int DIMS = WIDTH / 2;              // of a row that a lane loads at once
constexpr int LANES = HEAD_DIM / DIMS;       // that share a row: a team
constexpr int TEAMS = 32 / LANES;            // of a warp; each takes rows of its own
constexpr int KEYS = ROWS * TEAMS;           // of a warp before one rescaling
constexpr int TILE = 16;                     // keys that are copied to shared memory together
constexpr int STEP = LOAD == 0 ? KEYS : TILE;  // keys of a warp in one trip of its loop
constexpr int STRIDE = WARPS * STEP;
constexpr int CHUNKS = HEAD_DIM / 8;         // 16-byte chunks of a row
constexpr int ROW_CHUNKS = CHUNKS + (SWIZZLE == 2);  // one more moves the next row by four banks
constexpr float LOG2_E = 1.4426950408889634f;
// With LAZY the weights may reach 2^8 before the maximum moves.
constexpr float FAR_ABOVE = EXP2 ? 8.f : 8.f / LOG2_E;
static_assert(HEAD_DIM == 128, "a team is a warp or half of one");
static_assert(GROUP_SIZE <= 8, "the heads of a block are the 8 columns of one product");
static_assert(MATH == 0 || LOAD > 0, "a matrix product reads its tile from shared memory");

using Dims = Row<DIMS>;

// e to a score, or 2 to one that was scaled for it.
__device__ __forceinline__ float power(float score) { return EXP2 ? exp2f(score) : expf(score); }
// The maximum of a team that has seen no key. Of two teams in a warp one may never see any, and
// -infinity less itself would be NaN.
__device__ __forceinline__ float no_score() { return TEAMS > 1 ? LOWEST : -INFINITY; }
// A maximum as the joins want it, in base 2.
__device__ __forceinline__ float in_base_2(float score) { return EXP2 ? score : score * LOG2_E; }

__device__ __forceinline__ int lane_of_thread() {
  return WARPS == 1 ? threadIdx.x : threadIdx.x % 32;
}
__device__ __forceinline__ int warp_of_thread() { return WARPS == 1 ? 0 : threadIdx.x / 32; }
__device__ __forceinline__ int team_of_lane() { return TEAMS == 1 ? 0 : lane_of_thread() / LANES; }
__device__ __forceinline__ int dim_of_lane() {
  return (TEAMS == 1 ? lane_of_thread() : lane_of_thread() % LANES) * DIMS;
}

// ---- loads and copies ----

// Inputs that are not written may be read as constants; without this the compiler does not know.
#if CACHE == 0
#define UNALIASED
#else
#define UNALIASED __restrict__
#endif
// One load of WIDTH bytes.
__device__ __forceinline__ Bits load_bits(const half* source) {
#if defined(__CUDA_ARCH__) && CACHE == 2
  Bits bits;
#if WIDTH == 16
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
      : "l"(source));
#else
  asm("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];"
      : "=r"(bits.x), "=r"(bits.y)
      : "l"(source));
#endif
  return bits;
#else
  return *reinterpret_cast<const Bits*>(source);
#endif
}

__device__ __forceinline__ Dims unpack(const Bits& bits) {
  const unsigned* words = reinterpret_cast<const unsigned*>(&bits);
  Dims row;
#pragma unroll
  for (int i = 0; i < DIMS; i += 2) {
    const float2 pair = unpack_pair<half>(words[i / 2]);
    row.x[i] = pair.x;
    row.x[i + 1] = pair.y;
  }
  return row;
}

// Starts one copy of WIDTH bytes, or of as many zeros where there is nothing to read.
__device__ __forceinline__ void copy_bits(void* shared, const void* global, bool there) {
#ifndef __CUDA_ARCH__
  __pipeline_memcpy_async(shared, global, WIDTH, there ? 0 : WIDTH);
#elif WIDTH == 16 && CACHE == 1
  copy_async_16(shared, global, there);
#else
#if CACHE == 1
#define PREFETCHED ".L2::128B"
#else
#define PREFETCHED ""
#endif
#if WIDTH == 16
#define COPY_FORM "cp.async.cg.shared.global" PREFETCHED " [%0], [%1], 16, %2;"
#else  // the cache of the L1 can be gone round by copies of 16 bytes alone
#define COPY_FORM "cp.async.ca.shared.global" PREFETCHED " [%0], [%1], 8, %2;"
#endif
  asm volatile(COPY_FORM ::"r"(shared_address(shared)), "l"(global), "r"(there ? WIDTH : 0)
               : "memory");
#endif
}

struct Slot {  // one tile in shared memory
  uint4 k[TILE * ROW_CHUNKS], v[TILE * ROW_CHUNKS];
};

// Where chunk `chunk` of row `row` lies. ldmatrix reads 8 rows' equal chunks: exclusive or, or
// padding, moves them to 8 different banks.
__device__ __forceinline__ int place(int row, int chunk) {
  return row * ROW_CHUNKS + (SWIZZLE == 1 ? chunk ^ (row % 8) : chunk);
}
__device__ __forceinline__ void* part_of(uint4* tile, int row, int part) {
  return reinterpret_cast<char*>(tile + place(row, part * WIDTH / 16)) + part * WIDTH % 16;
}

// Brings one tile to a warp's slot. With MASKED only the first `readable` rows are there.
template <bool MASKED>
__device__ __forceinline__ void bring_tile(Slot& slot, const half* k, const half* v,
                                           int readable) {
  constexpr int PARTS = HEAD_DIM * 2 / WIDTH;  // of a row
  const int lane = lane_of_thread(), row_of_lane = lane / PARTS, part = lane % PARTS;
#if LOAD == 2
  k += lane * (WIDTH / 2);
  v += lane * (WIDTH / 2);
  keep_as_base(k);
  keep_as_base(v);
#pragma unroll
  for (int first = 0; first < TILE * PARTS; first += 32) {
    const int row = first / PARTS + row_of_lane;
    const bool there = !MASKED || row < readable;
    copy_bits(part_of(slot.k, row, part), k + first * (WIDTH / 2), there);
    copy_bits(part_of(slot.v, row, part), v + first * (WIDTH / 2), there);
  }
#else
  Bits k_rmem[TILE * PARTS / 32], v_rmem[TILE * PARTS / 32];
#pragma unroll
  for (int i = 0; i < TILE * PARTS / 32; ++i) {
    int row = i * 32 / PARTS + row_of_lane;
    if (MASKED) row = min(row, readable - 1);
    k_rmem[i] = load_bits(k + row * HEAD_DIM + part * (WIDTH / 2));
    v_rmem[i] = load_bits(v + row * HEAD_DIM + part * (WIDTH / 2));
  }
#pragma unroll
  for (int i = 0; i < TILE * PARTS / 32; ++i) {
    const int row = i * 32 / PARTS + row_of_lane;
    *static_cast<Bits*>(part_of(slot.k, row, part)) = k_rmem[i];
    *static_cast<Bits*>(part_of(slot.v, row, part)) = v_rmem[i];
  }
#endif
}

// Four dims of a head that a share of a result has: the first one, and how far apart they lie.
__device__ __forceinline__ int first_dim(int share) {
  return MATH ? share / 8 * 32 + share % 8 : 4 * share;
}
constexpr int DIM_STEP = MATH ? 8 : 1;

__device__ __forceinline__ void store_share(half* row, int j, float4 x) {
  const unsigned pairs[2] = {pack_pair<half>(x.x, x.y), pack_pair<half>(x.z, x.w)};
  if (DIM_STEP == 1) {
    *reinterpret_cast<uint2*>(row + first_dim(j)) = make_uint2(pairs[0], pairs[1]);
    return;
  }
  unsigned short* dims = reinterpret_cast<unsigned short*>(row) + first_dim(j);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    dims[DIM_STEP * i] = (unsigned short)(pairs[i / 2] >> (i % 2 * 16));
}

#if MATH == 0
// ---- FMA: a team holds a row, a lane DIMS dims of it ----

struct State {
  float score_max[GROUP_SIZE], weight_sum[GROUP_SIZE];
  Dims acc[GROUP_SIZE];

  __device__ __forceinline__ State() {
#pragma unroll
    for (int h = 0; h < GROUP_SIZE; ++h) {
      score_max[h] = no_score();
      weight_sum[h] = 0.f;
      acc[h] = {};
    }
  }
  __device__ __forceinline__ void rescale(int h, float factor) {
    weight_sum[h] *= factor;
#pragma unroll
    for (int i = 0; i < DIMS; ++i) acc[h].x[i] *= factor;
  }
};
using Heads = Dims[GROUP_SIZE];

// A lane's part of q . k, in one sum or in two.
__device__ __forceinline__ float part_of_dot(const Dims& a, const Dims& b) {
  if (!ILP) return dot(a, b);
  float even = a.x[0] * b.x[0], odd = a.x[1] * b.x[1];
#pragma unroll
  for (int i = 2; i < DIMS; i += 2) {
    even += a.x[i] * b.x[i];
    odd += a.x[i + 1] * b.x[i + 1];
  }
  return even + odd;
}

// The sums over a team of one number a row; every lane gets all of them.
__device__ __forceinline__ void team_sums(float (&score)[ROWS]) {
#if REDUCE == 0
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (TEAMS == 1) {
      score[r] = warp_sum(score[r]);
    } else {
#pragma unroll
      for (int offset = LANES / 2; offset > 0; offset /= 2)
        score[r] += __shfl_xor_sync(0xffffffffu, score[r], offset);
    }
  }
#else
  // Each exchange halves the rows that a lane still adds up: first all of them, at last one.
  const int lane = lane_of_thread();
  int offset = 1;
#pragma unroll
  for (int rows = ROWS / 2; rows > 0; rows /= 2) {
    const bool upper = lane & offset;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const float mine = upper ? score[r + rows] : score[r];
      const float other = upper ? score[r] : score[r + rows];
      score[r] = mine + __shfl_xor_sync(0xffffffffu, other, offset);
    }
    offset *= 2;
  }
  float sum = score[0];
#pragma unroll
  for (int more = ROWS; more < LANES; more *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, more);
  // Lane l of a team now has the row whose number is l's lowest bits, read backwards.
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int from = ROWS == 8 ? r / 4 | r & 2 | r % 2 * 4 : r / 2 | r % 2 * 2;
    score[r] = __shfl_sync(0xffffffffu, sum, from, LANES);
  }
#endif
}

// Folds ROWS rows of each team into the state of one head; those from `valid` on weigh nothing.
template <bool MASKED>
__device__ __forceinline__ void fold_head(State& mine, int h, const Dims& q_rmem,
                                          const Bits (&k_rmem)[ROWS], const Bits (&v_rmem)[ROWS],
                                          int valid) {
  float score[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) score[r] = part_of_dot(q_rmem, unpack(k_rmem[r]));
  team_sums(score);
  float new_max = mine.score_max[h];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (MASKED && r * TEAMS + team_of_lane() >= valid) score[r] = -INFINITY;
    new_max = fmaxf(new_max, score[r]);
  }
  float rescale = 1.f;
  if (!LAZY) {
    rescale = power(mine.score_max[h] - new_max);
  } else if (__any_sync(0xffffffffu, new_max > mine.score_max[h] + FAR_ABOVE)) {
    mine.rescale(h, power(mine.score_max[h] - new_max));
  } else {
    new_max = mine.score_max[h];
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const float weight = power(score[r] - new_max);
    mine.weight_sum[h] = mine.weight_sum[h] * rescale + weight;
    accumulate(mine.acc[h], rescale, unpack(v_rmem[r]), weight);
    rescale = 1.f;
  }
  mine.score_max[h] = new_max;
}

// Takes KEYS rows from n on: all loads first, then what is made of them. Rows behind the end are
// the last one again.
template <bool MASKED>
__device__ __forceinline__ void take_rows(State& mine, const Heads& q_rmem, const half* k,
                                          const half* v, int n, int end) {
  Bits k_rmem[ROWS], v_rmem[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    int row = n + r * TEAMS + team_of_lane();
    if (MASKED) row = min(row, end - 1);
    // Of the first row, so that the others lie at a fixed distance from it.
    const size_t from = MASKED ? (size_t)row : (size_t)(n + team_of_lane());
    const size_t offset = from * HEAD_DIM + (MASKED ? 0 : r * TEAMS * HEAD_DIM);
#if LOAD == 0
    k_rmem[r] = load_bits(k + offset);
    v_rmem[r] = load_bits(v + offset);
#else
    k_rmem[r] = *reinterpret_cast<const Bits*>(k + offset);
    v_rmem[r] = *reinterpret_cast<const Bits*>(v + offset);
#endif
  }
#pragma unroll
  for (int h = 0; h < GROUP_SIZE; ++h)
    fold_head<MASKED>(mine, h, q_rmem[h], k_rmem, v_rmem, end - n);
}

// Folds one tile of shared memory.
template <bool MASKED>
__device__ __forceinline__ void fold_tile(State& mine, const Heads& q_rmem, Slot& slot, int valid,
                                          float) {
  const half* k = reinterpret_cast<const half*>(slot.k) + dim_of_lane();
  const half* v = reinterpret_cast<const half*>(slot.v) + dim_of_lane();
#pragma unroll UNROLL
  for (int n = 0; n < TILE; n += KEYS) {
    if (MASKED && n >= valid) break;
    take_rows<MASKED>(mine, q_rmem, k, v, n, valid);
  }
}

__device__ __forceinline__ void load_heads(Heads& q_rmem, const half* q, float sm_scale) {
#pragma unroll
  for (int h = 0; h < GROUP_SIZE; ++h) {
    const Bits bits = *reinterpret_cast<const Bits*>(q + h * HEAD_DIM + dim_of_lane());
    q_rmem[h] = unpack(bits);
    for (float& x : q_rmem[h].x) x *= sm_scale;
  }
}

// The teams of a warp become one.
__device__ __forceinline__ void join_teams(State& mine) {
  if (TEAMS == 1) return;
#pragma unroll
  for (int h = 0; h < GROUP_SIZE; ++h) {
    const float other = __shfl_xor_sync(0xffffffffu, mine.score_max[h], LANES % 32);
    const float new_max = fmaxf(mine.score_max[h], other);
    mine.rescale(h, power(mine.score_max[h] - new_max));
    mine.score_max[h] = new_max;
    mine.weight_sum[h] += __shfl_xor_sync(0xffffffffu, mine.weight_sum[h], LANES % 32);
#pragma unroll
    for (int i = 0; i < DIMS; ++i)
      mine.acc[h].x[i] += __shfl_xor_sync(0xffffffffu, mine.acc[h].x[i], LANES % 32);
  }
}

__device__ __forceinline__ void store_heads(half* out, const State& mine) {
  if (team_of_lane() > 0) return;
#pragma unroll
  for (int h = 0; h < GROUP_SIZE; ++h)
    store_row(out + h * HEAD_DIM + dim_of_lane(), mine.acc[h], 1.f / mine.weight_sum[h]);
}

// Leaves what a warp found where its block joins.
__device__ __forceinline__ void hand_over(MergeSpace& space, const State& mine) {
  if (team_of_lane() > 0) return;
  const int warp = warp_of_thread();
#pragma unroll
  for (int h = 0; h < GROUP_SIZE; ++h) {
    const float* x = mine.acc[h].x;
#pragma unroll
    for (int i = 0; i < DIMS; i += 4)
      space.rows[warp][h][(dim_of_lane() + i) / 4] =
          make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
    if (lane_of_thread() == 0)
      space.known[warp][h] = make_float2(in_base_2(mine.score_max[h]), mine.weight_sum[h]);
  }
}

#else
// ---- matrix products: the heads of a block are the columns of Q^T ----

constexpr int K_STEPS = HEAD_DIM / 16;    // matrix products along the dims of q . k
constexpr int DIM_TILES = HEAD_DIM / 16;  // 16-row tiles of the transposed output

// What a warp knows of the heads 2c and 2c+1; the rows of acc are dims.
struct State {
  float score_max[2] = {-INFINITY, -INFINITY};
  float weight_sum[2] = {0.f, 0.f};
  float acc[DIM_TILES][4] = {};
};
using Heads = unsigned[K_STEPS][2];

// The columns past the heads of a block are copies that nobody looks at.
__device__ __forceinline__ void load_heads(Heads& q_rmem, const half* q, float) {
  const int lane = lane_of_thread(), head = lane / 4 % GROUP_SIZE;
  const unsigned* pairs = reinterpret_cast<const unsigned*>(q + head * HEAD_DIM) + lane % 4;
#pragma unroll
  for (int s = 0; s < K_STEPS; ++s) {
    q_rmem[s][0] = pairs[8 * s];
    q_rmem[s][1] = pairs[8 * s + 4];
  }
}

// Moves the maxima of both heads to those of the scores seen now.
__device__ __forceinline__ void raise_max(State& mine, const float (&score)[4]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = fmaxf(fmaxf(score[h], score[h + 2]), mine.score_max[h]);
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    const float rescale = power(mine.score_max[h] - largest);
    mine.score_max[h] = largest;
    mine.weight_sum[h] *= rescale;
#pragma unroll
    for (int t = 0; t < DIM_TILES; ++t) {
      mine.acc[t][h] *= rescale;
      mine.acc[t][h + 2] *= rescale;
    }
  }
}

// S^T = K Q^T of one tile, in one sum or in two that need not wait for each other.
__device__ __forceinline__ void multiply_k(float (&score)[4], const Heads& q_rmem, Slot& slot,
                                           float sm_scale) {
  const int lane = lane_of_thread();
  float even[4] = {}, odd[4] = {};
#pragma unroll
  for (int s = 0; s < K_STEPS; ++s) {
    unsigned a[4];
    ldmatrix_x4(a, &slot.k[place(lane % 16, 2 * s + lane / 16)]);
    mma_m16n8k16<half>(ILP && s % 2 ? odd : even, a, q_rmem[s][0], q_rmem[s][1]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) score[i] = (ILP ? even[i] + odd[i] : even[i]) * sm_scale;
}

// Folds one tile of shared memory, of which with MASKED the first `valid` rows count.
template <bool MASKED>
__device__ __forceinline__ void fold_tile(State& mine, const Heads& q_rmem, Slot& slot, int valid,
                                          float sm_scale) {
  const int lane = lane_of_thread(), g = lane / 4;
  if (MASKED && valid < TILE) {  // what lies behind the end may be NaN, and 0 * NaN is not 0
    for (int i = valid * ROW_CHUNKS + lane; i < TILE * ROW_CHUNKS; i += 32)
      slot.v[i] = make_uint4(0, 0, 0, 0);
    __syncwarp();
  }
  float score[4];
  multiply_k(score, q_rmem, slot, sm_scale);
  if (MASKED) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (g + 8 * (i / 2) >= valid) score[i] = -INFINITY;
  }
  const bool far_above = fmaxf(score[0], score[2]) > mine.score_max[0] + FAR_ABOVE ||
                         fmaxf(score[1], score[3]) > mine.score_max[1] + FAR_ABOVE;
  if (!LAZY || __any_sync(0xffffffffu, far_above)) raise_max(mine, score);

  unsigned weights[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const unsigned pair = pack_pair<half>(power(score[2 * row] - mine.score_max[0]),
                                          power(score[2 * row + 1] - mine.score_max[1]));
    const float2 rounded = unpack_pair<half>(pair);  // what V really gets is what is summed
    mine.weight_sum[0] += rounded.x;
    mine.weight_sum[1] += rounded.y;
    weights[row] = movmatrix_trans(pair);
  }
  // O^T += V^T P^T
#pragma unroll
  for (int t = 0; t < DIM_TILES; ++t) {
    unsigned a[4];
    ldmatrix_x4_trans(a, &slot.v[place(lane / 16 * 8 + lane % 8, 2 * t + lane / 8 % 2)]);
    mma_m16n8k16<half>(mine.acc[t], a, weights[0], weights[1]);
  }
}

// The rows of a tile were shared among the lanes; the sums of their weights become one.
__device__ __forceinline__ void join_teams(State& mine) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2)
      mine.weight_sum[h] += __shfl_xor_sync(0xffffffffu, mine.weight_sum[h], offset);
  }
}

// Leaves what a warp found where its block joins.
__device__ __forceinline__ void hand_over(MergeSpace& space, const State& mine) {
  const int lane = lane_of_thread(), g = lane / 4, c = lane % 4, warp = warp_of_thread();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int head = 2 * c + h;
    if (head >= GROUP_SIZE) break;
#pragma unroll
    for (int t = 0; t < DIM_TILES; t += 2)
      space.rows[warp][head][4 * t + g] = make_float4(mine.acc[t][h], mine.acc[t][h + 2],
                                                      mine.acc[t + 1][h], mine.acc[t + 1][h + 2]);
    if (g == 0)
      space.known[warp][head] = make_float2(in_base_2(mine.score_max[h]), mine.weight_sum[h]);
  }
}
#endif

#if !IS_SPLIT || MERGE == 0
// Joins the warps of a block, whatever is done with the result then.
template <class Use>
__device__ __forceinline__ void join_warps(const MergeSpace& space, const Use& use) {
  for (int i = threadIdx.x; i < MERGE_SHARES; i += MERGE_THREADS) {
    float4 rows[WARPS];
    float2 known[WARPS];
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      rows[w] = space.rows[w][i / SHARES][i % SHARES];
      known[w] = space.known[w][i / SHARES];
    }
    Share share;
    share.join(rows, known);
    use(share, i);
  }
}
#endif

// Writes a share of a piece's result for the launch merge_pieces.
__device__ __forceinline__ void write_partial(float* partial_row, int j, const Share& share) {
  float* dims = partial_row + first_dim(j);
  dims[0] = share.row.x;
  dims[DIM_STEP] = share.row.y;
  dims[2 * DIM_STEP] = share.row.z;
  dims[3 * DIM_STEP] = share.row.w;
  if (j == 0) {
    partial_row[HEAD_DIM] = share.score_max;
    partial_row[HEAD_DIM + 1] = share.weight_sum;
  }
}

template <bool VALUE>
struct Constant {
  static constexpr bool value = VALUE;
};

// The trips of a warp's loop: with TAIL only the last one looks where the rows end.
template <class Take>
__device__ __forceinline__ void each_step(int n, int end, const Take& take) {
#if LOAD == 0 || MATH
#pragma unroll UNROLL
#else
#pragma unroll 1
#endif
  for (; TAIL ? n + STEP <= end : n < end; n += STRIDE) take(n, Constant<!TAIL>());
  if (TAIL && n < end) take(n, Constant<true>());
}

// A block serves one piece of the rows of one (sequence, query head), or with GQA of one (sequence,
// KV head) with all its query heads. Its warps take turns and meet once, at the end.
extern "C" __global__ void LIMITED IN_CLUSTERS decode_tunable(
    const half* UNALIASED q,           // [B, Hq, D]
    const half* UNALIASED k,           // [B, Hkv, S, D]
    const half* UNALIASED v,           // [B, Hkv, S, D]
    const int* __restrict__ seq_lens,  // [B]
    half* UNALIASED out,               // [B, Hq, D]
    int num_kv_heads, int kv_len, float sm_scale
#if IS_SPLIT
    , int piece_len  // keys of a piece, whole turns of the warps
#if MERGE == 0
    , float* UNALIASED partial  // [B, Hq, pieces, D + 2]
#else
    , float4* __restrict__ partial_rows  // [B, H, clusters, GROUP_SIZE, D / 4]
    , float2* __restrict__ partial_known  // [B, H, clusters, GROUP_SIZE]: maximum and sum
    , unsigned* __restrict__ finished     // [B, H, CLUSTER]
#endif
#endif
) {
#if IS_SPLIT
  const int piece = blockIdx.x, head = blockIdx.y, sequence = blockIdx.z, heads = gridDim.y;
#else
  const int piece = 0, head = blockIdx.x, sequence = blockIdx.y, heads = gridDim.x;
  const int piece_len = kv_len;
#endif
  const int length = seq_lens[sequence];
  const size_t pair = (size_t)sequence * heads + head;
  const size_t kv_head =
      GQA ? pair : (size_t)sequence * num_kv_heads + head / (heads / num_kv_heads);
  const half* k_head = k + kv_head * kv_len * HEAD_DIM;
  const half* v_head = v + kv_head * kv_len * HEAD_DIM;
  const int begin = piece * piece_len;
  const int end = IS_SPLIT ? min(begin + piece_len, length) : length;
  const int first = begin + warp_of_thread() * STEP;
  const int cluster = piece / BLOCKS_A_CLUSTER, cluster_len = BLOCKS_A_CLUSTER * piece_len;
  // Nothing of this sequence is left for this cluster.
  const bool is_idle = IS_SPLIT && MERGE && cluster * cluster_len >= length;

  State mine;
  Heads q_rmem;
#if LOAD > 0 || WARPS > 1 || IS_SPLIT
  extern __shared__ __align__(128) unsigned char smem[];
#endif
#if LOAD == 0
  if (IS_SPLIT && MERGE) start_in_cluster(mail_bytes());
  if (is_idle) {
    wait_for_cluster();
    return;
  }
  load_heads(q_rmem, q + pair * GROUP_SIZE * HEAD_DIM, sm_scale);
  const half* k_lane = k_head + dim_of_lane();
  const half* v_lane = v_head + dim_of_lane();
  each_step(first, end, [&](int n, auto masked) {
    take_rows<masked.value && KEYS != 1>(mine, q_rmem, k_lane, v_lane, n, end);
  });
#elif LOAD == 1
  Slot& slot = reinterpret_cast<Slot*>(smem)[warp_of_thread()];
  if (IS_SPLIT && MERGE) start_in_cluster(mail_bytes());
  if (is_idle) {
    wait_for_cluster();
    return;
  }
  load_heads(q_rmem, q + pair * GROUP_SIZE * HEAD_DIM, sm_scale);
  each_step(first, end, [&](int n, auto masked) {
    const size_t row = (size_t)n * HEAD_DIM;
    __syncwarp();  // every lane has left the tile before
    bring_tile<masked.value>(slot, k_head + row, v_head + row, kv_len - n);
    __syncwarp();
    fold_tile<masked.value>(mine, q_rmem, slot, end - n, sm_scale);
  });
#else
  Slot* ring = reinterpret_cast<Slot*>(smem) + warp_of_thread() * STAGES;
  // The rows up to kv_len are there, so that the first copies need not wait for the length.
  const int copied_end = min(begin + piece_len, kv_len);
  int next = first, filling = 0, reading = 0;
  const auto copy_next = [&] {
    const size_t row = (size_t)next * HEAD_DIM;
    if (TAIL && next + TILE <= copied_end) {
      bring_tile<false>(ring[filling], k_head + row, v_head + row, TILE);
    } else if (next < copied_end) {
      bring_tile<true>(ring[filling], k_head + row, v_head + row, kv_len - next);
    }
    close_copies();  // a tile that is not there is a group without copies
    next += STRIDE;
    filling = filling + 1 == STAGES ? 0 : filling + 1;
  };
#pragma unroll 1
  for (int stage = 0; stage < STAGES - 1; ++stage) copy_next();
  if (IS_SPLIT && MERGE) start_in_cluster(mail_bytes());
  if (is_idle) {
    wait_for_copies<0>();
    wait_for_cluster();
    return;
  }
  load_heads(q_rmem, q + pair * GROUP_SIZE * HEAD_DIM, sm_scale);
  each_step(first, end, [&](int n, auto masked) {
    if (STAGES == 1) {
      __syncwarp();  // every lane has left the tile before
      copy_next();
      wait_for_copies<0>();
      __syncwarp();
    } else {
      wait_for_copies<STAGES == 1 ? 0 : STAGES - 2>();
      __syncwarp();  // every lane's copies have landed, and every lane has left the slot before
      copy_next();
    }
    fold_tile<masked.value>(mine, q_rmem, ring[reading], end - n, sm_scale);
    reading = reading + 1 == STAGES ? 0 : reading + 1;
  });
  wait_for_copies<0>();
#endif

  join_teams(mine);
  half* out_heads = out + pair * GROUP_SIZE * HEAD_DIM;
#if MATH == 0 && WARPS == 1 && !IS_SPLIT
  store_heads(out_heads, mine);
#else
  if (LOAD > 0) __syncthreads();  // nobody reads a tile any more: the results take their place
  MergeSpace& space = *reinterpret_cast<MergeSpace*>(smem);
  hand_over(space, mine);
  __syncthreads();
#if !IS_SPLIT
  join_warps(space, [&](const Share& share, int i) { share.store(out_heads, i); });
#elif MERGE == 0
  join_warps(space, [&](const Share& share, int i) {
    const size_t row = (pair * GROUP_SIZE + i / SHARES) * gridDim.x + blockIdx.x;
    write_partial(partial + row * PARTIAL_ROW, i % SHARES, share);
  });
#else
  join_and_store(space, out_heads, {partial_rows, partial_known, finished}, (int)pair, cluster,
                 cluster_len, length, gridDim.x);
#endif
#endif
}
