// 16 points a thread that come and go by way of a tile, so that neighbouring lanes ask memory for
// neighbouring points.
#define THREADS 128
#define RUN 16
#define TILE (THREADS * RUN)

__device__ __forceinline__ int place(int i) { return i + i / 32; }  // lanes in different banks

extern "C" __global__ void smooth(const float* x, float* out, int n, float near) {
  const int begin = blockIdx.x * TILE, first = threadIdx.x * RUN;
  const float* row = x + (size_t)blockIdx.y * n;
  float* to = out + (size_t)blockIdx.y * n;
#if METHOD_SHARED_TILE
  __shared__ float tile[TILE + 2 + (TILE + 2) / 32];
  for (int i = threadIdx.x; i < TILE + 2; i += THREADS) {
    const int c = begin + i - 1;
    tile[place(i)] = c >= 0 && c < n ? row[c] : 0.f;
  }
  __syncthreads();
#endif
  float held[RUN + 2], made[RUN];
  for (int i = 0; i < RUN + 2; ++i) {
#if METHOD_SHARED_TILE
    held[i] = tile[place(first + i)];
#else
    const int c = begin + first + i - 1;
    held[i] = c >= 0 && c < n ? row[c] : 0.f;
#endif
  }
  for (int i = 0; i < RUN; ++i)
    made[i] = near * (held[i] + held[i + 2]) + (1.f - 2.f * near) * held[i + 1];
#if METHOD_SHARED_TILE
  __syncthreads();
  for (int i = 0; i < RUN; ++i) tile[place(first + i)] = made[i];
  __syncthreads();
  for (int i = threadIdx.x; i < TILE && begin + i < n; i += THREADS) to[begin + i] = tile[place(i)];
#else
  for (int i = 0; i < RUN; ++i)
    if (begin + first + i < n) to[begin + first + i] = made[i];
#endif
}
