// How partial results become one: the warps of a block through shared memory, the blocks of a
// cluster through each other's shared memory, and the clusters of one (sequence, KV head) through
// memory, where the last one to finish joins them all.
//
// A partial result of a head is a maximum (of the scores in base 2), a sum of weights and a sum of
// weighted rows, both relative to that maximum. A row is joined in shares of four dims, in whatever
// order the rung's warps have them: its `store_share` knows. Needs GROUP_SIZE, HEAD_DIM, WARPS and
// CLUSTER.
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

constexpr int SHARES = HEAD_DIM / 4;  // of one head
constexpr int MERGE_THREADS = 32 * WARPS;
constexpr int MERGE_SHARES = GROUP_SIZE * SHARES;  // of one result
// Each block of a cluster joins this many of them.
constexpr int MERGE_MINE = (MERGE_SHARES + BLOCKS_A_CLUSTER - 1) / BLOCKS_A_CLUSTER;

struct MergeSpace {  // in dynamic shared memory, where the ring of tiles was
  float4 rows[WARPS][GROUP_SIZE][SHARES + 1];  // one more, so that lanes meet different banks
  float2 known[WARPS][GROUP_SIZE];  // maximum and sum of weights
};

struct PartialResults {
  float4* rows;        // [B, Hkv, clusters, GROUP_SIZE, D / 4]
  float2* known;       // [B, Hkv, clusters, GROUP_SIZE]
  unsigned* finished;  // [B, Hkv, BLOCKS_A_CLUSTER], zero between two calls
};

constexpr float LOWEST = -1e38f;  // of a maximum of scores

// Defined by the rung: writes the dims that share `j` of a head has, to the head's row.
__device__ __forceinline__ void store_share(Element* row, int j, float4 x);

// Four dims of one head, on the way to its result.
struct Share {
  float score_max = -INFINITY, weight_sum = 0.f;
  float4 row = {0.f, 0.f, 0.f, 0.f};

  // Joins N partial results. One of a piece without keys has the maximum -infinity; the new one is
  // finite, or -infinity less itself would be NaN.
  template <int N>
  __device__ __forceinline__ void join(const float4 (&rows)[N], const float2 (&known)[N]) {
    float new_max = fmaxf(score_max, LOWEST);
#pragma unroll
    for (int i = 0; i < N; ++i) new_max = fmaxf(new_max, known[i].x);
    const float rescale = exp2f(score_max - new_max);
    score_max = new_max;
    weight_sum *= rescale;
    row = make_float4(row.x * rescale, row.y * rescale, row.z * rescale, row.w * rescale);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float factor = exp2f(known[i].x - new_max);
      weight_sum += factor * known[i].y;
      row.x += rows[i].x * factor;
      row.y += rows[i].y * factor;
      row.z += rows[i].z * factor;
      row.w += rows[i].w * factor;
    }
  }
  __device__ __forceinline__ void store(Element* out, int i) const {
    const float factor = __fdividef(1.f, weight_sum);
    store_share(out + i / SHARES * HEAD_DIM, i % SHARES,
                make_float4(row.x * factor, row.y * factor, row.z * factor, row.w * factor));
  }
};

// ---- the blocks of a cluster ----

#if CLUSTER > 1 && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// What arrives from the other blocks is counted in bytes by a barrier in shared memory, so that
// nobody waits for more than that, and no write to memory holds it up.
__device__ __forceinline__ unsigned mail_barrier() {
  __shared__ unsigned long long barrier;
  return (unsigned)__cvta_generic_to_shared(&barrier);
}

// Says to the cluster that this block has started and may be sent so many bytes.
__device__ __forceinline__ void start_in_cluster(unsigned bytes) {
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(mail_barrier()) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mail_barrier()),
                 "r"(bytes)
                 : "memory");
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
// Waits until all blocks of the cluster have started.
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
// Waits until all has arrived that this block is sent.
__device__ __forceinline__ void wait_for_mail() {
  unsigned there;
  do {
    asm volatile(
        "{\n.reg .pred there;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 there, [%1], 0;\n"
        "selp.u32 %0, 1, 0, there;\n}"
        : "=r"(there)
        : "r"(mail_barrier())
        : "memory");
  } while (!there);
}

// The address of what `shared` is, in another block's shared memory.
__device__ __forceinline__ unsigned address_in(unsigned shared, int block) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(block));
  return address;
}
__device__ __forceinline__ void send(float4* shared, int block, float4 x) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
      "[%0], {%1,%2,%3,%4}, [%5];" ::"r"(
          address_in((unsigned)__cvta_generic_to_shared(shared), block)),
      "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(address_in(mail_barrier(), block))
      : "memory");
}
__device__ __forceinline__ void send(float2* shared, int block, float2 x) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1,%2}, [%3];" ::"r"(
          address_in((unsigned)__cvta_generic_to_shared(shared), block)),
      "f"(x.x), "f"(x.y), "r"(address_in(mail_barrier(), block))
      : "memory");
}
#else
__device__ __forceinline__ void start_in_cluster(unsigned) {}
__device__ __forceinline__ void wait_for_cluster() {}
__device__ __forceinline__ void wait_for_mail() {}
template <class T>
__device__ __forceinline__ void send(T* shared, int, T x) {
  *shared = x;
}
#endif

// Orders what this thread, and those that it met at a barrier, did in memory.
__device__ __forceinline__ void fence_memory() {
#ifdef __CUDA_ARCH__
  asm volatile("fence.acq_rel.gpu;" ::: "memory");  // __threadfence() orders more, and costs more
#else
  __threadfence();
#endif
}

// A block's number in its cluster, and the bytes that it is sent: from each block its part of the
// rows, and maximum and sum of the heads that lie in it.
__device__ __forceinline__ int rank_in_cluster() {
  return BLOCKS_A_CLUSTER > 1 ? blockIdx.x % BLOCKS_A_CLUSTER : 0;
}
__device__ __forceinline__ unsigned mail_bytes() {
  const int begin = rank_in_cluster() * MERGE_MINE, end = min(begin + MERGE_MINE, MERGE_SHARES);
  if (begin >= end) return 0;
  const int heads = (end - 1) / SHARES - begin / SHARES + 1;
  return BLOCKS_A_CLUSTER * ((end - begin) * sizeof(float4) + heads * sizeof(float2));
}

// Joins the warps, the blocks of a cluster and the clusters; the output is written by the last
// cluster to finish. Every thread of the block calls it after the warps' results stand in `space`
// and a barrier. Of the `pieces` of this (sequence, KV head), of which those of a cluster have
// `cluster_len` of its `length` keys, this block is in `cluster`.
__device__ __forceinline__ void join_and_store(
    MergeSpace& space, Element* __restrict__ out,  // the GROUP_SIZE rows of this block's heads
    const PartialResults& partial, int pair, int cluster, int cluster_len, int length, int pieces) {
  // What the blocks of the cluster send to this one; no memory for it where there is one only.
  __shared__ float4 sent_rows[BLOCKS_A_CLUSTER][BLOCKS_A_CLUSTER > 1 ? MERGE_MINE : 1];
  __shared__ float2 sent_known[BLOCKS_A_CLUSTER][GROUP_SIZE];
  const unsigned rank = rank_in_cluster();
  const bool is_only_cluster = length <= cluster_len;

  // This block's part of the joined warps: all of it, if it is a cluster of its own.
  const auto join_warps = [&](const auto& use) {
#pragma unroll
    for (unsigned begin = 0; begin < MERGE_SHARES; begin += MERGE_THREADS) {
      const unsigned i = begin + threadIdx.x, head = i / SHARES;
      if (MERGE_SHARES % MERGE_THREADS && i >= MERGE_SHARES) break;
      float4 rows[WARPS];
      float2 known[WARPS];
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {
        rows[w] = space.rows[w][head][i % SHARES];
        known[w] = space.known[w][head];
      }
      Share share;
      share.join(rows, known);
      use(share, i, i % SHARES == 0);
    }
  };
  const auto join_blocks = [&](const auto& use) {
#pragma unroll
    for (unsigned begin = 0; begin < MERGE_MINE; begin += MERGE_THREADS) {
      const unsigned j = begin + threadIdx.x, i = rank * MERGE_MINE + j;
      if (j >= MERGE_MINE || i >= MERGE_SHARES) break;
      float4 rows[BLOCKS_A_CLUSTER];
      float2 known[BLOCKS_A_CLUSTER];
#pragma unroll
      for (int block = 0; block < BLOCKS_A_CLUSTER; ++block) {
        rows[block] = sent_rows[block][j];
        known[block] = sent_known[block][i / SHARES];
      }
      Share share;
      share.join(rows, known);
      use(share, i, j == 0 || i % SHARES == 0);
    }
  };
  const auto join = [&](const auto& use) {
    if (BLOCKS_A_CLUSTER > 1)
      join_blocks(use);
    else
      join_warps(use);
  };

  if (BLOCKS_A_CLUSTER > 1) {
    wait_for_cluster();  // a block may write into another one's shared memory once that has started
    join_warps([&](const Share& share, unsigned i, bool is_first) {
      const unsigned to = i / MERGE_MINE, j = i % MERGE_MINE;
      send(&sent_rows[rank][j], to, share.row);
      if (j == 0 || is_first)
        send(&sent_known[rank][i / SHARES], to, make_float2(share.score_max, share.weight_sum));
    });
    wait_for_mail();
  }
  // Written twice: what is done as a rule follows straight on, so that its instructions are fetched
  // before they are needed.
  if (is_only_cluster) {
    join([&](const Share& share, unsigned i, bool) { share.store(out, i); });
    return;
  }
  join([&](const Share& share, unsigned i, bool is_first) {
    const size_t first = (size_t)pair * (pieces / BLOCKS_A_CLUSTER) + cluster;
    partial.rows[first * MERGE_SHARES + i] = share.row;
    // Blocks that share a head write the same numbers here.
    if (is_first)
      partial.known[first * GROUP_SIZE + i / SHARES] =
          make_float2(share.score_max, share.weight_sum);
  });
  const int clusters = (length + cluster_len - 1) / cluster_len;

  __shared__ bool is_last;
  __syncthreads();
  // What the block wrote is there before the count says so, and is read after it. The count goes
  // back to zero by itself, ready for the next call.
  if (threadIdx.x == 0) {
    fence_memory();
    unsigned* count = partial.finished + (size_t)pair * BLOCKS_A_CLUSTER + rank;
    is_last = atomicInc(count, clusters - 1) == clusters - 1;
    fence_memory();
  }
  __syncthreads();
  if (!is_last) return;

  const size_t first = (size_t)pair * (pieces / BLOCKS_A_CLUSTER);
  for (unsigned j = threadIdx.x; j < MERGE_MINE; j += MERGE_THREADS) {
    const unsigned i = rank * MERGE_MINE + j;
    if (i >= MERGE_SHARES) break;
    Share share;
    // Several at a time, so that their loads are under way together.
    constexpr int AT_ONCE = 8;
    for (int c = 0; c < clusters; c += AT_ONCE) {
      float4 rows[AT_ONCE];
      float2 known[AT_ONCE];
#pragma unroll
      for (int k = 0; k < AT_ONCE; ++k) {
        const size_t one = first + min(c + k, clusters - 1);
        rows[k] = __ldcg(partial.rows + one * MERGE_SHARES + i);
        known[k] = __ldcg(partial.known + one * GROUP_SIZE + i / SHARES);
        if (c + k >= clusters) known[k].x = -INFINITY;
      }
      share.join(rows, known);
    }
    share.store(out, i);
  }
}

// The preparation: the counters are zero before the first call, and every call leaves them so.
extern "C" __global__ void __launch_bounds__(128) reset_counters(
    unsigned* __restrict__ finished,  // [B, Hkv, CLUSTER]
    int count) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i < count) finished[i] = 0;
}
