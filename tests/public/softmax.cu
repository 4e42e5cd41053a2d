// Softmax of each row in float32, four ways.
#include <cfloat>

constexpr unsigned FULL = 0xffffffffu;

__device__ __forceinline__ float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(FULL, x, offset));
  return x;
}

__device__ __forceinline__ float warp_sum(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(FULL, x, offset);
  return x;
}

// 1: a thread a row.
__global__ void softmax_naive(const float* x,  // [rows, columns]
                              float* out,      // [rows, columns]
                              int rows, int columns) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* in_row = x + (size_t)row * columns;
  float* out_row = out + (size_t)row * columns;
  float most = -INFINITY;
  for (int i = 0; i < columns; ++i) {
    if (in_row[i] > most) most = in_row[i];
  }
  float sum = 0.0f;
  for (int i = 0; i < columns; ++i) {
    out_row[i] = expf(in_row[i] - most);
    sum += out_row[i];
  }
  for (int i = 0; i < columns; ++i) out_row[i] /= sum;
}

// 2: a warp a row.
__global__ void softmax_warp(const float* x, float* out, int rows, int columns) {
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const float* in_row = x + (size_t)row * columns;
  float* out_row = out + (size_t)row * columns;
  float most = -INFINITY;
  for (int i = lane; i < columns; i += 32) most = fmaxf(most, in_row[i]);
  most = warp_max(most);
  float sum = 0.0f;
  for (int i = lane; i < columns; i += 32) {
    const float e = expf(in_row[i] - most);
    out_row[i] = e;
    sum += e;
  }
  sum = warp_sum(sum);
  for (int i = lane; i < columns; i += 32) out_row[i] /= sum;
}

// 3: a block a row, which stays in shared memory; four columns at a time.
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    softmax_block(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
  extern __shared__ float4 row_smem[];
  __shared__ float partial[THREADS / 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, packs = columns / 4;
  const float4* in_row = reinterpret_cast<const float4*>(x + (size_t)blockIdx.x * columns);
  float4* out_row = reinterpret_cast<float4*>(out + (size_t)blockIdx.x * columns);

  float most = -FLT_MAX;
  for (int i = threadIdx.x; i < packs; i += THREADS) {
    const float4 v = in_row[i];
    row_smem[i] = v;
    most = fmaxf(fmaxf(fmaxf(most, v.x), fmaxf(v.y, v.z)), v.w);
  }
  most = warp_max(most);
  if (lane == 0) partial[warp] = most;
  __syncthreads();
  most = warp_max(lane < THREADS / 32 ? partial[lane] : -FLT_MAX);
  __syncthreads();

  float sum = 0.0f;
  for (int i = threadIdx.x; i < packs; i += THREADS) {
    float4 v = row_smem[i];
    v.x = __expf(v.x - most);
    v.y = __expf(v.y - most);
    v.z = __expf(v.z - most);
    v.w = __expf(v.w - most);
    sum += v.x + v.y + v.z + v.w;
    row_smem[i] = v;
  }
  sum = warp_sum(sum);
  if (lane == 0) partial[warp] = sum;
  __syncthreads();
  sum = warp_sum(lane < THREADS / 32 ? partial[lane] : 0.0f);

  const float scale = 1.0f / sum;
  for (int i = threadIdx.x; i < packs; i += THREADS) {
    const float4 v = row_smem[i];
    out_row[i] = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
  }
}

// 4: maximum and sum in one pass over the row.
struct __align__(8) MaxSum {
  float most;
  float sum;
};

__device__ __forceinline__ MaxSum merge(MaxSum a, MaxSum b) {
  const MaxSum larger = a.most > b.most ? a : b, smaller = a.most > b.most ? b : a;
  return {larger.most, larger.sum + smaller.sum * __expf(smaller.most - larger.most)};
}

template <int THREADS>
__global__ void softmax_online(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
  __shared__ MaxSum partial[THREADS / 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float* in_row = x + (size_t)blockIdx.x * columns;
  float* out_row = out + (size_t)blockIdx.x * columns;

  MaxSum mine = {-FLT_MAX, 0.0f};
  for (int i = threadIdx.x; i < columns; i += THREADS) mine = merge(mine, {in_row[i], 1.0f});
  for (int offset = 16; offset > 0; offset /= 2)
    mine = merge(mine, {__shfl_xor_sync(FULL, mine.most, offset), __shfl_xor_sync(FULL, mine.sum, offset)});
  if (lane == 0) partial[warp] = mine;
  __syncthreads();
  MaxSum all = partial[0];
  for (int i = 1; i < THREADS / 32; ++i) all = merge(all, partial[i]);

  const float scale = 1.0f / all.sum;
  for (int i = threadIdx.x; i < columns; i += THREADS) out_row[i] = __expf(in_row[i] - all.most) * scale;
}
