// A step of heat in a box: a thread takes POINTS points, one above the other; the walls stay as they
// are.
extern "C" __global__ void heat(const float* t, float* next, int nx, int ny, int nz, float rate) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  const int first = (blockIdx.z * blockDim.z + threadIdx.z) * POINTS;
  if (x >= nx || y >= ny) return;
  const int plane = nx * ny;
  const bool is_wall = x == 0 || x == nx - 1 || y == 0 || y == ny - 1;
#pragma unroll
  for (int z = first; z < first + POINTS; ++z) {
    if (z >= nz) return;
    const int i = z * plane + y * nx + x;
    float change = 0.f;
    if (!is_wall && z > 0 && z < nz - 1)
      change = t[i - 1] + t[i + 1] + t[i - nx] + t[i + nx] + t[i - plane] + t[i + plane] - 6.f * t[i];
    next[i] = t[i] + rate * change;
  }
}
