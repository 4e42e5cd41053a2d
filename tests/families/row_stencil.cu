// A stencil of five points along each row, float32; beyond a row's ends there are zeros.
extern "C" __global__ void __launch_bounds__(THREADS) row_stencil(
    const float* __restrict__ x,  // [R, C]
    float* __restrict__ out,      // [R, C]
    int columns, float middle, float near, float far) {
  const int first = (blockIdx.x * THREADS + threadIdx.x) * POINTS;
  const float* x_row = x + (size_t)blockIdx.y * columns;
  float* out_row = out + (size_t)blockIdx.y * columns;
  const auto at = [&](int c) { return c < 0 || c >= columns ? 0.f : x_row[c]; };
#if STAGED
  constexpr int TILE = THREADS * POINTS;
  __shared__ float x_smem[TILE + 4];
  const int begin = blockIdx.x * TILE - 2;
  for (int i = threadIdx.x; i < TILE + 4; i += THREADS) x_smem[i] = at(begin + i);
  __syncthreads();
  const auto held = [&](int c) { return x_smem[c - begin]; };
#else
  const auto held = at;
#endif
#pragma unroll
  for (int point = 0; point < POINTS; ++point) {
    const int c = first + point;
    if (c >= columns) return;
    const float sides = near * (held(c - 1) + held(c + 1)) + far * (held(c - 2) + held(c + 2));
    out_row[c] = middle * held(c) + sides;
  }
}
