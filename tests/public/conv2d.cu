// A convolution of 3 by 3 with zeros around the images, an element a thread.
__global__ void conv2d_3x3(const float* __restrict__ in,       // [in_channels, height, width]
                           const float* __restrict__ weights,  // [out_channels, in_channels, 3, 3]
                           float* __restrict__ out,            // [out_channels, height, width]
                           int in_channels, int height, int width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  const int k = blockIdx.z;
  if (x >= width || y >= height) return;
  float sum = 0.0f;
  for (int c = 0; c < in_channels; ++c) {
    const float* image = in + (size_t)c * height * width;
    const float* w = weights + (k * in_channels + c) * 9;
    for (int dy = -1; dy <= 1; ++dy)
      for (int dx = -1; dx <= 1; ++dx) {
        const int row = y + dy, column = x + dx;
        if (row >= 0 && row < height && column >= 0 && column < width)
          sum += image[row * width + column] * w[(dy + 1) * 3 + dx + 1];
      }
  }
  out[((size_t)k * height + y) * width + x] = sum;
}
