// A test kernel: K and V in chunks, a block each; the block that comes last merges them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

#ifdef BF16
using Element = __nv_bfloat16;
__device__ float widen(Element x) { return __bfloat162float(x); }
__device__ Element narrow(float x) { return __float2bfloat16(x); }
#else
using Element = half;
__device__ float widen(Element x) { return __half2float(x); }
__device__ Element narrow(float x) { return __float2half(x); }
#endif

extern "C" __global__ void clear_counters(unsigned* counters) { counters[blockIdx.x] = 0; }

extern "C" __global__ void split_merge(
    const Element* q,    // [B, Hq, D]
    const Element* k,    // [B, Hkv, S, D] or [num_pages, Hkv, PAGE_SIZE, D]
    const Element* v,    // as k
    const int* seq_lens,  // [B]
#ifdef PAGE_SIZE
    const int* page_table,  // [B, max_pages]
#endif
    float* partial,      // [B, Hq, splits, D + 2]
    unsigned* counters,  // [B, Hq]
    Element* out,        // [B, Hq, D]
    int num_kv_heads, int kv_len, float sm_scale) {
  __shared__ unsigned rank;
  const int split = blockIdx.x, head = blockIdx.y, sequence = blockIdx.z, dim = threadIdx.x;
  const int splits = gridDim.x, num_qo_heads = gridDim.y;
  const int kv_head = head / (num_qo_heads / num_kv_heads);
  const int length = seq_lens[sequence], chunk = (length + splits - 1) / splits;
  const int pair = sequence * num_qo_heads + head;
  float peak = -CUDART_INF_F, total = 0.f, sum = 0.f;
  for (int n = split * chunk; n < min(length, (split + 1) * chunk); ++n) {
#ifdef PAGE_SIZE
    const int max_pages = (kv_len + PAGE_SIZE - 1) / PAGE_SIZE;
    const int page = page_table[sequence * max_pages + n / PAGE_SIZE];
    const long row = ((long)page * num_kv_heads + kv_head) * PAGE_SIZE + n % PAGE_SIZE;
#else
    const long row = ((long)sequence * num_kv_heads + kv_head) * kv_len + n;
#endif
    float score = 0.f;
    for (int d = 0; d < HEAD_DIM; ++d)
      score += widen(q[pair * HEAD_DIM + d]) * widen(k[row * HEAD_DIM + d]);
    score *= sm_scale;
    const float higher = fmaxf(peak, score), old = expf(peak - higher), now = expf(score - higher);
    total = total * old + now;
    sum = sum * old + now * widen(v[row * HEAD_DIM + dim]);
    peak = higher;
  }
  float* mine = partial + (pair * splits + split) * (HEAD_DIM + 2);
  mine[dim] = sum;
  if (dim == 0) {
    mine[HEAD_DIM] = peak;
    mine[HEAD_DIM + 1] = total;
  }
  __threadfence();  // fence
  __syncthreads();
  if (dim == 0) rank = atomicInc(&counters[pair], splits - 1);  // back to 0 for the next call
  __syncthreads();
  if (rank != splits - 1) return;
  const float* all = partial + pair * splits * (HEAD_DIM + 2);
  peak = -CUDART_INF_F;
  for (int i = 0; i < splits; ++i) peak = fmaxf(peak, all[i * (HEAD_DIM + 2) + HEAD_DIM]);
  total = sum = 0.f;
  for (int i = 0; i < splits; ++i) {
    const float weight = expf(all[i * (HEAD_DIM + 2) + HEAD_DIM] - peak);
    total += weight * all[i * (HEAD_DIM + 2) + HEAD_DIM + 1];
    sum += weight * all[i * (HEAD_DIM + 2) + dim];
  }
  out[pair * HEAD_DIM + dim] = narrow(sum / total);
}
