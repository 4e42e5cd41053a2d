// The sum of each row of a matrix: one block for each row.
constexpr int BLOCK = 64;  // threads of a block

extern "C" __global__ void row_sum(
    const float* x,  // [R, C]
    float* out,      // [R]
    int columns) {
  __shared__ float parts[BLOCK];
  const int row = blockIdx.x, thread = threadIdx.x;
  float sum = 0.f;
  for (int c = thread; c < columns; c += BLOCK) sum += x[row * columns + c];
  parts[thread] = sum;
  __syncthreads();
  for (int active = BLOCK / 2; active > 0; active /= 2) {
    if (thread < active) parts[thread] += parts[thread + active];
    __syncthreads();
  }
  if (thread == 0) out[row] = parts[0];
}
