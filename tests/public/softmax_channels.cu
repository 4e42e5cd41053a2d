// Softmax over the channels of each pixel, a thread a pixel.
#include <cfloat>

__global__ void softmax_channels(const float* __restrict__ x,  // [images, channels, pixels]
                                 float* __restrict__ out,      // [images, channels, pixels]
                                 int channels, int pixels) {
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  if (pixel >= pixels) return;
  const size_t first = (size_t)blockIdx.y * channels * pixels + pixel;
  float most = -FLT_MAX;
  for (int c = 0; c < channels; ++c) most = fmaxf(most, x[first + (size_t)c * pixels]);
  float sum = 0.0f;
  for (int c = 0; c < channels; ++c) sum += __expf(x[first + (size_t)c * pixels] - most);
  const float scale = 1.0f / sum;
  for (int c = 0; c < channels; ++c) {
    const size_t i = first + (size_t)c * pixels;
    out[i] = __expf(x[i] - most) * scale;
  }
}
