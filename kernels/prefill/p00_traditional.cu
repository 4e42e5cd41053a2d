// As one would write it first: tiles in shared memory, filled by asynchronous copies of 16 bytes, an
// online softmax, scalar arithmetic. A block serves BLOCK_M queries of one (sequence, query head).
#include "scalar_tile.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS) prefill_p00(
    const half* __restrict__ q,  // [B, Hq, N, D]
    const half* __restrict__ k,  // [B, Hkv, S, D]
    const half* __restrict__ v,  // [B, Hkv, S, D]
    half* __restrict__ out,      // [B, Hq, N, D]
    int num_kv_heads, int qo_len, int kv_len, int causal, float sm_scale_log2) {
  extern __shared__ __align__(16) unsigned char smem[];
  Tiles& tiles = *reinterpret_cast<Tiles*>(smem);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_query = blockIdx.x * BLOCK_M, head = blockIdx.y, sequence = blockIdx.z;
  const int num_qo_heads = gridDim.y;
  const size_t qo_head = (size_t)sequence * num_qo_heads + head;
  const size_t kv_head = (size_t)sequence * num_kv_heads + head / (num_qo_heads / num_kv_heads);
  q += (qo_head * qo_len + first_query) * HEAD_DIM;
  out += (qo_head * qo_len + first_query) * HEAD_DIM;
  k += kv_head * kv_len * HEAD_DIM;
  v += kv_head * kv_len * HEAD_DIM;

  // Query i sees the keys up to i + ahead.
  const int ahead = causal ? kv_len - qo_len : kv_len;
  const int end = min(kv_len, first_query + BLOCK_M + ahead);

  copy_rows<BLOCK_M>(tiles.q, q, qo_len - first_query);
  float score_max[ROWS], weight_sum[ROWS], acc[ROWS][DIMS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    score_max[r] = -INFINITY;
    weight_sum[r] = 0.f;
#pragma unroll
    for (int d = 0; d < DIMS; ++d) acc[r][d] = 0.f;
  }

#pragma unroll 1
  for (int n = 0; n < end; n += BLOCK_N) {
    copy_rows<BLOCK_N>(tiles.k, k + (size_t)n * HEAD_DIM, kv_len - n);
    copy_rows<BLOCK_N>(tiles.v, v + (size_t)n * HEAD_DIM, kv_len - n);
    close_copies();
    wait_for_copies<0>();
    __syncthreads();

#pragma unroll 1
    for (int r = 0; r < ROWS; ++r) {
      const int row = warp * ROWS + r;
      for (int c = lane; c < BLOCK_N; c += 32)
        tiles.score[row][c] = dot_rows(tiles.q[row], tiles.k[c]) * sm_scale_log2;
    }
    __syncwarp();

#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      float* scores = tiles.score[warp * ROWS + r];
      const int seen = min(kv_len, first_query + warp * ROWS + r + ahead + 1) - n;
      float tile_max = -INFINITY;
      for (int c = lane; c < BLOCK_N; c += 32) {
        const float score = scores[c];
        scores[c] = c < seen ? score : -INFINITY;
        tile_max = fmaxf(tile_max, scores[c]);
      }
      tile_max = warp_max(tile_max);
      const float new_max = fmaxf(score_max[r], tile_max);
      const float rescale = exp2f(score_max[r] - new_max);
      float sum = 0.f;
      for (int c = lane; c < BLOCK_N; c += 32) {
        scores[c] = exp2f(scores[c] - new_max);
        sum += scores[c];
      }
      weight_sum[r] = weight_sum[r] * rescale + warp_sum(sum);
#pragma unroll
      for (int d = 0; d < DIMS; ++d) acc[r][d] *= rescale;
      score_max[r] = new_max;
    }
    __syncwarp();

    // acc += P V: a lane has pairs of dims, and reads a row of V once for all its queries.
#pragma unroll 2
    for (int c = 0; c < BLOCK_N; ++c) {
#pragma unroll
      for (int d = 0; d < DIMS; d += 2) {
        const int dim = 32 * d + 2 * lane;
        const float2 x = __half22float2(*reinterpret_cast<const half2*>(&tiles.v[c][dim]));
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          const float weight = tiles.score[warp * ROWS + r][c];
          acc[r][d] += weight * x.x;
          acc[r][d + 1] += weight * x.y;
        }
      }
    }
    __syncthreads();  // nobody reads the tiles any more
  }

#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int row = warp * ROWS + r;
    if (first_query + row >= qo_len) break;
    const float factor = 1.f / weight_sum[r];
#pragma unroll
    for (int d = 0; d < DIMS; d += 2)
      *reinterpret_cast<half2*>(out + (size_t)row * HEAD_DIM + 32 * d + 2 * lane) =
          __floats2half2_rn(acc[r][d] * factor, acc[r][d + 1] * factor);
  }
}
