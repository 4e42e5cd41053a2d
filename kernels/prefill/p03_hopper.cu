// Warps of a block have roles: one starts bulk copies of the tiles of K and V into a ring, and
// warpgroups of 64 queries each take them out with wgmma. Needs sm_90a.
// A block serves 64 WARPGROUPS queries of one (sequence, query head).
#include "bulk_copy.cuh"
#include "wgmma.cuh"

#ifndef INFINITY  // the run-time compiler comes without <math.h>
#define INFINITY __int_as_float(0x7f800000)
#endif

constexpr int BLOCK_M = 64 * WARPGROUPS;
constexpr int THREADS = 128 * (WARPGROUPS + 1);
constexpr int SLABS = HEAD_DIM / 64;  // a row of a tile is so many pieces of 128 bytes
constexpr int SLAB_K = BLOCK_N * 64;  // elements of a slab of K or V
constexpr int SLAB_Q = BLOCK_M * 64;
constexpr int KEY_TILES = BLOCK_N / 8, DIM_TILES = HEAD_DIM / 8;
constexpr int GIVEN = WARPGROUPS == 1 ? 24 : WARPGROUPS == 2 ? 24 : 32;
constexpr int TAKEN = WARPGROUPS == 1 ? 232 : WARPGROUPS == 2 ? 240 : 160;
constexpr int BLOCKS_PER_SM = WARPGROUPS == 1 ? 2 : 1;

struct Tiles {
  Element q[SLABS * SLAB_Q];
  Element k[STAGES][SLABS * SLAB_K], v[STAGES][SLABS * SLAB_K];
  Barrier q_full, k_full[STAGES], v_full[STAGES], k_empty[STAGES], v_empty[STAGES];
};

// Where the ring stands: the parity flips each time round.
struct Place {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void step() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// Whether a tile needs a mask, as a type.
template <bool MASKED>
struct Mask {
  static constexpr bool value = MASKED;
};

struct Known {
  float score_max[2] = {-INFINITY, -INFINITY};
  float weight_sum[2] = {0.f, 0.f};
  float rescale[2];
};

// score = Q K^T of one tile, started.
__device__ __forceinline__ void start_scores(float (&score)[BLOCK_N / 2], const Element* q,
                                             const Element* k) {
  const TileDescriptor a = tile_descriptor(q), b = tile_descriptor(k);
#pragma unroll
  for (int s = 0; s < HEAD_DIM / 16; ++s)
    wgmma_shared<Element, BLOCK_N>(score, a + (s / 4 * SLAB_Q + s % 4 * 16) * 2 / 16,
                                   b + (s / 4 * SLAB_K + s % 4 * 16) * 2 / 16, s > 0);
  close_products();
}
// acc += weights V of one tile, started.
__device__ __forceinline__ void start_output(float (&acc)[HEAD_DIM / 2],
                                             const unsigned (&weights)[BLOCK_N / 16][4],
                                             const Element* v) {
  const TileDescriptor b = tile_descriptor(v, SLAB_K * 2);
#pragma unroll
  for (int s = 0; s < BLOCK_N / 16; ++s)
    wgmma_registers<Element, HEAD_DIM>(acc, weights[s], b + s * 16 * 128 / 16, true);
  close_products();
}

// Turns scores into weights, in place. Of query row h the first seen[h] keys of the tile count.
template <bool MASKED>
__device__ __forceinline__ void weigh(float (&score)[BLOCK_N / 2], Known& known,
                                      const int (&seen)[2], float sm_scale_log2) {
  const int c = threadIdx.x % 4;
  float largest[2] = {known.score_max[0], known.score_max[1]};
#pragma unroll
  for (int t = 0; t < KEY_TILES; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (MASKED && 8 * t + 2 * c + i % 2 >= seen[i / 2]) score[4 * t + i] = -INFINITY;
      largest[i / 2] = fmaxf(largest[i / 2], score[4 * t + i]);
    }
  }
  float top[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2)
      largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], offset));
    // A row that has seen no key yet has no largest score: any finite one will do.
    top[h] = largest[h] == -INFINITY ? 0.f : largest[h] * sm_scale_log2;
    known.rescale[h] = exp2f(known.score_max[h] * sm_scale_log2 - top[h]);
    known.score_max[h] = largest[h];
    known.weight_sum[h] *= known.rescale[h];
  }
#pragma unroll
  for (int t = 0; t < KEY_TILES; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      score[4 * t + i] = exp2f(score[4 * t + i] * sm_scale_log2 - top[i / 2]);
      known.weight_sum[i / 2] += score[4 * t + i];
    }
  }
}
__device__ __forceinline__ void pack_weights(unsigned (&weights)[BLOCK_N / 16][4],
                                             const float (&score)[BLOCK_N / 2]) {
#pragma unroll
  for (int s = 0; s < BLOCK_N / 16; ++s) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      weights[s][i] = pack_pair<Element>(score[8 * s + 2 * i], score[8 * s + 2 * i + 1]);
  }
}
__device__ __forceinline__ void rescale_output(float (&acc)[HEAD_DIM / 2],
                                               const float (&rescale)[2]) {
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 2; ++i) acc[i] *= rescale[i / 2 % 2];
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) prefill_p03(
    const __grid_constant__ TensorMap q,  // [B Hq, N, D]
    const __grid_constant__ TensorMap k,  // [B Hkv, S, D]
    const __grid_constant__ TensorMap v,  // [B Hkv, S, D]
    Element* __restrict__ out,            // [B, Hq, N, D]
    int num_kv_heads, int qo_len, int kv_len, int causal, float sm_scale_log2) {
  extern __shared__ __align__(1024) unsigned char smem[];
  Tiles& tiles = *reinterpret_cast<Tiles*>(smem);
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  // With a mask the last queries have most keys: they begin first.
  const int first_query = (gridDim.x - 1 - blockIdx.x) * BLOCK_M;
  const int head = blockIdx.y, sequence = blockIdx.z, num_qo_heads = gridDim.y;
  const int qo_head = sequence * num_qo_heads + head;
  const int kv_head = sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  // Query i sees the keys up to i + ahead.
  const int ahead = causal ? kv_len - qo_len : kv_len;
  const int end = min(kv_len, first_query + BLOCK_M + ahead);
  const int num_tiles = (end + BLOCK_N - 1) / BLOCK_N;

  if (threadIdx.x == 0) {
    init_barrier(tiles.q_full, 1);
#pragma unroll
    for (int s = 0; s < STAGES; ++s) {
      init_barrier(tiles.k_full[s], 1);
      init_barrier(tiles.v_full[s], 1);
      init_barrier(tiles.k_empty[s], 4 * WARPGROUPS);
      init_barrier(tiles.v_empty[s], 4 * WARPGROUPS);
    }
    publish_barriers();
  }
  __syncthreads();

  if (warpgroup == 0) {
    give_registers<GIVEN>();
    if (threadIdx.x == 0) {
      const auto copy = [&](Element* to, const TensorMap& map, int slab, int row, int which,
                            Barrier& full) {
#pragma unroll
        for (int s = 0; s < SLABS; ++s) copy_box(to + s * slab, map, 64 * s, row, which, full);
      };
      arrive_expecting(tiles.q_full, sizeof(tiles.q));
      copy(tiles.q, q, SLAB_Q, first_query, qo_head, tiles.q_full);
      Place place;
#pragma unroll 1
      for (int tile = num_tiles - 1; tile >= 0; --tile) {
        wait_barrier(tiles.k_empty[place.stage], place.parity ^ 1);
        arrive_expecting(tiles.k_full[place.stage], sizeof(tiles.k[0]));
        copy(tiles.k[place.stage], k, SLAB_K, tile * BLOCK_N, kv_head, tiles.k_full[place.stage]);
        wait_barrier(tiles.v_empty[place.stage], place.parity ^ 1);
        arrive_expecting(tiles.v_full[place.stage], sizeof(tiles.v[0]));
        copy(tiles.v[place.stage], v, SLAB_K, tile * BLOCK_N, kv_head, tiles.v_full[place.stage]);
        place.step();
      }
    }
  } else {
    take_registers<TAKEN>();
    const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4, consumer = warpgroup - 1;
    const int row = 64 * consumer + threadIdx.x % 128 / 32 * 16 + g;  // and row + 8
    const Element* q_tile = tiles.q + consumer * 64 * 64;
    const int next = consumer + 1 == WARPGROUPS ? 0 : consumer + 1;
    const auto my_turn = [&] {
      if (PINGPONG && WARPGROUPS > 1) named_sync<256>(1 + consumer);
    };
    const auto your_turn = [&] {
      if (PINGPONG && WARPGROUPS > 1) named_arrive<256>(1 + next);
    };
    if (PINGPONG && WARPGROUPS > 1 && consumer == WARPGROUPS - 1) named_arrive<256>(1);
    const auto release = [&](Barrier& empty) {
      __syncwarp();
      if (lane == 0) arrive(empty);
    };

    Known known;
    float acc[HEAD_DIM / 2], score[BLOCK_N / 2];
    unsigned weights[BLOCK_N / 16][4];
#pragma unroll
    for (float& x : acc) x = 0.f;
    Place keys, values;
    int n = (num_tiles - 1) * BLOCK_N;
    const int least_seen = min(kv_len, first_query + 64 * consumer + ahead + 1);
    const auto weigh_tile = [&](auto masked) {
      int seen[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) seen[h] = min(kv_len, first_query + row + 8 * h + ahead + 1) - n;
      weigh<decltype(masked)::value>(score, known, seen, sm_scale_log2);
    };

    wait_barrier(tiles.q_full, 0);
    wait_barrier(tiles.k_full[0], 0);
    my_turn();
    open_products();
    start_scores(score, q_tile, tiles.k[0]);
    wait_for_products<0>();
    hold(score);
    your_turn();
    release(tiles.k_empty[0]);
    keys.step();
    weigh_tile(Mask<true>());
    pack_weights(weights, score);

    const auto fold = [&](auto masked) {
      wait_barrier(tiles.k_full[keys.stage], keys.parity);
      my_turn();
      open_products();
      start_scores(score, q_tile, tiles.k[keys.stage]);
      wait_barrier(tiles.v_full[values.stage], values.parity);
      start_output(acc, weights, tiles.v[values.stage]);
      your_turn();
      wait_for_products<1>();
      hold(score);
      release(tiles.k_empty[keys.stage]);
      weigh_tile(masked);
      wait_for_products<0>();
      hold(acc);
      release(tiles.v_empty[values.stage]);
      keys.step();
      values.step();
      rescale_output(acc, known.rescale);
      pack_weights(weights, score);
    };
    n -= BLOCK_N;
#pragma unroll 1
    for (; n >= 0 && n + BLOCK_N > least_seen; n -= BLOCK_N) fold(Mask<true>());
#pragma unroll 1
    for (; n >= 0; n -= BLOCK_N) fold(Mask<false>());

    wait_barrier(tiles.v_full[values.stage], values.parity);
    open_products();
    start_output(acc, weights, tiles.v[values.stage]);
    wait_for_products<0>();
    hold(acc);
    if (PINGPONG && WARPGROUPS > 1 && consumer == 0) named_sync<256>(1);  // the last turn given

#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int offset = 1; offset < 4; offset *= 2)
        known.weight_sum[h] += __shfl_xor_sync(0xffffffffu, known.weight_sum[h], offset);
      const int query = first_query + row + 8 * h;
      if (query >= qo_len) continue;
      const float factor = 1.f / known.weight_sum[h];
      Element* to = out + ((size_t)qo_head * qo_len + query) * HEAD_DIM;
#pragma unroll
      for (int t = 0; t < DIM_TILES; ++t)
        *reinterpret_cast<unsigned*>(to + 8 * t + 2 * c) =
            pack_pair<Element>(acc[4 * t + 2 * h] * factor, acc[4 * t + 2 * h + 1] * factor);
    }
  }
}
