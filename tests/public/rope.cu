// Rotary embedding of fp16 in place, whose pairs are half a head apart; a block a token.
#include <cuda_fp16.h>

template <int HEAD_DIM>
__global__ void rotary_embedding(half* __restrict__ x,               // [tokens, num_heads, HEAD_DIM]
                                 const int* __restrict__ positions,  // [tokens]
                                 const float* __restrict__ cos_sin,  // [max_position, HEAD_DIM], cosines first
                                 int num_heads) {
  constexpr int HALF = HEAD_DIM / 2;
  half* mine = x + (size_t)blockIdx.x * num_heads * HEAD_DIM;
  const float* table = cos_sin + positions[blockIdx.x] * HEAD_DIM;
  for (int i = threadIdx.x; i < num_heads * HALF; i += blockDim.x) {
    const int at = i / HALF * HEAD_DIM + i % HALF;
    const float c = table[i % HALF], s = table[i % HALF + HALF];
    const float a = __half2float(mine[at]), b = __half2float(mine[at + HALF]);
    mine[at] = __float2half(a * c - b * s);
    mine[at + HALF] = __float2half(b * c + a * s);
  }
}
