// Four points a thread, which come and go together where a row allows it.
extern "C" __global__ void smooth(const float* x, float* out, int n, float near) {
  const int first = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (first >= n) return;
  const float* row = x + (size_t)blockIdx.y * n;
  float* to = out + (size_t)blockIdx.y * n;
  float held[6];
  held[0] = first > 0 ? row[first - 1] : 0.f;
  held[5] = first + 4 < n ? row[first + 4] : 0.f;
#if METHOD_VECTORIZE
  if (n % 4 == 0) {
    const float4 wide = *(const float4*)(row + first);
    held[1] = wide.x, held[2] = wide.y, held[3] = wide.z, held[4] = wide.w;
  } else
#endif
    for (int i = 0; i < 4; ++i) held[i + 1] = first + i < n ? row[first + i] : 0.f;
  float made[4];
  for (int i = 0; i < 4; ++i)
    made[i] = near * (held[i] + held[i + 2]) + (1.f - 2.f * near) * held[i + 1];
#if METHOD_VECTORIZE
  if (n % 4 == 0)
    *(float4*)(to + first) = make_float4(made[0], made[1], made[2], made[3]);
  else
#endif
    for (int i = 0; i < 4; ++i)
      if (first + i < n) to[first + i] = made[i];
}
