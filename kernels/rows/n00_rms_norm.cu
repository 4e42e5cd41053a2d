// RMSNorm, one block a row: the threads sum the squares of their elements, the block adds the
// sums up, and each thread scales and stores what it has read again, which the caches still hold.
#include "block.cuh"
#include "element.cuh"

#ifndef THREADS  // of a block
#define THREADS 256
#endif

extern "C" __global__ void __launch_bounds__(THREADS) rms_norm(
    const Element* __restrict__ x,       // [R, C]
    const Element* __restrict__ weight,  // [C]
    Element* __restrict__ out,           // [R, C]
    int columns, float epsilon) {
  const size_t first = (size_t)blockIdx.x * columns;
  const Element* x_row = x + first;
  Element* out_row = out + first;
  // Every row starts at a multiple of 16 bytes only where rows are so long.
  const bool aligned = columns % CHUNK == 0;

  float sum = 0.f;
  if (aligned) {
    for (int c = threadIdx.x * CHUNK; c < columns; c += THREADS * CHUNK) {
      const Chunk chunk = load_chunk(x_row + c);
#pragma unroll
      for (int i = 0; i < CHUNK; ++i) {
        const float value = widen(chunk.x[i]);
        sum += value * value;
      }
    }
  } else {
    for (int c = threadIdx.x; c < columns; c += THREADS) {
      const float value = widen(x_row[c]);
      sum += value * value;
    }
  }
  const float scale = rsqrtf(block_sum<THREADS / 32>(sum) / columns + epsilon);

  if (aligned) {
    for (int c = threadIdx.x * CHUNK; c < columns; c += THREADS * CHUNK) {
      const Chunk chunk = load_chunk(x_row + c), by = load_chunk(weight + c);
      Chunk scaled;
#pragma unroll
      for (int i = 0; i < CHUNK; ++i)
        scaled.x[i] = narrow(widen(chunk.x[i]) * scale * widen(by.x[i]));
      store_chunk(out_row + c, scaled);
    }
  } else {
    for (int c = threadIdx.x; c < columns; c += THREADS)
      out_row[c] = narrow(widen(x_row[c]) * scale * widen(weight[c]));
  }
}
