// A thread's share of one row of q, k, v or the output: N neighbouring dims, held in fp32.
// N is 1, 2 or 4, so that a share is one load of 2, 4 or 8 bytes.
#pragma once
#include <cuda_fp16.h>

template <int N>
struct Row {
  float x[N];
};

template <int N>
__device__ __forceinline__ Row<N> load_row(const half* source);

template <>
__device__ __forceinline__ Row<1> load_row<1>(const half* source) {
  return {{__half2float(*source)}};
}

template <>
__device__ __forceinline__ Row<2> load_row<2>(const half* source) {
  const float2 pair = __half22float2(*reinterpret_cast<const half2*>(source));
  return {{pair.x, pair.y}};
}

template <>
__device__ __forceinline__ Row<4> load_row<4>(const half* source) {
  // One 8-byte load: a struct of two half2 would become two 4-byte loads.
  const uint2 bits = *reinterpret_cast<const uint2*>(source);
  const float2 low = __half22float2(*reinterpret_cast<const half2*>(&bits.x));
  const float2 high = __half22float2(*reinterpret_cast<const half2*>(&bits.y));
  return {{low.x, low.y, high.x, high.y}};
}

template <int N>
__device__ __forceinline__ void store_row(half* target, const Row<N>& row, float factor) {
#pragma unroll
  for (int i = 0; i < N; ++i) target[i] = __float2half(row.x[i] * factor);
}

template <int N>
__device__ __forceinline__ float dot(const Row<N>& a, const Row<N>& b) {
  float sum = a.x[0] * b.x[0];
#pragma unroll
  for (int i = 1; i < N; ++i) sum += a.x[i] * b.x[i];
  return sum;
}

// acc = acc * old_factor + row * new_factor
template <int N>
__device__ __forceinline__ void accumulate(Row<N>& acc, float old_factor, const Row<N>& row,
                                           float new_factor) {
#pragma unroll
  for (int i = 0; i < N; ++i) acc.x[i] = acc.x[i] * old_factor + row.x[i] * new_factor;
}
