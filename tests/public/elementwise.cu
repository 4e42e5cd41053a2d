// Elementwise kernels: a sum of two vectors, and four floats at a time GELU by its tanh form and the
// addition of a bias and a residual.
__global__ void vector_add(const float* a, const float* b, float* c, int n) {  // [n] each
  int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__device__ __forceinline__ float gelu(float x) {
  const float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + tanhf(inner));
}

__global__ void gelu_forward(float* __restrict__ out,      // [n]
                             const float* __restrict__ x,  // [n]
                             int n) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i >= n) return;
  const float4 v = *reinterpret_cast<const float4*>(x + i);
  *reinterpret_cast<float4*>(out + i) = make_float4(gelu(v.x), gelu(v.y), gelu(v.z), gelu(v.w));
}

__global__ void add_bias_residual(float4* __restrict__ out,             // [rows, packs]
                                  const float4* __restrict__ x,         // [rows, packs]
                                  const float4* __restrict__ residual,  // [rows, packs]
                                  const float4* __restrict__ bias,      // [packs]
                                  int packs) {
  for (int c = threadIdx.x; c < packs; c += blockDim.x) {
    const int i = blockIdx.x * packs + c;
    const float4 a = x[i], r = residual[i], b = bias[c];
    out[i] = make_float4(a.x + r.x + b.x, a.y + r.y + b.y, a.z + r.z + b.z, a.w + r.w + b.w);
  }
}
