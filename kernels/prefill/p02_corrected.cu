// Correct by construction: the stride of a row is checked where it is chosen, a warp's sixteen queries
// are the rows of one matrix product, and every row of the output has one maximum.
// Needs sm_80. A block serves 16 WARPS queries of one (sequence, query head).
#include "async_copy.cuh"
#include "mma.cuh"

#ifndef INFINITY  // the run-time compiler comes without <math.h>
#define INFINITY __int_as_float(0x7f800000)
#endif

constexpr int PAD = 8;  // elements behind a row
constexpr int STRIDE = HEAD_DIM + PAD;
static_assert(STRIDE * 2 % 16 == 0, "every row begins where a copy of 16 bytes may go");
static_assert(STRIDE * 2 / 16 % 2 == 1, "eight rows of 16 bytes lie in 32 different banks");
constexpr int BLOCK_M = 16 * WARPS;
constexpr int K_STEPS = HEAD_DIM / 16;   // matrix products along the dims of q . k
constexpr int KEY_TILES = BLOCK_N / 8;   // products along the keys
constexpr int DIM_TILES = HEAD_DIM / 8;  // products along the dims of the output

struct Stage {
  Element k[BLOCK_N][STRIDE], v[BLOCK_N][STRIDE];
};
struct Tiles {
  Element q[BLOCK_M][STRIDE];
  Stage stages[STAGES];
};

// Starts the copies of a tile, of which the first `there` rows exist: neighbouring threads have
// neighbouring chunks of 16 bytes.
template <int ROWS>
__device__ __forceinline__ void copy_rows(Element (*tile)[STRIDE], const Element* source, int there) {
  constexpr int CHUNKS = HEAD_DIM / 8;
#pragma unroll
  for (int i = threadIdx.x; i < ROWS * CHUNKS; i += 32 * WARPS) {
    const int row = i / CHUNKS, d = i % CHUNKS * 8;
    copy_async_16(&tile[row][d], source + (size_t)row * HEAD_DIM + d, row < there);
  }
}

// What a warp knows of its queries; a lane has the rows g and g + 8.
struct Known {
  float score_max[2] = {-INFINITY, -INFINITY};
  float weight_sum[2] = {0.f, 0.f};
  float acc[DIM_TILES][4] = {};
};

// Folds one tile of keys. Of query row h the first seen[h] keys of the tile count.
__device__ __forceinline__ void fold_tile(Known& known, const unsigned (&q)[K_STEPS][4],
                                          Stage& stage, const int (&seen)[2],
                                          float sm_scale_log2) {
  const int lane = threadIdx.x % 32, c = lane % 4;
  float score[KEY_TILES][4] = {};
#pragma unroll
  for (int s = 0; s < K_STEPS; ++s) {
#pragma unroll
    for (int t = 0; t < KEY_TILES; t += 2) {
      unsigned b[4];  // two tiles of eight keys, sixteen dims
      ldmatrix_x4(b, &stage.k[8 * t + lane / 16 * 8 + lane % 8][16 * s + lane / 8 % 2 * 8]);
      mma_m16n8k16<Element>(score[t], q[s], b[0], b[1]);
      mma_m16n8k16<Element>(score[t + 1], q[s], b[2], b[3]);
    }
  }
  float largest[2] = {known.score_max[0], known.score_max[1]};
#pragma unroll
  for (int t = 0; t < KEY_TILES; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = 8 * t + 2 * c + i % 2;
      score[t][i] = key < seen[i / 2] ? score[t][i] * sm_scale_log2 : -INFINITY;
      largest[i / 2] = fmaxf(largest[i / 2], score[t][i]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2)
      largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], offset));
    const float rescale = exp2f(known.score_max[h] - largest[h]);
    known.score_max[h] = largest[h];
    known.weight_sum[h] *= rescale;
#pragma unroll
    for (int t = 0; t < DIM_TILES; ++t) {
      known.acc[t][2 * h] *= rescale;
      known.acc[t][2 * h + 1] *= rescale;
    }
  }
#pragma unroll
  for (int s = 0; s < BLOCK_N / 16; ++s) {
    unsigned weights[4];  // the scores of two tiles, as the left operand has them
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = &score[2 * s + i / 2][i % 2 * 2];
      const float top = known.score_max[i % 2];
      weights[i] = pack_pair<Element>(exp2f(pair[0] - top), exp2f(pair[1] - top));
      const float2 rounded = unpack_pair<Element>(weights[i]);  // what V gets is what is summed
      known.weight_sum[i % 2] += rounded.x + rounded.y;
    }
#pragma unroll
    for (int t = 0; t < DIM_TILES; t += 2) {
      unsigned b[4];  // sixteen keys, two tiles of eight dims
      ldmatrix_x4_trans(b, &stage.v[16 * s + lane % 16][8 * t + lane / 16 * 8]);
      mma_m16n8k16<Element>(known.acc[t], weights, b[0], b[1]);
      mma_m16n8k16<Element>(known.acc[t + 1], weights, b[2], b[3]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) prefill_p02(
    const Element* __restrict__ q,  // [B, Hq, N, D]
    const Element* __restrict__ k,  // [B, Hkv, S, D]
    const Element* __restrict__ v,  // [B, Hkv, S, D]
    Element* __restrict__ out,      // [B, Hq, N, D]
    int num_kv_heads, int qo_len, int kv_len, int causal, float sm_scale_log2) {
  extern __shared__ __align__(16) unsigned char smem[];
  Tiles& tiles = *reinterpret_cast<Tiles*>(smem);
  const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4, warp = threadIdx.x / 32;
  // With a mask the last queries have most keys: they begin first.
  const int first_query = (gridDim.x - 1 - blockIdx.x) * BLOCK_M;
  const int head = blockIdx.y, sequence = blockIdx.z, num_qo_heads = gridDim.y;
  const size_t qo_head = (size_t)sequence * num_qo_heads + head;
  const size_t kv_head = (size_t)sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  q += (qo_head * qo_len + first_query) * HEAD_DIM;
  out += (qo_head * qo_len + first_query) * HEAD_DIM;
  k += kv_head * kv_len * HEAD_DIM;
  v += kv_head * kv_len * HEAD_DIM;

  // Query i sees the keys up to i + ahead.
  const int ahead = causal ? kv_len - qo_len : kv_len;
  const int end = min(kv_len, first_query + BLOCK_M + ahead);
  int filling = 0;
  const auto copy_next = [&](int n) {
    if (n < end) {
      copy_rows<BLOCK_N>(tiles.stages[filling].k, k + (size_t)n * HEAD_DIM, kv_len - n);
      copy_rows<BLOCK_N>(tiles.stages[filling].v, v + (size_t)n * HEAD_DIM, kv_len - n);
    }
    close_copies();  // a tile that is not there is a group without copies
    filling = filling + 1 == STAGES ? 0 : filling + 1;
  };
  copy_rows<BLOCK_M>(tiles.q, q, qo_len - first_query);
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) copy_next(stage * BLOCK_N);

  Known known;
  unsigned q_rmem[K_STEPS][4];
  int reading = 0;
#pragma unroll 1
  for (int n = 0; n < end; n += BLOCK_N) {
    if (STAGES == 1) copy_next(n);
    wait_for_copies<(STAGES > 1 ? STAGES - 2 : 0)>();
    __syncthreads();  // every thread's copies have landed, and every warp has left the tile before
    if (STAGES > 1) copy_next(n + (STAGES - 1) * BLOCK_N);
    if (n == 0) {
#pragma unroll
      for (int s = 0; s < K_STEPS; ++s)
        ldmatrix_x4(q_rmem[s], &tiles.q[16 * warp + lane % 16][16 * s + lane / 16 * 8]);
    }
    int seen[2];
#pragma unroll
    for (int h = 0; h < 2; ++h)
      seen[h] = min(kv_len, first_query + 16 * warp + g + 8 * h + ahead + 1) - n;
    fold_tile(known, q_rmem, tiles.stages[reading], seen, sm_scale_log2);
    reading = reading + 1 == STAGES ? 0 : reading + 1;
    if (STAGES == 1) __syncthreads();  // nobody reads the tile any more
  }
  wait_for_copies<0>();

#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2)
      known.weight_sum[h] += __shfl_xor_sync(0xffffffffu, known.weight_sum[h], offset);
    const int row = 16 * warp + g + 8 * h;
    if (first_query + row >= qo_len) continue;
    const float factor = 1.f / known.weight_sum[h];
#pragma unroll
    for (int t = 0; t < DIM_TILES; ++t) {
      const unsigned pair =
          pack_pair<Element>(known.acc[t][2 * h] * factor, known.acc[t][2 * h + 1] * factor);
      *reinterpret_cast<unsigned*>(out + (size_t)row * HEAD_DIM + 8 * t + 2 * c) = pair;
    }
  }
}
