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

// Starts the copies of the tile at key n, of which the first `readable` rows are there.
__device__ __forceinline__ void copy_tile(Slot& slot, const Cache& cache, const Pages& pages, int n,
                                          int readable) {
  const int lane = threadIdx.x % 32;
  const int key_of_lane = lane / CHUNKS, chunk = lane % CHUNKS, left = readable - key_of_lane;
#ifndef PAGE_SIZE  // the rows are one run of memory, so that a copy is an offset from the first
  const unsigned char* k_codes = cache.k_codes + (size_t)n * ROW_BYTES + lane * 16;
  const unsigned char* v_codes = cache.v_codes + (size_t)n * ROW_BYTES + lane * 16;
#endif
  const SharedAddress of_lane = shared_address(slot.k) + 16 * place_of(key_of_lane, chunk);
#pragma unroll
  for (int first = 0; first < TILE * CHUNKS; first += 32) {
    const SharedAddress to = (of_lane ^ 16 * moved_by(first / CHUNKS / KEYS)) + 16 * first;
#ifdef PAGE_SIZE
    const int key = first / CHUNKS + key_of_lane;
    const int row = pages.first_row[first / CHUNKS / PAGE_SIZE] + (n + key) % PAGE_SIZE;
    const unsigned char* k_from = cache.k_codes + (size_t)row * ROW_BYTES + chunk * 16;
    const unsigned char* v_from = cache.v_codes + (size_t)row * ROW_BYTES + chunk * 16;
#else
    const unsigned char *k_from = k_codes + first * 16, *v_from = v_codes + first * 16;
#endif
    copy_async_16(to, k_from, first / CHUNKS < left);
    copy_async_16(to + sizeof(slot.k), v_from, first / CHUNKS < left);
  }
  if (n % (RUN * TILE) == 0) {
    const size_t group = (size_t)(n / K_GROUP) * HEAD_DIM + lane % 16 * 8;
    copy_async_16(slot.k_scale_and_bias + lane, (lane < 16 ? cache.k_scale : cache.k_bias) + group);
  }
  // Rows of V's scales are padded to 64, but a paged cache has none behind the last page.
  const int eight = lane % KEYS;
  bool there = true;
#ifdef PAGE_SIZE
  int row = 0;  // a sum: of conditions the compiler would make an index, and registers have none
#pragma unroll
  for (int i = 0; i < PAGES; ++i)
    row += (eight * 8 / PAGE_SIZE == i) * (pages.first_row[i] + (n + eight * 8) % PAGE_SIZE);
  there = eight * 8 < readable;
#else
  const int row = n + eight * 8;
#endif
  if (lane < 2 * KEYS)
    copy_async_16(slot.v_scale_and_bias + lane, (lane < KEYS ? cache.v_scale : cache.v_bias) + row,
                  there);
}

struct BlockSpace {  // of shared memory
  QueryOperands q;
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
  bool is_large;  // rounding q to fp16 would show in the scores
};

__device__ __forceinline__ ScaledQ scale_by(const QueryOperands& q, const Slot& slot,
                                            float sm_scale_log2) {
  const int c = threadIdx.x % 4;
  ScaledQ scaled;
  float of_bias[4] = {}, of_offset[4] = {};
#pragma unroll
  for (int s = 0; s < K_STEPS; s += 2) {
    unsigned pairs[2][2], scale[2][2], bias[2][2];  // of the dims of two products
    load_q(pairs, q, s);
    take_pairs(scale, slot.k_scale_and_bias[eight_of(c, s)]);
    take_pairs(bias, slot.k_scale_and_bias[HEAD_DIM / 8 + eight_of(c, s)]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned biases[4] = {bias[i][0], anything(), bias[i][1], anything()};  // rows g only
      mma_m16n8k16<half>(of_bias, biases, pairs[i][0], pairs[i][1]);
      unsigned operands[2], rows[4];  // rows g are the offset, rows g + 8 the heads themselves
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const half2 pair = scale_q(pairs[i][k], scale[i][k], k);
        operands[k] = as_bits(pair);
        rows[2 * k] = K_OFFSET[k];
        rows[2 * k + 1] = as_bits(square_with(pair, k));
      }
      scaled.q[s + i] = side_by_side(operands[0], operands[1]);
      mma_m16n8k16<half>(of_offset, rows, scaled.q[s + i]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h)
    scaled.base[h] = (of_offset[h] * CODE_UNIT + of_bias[h]) * sm_scale_log2;
  // No product of two heads is above the larger of their squares.
  const float spread = sm_scale_log2 * (1 << KV_BITS);
  const float square = fmaxf(of_offset[2], of_offset[3]) * spread * spread;
  scaled.is_large = __any_sync(0xffffffffu, square > 2 * LARGE_SQUARE);
  return scaled;
}

// Adds the products of all keys of a tile with q, in codes.
__device__ __forceinline__ void take_keys(float (&dot)[TILE / 16][4], const Slot& slot,
                                          const unsigned long long (&q)[K_STEPS]) {
  const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
  // Chunks of the rows g and g + 8 of a product, which hold several products' dims.
  const int upper = place_of(KEYS * g, c), lower = place_of(KEYS * g + 1, c);
#pragma unroll
  for (int s = 0; s < K_STEPS; s += K_STEPS_A_CHUNK) {
#pragma unroll
    for (int j = 0; j < TILE / 16; ++j)
      take_k(dot[j], slot.k[(upper ^ s) + 2 * j * CHUNKS], slot.k[(lower ^ s) + 2 * j * CHUNKS], q,
             s);
  }
}

// What rounding took from q, in the same form.
__device__ __forceinline__ ScaledQ rest_of(const ScaledQ& scaled, const QueryOperands& q,
                                           const Slot& slot, float sm_scale_log2) {
  ScaledQ rest;
  float of_offset[4] = {};
#pragma unroll
  for (int s = 0; s < K_STEPS; s += 2) {
    unsigned pairs[2][2], scale[2][2];
    load_q(pairs, q, s);
    take_pairs(scale, slot.k_scale_and_bias[eight_of(threadIdx.x % 4, s)]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      unsigned operands[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const half2 rounded = as_half2((unsigned)(scaled.q[s + i] >> (32 * k)));
        operands[k] = as_bits(rest_of_q(pairs[i][k], scale[i][k], rounded, k));
      }
      rest.q[s + i] = side_by_side(operands[0], operands[1]);
      const unsigned rows[4] = {K_OFFSET[0], anything(), K_OFFSET[1], anything()};
      mma_m16n8k16<half>(of_offset, rows, rest.q[s + i]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) rest.base[h] = of_offset[h] * CODE_UNIT * sm_scale_log2;
  return rest;
}

// Folds one tile, of which the first `valid` keys count. Scores are sums over PARTS of q.
template <int PARTS>
__device__ __forceinline__ void fold_tile(Known& known, const ScaledQ (&scaled)[PARTS],
                                          const Slot& slot, int valid, bool first,
                                          float sm_scale_log2) {
  const int lane = threadIdx.x % 32, g = lane / 4;
  const float unit = CODE_UNIT * sm_scale_log2;
  float base[2] = {}, dot[TILE / 16][4] = {};
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    take_keys(dot, slot, scaled[part].q);
#pragma unroll
    for (int h = 0; h < 2; ++h) base[h] += scaled[part].base[h];
  }

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
    // First what the first copies need: a line of constant memory that is not there yet takes time.
    int kv_len, int piece_len, int pieces, int num_kv_heads,
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
    float sm_scale_log2) {
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
  constexpr int LOADS = (K_STEPS / 2 + WARPS - 1) / WARPS;
  const uint4* q_row =
      reinterpret_cast<const uint4*>(q) + (pair * GROUP_SIZE + g % GROUP_SIZE) * (HEAD_DIM / 8);
  uint4 q_eights[LOADS];
#pragma unroll
  for (int i = 0; i < LOADS; ++i)
    start_load(q_eights[i], q_row + eight_of(c, 2 * ((warp + i * WARPS) % (K_STEPS / 2))));
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
    if (next < copied_end) copy_tile(ring[filling], cache, pages, next, readable_end - next);
    close_copies();  // a tile that is not there is a group without copies
    next = tile_after(next);
    pages = pages_after;
    pages_after = pages_of(tile_after(next));
    filling = filling + 1 == STAGES ? 0 : filling + 1;
  };
#pragma unroll 1
  for (int stage = 0; stage < STAGES - 1; ++stage) copy_next();
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

#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    end_load(q_eights[i]);
    unsigned four[2][2];
    take_pairs(four, q_eights[i]);
    if (warp + i * WARPS < K_STEPS / 2)
      space.q[warp + i * WARPS][lane] =
          make_uint4(as_half_pair(four[0][0]), as_half_pair(four[0][1]), as_half_pair(four[1][0]),
                     as_half_pair(four[1][1]));
  }
  __syncthreads();  // q stands there

  Known known;
  int reading = 0;
  const auto wait_for_tile = [] {
    wait_for_copies<STAGES - 2>();
    __syncwarp();  // every lane's copies have landed, and every lane has left the slot before
  };
  wait_for_tile();
  int n = first;
  const auto fold_run = [&](const auto& scaled) {
#pragma unroll 1
    do {
      copy_next();
      fold_tile(known, scaled, ring[reading], end - n, n == first, sm_scale_log2);
      if (n / TILE % (SETTLED_AFTER / TILE) == SETTLED_AFTER / TILE - 1) known.settle();
      reading = reading + 1 == STAGES ? 0 : reading + 1;
      n += TILE;
      wait_for_tile();
    } while (RUN > 1 && n % (RUN * TILE) != 0 && n < end);
  };
#pragma unroll 1
  for (; n < end; n += (WARPS - 1) * RUN * TILE) {
    const ScaledQ scaled[1] = {scale_by(space.q, ring[reading], sm_scale_log2)};
    if (scaled[0].is_large) {
      const ScaledQ both[2] = {scaled[0],
                               rest_of(scaled[0], space.q, ring[reading], sm_scale_log2)};
      fold_run(both);
    } else {
      fold_run(scaled);
    }
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) {
      known.weight_sum[h] += __shfl_xor_sync(0xffffffffu, known.weight_sum[h], offset);
      known.bias_sum[h] += __shfl_xor_sync(0xffffffffu, known.bias_sum[h], offset);
    }
  }
  known.settle();
  wait_for_copies<0>();
  __syncthreads();  // nobody reads the ring any more: the results take its place
  MergeSpace& merge = *reinterpret_cast<MergeSpace*>(smem);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int head = 2 * c + h;
    if (head >= GROUP_SIZE) break;
#pragma unroll
    for (int t = 0; t < DIM_TILES; t += 2) {
      float x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[i] = fmaf(known.acc[t + i / 2][h + i % 2 * 2], V_UNIT[i % 2], known.bias_sum[h]);
      merge.rows[warp][head][4 * t + g] = make_float4(x[0], x[1], x[2], x[3]);
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
