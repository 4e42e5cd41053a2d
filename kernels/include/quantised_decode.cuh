// The decode kernel of r10 and r11, which differ in how codes become fp16: `take_k` and `take_v`
// stand in the rung, before this. K has a scale and a bias a dim over K_GROUP tokens, V one a row.
//
// A score is q . (scale c + bias) = (q scale) . c + q . bias: the scale goes into q once for the
// tiles that share it, and q . bias is one number a head. An output is the sum of
// p (scale c + bias): the scale goes into the weight p, and the sum of p bias is one number a head,
// added to every dim at the end.
#pragma once
#include "async_copy.cuh"
#include "merge.cuh"
#include "quantise.cuh"
#include "quantised_tile.cuh"

// Weights are kept as fp16. One of 2 or more has this bit, and so have infinity and NaN: then the
// maximum moves, so that the largest weight is 2^-HEADROOM.
constexpr unsigned TWO_OR_MORE = 0x40004000u;
constexpr float HEADROOM = 3.f;
constexpr int SETTLED_AFTER = TILE > 64 ? TILE : 64;  // keys
constexpr float SMALLEST_SCALE = 6e-8f;
// Rounding q times scale to fp16 puts an error of 2^-12.5 of its spread into a score. Of a spread
// of more than about 1.8 what was rounded off is multiplied too. Codes spread by 2^KV_BITS / 5.3.
constexpr float LARGE_SQUARE = 190.f;  // of q in codes of unit 1

// Each lane's operands of q, as fp16 pairs in the order of the codes. Every warp reads them once a
// run of tiles, so that they lie in shared memory: four pairs of each lane next to another's.
using QueryOperands = uint4[K_STEPS / 2][32];

// A pair of q's type as one of fp16.
__device__ __forceinline__ unsigned as_half_pair(unsigned pair) {
#ifdef BF16
  const float2 both = unpack_pair<Element>(pair);
  return pack_pair<half>(both.x, both.y);
#else
  return pair;
#endif
}

__device__ __forceinline__ void load_q(unsigned (&pairs)[2][2], const QueryOperands& q, int step) {
  const uint4 four = q[step / 2][threadIdx.x % 32];
  pairs[0][0] = four.x;
  pairs[0][1] = four.y;
  pairs[1][0] = four.z;
  pairs[1][1] = four.w;
}

// Tiles that a warp copies ahead. With room for one tile, it takes one only.
constexpr int AHEAD = STAGES > 1 ? STAGES - 1 : 1;

// Warps whose runs lie in one group of K's scales share the work of scaling q by them: each takes
// every SHARERS-th pair of products. They are neighbours, and with one of them nothing is shared.
constexpr int IN_GROUP = K_GROUP / (RUN * TILE) < WARPS ? K_GROUP / (RUN * TILE) : WARPS;
constexpr int SHARERS = IN_GROUP < K_STEPS / 2 ? IN_GROUP : K_STEPS / 2;
// A warp loads what it scales of q; if nothing is shared, its part of what all warps scale.
constexpr int LOADING = SHARERS > 1 ? SHARERS : WARPS;
constexpr int LOADS = (K_STEPS / 2 + LOADING - 1) / LOADING;
// The i-th of those pairs.
__device__ __forceinline__ int pair_of(int i) {
  return (threadIdx.x / 32 % LOADING + i * LOADING) % (K_STEPS / 2);
}

struct Cache {  // of one KV head, or with pages of all
  const unsigned char *k_codes, *v_codes;
  const half *k_scale, *k_bias;  // [ceil(S / K_GROUP), D]
  const half *v_scale, *v_bias;  // [S]
};

#ifdef PAGE_SIZE
constexpr int PAGES = (TILE + PAGE_SIZE - 1) / PAGE_SIZE;  // of one tile
#else
constexpr int PAGES = 1;
#endif
struct Pages {
  int first_row[PAGES];  // of each page of a tile, in rows of the cache
};

// Starts the copies of the codes of the tile at key n, of which the first `readable` rows exist.
__device__ __forceinline__ void copy_codes(uint4* place, const unsigned char* codes,
                                           const Pages& pages, int n, int readable) {
  const int lane = threadIdx.x % 32;
  const int key_of_lane = lane / CHUNKS, chunk = lane % CHUNKS, left = readable - key_of_lane;
#ifndef PAGE_SIZE  // the rows are one run of memory, so that a copy is an offset from the first
  codes += (size_t)n * ROW_BYTES + lane * 16;
#endif
  const SharedAddress of_lane = shared_address(place) + 16 * place_of(key_of_lane, chunk);
#pragma unroll
  for (int first = 0; first < TILE * CHUNKS; first += 32) {
    const SharedAddress to = (of_lane ^ 16 * moved_by(first / CHUNKS / KEYS)) + 16 * first;
#ifdef PAGE_SIZE
    const int key = first / CHUNKS + key_of_lane;
    const int row = pages.first_row[first / CHUNKS / PAGE_SIZE] + (n + key) % PAGE_SIZE;
    const unsigned char* from = codes + (size_t)row * ROW_BYTES + chunk * 16;
#else
    const unsigned char* from = codes + first * 16;
#endif
    copy_async_16(to, from, first / CHUNKS < left);
  }
}

// Those of K's scales and, in a group of their own, of K's codes and V's scales.
__device__ __forceinline__ void copy_keys(Slot& slot, const Cache& cache, const Pages& pages, int n,
                                          int readable) {
  const int lane = threadIdx.x % 32;
  if (n % (RUN * TILE) == 0) {
    const size_t group = (size_t)(n / K_GROUP) * HEAD_DIM + lane % 16 * 8;
    copy_async_16(slot.k_scale_and_bias + lane, (lane < 16 ? cache.k_scale : cache.k_bias) + group);
  }
  close_copies();
  copy_codes(slot.k, cache.k_codes, pages, n, readable);
  const int eight = lane % KEYS;
#ifdef PAGE_SIZE
  int row = 0;  // a sum: of conditions the compiler would make an index, and registers have none
#pragma unroll
  for (int i = 0; i < PAGES; ++i)
    row += (eight * 8 / PAGE_SIZE == i) * (pages.first_row[i] + (n + eight * 8) % PAGE_SIZE);
#else
  const int row = n + eight * 8;
#endif
  if (lane < 2 * KEYS)
    copy_async_16(slot.v_scale_and_bias + lane, (lane < KEYS ? cache.v_scale : cache.v_bias) + row,
                  eight * 8 < readable);
}

// Where warps that share the scaling exchange its results.
template <bool IS_SHARED>
struct Exchange {
  struct {
    QueryOperands q;           // times the scales
    float4 sums[SHARERS][32];  // of each warp and lane
  } sets[WARPS / SHARERS];
};
template <>
struct Exchange<false> {};

struct BlockSpace : Exchange<(SHARERS > 1)> {  // of shared memory
  QueryOperands q;
  uint4 k_scale[WARPS][HEAD_DIM / 8];  // of a run whose scores are large
  Slot ring[WARPS][STAGES];
};

// What a warp knows of the heads 2c and 2c+1; the rows of acc are dims.
struct Known {
  float score_max[2] = {-INFINITY, -INFINITY};
  float weight_sum[2] = {0.f, 0.f};
  float bias_sum[2] = {0.f, 0.f};
  float acc[DIM_TILES][4] = {};
  float offset[4] = {};  // what is still to be added to each of acc[t]

  // The weights times the offset of the codes are the same for all dims. Seldom enough to save
  // time, often enough that acc stays small beside its result, or the sums would lose digits.
  __device__ __forceinline__ void settle() {
#pragma unroll
    for (int t = 0; t < DIM_TILES; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[t][i] += offset[i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) offset[i] = 0.f;
  }
};

// Moves the maxima so that weight times scale is small for the scores of this tile too.
__device__ __forceinline__ void raise_max(Known& known, const float (&dot)[TILE / 16][4],
                                          float unit, const float (&base)[2],
                                          const float (&v_scale)[KEYS], bool first) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = known.score_max[h];
#pragma unroll
    for (int i = 0; i < KEYS; ++i) {
      const float score = fmaf(dot[i / 2][2 * (i % 2) + h], unit, base[h]);
      largest = fmaxf(largest, score + __log2f(fmaxf(v_scale[i], SMALLEST_SCALE)) + HEADROOM);
    }
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    const float rescale = exp2f(known.score_max[h] - largest);
    known.score_max[h] = largest;
    if (first) continue;  // there is nothing yet
    known.weight_sum[h] *= rescale;
    known.bias_sum[h] *= rescale;
    known.offset[h] *= rescale;
    known.offset[h + 2] *= rescale;
#pragma unroll
    for (int t = 0; t < DIM_TILES; ++t) {
      known.acc[t][h] *= rescale;
      known.acc[t][h + 2] *= rescale;
    }
  }
}

// The weights p of a tile, and p times V's scale in fp16.
__device__ __forceinline__ void weigh(float (&weight)[TILE / 16][4],
                                      unsigned (&scaled)[TILE / 16][2],
                                      const float (&dot)[TILE / 16][4], float unit,
                                      const float (&base)[2], const Known& known,
                                      const float (&v_scale)[KEYS]) {
  const float shift[2] = {base[0] - known.score_max[0], base[1] - known.score_max[1]};
#pragma unroll
  for (int j = 0; j < TILE / 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) weight[j][i] = exp2f(fmaf(dot[j][i], unit, shift[i % 2]));
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float scale = v_scale[2 * j + row];
      scaled[j][row] = pack_pair<half>(weight[j][2 * row] * scale, weight[j][2 * row + 1] * scale);
    }
  }
}

// A lane's KEYS neighbouring numbers of a row.
__device__ __forceinline__ void to_floats(float (&x)[KEYS], const uint4* row, int g) {
  const unsigned* pairs = reinterpret_cast<const unsigned*>(row) + g * (KEYS / 2);
#pragma unroll
  for (int i = 0; i < KEYS / 2; ++i) {
    const float2 pair = unpack_pair<half>(pairs[i]);
    x[2 * i] = pair.x;
    x[2 * i + 1] = pair.y;
  }
}

// q for the tiles of one run, and what of their scores does not depend on the key.
struct ScaledQ {
  unsigned long long q[K_STEPS];  // q times K's scale, two operands each
  float base[2];  // the part of a score that q . bias and the offset of the codes give
  float square;   // above it no product of two heads of q is, in codes of unit 1
};
// Whether rounding q to fp16 would show in the scores.
__device__ __forceinline__ bool is_large(const ScaledQ& scaled) {
  return __any_sync(0xffffffffu, scaled.square > LARGE_SQUARE);
}

// What the warps of a set exchange at a barrier: each gives its part of the scaled q and of the
// sums, and takes those of all.
template <bool IS_SHARED>
struct Sharing {
  template <class Space>
  static __device__ __forceinline__ void give(Space& space, const ScaledQ& scaled, float4 sums) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    auto& set = space.sets[warp / SHARERS];
#pragma unroll
    for (int i = 0; i < K_STEPS / 2 / SHARERS; ++i)
      set.q[pair_of(i)][lane] = make_uint4(
          (unsigned)scaled.q[2 * i], (unsigned)(scaled.q[2 * i] >> 32),
          (unsigned)scaled.q[2 * i + 1], (unsigned)(scaled.q[2 * i + 1] >> 32));
    set.sums[warp % SHARERS][lane] = sums;
  }
  template <class Space>
  static __device__ __forceinline__ void take(const Space& space, ScaledQ& scaled, float4& sums) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const auto& set = space.sets[warp / SHARERS];
#pragma unroll
    for (int i = 0; i < K_STEPS / 2; ++i) {
      const uint4 four = set.q[i][lane];
      scaled.q[2 * i] = side_by_side(four.x, four.y);
      scaled.q[2 * i + 1] = side_by_side(four.z, four.w);
    }
    sums = set.sums[0][lane];
#pragma unroll
    for (int i = 1; i < SHARERS; ++i) {
      const float4 more = set.sums[i][lane];
      sums = make_float4(sums.x + more.x, sums.y + more.y, sums.z + more.z, sums.w + more.w);
    }
  }
};
template <>
struct Sharing<false> {
  static __device__ __forceinline__ void give(BlockSpace&, const ScaledQ&, float4) {}
  static __device__ __forceinline__ void take(const BlockSpace&, ScaledQ&, float4&) {}
};

// Scales this warp's part of q; the rest of `ScaledQ` comes from the sums that it gives.
__device__ __forceinline__ float4 scale_part(ScaledQ& scaled, const BlockSpace& space,
                                             const Slot& slot,
                                             const unsigned (&own)[LOADS][2][2]) {
  const int c = threadIdx.x % 4;
  // In two sums each, so that one product need not wait for the one before.
  float of_bias[2][4] = {}, of_offset[2][4] = {};
#pragma unroll
  for (int p = 0; p < K_STEPS / 2 / SHARERS; ++p) {
    const int s = 2 * (SHARERS > 1 ? pair_of(p) : p);
    unsigned pairs[2][2], scale[2][2], bias[2][2];  // of the dims of two products
    if (SHARERS > 1)  // then there are as many loads as pairs
      memcpy(pairs, own[p % LOADS], sizeof pairs);
    else
      load_q(pairs, space.q, s);
    take_pairs(scale, slot.k_scale_and_bias[eight_of(c, s)]);
    take_pairs(bias, slot.k_scale_and_bias[HEAD_DIM / 8 + eight_of(c, s)]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned biases[4] = {bias[i][0], anything(), bias[i][1], anything()};  // rows g only
      mma_m16n8k16<half>(of_bias[i], biases, pairs[i][0], pairs[i][1]);
      half2 operands[2], squares[2];
      scale_q(operands, squares, pairs[i], scale[i]);
      // Rows g are the offset, rows g + 8 what gives twice the square.
      const unsigned rows[4] = {K_OFFSET[0], as_bits(squares[0]), K_OFFSET[1], as_bits(squares[1])};
      scaled.q[2 * p + i] = side_by_side(as_bits(operands[0]), as_bits(operands[1]));
      mma_m16n8k16<half>(of_offset[i], rows, scaled.q[2 * p + i]);
    }
  }
  return make_float4(
      (of_offset[0][0] + of_offset[1][0]) * CODE_UNIT + (of_bias[0][0] + of_bias[1][0]),
      (of_offset[0][1] + of_offset[1][1]) * CODE_UNIT + (of_bias[0][1] + of_bias[1][1]),
      of_offset[0][2] + of_offset[1][2], of_offset[0][3] + of_offset[1][3]);
}

__device__ __forceinline__ void complete(ScaledQ& scaled, float4 sums, BlockSpace& space,
                                         const Slot& slot, float sm_scale_log2) {
  const int lane = threadIdx.x % 32;
  scaled.base[0] = sums.x * sm_scale_log2;
  scaled.base[1] = sums.y * sm_scale_log2;
  const float spread = sm_scale_log2 * (1 << KV_BITS);
  scaled.square = fmaxf(sums.z, sums.w) / 2 * spread * spread;
  if (is_large(scaled)) {  // later tiles of the run need the scales too
    if (lane < HEAD_DIM / 8) space.k_scale[threadIdx.x / 32][lane] = slot.k_scale_and_bias[lane];
    __syncwarp();
  }
}

// Adds the products of all keys of a tile with q, in codes.
__device__ __forceinline__ void take_keys(float (&dot)[TILE / 16][4], const Slot& slot,
                                          const unsigned long long (&q)[K_STEPS]) {
  const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
  // Chunks of the rows g and g + 8 of a product, which hold several products' dims.
  const int upper = place_of(KEYS * g, c), lower = place_of(KEYS * g + 1, c);
  // With few keys a product would wait for the one before: then every second one has its own sum.
  constexpr bool TWO_SUMS = TILE < 64;
  float second[TILE / 16][4] = {};
#pragma unroll
  for (int s = 0; s < K_STEPS; s += K_STEPS_A_CHUNK) {
#pragma unroll
    for (int j = 0; j < TILE / 16; ++j)
      take_k(dot[j], TWO_SUMS ? second[j] : dot[j], slot.k[(upper ^ s) + 2 * j * CHUNKS],
             slot.k[(lower ^ s) + 2 * j * CHUNKS], q, s);
  }
  if (!TWO_SUMS) return;
#pragma unroll
  for (int j = 0; j < TILE / 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) dot[j][i] += second[j][i];
  }
}

// Adds the products with what rounding took from q, and its part of the base.
__device__ __forceinline__ void take_rest(float (&dot)[TILE / 16][4], float (&base)[2],
                                          const ScaledQ& scaled, const QueryOperands& q,
                                          const uint4* k_scale, const Slot& slot,
                                          float sm_scale_log2) {
  unsigned long long rests[K_STEPS];
  float of_offset[4] = {};
#pragma unroll
  for (int s = 0; s < K_STEPS; s += 2) {
    unsigned pairs[2][2], scale[2][2];
    load_q(pairs, q, s);
    take_pairs(scale, k_scale[eight_of(threadIdx.x % 4, s)]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const half2 rounded[2] = {as_half2((unsigned)scaled.q[s + i]),
                                as_half2((unsigned)(scaled.q[s + i] >> 32))};
      half2 rest[2];
      rest_of_q(rest, pairs[i], scale[i], rounded);
      rests[s + i] = side_by_side(as_bits(rest[0]), as_bits(rest[1]));
      const unsigned rows[4] = {K_OFFSET[0], anything(), K_OFFSET[1], anything()};
      mma_m16n8k16<half>(of_offset, rows, rests[s + i]);
    }
  }
  take_keys(dot, slot, rests);
#pragma unroll
  for (int h = 0; h < 2; ++h) base[h] += of_offset[h] * CODE_UNIT * sm_scale_log2;
}

// Folds one tile, of which the first `valid` keys count. V is needed behind `wait_for_values`.
template <class Wait>
__device__ __forceinline__ void fold_tile(Known& known, const ScaledQ& scaled,
                                          const BlockSpace& space, const Slot& slot, int valid,
                                          bool first, float sm_scale_log2, Wait wait_for_values) {
  const int lane = threadIdx.x % 32, g = lane / 4;
  const float unit = CODE_UNIT * sm_scale_log2;
  float base[2] = {scaled.base[0], scaled.base[1]}, dot[TILE / 16][4] = {};
  take_keys(dot, slot, scaled.q);
  if (is_large(scaled))
    take_rest(dot, base, scaled, space.q, space.k_scale[threadIdx.x / 32], slot, sm_scale_log2);

  float v_scale[KEYS], v_bias[KEYS];  // of the keys KEYS g, KEYS g + 1, ...
  to_floats(v_scale, slot.v_scale_and_bias, g);
  to_floats(v_bias, slot.v_scale_and_bias + TILE / 8, g);
  if (valid < TILE) {
#pragma unroll
    for (int i = 0; i < KEYS; ++i) {
      if (KEYS * g + i >= valid) {
        dot[i / 2][2 * (i % 2)] = dot[i / 2][2 * (i % 2) + 1] = -INFINITY;
        v_scale[i] = v_bias[i] = 0.f;
      }
    }
  }

  float weight[TILE / 16][4];
  unsigned weighted[TILE / 16][2];
  // Once, or twice where the maximum moves; at the first tile it always does.
  bool raise = first;
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {
    if (raise) raise_max(known, dot, unit, base, v_scale, first);
    weigh(weight, weighted, dot, unit, base, known, v_scale);
    unsigned any = 0;
#pragma unroll
    for (int j = 0; j < TILE / 16; ++j) any |= weighted[j][0] | weighted[j][1];
    raise = __any_sync(0xffffffffu, (any & TWO_OR_MORE) != 0);
    if (!raise) break;
  }

  wait_for_values();
  // What a lane names for ldmatrix: the rows of both halves of a product, and two chunks of each.
  const SharedAddress v =
      shared_address(slot.v) + 16 * place_of(KEYS * (lane % 8) + lane / 8 % 2, lane / 16);
#pragma unroll
  for (int j = 0; j < TILE / 16; ++j) {
    unsigned weights[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        known.weight_sum[h] += weight[j][2 * row + h];
        known.bias_sum[h] += weight[j][2 * row + h] * v_bias[2 * j + row];
      }
      weights[row] = movmatrix_trans(weighted[j][row]);
    }
    mma_m16n8k16<half>(known.offset, V_OFFSET, weights[0], weights[1]);
    take_v(known.acc, v + 32 * j * CHUNKS, weights);
  }
}

// The tile that a warp takes after the one at key n.
__device__ __forceinline__ int tile_after(int n) {
  n += TILE;
  return n % (RUN * TILE) ? n : n + (WARPS - 1) * RUN * TILE;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS) IN_CLUSTERS DECODE_ENTRY(
    // First what is needed first: a line of constant memory that is not there yet takes time.
    int kv_len, int piece_len, int num_kv_heads, float sm_scale_log2,
    const Element* __restrict__ q,              // [B, Hq, D]
    const unsigned char* __restrict__ k_codes,  // [B, Hkv, S, D * KV_BITS / 8], paged:
    const unsigned char* __restrict__ v_codes,  // [pages, Hkv, PAGE_SIZE, D * KV_BITS / 8]
    const half* __restrict__ k_scale,           // [B, Hkv, ceil(S / K_GROUP), D]
    const half* __restrict__ k_bias,            // as k_scale
    const half* __restrict__ v_scale,  // [B, Hkv, S up to 64], paged: [pages, Hkv, PAGE_SIZE]
    const half* __restrict__ v_bias,   // as v_scale
    const int* __restrict__ seq_lens,  // [B]
#ifdef PAGE_SIZE
    const int* __restrict__ page_table,  // [B, max_pages]
    int max_pages,
#endif
    Element* __restrict__ out,           // [B, Hq, D]
    float4* __restrict__ partial_rows,   // [B, Hkv, clusters, GROUP_SIZE, D / 4]
    float2* __restrict__ partial_known,  // [B, Hkv, clusters, GROUP_SIZE]: maximum and sum
    unsigned* __restrict__ finished,     // [B, Hkv, CLUSTER]
    int pieces) {
  extern __shared__ __align__(128) unsigned char smem[];
  const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4, warp = threadIdx.x / 32;
  const int piece = blockIdx.x, kv_head = blockIdx.y, sequence = blockIdx.z;
  const int pair = sequence * num_kv_heads + kv_head;
  BlockSpace& space = *reinterpret_cast<BlockSpace*>(smem);
  Slot(&ring)[STAGES] = space.ring[warp];

  const int begin = piece * piece_len;
  int length;
  start_load(length, seq_lens + sequence + maybe_lane(kv_len));
  const size_t k_groups = (kv_len + K_GROUP - 1) / K_GROUP;
  Cache cache = {k_codes, v_codes, k_scale, k_bias, v_scale, v_bias};
  cache.k_scale += pair * k_groups * HEAD_DIM;
  cache.k_bias += pair * k_groups * HEAD_DIM;
#ifdef PAGE_SIZE
  const int readable_end = length;
  page_table += (size_t)sequence * max_pages;
#else
  // The rows up to kv_len are there, so that the first copies need not wait for the length.
  const int readable_end = kv_len;
  cache.k_codes += (size_t)pair * kv_len * ROW_BYTES;
  cache.v_codes += (size_t)pair * kv_len * ROW_BYTES;
  const size_t padded = (kv_len + 63) / 64 * 64;
  cache.v_scale += pair * padded;
  cache.v_bias += pair * padded;
#endif
  const int copied_end = min(begin + piece_len, readable_end);

  // The columns of Q^T are the heads; those past the group are copies that nobody looks at. The
  // warps share the loads, which start before the copies, or they would queue behind those. Nothing
  // waits for them, nor for the length, until the copies are under way.
  const uint4* q_row =
      reinterpret_cast<const uint4*>(q) + (pair * GROUP_SIZE + g % GROUP_SIZE) * (HEAD_DIM / 8);
  uint4 q_eights[LOADS];
#pragma unroll
  for (int i = 0; i < LOADS; ++i)
    start_load(q_eights[i], q_row + eight_of(c, 2 * pair_of(i)));
  __syncwarp();

  // A warp takes every WARPS-th run of tiles. The pages of a tile are looked up before its copies
  // start, and without waiting for the length.
  const auto pages_of = [&](int n) {
    Pages pages = {};
#ifdef PAGE_SIZE
    if (n < min(begin + piece_len, kv_len)) {  // of pages behind the length nothing is copied
#pragma unroll
      for (int i = 0; i < PAGES; ++i) {
        const int page = page_table[min(n / PAGE_SIZE + i, max_pages - 1)];
        pages.first_row[i] = (page * num_kv_heads + kv_head) * PAGE_SIZE;
      }
    }
#endif
    return pages;
  };
  const int first = begin + warp * RUN * TILE;
  int next = first, filling = 0;
  Pages pages = pages_of(next), pages_after = pages_of(tile_after(next));
  const auto copy_next = [&] {
    // Three groups a tile: K's scales, K's codes with V's scales, V's codes; empty ones if there is
    // nothing to copy. A warp that shares the scaling needs the scales even if it has no keys.
    if (next - warp % SHARERS * RUN * TILE < copied_end) {
      copy_keys(ring[filling], cache, pages, next, readable_end - next);
      close_copies();
      copy_codes(ring[filling].v, cache.v_codes, pages, next, readable_end - next);
    } else {
      close_copies();
      close_copies();
    }
    close_copies();
    next = tile_after(next);
    pages = pages_after;
    pages_after = pages_of(tile_after(next));
    filling = filling + 1 == STAGES ? 0 : filling + 1;
  };
#pragma unroll 1
  for (int stage = 0; stage < AHEAD; ++stage) copy_next();
  start_in_cluster(mail_bytes());

#ifndef PAGE_SIZE
  end_load(length);
#endif
  const int end = min(begin + piece_len, length);
  const int cluster = piece / BLOCKS_A_CLUSTER;
  const int cluster_len = BLOCKS_A_CLUSTER * piece_len;
  if (cluster * cluster_len >= length) {  // nothing of this sequence is left for this cluster
    wait_for_copies<0>();
    wait_for_cluster();
    return;
  }

  unsigned own[LOADS][2][2];  // what this warp loaded of q, in the order of the codes
#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    end_load(q_eights[i]);
    take_pairs(own[i], q_eights[i]);
    for (auto& two : own[i])
      for (unsigned& pair : two) pair = as_half_pair(pair);
    if (warp < LOADING && warp + i * LOADING < K_STEPS / 2)
      space.q[pair_of(i)][lane] =
          make_uint4(own[i][0][0], own[i][0][1], own[i][1][0], own[i][1][1]);
  }
  if (SHARERS == 1) __syncthreads();  // q stands there

  Known known;
  int reading = 0;
  // For every lane's copies of what is read next. Behind the scales, one more tile's copies start.
  const auto wait_for_scales = [] {
    wait_for_copies<3 * AHEAD - 1>();
    __syncwarp();
  };
  const auto wait_for_keys = [] {
    wait_for_copies<3 * STAGES - 2>();
    __syncwarp();
  };
  const auto wait_for_values = [] {
    wait_for_copies<3 * STAGES - 3>();
    __syncwarp();
  };
  int unsettled = 0;  // keys
#pragma unroll 1
  for (int turn = begin; turn < end; turn += WARPS * RUN * TILE) {
    if (SHARERS > 1 && turn != begin) __syncthreads();  // what was exchanged has been read
    int n = turn + warp * RUN * TILE;
    if (SHARERS == 1 && n >= end) break;
    // A set without keys has nothing to give, but its warps meet the others at the barrier.
    const bool set_has_keys =
        SHARERS == 1 || SHARERS == WARPS || n - warp % SHARERS * RUN * TILE < end;
    using Shared = Sharing<(SHARERS > 1)>;
    ScaledQ scaled;
    float4 sums = {};
    if (set_has_keys) {
      wait_for_scales();
      sums = scale_part(scaled, space, ring[reading], own);
      Shared::give(space, scaled, sums);
    }
    if (SHARERS > 1) {
      __syncthreads();
      if (n >= end) break;
      Shared::take(space, scaled, sums);
    }
    complete(scaled, sums, space, ring[reading], sm_scale_log2);
#pragma unroll 1
    do {
      if (STAGES > 1) copy_next();
      if (STAGES > 1 && unsettled == SETTLED_AFTER) {
        known.settle();
        unsettled = 0;
      }
      unsettled += TILE;
      wait_for_keys();
      fold_tile(known, scaled, space, ring[reading], end - n, n == first, sm_scale_log2,
                wait_for_values);
      reading = reading + 1 == STAGES ? 0 : reading + 1;
      n += TILE;
      __syncwarp();  // every lane has left the slot
    } while (STAGES > 1 && RUN > 1 && n % (RUN * TILE) != 0 && n < end);
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) {
      known.weight_sum[h] += __shfl_xor_sync(0xffffffffu, known.weight_sum[h], offset);
      known.bias_sum[h] += __shfl_xor_sync(0xffffffffu, known.bias_sum[h], offset);
    }
  }
  wait_for_copies<0>();
  __syncthreads();  // nobody reads the ring any more: the results take its place
  MergeSpace& merge = *reinterpret_cast<MergeSpace*>(smem);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int head = 2 * c + h;
    if (head >= GROUP_SIZE) break;
    const float2 added = two_dims(known.offset[h], known.offset[h + 2],
                                  make_float2(known.bias_sum[h], known.bias_sum[h]));
#pragma unroll
    for (int t = 0; t < DIM_TILES; t += 2) {
      float2 x[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        x[i] = two_dims(known.acc[t + i][h], known.acc[t + i][h + 2], added);
      merge.rows[warp][head][4 * t + g] = make_float4(x[0].x, x[0].y, x[1].x, x[1].y);
    }
    if (g == 0) merge.known[warp][head] = make_float2(known.score_max[h], known.weight_sum[h]);
  }
  __syncthreads();
  join_and_store(merge, out + (size_t)pair * GROUP_SIZE * HEAD_DIM,
                 {partial_rows, partial_known, finished}, pair, cluster, cluster_len, length,
                 pieces);
}

QUANTISE_CHANNELS_BIASED(quantise_k, KV_BITS, K_GROUP)
QUANTISE_ROWS_BIASED(quantise_v, KV_BITS, HEAD_DIM)
