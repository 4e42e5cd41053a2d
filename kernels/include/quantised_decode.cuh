// The decode kernel of r10 and r11, which differ in how codes become fp16: `take_k` and `take_v`
// stand in the rung, before this. K has a scale and a bias a dim over 128 tokens, V one a row.
//
// A score is q . (scale c + bias) = (q scale) . c + q . bias: the scale goes into q once a tile,
// and q . bias is one number a head and tile. An output is the sum of p (scale c + bias): the scale
// goes into the weight p, and the sum of p bias is one number a head, added to every dim at the end.
#pragma once
#include "async_copy.cuh"
#include "merge.cuh"
#include "quantise.cuh"
#include "quantised_tile.cuh"

// Weights are kept as fp16. One of 2 or more has this bit, and so have infinity and NaN: then the
// maximum moves, so that the largest weight is 2^-HEADROOM.
constexpr unsigned TWO_OR_MORE = 0x40004000u;
constexpr float HEADROOM = 3.f;
constexpr float SMALLEST_SCALE = 6e-8f;

// A lane's share of a row of q, as fp16 pairs in the order of the codes.
__device__ __forceinline__ void take_q(unsigned (&q)[K_STEPS][2], const Element* row, int c) {
#pragma unroll
  for (int s = 0; s < K_STEPS; s += 2) {
    unsigned pairs[2][2];
    take_pairs(pairs, reinterpret_cast<const uint4*>(row), c, s);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 both = unpack_pair<Element>(pairs[i / 2][i % 2]);
      q[s + i / 2][i % 2] = pack_pair<half>(both.x, both.y);
    }
  }
}

struct Cache {  // of one KV head, or with pages of all
  const unsigned char *k_codes, *v_codes;
  const half *k_scale, *k_bias;  // [ceil(S / 128), D]
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
  const int key_of_lane = lane / CHUNKS, chunk = lane % CHUNKS;
#ifndef PAGE_SIZE  // the rows are one run of memory, so that a copy is an offset from the first
  const unsigned char* k_codes = cache.k_codes + (size_t)n * ROW_BYTES + lane * 16;
  const unsigned char* v_codes = cache.v_codes + (size_t)n * ROW_BYTES + lane * 16;
#endif
#pragma unroll
  for (int first = 0; first < TILE * CHUNKS; first += 32) {
    const int key = first / CHUNKS + key_of_lane;
#ifdef PAGE_SIZE
    const int row = pages.first_row[first / CHUNKS / PAGE_SIZE] + (n + key) % PAGE_SIZE;
    const unsigned char* k_from = cache.k_codes + (size_t)row * ROW_BYTES + chunk * 16;
    const unsigned char* v_from = cache.v_codes + (size_t)row * ROW_BYTES + chunk * 16;
#else
    const unsigned char *k_from = k_codes + first * 16, *v_from = v_codes + first * 16;
#endif
    copy_async_16(&slot.k[place_of_k(key / KEYS, key % KEYS, chunk)], k_from, key < readable);
    copy_async_16(&slot.v[place_of_v(key / (2 * KEYS), key % (2 * KEYS), chunk)], v_from,
                  key < readable);
  }
  const int which = lane % 16;
  const size_t group = (size_t)(n / K_GROUP) * HEAD_DIM + which * 8;
  copy_async_16(slot.k_scale_and_bias + lane, (lane < 16 ? cache.k_scale : cache.k_bias) + group);
  // Rows of V's scales are padded to 64, but a paged cache has none behind the last page.
  const int eight = lane % KEYS;
#ifdef PAGE_SIZE
  int row = 0;  // a register array takes no index that is known at run time only
#pragma unroll
  for (int i = 0; i < PAGES; ++i) {
    if (eight * 8 / PAGE_SIZE == i) row = pages.first_row[i] + (n + eight * 8) % PAGE_SIZE;
  }
#else
  const int row = n + eight * 8;
#endif
  if (lane < 2 * KEYS)
    copy_async_16(slot.v_scale_and_bias + lane, (lane < KEYS ? cache.v_scale : cache.v_bias) + row);
}

// What a warp knows of the heads 2c and 2c+1; the rows of acc are dims.
struct Known {
  float score_max[2] = {-INFINITY, -INFINITY};
  float weight_sum[2] = {0.f, 0.f};
  float bias_sum[2] = {0.f, 0.f};
  float acc[DIM_TILES][4] = {};
};

// Moves the maxima so that weight times scale is small for the scores of this tile too.
__device__ __forceinline__ void raise_max(Known& known, const float (&dot)[TILE / 16][4],
                                          float unit, const float (&base)[2],
                                          const float (&v_scale)[KEYS]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = known.score_max[h];
#pragma unroll
    for (int i = 0; i < KEYS; ++i) {
      const float score = dot[i / 2][2 * (i % 2) + h] * unit + base[h];
      largest = fmaxf(largest, score + log2f(fmaxf(v_scale[i], SMALLEST_SCALE)) + HEADROOM);
    }
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    const float rescale = exp2f(known.score_max[h] - largest);
    known.score_max[h] = largest;
    known.weight_sum[h] *= rescale;
    known.bias_sum[h] *= rescale;
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
    for (int i = 0; i < 4; ++i) weight[j][i] = exp2f(dot[j][i] * unit + shift[i % 2]);
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

// Folds one tile, of which the first `valid` keys count.
__device__ __forceinline__ void fold_tile(Known& known, const unsigned (&q)[K_STEPS][2],
                                          const Slot& slot, int valid, bool first,
                                          float sm_scale_log2) {
  const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;

  // What does not depend on the key: q . bias, and q . scale times the offset of the codes.
  float of_bias[4] = {}, of_offset[4] = {};
  unsigned q_scaled[K_STEPS][2];
#pragma unroll
  for (int s = 0; s < K_STEPS; s += 2) {
    unsigned scale[2][2], bias[2][2];  // of the dims of two products
    take_pairs(scale, slot.k_scale_and_bias, c, s);
    take_pairs(bias, slot.k_scale_and_bias + HEAD_DIM / 8, c, s);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned rows[4] = {bias[i][0], anything(), bias[i][1], anything()};  // rows g only
      mma_m16n8k16<half>(of_bias, rows, q[s + i][0], q[s + i][1]);
      scale_q(q_scaled[s + i], q[s + i], scale[i]);
      mma_m16n8k16<half>(of_offset, K_OFFSET, q_scaled[s + i][0], q_scaled[s + i][1]);
    }
  }
  const float unit = CODE_UNIT * sm_scale_log2;
  float base[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) base[h] = of_offset[h] * unit + of_bias[h] * sm_scale_log2;

  float dot[TILE / 16][4] = {};
#pragma unroll
  for (int s = 0; s < K_STEPS; s += K_STEPS_A_CHUNK) {
#pragma unroll
    for (int j = 0; j < TILE / 16; ++j) {
      // Chunks of the rows g and g + 8 of this product, which hold several products' dims.
      const int chunk = k_chunk(c, s);
      const uint4 upper = slot.k[place_of_k(g, 2 * j, chunk)];
      const uint4 lower = slot.k[place_of_k(g, 2 * j + 1, chunk)];
      take_k(dot[j], upper, lower, q_scaled, s);
    }
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
  unsigned scaled[TILE / 16][2];
  // Once, or twice where the maximum moves; at the first tile it always does.
  bool raise = first;
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {
    if (raise) raise_max(known, dot, unit, base, v_scale);
    weigh(weight, scaled, dot, unit, base, known, v_scale);
    unsigned any = 0;
#pragma unroll
    for (int j = 0; j < TILE / 16; ++j) any |= scaled[j][0] | scaled[j][1];
    raise = __any_sync(0xffffffffu, (any & TWO_OR_MORE) != 0);
    if (!raise) break;
  }

  // The sum of weights times the offset of the codes is the same for all dims.
  float offset[4] = {};
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
      weights[row] = movmatrix_trans(scaled[j][row]);
    }
    mma_m16n8k16<half>(offset, V_OFFSET, weights[0], weights[1]);
    take_v(known.acc, slot.v, g, c, j, weights);
  }
#pragma unroll
  for (int t = 0; t < DIM_TILES; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) known.acc[t][i] += offset[i];
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS) IN_CLUSTERS DECODE_ENTRY(
    const Element* __restrict__ q,              // [B, Hq, D]
    const unsigned char* __restrict__ k_codes,  // [B, Hkv, S, D * KV_BITS / 8], paged:
    const unsigned char* __restrict__ v_codes,  // [pages, Hkv, PAGE_SIZE, D * KV_BITS / 8]
    const half* __restrict__ k_scale,           // [B, Hkv, ceil(S / 128), D]
    const half* __restrict__ k_bias,            // as k_scale
    const half* __restrict__ v_scale,  // [B, Hkv, S up to 64], paged: [pages, Hkv, PAGE_SIZE]
    const half* __restrict__ v_bias,   // as v_scale
    const int* __restrict__ seq_lens,  // [B]
#ifdef PAGE_SIZE
    const int* __restrict__ page_table,  // [B, max_pages]
    int max_pages,
#endif
    Element* __restrict__ out,          // [B, Hq, D]
    float* __restrict__ partial_rows,   // [B, Hkv, clusters, GROUP_SIZE, D]
    float2* __restrict__ partial_known,  // [B, Hkv, clusters, GROUP_SIZE]: maximum and sum
    unsigned* __restrict__ finished,     // [B, Hkv, CLUSTER]
    int kv_len, int piece_len, float sm_scale_log2) {
  extern __shared__ __align__(128) unsigned char smem[];
  arrive_at_cluster();  // so that the others know that this block has started
  const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4, warp = threadIdx.x / 32;
  const int piece = blockIdx.x, kv_head = blockIdx.y, sequence = blockIdx.z;
  const int num_kv_heads = gridDim.y, pair = sequence * num_kv_heads + kv_head;
  Slot* ring = reinterpret_cast<Slot*>(smem) + warp * STAGES;

  const int begin = piece * piece_len, stride = WARPS * TILE;
  const int length = seq_lens[sequence];
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

  // The columns of Q^T are the heads; those past the group are zero. Loaded
  // before the copies start, or they would queue behind those.
  unsigned q_rmem[K_STEPS][2] = {};
  if (g < GROUP_SIZE) take_q(q_rmem, q + ((size_t)pair * GROUP_SIZE + g) * HEAD_DIM, c);

  // A warp takes every WARPS-th tile. The pages of a tile are looked up before its copies start.
  const auto pages_of = [&](int n) {
    Pages pages = {};
#ifdef PAGE_SIZE
    if (n < copied_end) {
      const int last = (length - 1) / PAGE_SIZE;  // there is no page behind it
#pragma unroll
      for (int i = 0; i < PAGES; ++i) {
        const int page = page_table[min(n / PAGE_SIZE + i, last)];
        pages.first_row[i] = (page * num_kv_heads + kv_head) * PAGE_SIZE;
      }
    }
#endif
    return pages;
  };
  int next = begin + warp * TILE, filling = 0;
  Pages pages = pages_of(next), pages_after = pages_of(next + stride);
  const auto copy_next = [&] {
    if (next < copied_end) copy_tile(ring[filling], cache, pages, next, readable_end - next);
    close_copies();  // a tile that is not there is a group without copies
    next += stride;
    pages = pages_after;
    pages_after = pages_of(next + stride);
    filling = filling + 1 == STAGES ? 0 : filling + 1;
  };
#pragma unroll 1
  for (int stage = 0; stage < STAGES - 1; ++stage) copy_next();

  const int end = min(begin + piece_len, length);
  const int cluster = piece / BLOCKS_A_CLUSTER;
  const int clusters = (length + BLOCKS_A_CLUSTER * piece_len - 1) / (BLOCKS_A_CLUSTER * piece_len);
  if (cluster >= clusters) {  // nothing of this sequence is left for this cluster
    wait_for_copies<0>();
    wait_for_cluster();
    return;
  }

  Known known;
  int reading = 0;
#pragma unroll 1
  for (int n = begin + warp * TILE; n < end; n += stride) {
    wait_for_copies<STAGES - 2>();
    __syncwarp();  // every lane's copies have landed, and every lane has left the slot before
    copy_next();
    fold_tile(known, q_rmem, ring[reading], end - n, n == begin + warp * TILE, sm_scale_log2);
    reading = reading + 1 == STAGES ? 0 : reading + 1;
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
  MergeSpace& space = *reinterpret_cast<MergeSpace*>(smem);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int head = 2 * c + h;
    if (head >= GROUP_SIZE) break;
#pragma unroll
    for (int t = 0; t < DIM_TILES; ++t) {
      const float2 both =
          make_float2(known.acc[t][h] * V_UNIT[0] + known.bias_sum[h],
                      known.acc[t][h + 2] * V_UNIT[1] + known.bias_sum[h]);
      *reinterpret_cast<float2*>(&space.rows[warp][head][16 * g + 2 * t]) = both;
    }
    if (g == 0) space.known[warp][head] = make_float2(known.score_max[h], known.weight_sum[h]);
  }
  __syncthreads();
  join_and_store(space, out + (size_t)pair * GROUP_SIZE * HEAD_DIM,
                 {partial_rows, partial_known, finished}, pair, cluster, clusters,
                 gridDim.x / BLOCKS_A_CLUSTER);
}

QUANTISE_CHANNELS_BIASED(quantise_k, KV_BITS, 128)
QUANTISE_ROWS_BIASED(quantise_v, KV_BITS, HEAD_DIM)
