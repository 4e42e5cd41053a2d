#define DIMS_PER_THREAD (HEAD_DIM / 32)  // a block is one warp: a lane owns HEAD_DIM / 32 dims
#include <cuda_pipeline_primitives.h>

#include "ladder.cuh"
#include "row.cuh"
#include "warp.cuh"

#ifndef STAGES  // rows in shared memory: one in use, the others on their way
#define STAGES 2
#endif

constexpr int NUM_THREADS = HEAD_DIM / DIMS_PER_THREAD;

// Starts the copy of a lane's own share of one row. No other lane reads it, so none has to wait.
__device__ __forceinline__ void copy_share(half* stage, const half* row) {
  __pipeline_memcpy_async(stage, row, DIMS_PER_THREAD * sizeof(half));
}

// One warp serves one (sequence, query head); rows pass through a ring in shared memory.
extern "C" __global__ void BOUNDED(NUM_THREADS) decode_r05(
    const half* __restrict__ q,        // [B, Hq, D]
    const half* __restrict__ k,        // [B, Hkv, S, D]
    const half* __restrict__ v,        // [B, Hkv, S, D]
    const int* __restrict__ seq_lens,  // [B]
    half* __restrict__ out,            // [B, Hq, D]
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  __shared__ __align__(16) half k_smem[STAGES][HEAD_DIM], v_smem[STAGES][HEAD_DIM];
  const int head = blockIdx.x, sequence = blockIdx.y, num_qo_heads = gridDim.x;
  const int dim = threadIdx.x * DIMS_PER_THREAD;
  const int length = seq_lens[sequence];
  const size_t qo_row = (size_t)sequence * num_qo_heads + head;
  const size_t kv_head = (size_t)sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  const half* k_head = k + kv_head * kv_len * HEAD_DIM + dim;
  const half* v_head = v + kv_head * kv_len * HEAD_DIM + dim;

  Row<DIMS_PER_THREAD> q_rmem = load_row<DIMS_PER_THREAD>(q + qo_row * HEAD_DIM + dim);
  for (float& x : q_rmem.x) x *= sm_scale_log2;

  // A row that is not there is a group without copies, so that the groups still count rows.
#pragma unroll
  for (int n = 0; n < STAGES - 1; ++n) {
    if (n < length) {
      copy_share(k_smem[n] + dim, k_head + n * HEAD_DIM);
      copy_share(v_smem[n] + dim, v_head + n * HEAD_DIM);
    }
    __pipeline_commit();
  }

  float score_max = -INFINITY, weight_sum = 0.f;
  Row<DIMS_PER_THREAD> acc = {};
  int reading = 0, filling = STAGES - 1;
#pragma unroll UNROLL
  for (int n = 0; n < length; ++n) {
    const int next = n + STAGES - 1;
    if (next < length) {
      copy_share(k_smem[filling] + dim, k_head + (size_t)next * HEAD_DIM);
      copy_share(v_smem[filling] + dim, v_head + (size_t)next * HEAD_DIM);
    }
    __pipeline_commit();
    __pipeline_wait_prior(STAGES - 1);  // the oldest row is there
    const auto k_rmem = load_row<DIMS_PER_THREAD>(k_smem[reading] + dim);
    const auto v_rmem = load_row<DIMS_PER_THREAD>(v_smem[reading] + dim);
    const float score = warp_sum(dot(q_rmem, k_rmem));

    const float new_max = fmaxf(score_max, score);
    const float rescale = exp2f(score_max - new_max), weight = exp2f(score - new_max);
    weight_sum = weight_sum * rescale + weight;
    accumulate(acc, rescale, v_rmem, weight);
    score_max = new_max;
    reading = reading + 1 == STAGES ? 0 : reading + 1;
    filling = filling + 1 == STAGES ? 0 : filling + 1;
  }
  store_row(out + qo_row * HEAD_DIM + dim, acc, 1.f / weight_sum);
}
