// Products of a float matrix and a vector: a thread a row, a warp a row, and a thread a column of a
// part of the rows.
__global__ void gemv_thread(const float* A,  // [M, N]
                            const float* x,  // [N]
                            float* y,        // [M]
                            int M, int N) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M) return;
  float sum = 0.0f;
  for (int j = 0; j < N; ++j) sum += A[row * N + j] * x[j];
  y[row] = sum;
}

__global__ void gemv_warp(const float* __restrict__ A, const float* __restrict__ x, float* __restrict__ y, int M,
                          int N) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= M) return;
  const float4* a = reinterpret_cast<const float4*>(A + (size_t)row * N);
  const float4* b = reinterpret_cast<const float4*>(x);
  float sum = 0.0f;
  for (int j = threadIdx.x; j < N / 4; j += 32) {
    const float4 u = a[j], v = b[j];
    sum += u.x * v.x + u.y * v.y + u.z * v.z + u.w * v.w;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  if (threadIdx.x == 0) y[row] = sum;
}

template <int ROWS>
__global__ void gemv_transposed(const float* __restrict__ A,  // [M, N]
                                const float* __restrict__ x,  // [M]
                                float* y,                     // [N]
                                int M, int N) {
  __shared__ float x_smem[ROWS];
  const int first = blockIdx.y * ROWS, rows = min(ROWS, M - first);
  for (int i = threadIdx.x; i < rows; i += blockDim.x) x_smem[i] = x[first + i];
  __syncthreads();
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= N) return;
  float sum = 0.0f;
  for (int i = 0; i < rows; ++i) sum += x_smem[i] * A[(size_t)(first + i) * N + column];
  atomicAdd(y + column, sum);
}
