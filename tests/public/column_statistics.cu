// Sums of each column and of its squares, a thread a column.
__global__ void column_statistics(const float* __restrict__ x,     // [N, C]
                                  float* __restrict__ sums,        // [C]
                                  float* __restrict__ of_squares,  // [C]
                                  int N, int C) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= C) return;
  float sum = 0.0f, squares = 0.0f;
  for (int n = 0; n < N; ++n) {
    const float value = x[(size_t)n * C + c];
    sum += value;
    squares += value * value;
  }
  sums[c] = sum;
  of_squares[c] = squares;
}
