// Single-precision matrix products C = alpha * A @ B + beta * C, a ladder of ten steps.
#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))

// 1: a thread an element. Neighbouring threads are neighbouring rows of C.
__global__ void sgemm_naive(int M, int N, int K, float alpha, const float* A,  // [M, K]
                            const float* B,                                    // [K, N]
                            float beta, float* C) {                            // [M, N]
  const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < M && col < N) {
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = alpha * sum + beta * C[row * N + col];
  }
}

// 2: neighbouring threads are neighbouring columns.
template <const unsigned BLOCK>
__global__ void sgemm_coalesced(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                                float* C) {
  const int row = blockIdx.x * BLOCK + threadIdx.x / BLOCK;
  const int col = blockIdx.y * BLOCK + threadIdx.x % BLOCK;
  if (row < M && col < N) {
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = alpha * sum + beta * C[row * N + col];
  }
}

// 3: square tiles of A and B in shared memory.
template <const int BLOCK>
__global__ void sgemm_shared(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                             float* C) {
  __shared__ float a_tile[BLOCK * BLOCK];
  __shared__ float b_tile[BLOCK * BLOCK];
  const unsigned ty = threadIdx.x / BLOCK, tx = threadIdx.x % BLOCK;
  A += blockIdx.x * BLOCK * K;
  B += blockIdx.y * BLOCK;
  C += blockIdx.x * BLOCK * N + blockIdx.y * BLOCK;

  float sum = 0.0f;
  for (int first = 0; first < K; first += BLOCK) {
    a_tile[ty * BLOCK + tx] = A[ty * K + tx];
    b_tile[ty * BLOCK + tx] = B[ty * N + tx];
    __syncthreads();
    A += BLOCK;
    B += BLOCK * N;
    for (int k = 0; k < BLOCK; ++k) sum += a_tile[ty * BLOCK + k] * b_tile[k * BLOCK + tx];
    __syncthreads();
  }
  C[ty * N + tx] = alpha * sum + beta * C[ty * N + tx];
}

// 4: a thread computes TM elements of a column.
template <const int BM, const int BN, const int BK, const int TM>
__global__ void sgemm_tile_1d(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                              float* C) {
  __shared__ float a_tile[BM * BK];
  __shared__ float b_tile[BK * BN];
  const int thread_col = threadIdx.x % BN, thread_row = threadIdx.x / BN;
  const unsigned a_col = threadIdx.x % BK, a_row = threadIdx.x / BK;
  const unsigned b_col = threadIdx.x % BN, b_row = threadIdx.x / BN;
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += blockIdx.y * BM * N + blockIdx.x * BN;

  float sums[TM] = {0.0f};
  for (unsigned first = 0; first < K; first += BK) {
    a_tile[a_row * BK + a_col] = A[a_row * K + a_col];
    b_tile[b_row * BN + b_col] = B[b_row * N + b_col];
    __syncthreads();
    A += BK;
    B += BK * N;
    for (unsigned k = 0; k < BK; ++k) {
      const float b = b_tile[k * BN + thread_col];
      for (unsigned i = 0; i < TM; ++i) sums[i] += a_tile[(thread_row * TM + i) * BK + k] * b;
    }
    __syncthreads();
  }
  for (unsigned i = 0; i < TM; ++i) {
    float& c = C[(thread_row * TM + i) * N + thread_col];
    c = alpha * sums[i] + beta * c;
  }
}

// 5: a thread computes a tile of TM by TN elements.
template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void __launch_bounds__((BM * BN) / (TM * TN), 1)
    sgemm_tile_2d(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int THREADS = BM * BN / (TM * TN);
  __shared__ float a_tile[BM * BK];
  __shared__ float b_tile[BK * BN];
  const int thread_col = threadIdx.x % (BN / TN), thread_row = threadIdx.x / (BN / TN);
  const unsigned a_row = threadIdx.x / BK, a_col = threadIdx.x % BK;
  const unsigned b_row = threadIdx.x / BN, b_col = threadIdx.x % BN;
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += blockIdx.y * BM * N + blockIdx.x * BN;

  float sums[TM * TN] = {0.0f};
  float a_reg[TM] = {0.0f};
  float b_reg[TN] = {0.0f};
  for (unsigned first = 0; first < K; first += BK) {
    for (unsigned off = 0; off < BM; off += THREADS / BK)
      a_tile[(a_row + off) * BK + a_col] = A[(a_row + off) * K + a_col];
    for (unsigned off = 0; off < BK; off += THREADS / BN)
      b_tile[(b_row + off) * BN + b_col] = B[(b_row + off) * N + b_col];
    __syncthreads();
    A += BK;
    B += BK * N;
    for (unsigned k = 0; k < BK; ++k) {
      for (unsigned i = 0; i < TM; ++i) a_reg[i] = a_tile[(thread_row * TM + i) * BK + k];
      for (unsigned j = 0; j < TN; ++j) b_reg[j] = b_tile[k * BN + thread_col * TN + j];
      for (unsigned i = 0; i < TM; ++i)
        for (unsigned j = 0; j < TN; ++j) sums[i * TN + j] += a_reg[i] * b_reg[j];
    }
    __syncthreads();
  }
  for (unsigned i = 0; i < TM; ++i) {
    for (unsigned j = 0; j < TN; ++j) {
      float& c = C[(thread_row * TM + i) * N + thread_col * TN + j];
      c = alpha * sums[i * TN + j] + beta * c;
    }
  }
}

template <const int TM, const int TN>
__device__ void store_tile(float* C, int N, float alpha, float beta, const float* sums) {
  for (unsigned i = 0; i < TM; ++i) {
    for (unsigned j = 0; j < TN; j += 4) {
      float4 c = reinterpret_cast<float4*>(&C[i * N + j])[0];
      c.x = alpha * sums[i * TN + j] + beta * c.x;
      c.y = alpha * sums[i * TN + j + 1] + beta * c.y;
      c.z = alpha * sums[i * TN + j + 2] + beta * c.z;
      c.w = alpha * sums[i * TN + j + 3] + beta * c.w;
      reinterpret_cast<float4*>(&C[i * N + j])[0] = c;
    }
  }
}

// 6: loads of four floats, and a tile of A that is stored by columns.
template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void sgemm_vectorized(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                                 float* C) {
  __shared__ float a_tile[BM * BK];  // [BK, BM]
  __shared__ float b_tile[BK * BN];
  const int thread_col = threadIdx.x % (BN / TN), thread_row = threadIdx.x / (BN / TN);
  const unsigned a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4);
  const unsigned b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4);
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += blockIdx.y * BM * N + blockIdx.x * BN;

  float sums[TM * TN] = {0.0f};
  float a_reg[TM] = {0.0f};
  float b_reg[TN] = {0.0f};
  for (unsigned first = 0; first < K; first += BK) {
    const float4 a = reinterpret_cast<const float4*>(&A[a_row * K + a_col * 4])[0];
    a_tile[(a_col * 4 + 0) * BM + a_row] = a.x;
    a_tile[(a_col * 4 + 1) * BM + a_row] = a.y;
    a_tile[(a_col * 4 + 2) * BM + a_row] = a.z;
    a_tile[(a_col * 4 + 3) * BM + a_row] = a.w;
    reinterpret_cast<float4*>(&b_tile[b_row * BN + b_col * 4])[0] =
        reinterpret_cast<const float4*>(&B[b_row * N + b_col * 4])[0];
    __syncthreads();
    A += BK;
    B += BK * N;
    for (unsigned k = 0; k < BK; ++k) {
      for (unsigned i = 0; i < TM; ++i) a_reg[i] = a_tile[k * BM + thread_row * TM + i];
      for (unsigned j = 0; j < TN; ++j) b_reg[j] = b_tile[k * BN + thread_col * TN + j];
      for (unsigned i = 0; i < TM; ++i)
        for (unsigned j = 0; j < TN; ++j) sums[i * TN + j] += a_reg[i] * b_reg[j];
    }
    __syncthreads();
  }
  store_tile<TM, TN>(C + thread_row * TM * N + thread_col * TN, N, alpha, beta, sums);
}

// 7: the tile of B is laid out so that the threads of a warp read neighbouring words.
template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void sgemm_interleaved(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                                  float* C) {
  constexpr int GROUPS = BN / TN;
  __shared__ float a_tile[BM * BK];
  __shared__ float b_tile[BK * BN];  // [BK, TN, GROUPS]
  const int thread_col = threadIdx.x % GROUPS, thread_row = threadIdx.x / GROUPS;
  const unsigned a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4);
  const unsigned b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4);
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += blockIdx.y * BM * N + blockIdx.x * BN;

  float sums[TM * TN] = {0.0f};
  float a_reg[TM] = {0.0f};
  float b_reg[TN] = {0.0f};
  for (unsigned first = 0; first < K; first += BK) {
    const float4 a = reinterpret_cast<const float4*>(&A[a_row * K + a_col * 4])[0];
    a_tile[(a_col * 4 + 0) * BM + a_row] = a.x;
    a_tile[(a_col * 4 + 1) * BM + a_row] = a.y;
    a_tile[(a_col * 4 + 2) * BM + a_row] = a.z;
    a_tile[(a_col * 4 + 3) * BM + a_row] = a.w;
    const float4 b = reinterpret_cast<const float4*>(&B[b_row * N + b_col * 4])[0];
    const unsigned group = b_col * 4 / TN, within = b_col * 4 % TN;
    b_tile[(b_row * TN + within + 0) * GROUPS + group] = b.x;
    b_tile[(b_row * TN + within + 1) * GROUPS + group] = b.y;
    b_tile[(b_row * TN + within + 2) * GROUPS + group] = b.z;
    b_tile[(b_row * TN + within + 3) * GROUPS + group] = b.w;
    __syncthreads();
    A += BK;
    B += BK * N;
    for (unsigned k = 0; k < BK; ++k) {
      for (unsigned i = 0; i < TM; ++i) a_reg[i] = a_tile[k * BM + thread_row * TM + i];
      for (unsigned j = 0; j < TN; ++j) b_reg[j] = b_tile[(k * TN + j) * GROUPS + thread_col];
      for (unsigned i = 0; i < TM; ++i)
        for (unsigned j = 0; j < TN; ++j) sums[i * TN + j] += a_reg[i] * b_reg[j];
    }
    __syncthreads();
  }
  store_tile<TM, TN>(C + thread_row * TM * N + thread_col * TN, N, alpha, beta, sums);
}

// 8: the same end by a few columns more in the tile of B.
template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void sgemm_padded(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                             float* C) {
  constexpr int PITCH = BN + 5;
  __shared__ float a_tile[BM * BK];
  __shared__ float b_tile[BK * PITCH];
  const int thread_col = threadIdx.x % (BN / TN), thread_row = threadIdx.x / (BN / TN);
  const unsigned a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4);
  const unsigned b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4);
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += blockIdx.y * BM * N + blockIdx.x * BN;

  float sums[TM * TN] = {0.0f};
  float a_reg[TM] = {0.0f};
  float b_reg[TN] = {0.0f};
  for (unsigned first = 0; first < K; first += BK) {
    const float4 a = reinterpret_cast<const float4*>(&A[a_row * K + a_col * 4])[0];
    a_tile[(a_col * 4 + 0) * BM + a_row] = a.x;
    a_tile[(a_col * 4 + 1) * BM + a_row] = a.y;
    a_tile[(a_col * 4 + 2) * BM + a_row] = a.z;
    a_tile[(a_col * 4 + 3) * BM + a_row] = a.w;
    const float4 b = reinterpret_cast<const float4*>(&B[b_row * N + b_col * 4])[0];
    b_tile[b_row * PITCH + b_col * 4 + 0] = b.x;
    b_tile[b_row * PITCH + b_col * 4 + 1] = b.y;
    b_tile[b_row * PITCH + b_col * 4 + 2] = b.z;
    b_tile[b_row * PITCH + b_col * 4 + 3] = b.w;
    __syncthreads();
    A += BK;
    B += BK * N;
    for (unsigned k = 0; k < BK; ++k) {
      for (unsigned i = 0; i < TM; ++i) a_reg[i] = a_tile[k * BM + thread_row * TM + i];
      for (unsigned j = 0; j < TN; ++j) b_reg[j] = b_tile[k * PITCH + thread_col * TN + j];
      for (unsigned i = 0; i < TM; ++i)
        for (unsigned j = 0; j < TN; ++j) sums[i * TN + j] += a_reg[i] * b_reg[j];
    }
    __syncthreads();
  }
  store_tile<TM, TN>(C + thread_row * TM * N + thread_col * TN, N, alpha, beta, sums);
}

template <const int BM, const int BN, const int BK, const int THREADS>
__device__ void load_tiles(const float* A, const float* B, float* a_tile, float* b_tile, int N, int K) {
  constexpr int A_STEP = THREADS * 4 / BK, B_STEP = THREADS * 4 / BN;
  const unsigned a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4);
  const unsigned b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4);
  for (unsigned off = 0; off + A_STEP <= BM; off += A_STEP) {
    const float4 a = reinterpret_cast<const float4*>(&A[(a_row + off) * K + a_col * 4])[0];
    a_tile[(a_col * 4 + 0) * BM + a_row + off] = a.x;
    a_tile[(a_col * 4 + 1) * BM + a_row + off] = a.y;
    a_tile[(a_col * 4 + 2) * BM + a_row + off] = a.z;
    a_tile[(a_col * 4 + 3) * BM + a_row + off] = a.w;
  }
  for (unsigned off = 0; off + B_STEP <= BK; off += B_STEP)
    reinterpret_cast<float4*>(&b_tile[(b_row + off) * BN + b_col * 4])[0] =
        reinterpret_cast<const float4*>(&B[(b_row + off) * N + b_col * 4])[0];
}

// 9: sizes that a search found; a block walks over 64 by 64 parts of its tile.
template <const int BM, const int BN, const int BK, const int TM, const int TN, const int THREADS>
__global__ void __launch_bounds__(THREADS)
    sgemm_autotuned(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int PART_M = TM * 16, PART_N = TN * 16;
  constexpr int PARTS_M = CEIL_DIV(BM, PART_M), PARTS_N = CEIL_DIV(BN, PART_N);
  __shared__ float a_tile[BM * BK];
  __shared__ float b_tile[BK * BN];
  const int thread_col = threadIdx.x % (PART_N / TN), thread_row = threadIdx.x / (PART_N / TN);
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += blockIdx.y * BM * N + blockIdx.x * BN;

  float sums[PARTS_M * PARTS_N * TM * TN] = {0.0f};
  float a_reg[TM] = {0.0f};
  float b_reg[TN] = {0.0f};
  for (unsigned first = 0; first < K; first += BK) {
    load_tiles<BM, BN, BK, THREADS>(A, B, a_tile, b_tile, N, K);
    __syncthreads();
    for (unsigned m = 0; m < PARTS_M; ++m) {
      for (unsigned n = 0; n < PARTS_N; ++n) {
        float* part = &sums[(m * PARTS_N + n) * TM * TN];
        for (unsigned k = 0; k < BK; ++k) {
          for (unsigned i = 0; i < TM; ++i) a_reg[i] = a_tile[k * BM + m * PART_M + thread_row * TM + i];
          for (unsigned j = 0; j < TN; ++j) b_reg[j] = b_tile[k * BN + n * PART_N + thread_col * TN + j];
          for (unsigned i = 0; i < TM; ++i)
            for (unsigned j = 0; j < TN; ++j) part[i * TN + j] += a_reg[i] * b_reg[j];
        }
      }
    }
    __syncthreads();
    A += BK;
    B += BK * N;
  }
  for (unsigned m = 0; m < PARTS_M; ++m)
    for (unsigned n = 0; n < PARTS_N; ++n)
      store_tile<TM, TN>(C + (m * PART_M + thread_row * TM) * N + n * PART_N + thread_col * TN, N, alpha, beta,
                         &sums[(m * PARTS_N + n) * TM * TN]);
}

// 10: a warp computes a tile of WM by WN elements, in parts that its registers hold.
template <const int BM, const int BN, const int BK, const int WM, const int WN, const int PARTS_N, const int TM,
          const int TN, const int THREADS>
__global__ void __launch_bounds__(THREADS)
    sgemm_warptiled(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int PARTS_M = WM * WN / (32 * TM * TN * PARTS_N);
  constexpr int PART_M = WM / PARTS_M, PART_N = WN / PARTS_N;
  __shared__ float a_tile[BM * BK];
  __shared__ float b_tile[BK * BN];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned warp_row = warp / (BN / WN), warp_col = warp % (BN / WN);
  const unsigned lane_row = lane / (PART_N / TN), lane_col = lane % (PART_N / TN);
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (blockIdx.y * BM + warp_row * WM) * N + blockIdx.x * BN + warp_col * WN;

  float sums[PARTS_M * TM * PARTS_N * TN] = {0.0f};
  float a_reg[PARTS_M * TM] = {0.0f};
  float b_reg[PARTS_N * TN] = {0.0f};
  for (unsigned first = 0; first < K; first += BK) {
    load_tiles<BM, BN, BK, THREADS>(A, B, a_tile, b_tile, N, K);
    __syncthreads();
    for (unsigned k = 0; k < BK; ++k) {
      for (unsigned m = 0; m < PARTS_M; ++m)
        for (unsigned i = 0; i < TM; ++i)
          a_reg[m * TM + i] = a_tile[k * BM + warp_row * WM + m * PART_M + lane_row * TM + i];
      for (unsigned n = 0; n < PARTS_N; ++n)
        for (unsigned j = 0; j < TN; ++j)
          b_reg[n * TN + j] = b_tile[k * BN + warp_col * WN + n * PART_N + lane_col * TN + j];
      for (unsigned m = 0; m < PARTS_M; ++m)
        for (unsigned n = 0; n < PARTS_N; ++n)
          for (unsigned i = 0; i < TM; ++i)
            for (unsigned j = 0; j < TN; ++j)
              sums[((m * PARTS_N + n) * TM + i) * TN + j] += a_reg[m * TM + i] * b_reg[n * TN + j];
    }
    A += BK;
    B += BK * N;
    __syncthreads();
  }
  for (unsigned m = 0; m < PARTS_M; ++m)
    for (unsigned n = 0; n < PARTS_N; ++n)
      store_tile<TM, TN>(C + (m * PART_M + lane_row * TM) * N + n * PART_N + lane_col * TN, N, alpha, beta,
                         &sums[(m * PARTS_N + n) * TM * TN]);
}
