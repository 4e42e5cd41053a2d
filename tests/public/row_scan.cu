// Inclusive sums along each row, a block a row that goes from tile to tile.
template <int THREADS, int ITEMS>
__global__ void __launch_bounds__(THREADS) inclusive_scan(const float* __restrict__ in,  // [rows, columns]
                                                          float* __restrict__ out,       // [rows, columns]
                                                          int columns) {
  __shared__ float warp_totals[THREADS / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  in += (size_t)blockIdx.x * columns;
  out += (size_t)blockIdx.x * columns;

  float carry = 0.0f;
  for (int first = 0; first < columns; first += THREADS * ITEMS) {
    const int mine = first + threadIdx.x * ITEMS;
    float items[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) items[i] = mine + i < columns ? in[mine + i] : 0.0f;
#pragma unroll
    for (int i = 1; i < ITEMS; ++i) items[i] += items[i - 1];

    float total = items[ITEMS - 1];
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const float before = __shfl_up_sync(0xffffffffu, total, offset);
      if (lane >= offset) total += before;
    }
    if (lane == 31) warp_totals[warp] = total;
    __syncthreads();
    float before_warp = carry;
    for (int w = 0; w < THREADS / 32; ++w) {
      const float of_warp = warp_totals[w];
      if (w < warp) before_warp += of_warp;
      carry += of_warp;
    }
    const float start = before_warp + total - items[ITEMS - 1];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
      if (mine + i < columns) out[mine + i] = start + items[i];
    __syncthreads();
  }
}
