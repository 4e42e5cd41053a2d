// Fills a buffer with standard normal numbers that depend on the seed and the position alone.
// Rows past a sequence's length get NaN, so that reading them shows. It also makes the fingerprint of
// what a kernel wrote.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ __forceinline__ unsigned long long scramble(unsigned long long x) {
  // Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (splitmix64).
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ __forceinline__ void round_pair(half2& to, float x, float y) {
  to = __floats2half2_rn(x, y);
}
__device__ __forceinline__ void round_pair(__nv_bfloat162& to, float x, float y) {
  to = __floats2bfloat162_rn(x, y);
}
__device__ __forceinline__ void round_pair(float2& to, float x, float y) { to = make_float2(x, y); }

template <class Pair>
__device__ __forceinline__ void fill(
    Pair* out,                          // [batch, heads, rows, columns] in pairs
    const int* __restrict__ lengths,   // [batch], or null: every row counts
    unsigned long long pairs,           // elements / 2
    unsigned long long seed, int heads, int rows, int columns) {
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < pairs;
       i += step) {
    const unsigned long long bits = scramble(scramble(seed) ^ i);
    // Box and Muller: two uniform numbers, the first never 0, give two normal ones.
    const float radius_uniform = ((unsigned)(bits >> 40) + 1) * (1.f / 16777216.f);
    const float angle_uniform = ((unsigned)(bits >> 16) & 0xffffff) * (1.f / 16777216.f);
    const float radius = sqrtf(-2.f * logf(radius_uniform));
    float sine, cosine;
    sincospif(2.f * angle_uniform, &sine, &cosine);
    float first = radius * cosine, second = radius * sine;
    if (lengths != nullptr) {
      const unsigned long long row = i / (columns / 2);
      const int sequence = (int)(row / ((unsigned long long)rows * heads));
      if ((int)(row % rows) >= lengths[sequence]) first = second = __int_as_float(0x7fc00000);
    }
    round_pair(out[i], first, second);
  }
}

// For a paged cache batch is the number of pages, rows the page size, and lengths the rows of
// each page that hold a token.
extern "C" __global__ void fill_normal(half2* out, const int* __restrict__ lengths,
                                       unsigned long long pairs, unsigned long long seed,
                                       int heads, int rows, int columns) {
  fill(out, lengths, pairs, seed, heads, rows, columns);
}

extern "C" __global__ void fill_normal_bf16(__nv_bfloat162* out, const int* __restrict__ lengths,
                                            unsigned long long pairs, unsigned long long seed,
                                            int heads, int rows, int columns) {
  fill(out, lengths, pairs, seed, heads, rows, columns);
}

extern "C" __global__ void fill_normal_fp32(float2* out, const int* __restrict__ lengths,
                                            unsigned long long pairs, unsigned long long seed,
                                            int heads, int rows, int columns) {
  fill(out, lengths, pairs, seed, heads, rows, columns);
}

// Adds to *sum a number of 64 bits that follows from the seed, every byte and its place; whoever does
// not know the seed cannot write other bytes with the same sum.
extern "C" __global__ void fingerprint(const unsigned char* bytes, unsigned long long* sum,
                                       unsigned long long size, unsigned long long seed) {
  const unsigned long long words = size / 4, key = scramble(seed);
  const unsigned* word = (const unsigned*)bytes;
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  unsigned long long found = 0;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
       i < words + size % 4; i += step) {
    const unsigned long long held = i < words ? word[i] : bytes[3 * words + i];
    found += scramble(scramble(key + i) ^ held);
  }
  atomicAdd(sum, found);
}
