// Reads K and V once with 16-byte loads and folds every word into a checksum, so that no load
// can be left out. The time is the ceiling for any kernel that must read the same bytes.
#include <cuda_fp16.h>

#ifndef LOADS  // 16-byte loads in flight a thread
#define LOADS 4
#endif
#ifndef THREADS
#define THREADS 256
#endif

__device__ __forceinline__ unsigned fold(uint4 x) { return x.x ^ x.y ^ x.z ^ x.w; }

__device__ __forceinline__ unsigned read_all(const uint4* __restrict__ source,
                                             unsigned long long chunks) {
  unsigned sum = 0;
  const unsigned long long step = (unsigned long long)gridDim.x * THREADS * LOADS;
  unsigned long long base = (unsigned long long)blockIdx.x * THREADS * LOADS + threadIdx.x;
  for (; base + (LOADS - 1) * THREADS < chunks; base += step) {
    uint4 words[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) words[i] = source[base + i * THREADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) sum ^= fold(words[i]);
  }
  for (int i = 0; i < LOADS; ++i)  // the last, incomplete step
    if (base + i * THREADS < chunks) sum ^= fold(source[base + i * THREADS]);
  return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) read_sweep(
    const uint4* __restrict__ k,  // [B, Hkv, S, D] as 16-byte chunks
    const uint4* __restrict__ v,  // as k
    unsigned* checksum,           // [1], folded into
    unsigned long long chunks) {  // 16-byte chunks of k, and of v
  unsigned sum = read_all(k, chunks) ^ read_all(v, chunks);
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) sum ^= __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) atomicXor(checksum, sum);
}
