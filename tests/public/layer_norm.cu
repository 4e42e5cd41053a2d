// LayerNorm: a warp a row, with the mean and the inverse deviation of each, and a thread a row.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void layernorm_forward(float* __restrict__ out,           // [N, C]
                                  float* __restrict__ mean,          // [N]
                                  float* __restrict__ rstd,          // [N]
                                  const float* __restrict__ inp,     // [N, C]
                                  const float* __restrict__ weight,  // [C]
                                  const float* __restrict__ bias,    // [C]
                                  int N, int C) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  const int row = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
  if (row >= N) return;
  const float* x = inp + (size_t)row * C;

  float sum = 0.0f;
  for (int i = warp.thread_rank(); i < C; i += warp.size()) sum += x[i];
  sum = cg::reduce(warp, sum, cg::plus<float>{});
  const float m = sum / C;
  if (warp.thread_rank() == 0 && mean != nullptr) __stcs(mean + row, m);

  sum = 0.0f;
  for (int i = warp.thread_rank(); i < C; i += warp.size()) {
    const float off = x[i] - m;
    sum += off * off;
  }
  sum = cg::reduce(warp, sum, cg::plus<float>{});
  const float s = rsqrtf(sum / C + 1e-5f);
  if (warp.thread_rank() == 0 && rstd != nullptr) __stcs(rstd + row, s);

  float* o = out + (size_t)row * C;
  for (int c = warp.thread_rank(); c < C; c += warp.size()) {
    const float n = s * (__ldcs(x + c) - m);
    __stcs(o + c, n * weight[c] + bias[c]);
  }
}

__global__ void layernorm_naive(float* out,           // [N, C]
                                const float* inp,     // [N, C]
                                const float* weight,  // [C]
                                const float* bias,    // [C]
                                int N, int C) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < N) {
    const float* x = inp + row * C;
    float m = 0.0f;
    for (int c = 0; c < C; c++) m += x[c];
    m /= C;
    float v = 0.0f;
    for (int c = 0; c < C; c++) {
      const float off = x[c] - m;
      v += off * off;
    }
    const float s = 1.0f / sqrtf(v / C + 1e-5f);
    for (int c = 0; c < C; c++) out[row * C + c] = s * (x[c] - m) * weight[c] + bias[c];
  }
}
