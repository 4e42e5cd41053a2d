// How partial results become one: the warps of a block through shared memory, the blocks of a
// cluster through each other's shared memory, and the clusters of one (sequence, KV head) through
// memory, where the last one to finish joins them all.
//
// A partial result of a head is a maximum (of the scores in base 2), a sum of weights and a sum of
// weighted rows, both relative to that maximum. Needs GROUP_SIZE, HEAD_DIM, WARPS and CLUSTER.
// Only sm_90 and up have clusters; elsewhere every block is a cluster of its own.
#pragma once
#include "mma.cuh"

#ifndef INFINITY  // the run-time compiler comes without <math.h>
#define INFINITY __int_as_float(0x7f800000)
#endif

#if CLUSTER > 1 && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
constexpr int BLOCKS_A_CLUSTER = CLUSTER;
#else
#define IN_CLUSTERS
constexpr int BLOCKS_A_CLUSTER = 1;
#endif

constexpr int MERGE_STRIDE = HEAD_DIM + 4;  // floats; so that lanes meet different banks
constexpr int MERGE_THREADS = 32 * WARPS;
constexpr int MERGE_SHARES = GROUP_SIZE * HEAD_DIM / 4;  // float4 of one result
// Each block of a cluster joins this many of them.
constexpr int MERGE_MINE = (MERGE_SHARES + BLOCKS_A_CLUSTER - 1) / BLOCKS_A_CLUSTER;

struct MergeSpace {  // in dynamic shared memory, where the ring of tiles was
  float rows[WARPS][GROUP_SIZE][MERGE_STRIDE];
  float2 known[WARPS][GROUP_SIZE];  // maximum and sum of weights
};

struct PartialResults {
  float* rows;         // [B, Hkv, clusters, GROUP_SIZE, D]
  float2* known;       // [B, Hkv, clusters, GROUP_SIZE]
  unsigned* finished;  // [B, Hkv, BLOCKS_A_CLUSTER], zero between two calls
};

// Four dims of one head, on the way to its result.
struct Share {
  float score_max = -INFINITY, weight_sum = 0.f;
  float4 row = {0.f, 0.f, 0.f, 0.f};

  // Joins N partial results; one of a piece without keys has the maximum -infinity.
  template <int N>
  __device__ __forceinline__ void join(const float4 (&rows)[N], const float2 (&known)[N]) {
    float new_max = score_max;
#pragma unroll
    for (int i = 0; i < N; ++i) new_max = fmaxf(new_max, known[i].x);
    scale(exp2f(score_max - new_max));
    score_max = new_max;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float factor = known[i].x == -INFINITY ? 0.f : exp2f(known[i].x - new_max);
      weight_sum += factor * known[i].y;
      row.x += rows[i].x * factor;
      row.y += rows[i].y * factor;
      row.z += rows[i].z * factor;
      row.w += rows[i].w * factor;
    }
  }
  __device__ __forceinline__ void scale(float factor) {
    if (score_max == -INFINITY) factor = 0.f;  // nothing yet, and -infinity less itself is NaN
    weight_sum *= factor;
    row = make_float4(row.x * factor, row.y * factor, row.z * factor, row.w * factor);
  }
  __device__ __forceinline__ void store(Element* target) const {
    const float factor = 1.f / weight_sum;
    uint2 bits;
    bits.x = pack_pair<Element>(row.x * factor, row.y * factor);
    bits.y = pack_pair<Element>(row.z * factor, row.w * factor);
    *reinterpret_cast<uint2*>(target) = bits;
  }
};

// ---- the blocks of a cluster ----

#if CLUSTER > 1 && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// A thread that has waited sees what all threads of the cluster wrote before they arrived.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Writes to where `shared` is in another block's shared memory.
__device__ __forceinline__ unsigned address_in(const void* shared, int block) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"((unsigned)__cvta_generic_to_shared(shared)), "r"(block));
  return address;
}
__device__ __forceinline__ void send(float4* shared, int block, float4 x) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(address_in(shared, block)),
               "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
               : "memory");
}
__device__ __forceinline__ void send(float2* shared, int block, float2 x) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1,%2};" ::"r"(address_in(shared, block)),
               "f"(x.x), "f"(x.y)
               : "memory");
}
#else
__device__ __forceinline__ void arrive_at_cluster() {}
__device__ __forceinline__ void wait_for_cluster() {}
template <class T>
__device__ __forceinline__ void send(T* shared, int, T x) {
  *shared = x;
}
#endif

// Joins the warps, the blocks of a cluster (which have arrived there once before) and the clusters; the output is written by the last
// cluster to finish. Every thread of the block calls it after the warps' results stand in `space`
// and a barrier. Of `clusters` clusters of this (sequence, KV head), this block is in `cluster`.
__device__ __forceinline__ void join_and_store(
    MergeSpace& space, Element* __restrict__ out,  // the GROUP_SIZE rows of this block's heads
    const PartialResults& partial, int pair, int cluster, int clusters, int cluster_stride) {
  // What the blocks of the cluster send to this one; no memory for it where there is one only.
  __shared__ float4 sent_rows[BLOCKS_A_CLUSTER][BLOCKS_A_CLUSTER > 1 ? MERGE_MINE : 1];
  __shared__ float2 sent_known[BLOCKS_A_CLUSTER][GROUP_SIZE];
  const int rank = BLOCKS_A_CLUSTER > 1 ? blockIdx.x % BLOCKS_A_CLUSTER : 0;
  const size_t first = (size_t)pair * cluster_stride * GROUP_SIZE;

  // A block may write into another one's shared memory once that has started.
  wait_for_cluster();
  for (int i = threadIdx.x; i < MERGE_SHARES; i += MERGE_THREADS) {
    const int head = i / (HEAD_DIM / 4), dim = i % (HEAD_DIM / 4) * 4;
    float4 rows[WARPS];
    float2 known[WARPS];
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      rows[w] = *reinterpret_cast<const float4*>(&space.rows[w][head][dim]);
      known[w] = space.known[w][head];
    }
    Share share;
    share.join(rows, known);
    if (BLOCKS_A_CLUSTER > 1) {
      const int to = i / MERGE_MINE, j = i % MERGE_MINE;
      send(&sent_rows[rank][j], to, share.row);
      if (j == 0 || dim == 0)
        send(&sent_known[rank][head], to, make_float2(share.score_max, share.weight_sum));
    } else if (clusters == 1) {
      share.store(out + 4 * i);
    } else {
      const size_t mine = first + (size_t)cluster * GROUP_SIZE + head;
      *reinterpret_cast<float4*>(partial.rows + mine * HEAD_DIM + dim) = share.row;
      if (dim == 0) partial.known[mine] = make_float2(share.score_max, share.weight_sum);
    }
  }
  if (BLOCKS_A_CLUSTER > 1) {
    arrive_at_cluster();
    wait_for_cluster();
    // Each block joins its own part of the rows.
    for (int j = threadIdx.x; j < MERGE_MINE; j += MERGE_THREADS) {
      const int i = rank * MERGE_MINE + j, head = i / (HEAD_DIM / 4), dim = i % (HEAD_DIM / 4) * 4;
      if (i >= MERGE_SHARES) break;
      float4 rows[BLOCKS_A_CLUSTER];
      float2 known[BLOCKS_A_CLUSTER];
#pragma unroll
      for (int block = 0; block < BLOCKS_A_CLUSTER; ++block) {
        rows[block] = sent_rows[block][j];
        known[block] = sent_known[block][head];
      }
      Share share;
      share.join(rows, known);
      if (clusters == 1) {
        share.store(out + 4 * i);
      } else {
        const size_t mine = first + (size_t)cluster * GROUP_SIZE + head;
        *reinterpret_cast<float4*>(partial.rows + mine * HEAD_DIM + dim) = share.row;
        // Blocks that share a head write the same numbers here.
        partial.known[mine] = make_float2(share.score_max, share.weight_sum);
      }
    }
  }
  if (clusters == 1) return;

  __shared__ bool is_last;
  __threadfence();  // what this thread wrote is there before the count says so
  __syncthreads();
  // The count goes back to zero by itself, ready for the next call.
  if (threadIdx.x == 0) {
    unsigned* count = partial.finished + (size_t)pair * BLOCKS_A_CLUSTER + rank;
    is_last = atomicInc(count, clusters - 1) == clusters - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();

  for (int j = threadIdx.x; j < MERGE_MINE; j += MERGE_THREADS) {
    const int i = rank * MERGE_MINE + j, head = i / (HEAD_DIM / 4), dim = i % (HEAD_DIM / 4) * 4;
    if (i >= MERGE_SHARES) break;
    Share share;
    // Several at a time, so that their loads are under way together.
    constexpr int AT_ONCE = 8;
    for (int c = 0; c < clusters; c += AT_ONCE) {
      float4 rows[AT_ONCE];
      float2 known[AT_ONCE];
#pragma unroll
      for (int k = 0; k < AT_ONCE; ++k) {
        const size_t one = first + (size_t)min(c + k, clusters - 1) * GROUP_SIZE + head;
        rows[k] = __ldcg(reinterpret_cast<const float4*>(partial.rows + one * HEAD_DIM + dim));
        known[k] = __ldcg(partial.known + one);
        if (c + k >= clusters) known[k].x = -INFINITY;
      }
      share.join(rows, known);
    }
    share.store(out + 4 * i);
  }
}

// The preparation: the counters are zero before the first call, and every call leaves them so.
extern "C" __global__ void __launch_bounds__(128) reset_counters(
    unsigned* __restrict__ finished,  // [B, Hkv, CLUSTER]
    int count) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i < count) finished[i] = 0;
}
