// The elements of a row-wise kernel, halves unless BF16 or FP32 is defined, and 16 bytes of them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if defined(BF16)
typedef __nv_bfloat16 Element;
__device__ __forceinline__ float widen(Element x) { return __bfloat162float(x); }
__device__ __forceinline__ Element narrow(float x) { return __float2bfloat16(x); }
#elif defined(FP32)
typedef float Element;
__device__ __forceinline__ float widen(Element x) { return x; }
__device__ __forceinline__ Element narrow(float x) { return x; }
#else
typedef half Element;
__device__ __forceinline__ float widen(Element x) { return __half2float(x); }
__device__ __forceinline__ Element narrow(float x) { return __float2half(x); }
#endif

#define CHUNK (16 / (int)sizeof(Element))  // elements of one 16-byte load

struct alignas(16) Chunk {
  Element x[CHUNK];
};

// One load of 16 bytes; a copy element by element would be several.
__device__ __forceinline__ Chunk load_chunk(const Element* source) {
  Chunk chunk;
  *reinterpret_cast<uint4*>(&chunk) = *reinterpret_cast<const uint4*>(source);
  return chunk;
}

__device__ __forceinline__ void store_chunk(Element* target, const Chunk& chunk) {
  *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(&chunk);
}
