// The decoy without its shuffles.
extern "C" __global__ void smooth(const float* x, float* out, int n, float near) {
  const int first = (blockIdx.x * blockDim.x + threadIdx.x) * 16;
  const float* row = x + (size_t)blockIdx.y * n;
  for (int c = first; c < min(first + 16, n); ++c) {
    float left = c > 0 ? row[c - 1] : 0.f;
    const float right = c + 1 < n ? row[c + 1] : 0.f;
    out[(size_t)blockIdx.y * n + c] = near * (left + right) + (1.f - 2.f * near) * row[c];
  }
}
