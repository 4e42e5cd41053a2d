// An array of structures taken apart into arrays, and arrays put together.
struct Particle {
  float x, y, z;
  float vx, vy, vz;
  float mass;
};

__global__ void aos_to_soa(const Particle* particles,  // [n]
                           float* out,                 // [7, n]
                           int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const Particle p = particles[i];
  out[i] = p.x;
  out[n + i] = p.y;
  out[2 * n + i] = p.z;
  out[3 * n + i] = p.vx;
  out[4 * n + i] = p.vy;
  out[5 * n + i] = p.vz;
  out[6 * n + i] = p.mass;
}

__global__ void soa_to_aos(const float* __restrict__ x,  // [n]
                           const float* __restrict__ y,  // [n]
                           const float* __restrict__ z,  // [n]
                           float3* __restrict__ points,  // [n]
                           int n) {
  const int stride = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) points[i] = make_float3(x[i], y[i], z[i]);
}
