// RMSNorm with residual, one block a row: the threads add x to the residual, store the sum there and
// add up its squares; each then scales and stores what it has read again, which the caches hold.
#include "block.cuh"
#include "element.cuh"

#ifndef THREADS  // of a block
#define THREADS 256
#endif

extern "C" __global__ void __launch_bounds__(THREADS) add_rms_norm(
    const Element* __restrict__ x,       // [R, C]
    Element* __restrict__ residual,      // [R, C], x is added to it
    const Element* __restrict__ weight,  // [C]
    Element* __restrict__ out,           // [R, C]
    int columns, float epsilon) {
  const size_t first = (size_t)blockIdx.x * columns;
  const Element* x_row = x + first;
  Element* sum_row = residual + first;
  Element* out_row = out + first;
  // Every row starts at a multiple of 16 bytes only where rows are so long.
  const bool aligned = columns % CHUNK == 0;

  float squares = 0.f;
  if (aligned) {
    for (int c = threadIdx.x * CHUNK; c < columns; c += THREADS * CHUNK) {
      const Chunk chunk = load_chunk(x_row + c), before = load_chunk(sum_row + c);
      Chunk sum;
#pragma unroll
      for (int i = 0; i < CHUNK; ++i) {
        sum.x[i] = narrow(widen(chunk.x[i]) + widen(before.x[i]));
        squares += widen(sum.x[i]) * widen(sum.x[i]);
      }
      store_chunk(sum_row + c, sum);
    }
  } else {
    for (int c = threadIdx.x; c < columns; c += THREADS) {
      const Element sum = narrow(widen(x_row[c]) + widen(sum_row[c]));
      squares += widen(sum) * widen(sum);
      sum_row[c] = sum;
    }
  }
  const float scale = rsqrtf(block_sum<THREADS / 32>(squares) / columns + epsilon);

  if (aligned) {
    for (int c = threadIdx.x * CHUNK; c < columns; c += THREADS * CHUNK) {
      const Chunk chunk = load_chunk(sum_row + c), by = load_chunk(weight + c);
      Chunk scaled;
#pragma unroll
      for (int i = 0; i < CHUNK; ++i)
        scaled.x[i] = narrow(widen(chunk.x[i]) * scale * widen(by.x[i]));
      store_chunk(out_row + c, scaled);
    }
  } else {
    for (int c = threadIdx.x; c < columns; c += THREADS)
      out_row[c] = narrow(widen(sum_row[c]) * scale * widen(weight[c]));
  }
}
