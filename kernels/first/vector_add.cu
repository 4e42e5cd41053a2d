// The sum of two vectors: one thread for each element.
extern "C" __global__ void vector_add(
    const float* x,  // [N]
    const float* y,  // [N]
    float* out,      // [N]
    int count) {
  const int first = blockIdx.x * blockDim.x;  // element of this block
  const int i = first + threadIdx.x;
  if (i < count) {
    const float sum = x[i] + y[i];
    out[i] = sum;
  }
}
