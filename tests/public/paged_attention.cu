// Decode attention on a cache in pages, a block a (head, sequence).
#include <cfloat>
#include <cuda_fp16.h>

#define WARP_SIZE 32
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define DIVIDE_ROUND_UP(a, b) (((a) + (b)-1) / (b))

template <typename T, int N>
struct alignas(sizeof(T) * N) Vec {
  T data[N];
};

template <int NUM_WARPS>
__device__ __forceinline__ float block_sum(float* red_smem, float sum) {
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
#pragma unroll
  for (int mask = WARP_SIZE / 2; mask >= 1; mask /= 2) sum += __shfl_xor_sync(uint32_t(-1), sum, mask);
  if (lane == 0) red_smem[warp] = sum;
  __syncthreads();
  if (lane < NUM_WARPS) sum = red_smem[lane];
#pragma unroll
  for (int mask = NUM_WARPS / 2; mask >= 1; mask /= 2) sum += __shfl_xor_sync(uint32_t(-1), sum, mask);
  return __shfl_sync(uint32_t(-1), sum, 0);
}

template <typename scalar_t, int HEAD_SIZE, int BLOCK_SIZE, int NUM_THREADS>
__global__ void paged_attention_v1_kernel(
    scalar_t* __restrict__ out,            // [num_seqs, num_heads, head_size]
    const scalar_t* __restrict__ q,        // [num_seqs, num_heads, head_size]
    const scalar_t* __restrict__ k_cache,  // [num_blocks, num_kv_heads, head_size / x, block_size, x]
    const scalar_t* __restrict__ v_cache,  // [num_blocks, num_kv_heads, head_size, block_size]
    const int num_kv_heads, const float scale,
    const int* __restrict__ block_tables,  // [num_seqs, max_num_blocks_per_seq]
    const int* __restrict__ seq_lens,      // [num_seqs]
    const int max_num_blocks_per_seq, const int q_stride, const int kv_block_stride, const int kv_head_stride) {
  constexpr int THREAD_GROUP_SIZE = MAX(WARP_SIZE / BLOCK_SIZE, 1);
  constexpr int NUM_THREAD_GROUPS = NUM_THREADS / THREAD_GROUP_SIZE;
  constexpr int TOKENS_PER_GROUP = DIVIDE_ROUND_UP(BLOCK_SIZE, WARP_SIZE);
  constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
  constexpr int VEC_SIZE = MAX(16 / (THREAD_GROUP_SIZE * int(sizeof(scalar_t))), 1);
  constexpr int NUM_ELEMS = HEAD_SIZE / THREAD_GROUP_SIZE;
  constexpr int NUM_VECS = NUM_ELEMS / VEC_SIZE;
  constexpr int x = 16 / sizeof(scalar_t);
  using KVec = Vec<scalar_t, VEC_SIZE>;

  extern __shared__ char shared_mem[];
  float* logits = reinterpret_cast<float*>(shared_mem);
  __shared__ float red_smem[2 * NUM_WARPS];
  __shared__ KVec q_vecs[THREAD_GROUP_SIZE][NUM_VECS];

  const int head = blockIdx.x, seq = blockIdx.y, num_heads = gridDim.x;
  const int kv_head = head / (num_heads / num_kv_heads);
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  const int group = threadIdx.x / THREAD_GROUP_SIZE, in_group = threadIdx.x % THREAD_GROUP_SIZE;
  const int seq_len = seq_lens[seq];
  const int num_blocks = DIVIDE_ROUND_UP(seq_len, BLOCK_SIZE);
  const int* block_table = block_tables + seq * max_num_blocks_per_seq;

  const scalar_t* q_ptr = q + seq * q_stride + head * HEAD_SIZE;
#pragma unroll
  for (int i = group; i < NUM_VECS; i += NUM_THREAD_GROUPS)
    q_vecs[in_group][i] = *reinterpret_cast<const KVec*>(q_ptr + (in_group + i * THREAD_GROUP_SIZE) * VEC_SIZE);
  __syncthreads();

  float qk_max = -FLT_MAX;
  for (int block = warp; block < num_blocks; block += NUM_WARPS) {
    const int64_t physical = static_cast<int64_t>(block_table[block]);
    for (int i = 0; i < TOKENS_PER_GROUP; i++) {
      const int offset = (group + i * WARP_SIZE) % BLOCK_SIZE;
      const int token = block * BLOCK_SIZE + offset;
      const scalar_t* k_ptr = k_cache + physical * kv_block_stride + kv_head * kv_head_stride + offset * x;
      float qk = 0.f;
#pragma unroll
      for (int j = 0; j < NUM_VECS; j++) {
        const int element = (in_group + j * THREAD_GROUP_SIZE) * VEC_SIZE;
        const KVec k = *reinterpret_cast<const KVec*>(k_ptr + element / x * BLOCK_SIZE * x + element % x);
        const KVec q_vec = q_vecs[in_group][j];
#pragma unroll
        for (int e = 0; e < VEC_SIZE; e++) qk += __half2float(q_vec.data[e]) * __half2float(k.data[e]);
      }
#pragma unroll
      for (int mask = THREAD_GROUP_SIZE / 2; mask >= 1; mask /= 2) qk += __shfl_xor_sync(uint32_t(-1), qk, mask);
      qk *= scale;
      if (in_group == 0) {
        const bool masked = token >= seq_len;
        logits[token] = masked ? 0.f : qk;
        qk_max = masked ? qk_max : fmaxf(qk_max, qk);
      }
    }
  }
#pragma unroll
  for (int mask = WARP_SIZE / 2; mask >= THREAD_GROUP_SIZE; mask /= 2)
    qk_max = fmaxf(qk_max, __shfl_xor_sync(uint32_t(-1), qk_max, mask));
  if (lane == 0) red_smem[warp] = qk_max;
  __syncthreads();
  qk_max = lane < NUM_WARPS ? red_smem[lane] : -FLT_MAX;
#pragma unroll
  for (int mask = NUM_WARPS / 2; mask >= 1; mask /= 2)
    qk_max = fmaxf(qk_max, __shfl_xor_sync(uint32_t(-1), qk_max, mask));
  qk_max = __shfl_sync(uint32_t(-1), qk_max, 0);

  float exp_sum = 0.f;
  for (int i = threadIdx.x; i < seq_len; i += NUM_THREADS) {
    const float val = __expf(logits[i] - qk_max);
    logits[i] = val;
    exp_sum += val;
  }
  exp_sum = block_sum<NUM_WARPS>(&red_smem[NUM_WARPS], exp_sum);
  const float inv_sum = __fdividef(1.f, exp_sum + 1e-6f);
  for (int i = threadIdx.x; i < seq_len; i += NUM_THREADS) logits[i] *= inv_sum;
  __syncthreads();

  constexpr int V_VEC_SIZE = MIN(16 / int(sizeof(scalar_t)), BLOCK_SIZE);
  constexpr int VECS_PER_ROW = BLOCK_SIZE / V_VEC_SIZE;
  constexpr int ROWS_PER_ITER = WARP_SIZE / VECS_PER_ROW;
  constexpr int ROWS_PER_THREAD = DIVIDE_ROUND_UP(HEAD_SIZE, ROWS_PER_ITER);
  using VVec = Vec<scalar_t, V_VEC_SIZE>;
  float accs[ROWS_PER_THREAD];
#pragma unroll
  for (int i = 0; i < ROWS_PER_THREAD; i++) accs[i] = 0.f;
  for (int block = warp; block < num_blocks; block += NUM_WARPS) {
    const int64_t physical = static_cast<int64_t>(block_table[block]);
    const int offset = lane % VECS_PER_ROW * V_VEC_SIZE;
    const int token = block * BLOCK_SIZE + offset;
    const scalar_t* v_ptr = v_cache + physical * kv_block_stride + kv_head * kv_head_stride;
#pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; i++) {
      const int row = lane / VECS_PER_ROW + i * ROWS_PER_ITER;
      if (row < HEAD_SIZE) {
        const VVec v = *reinterpret_cast<const VVec*>(v_ptr + row * BLOCK_SIZE + offset);
#pragma unroll
        for (int e = 0; e < V_VEC_SIZE; e++)
          if (token + e < seq_len) accs[i] += logits[token + e] * __half2float(v.data[e]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < ROWS_PER_THREAD; i++)
#pragma unroll
    for (int mask = VECS_PER_ROW / 2; mask >= 1; mask /= 2)
      accs[i] += __shfl_xor_sync(uint32_t(-1), accs[i], mask);
  __syncthreads();

  float* out_smem = reinterpret_cast<float*>(shared_mem);
#pragma unroll
  for (int i = NUM_WARPS; i > 1; i /= 2) {
    const int mid = i / 2;
    if (warp >= mid && warp < i) {
      float* dst = &out_smem[(warp - mid) * HEAD_SIZE];
#pragma unroll
      for (int j = 0; j < ROWS_PER_THREAD; j++) {
        const int row = lane / VECS_PER_ROW + j * ROWS_PER_ITER;
        if (row < HEAD_SIZE && lane % VECS_PER_ROW == 0) dst[row] = accs[j];
      }
    }
    __syncthreads();
    if (warp < mid) {
      const float* src = &out_smem[warp * HEAD_SIZE];
#pragma unroll
      for (int j = 0; j < ROWS_PER_THREAD; j++) {
        const int row = lane / VECS_PER_ROW + j * ROWS_PER_ITER;
        if (row < HEAD_SIZE && lane % VECS_PER_ROW == 0) accs[j] += src[row];
      }
    }
    __syncthreads();
  }
  if (warp == 0) {
    scalar_t* out_ptr = out + (seq * num_heads + head) * HEAD_SIZE;
#pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; i++) {
      const int row = lane / VECS_PER_ROW + i * ROWS_PER_ITER;
      if (row < HEAD_SIZE && lane % VECS_PER_ROW == 0) out_ptr[row] = __float2half(accs[i]);
    }
  }
}
