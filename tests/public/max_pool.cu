// Maxima of squares of 2 by 2, an output a thread.
__global__ void max_pool_2x2(const float* in,  // [planes, height, width]
                             float* out,       // [planes, height / 2, width / 2]
                             int planes, int height, int width) {
  const int out_height = height / 2, out_width = width / 2;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= planes * out_height * out_width) return;
  const int column = i % out_width, row = i / out_width % out_height, plane = i / out_width / out_height;
  const float* corner = in + ((size_t)plane * height + row * 2) * width + column * 2;
  out[i] = fmaxf(fmaxf(corner[0], corner[1]), fmaxf(corner[width], corner[width + 1]));
}
