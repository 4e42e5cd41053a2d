#define DIMS_PER_THREAD (HEAD_DIM / 32)  // a block is one warp: a lane owns HEAD_DIM / 32 dims
#include <cuda_pipeline_primitives.h>

#include "tile.cuh"
#include "warp.cuh"

#ifndef ROWS  // KV rows of one tile
#define ROWS 4
#endif
#ifndef STAGES  // tiles in shared memory, one of them in use and the others under way
#define STAGES 3
#endif

using Share = Row<DIMS_PER_THREAD>;
constexpr int CHUNK = 8;  // elements of one 16-byte copy
constexpr int TILE = ROWS * HEAD_DIM;

// Starts the copies of one tile, which is a single run of memory. Rows behind the end become
// zeros instead of copies.
__device__ __forceinline__ void copy_tile(half* tile, const half* head, int n, int end) {
  const half* source = head + (size_t)n * HEAD_DIM;
  const int valid = (end - n) * HEAD_DIM;
#pragma unroll
  for (int first = 0; first < TILE; first += 32 * CHUNK) {
    const int element = first + threadIdx.x * CHUNK;
    if (TILE % (32 * CHUNK) != 0 && element >= TILE) break;
    const bool copied = element < valid;
    __pipeline_memcpy_async(tile + element, source + (copied ? element : 0), CHUNK * sizeof(half),
                            copied ? 0 : CHUNK * sizeof(half));
  }
}

// One warp serves one (sequence, query head, piece); tiles of ROWS rows pass through shared memory.
extern "C" __global__ void BOUNDED(32) decode_s03(
    const half* __restrict__ q,        // [B, Hq, D]
    const half* __restrict__ k,        // [B, Hkv, S, D]
    const half* __restrict__ v,        // [B, Hkv, S, D]
    const int* __restrict__ seq_lens,  // [B]
    Result* __restrict__ result,       // see split.cuh
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  __shared__ __align__(16) half k_smem[STAGES][TILE];
  __shared__ __align__(16) half v_smem[STAGES][TILE];
  const int dim = threadIdx.x * DIMS_PER_THREAD;
  const int head = blockIdx.x, sequence = blockIdx.y, piece = blockIdx.z;
  const int num_qo_heads = gridDim.x;
  const Range rows = rows_of_piece(seq_lens[sequence], piece);
  const size_t qo_row = (size_t)sequence * num_qo_heads + head;
  const size_t kv_head = (size_t)sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  const half* k_head = k + kv_head * kv_len * HEAD_DIM;
  const half* v_head = v + kv_head * kv_len * HEAD_DIM;

  Share q_rmem = load_row<DIMS_PER_THREAD>(q + qo_row * HEAD_DIM + dim);
  for (float& x : q_rmem.x) x *= sm_scale_log2;

  // A tile that is not there is a group without copies, so that the groups still count tiles.
  int next = rows.begin;
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    if (next < rows.end) {
      copy_tile(k_smem[stage], k_head, next, rows.end);
      copy_tile(v_smem[stage], v_head, next, rows.end);
    }
    __pipeline_commit();
    next += ROWS;
  }

  Partial<DIMS_PER_THREAD> mine;
  int reading = 0, filling = STAGES - 1;
#pragma unroll 1
  for (int n = rows.begin; n < rows.end; n += ROWS) {
    if (next < rows.end) {
      copy_tile(k_smem[filling], k_head, next, rows.end);
      copy_tile(v_smem[filling], v_head, next, rows.end);
    }
    __pipeline_commit();
    next += ROWS;
    __pipeline_wait_prior(STAGES - 1);
    __syncwarp();  // every lane's copies have landed

    Share v_rmem[ROWS];
    float score[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      score[r] = dot(q_rmem, load_row<DIMS_PER_THREAD>(k_smem[reading] + r * HEAD_DIM + dim));
      v_rmem[r] = load_row<DIMS_PER_THREAD>(v_smem[reading] + r * HEAD_DIM + dim);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) score[r] = warp_sum(score[r]);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      if (n + r >= rows.end) score[r] = -INFINITY;
    fold_rows(mine, score, v_rmem);
    __syncwarp();  // nobody may refill the tile while somebody still reads it
    reading = reading + 1 == STAGES ? 0 : reading + 1;
    filling = filling + 1 == STAGES ? 0 : filling + 1;
  }
  store_result(result, qo_row, piece, dim, mine);
}
