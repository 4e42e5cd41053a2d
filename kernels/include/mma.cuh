// The matrix instructions of one warp: mma.m16n8k16, ldmatrix and movmatrix, for fp16 and bf16.
//
// Lane l of the warp is g = l / 4, c = l % 4. A register holds two neighbouring 16-bit elements.
//   A [16 x 16]: a[0] row g, columns 2c and 2c+1; a[1] row g+8; a[2] columns +8; a[3] both
//   B [16 x 8]:  b[0] rows 2c and 2c+1, column g; b[1] rows +8
//   C [16 x 8]:  c[0], c[1] row g, columns 2c and 2c+1; c[2], c[3] row g+8
//
// A CPU has no such instructions: there each wrapper gathers the same elements by shuffles, in
// fp32, so that one source runs on both.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifdef BF16
using Element = __nv_bfloat16;
#else
using Element = half;
#endif

// Two neighbouring elements of one register, as floats and back.
template <class T>
__device__ __forceinline__ float2 unpack_pair(unsigned bits);
template <class T>
__device__ __forceinline__ unsigned pack_pair(float low, float high);

template <>
__device__ __forceinline__ float2 unpack_pair<half>(unsigned bits) {
  half2 pair;
  memcpy(&pair, &bits, 4);
  return __half22float2(pair);
}
template <>
__device__ __forceinline__ unsigned pack_pair<half>(float low, float high) {
  const half2 pair = __float22half2_rn(make_float2(low, high));
  unsigned bits;
  memcpy(&bits, &pair, 4);
  return bits;
}
template <>
__device__ __forceinline__ float2 unpack_pair<__nv_bfloat16>(unsigned bits) {
  // A bf16 is the upper half of a float.
  return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}
template <>
__device__ __forceinline__ unsigned pack_pair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  unsigned bits;
  memcpy(&bits, &pair, 4);
  return bits;
}

#ifdef __CUDA_ARCH__

// d = a * b + c
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1, const float (&c)[4]);

#define MMA_M16N8K16(type, name)                                                               \
  template <>                                                                                  \
  __device__ __forceinline__ void mma_m16n8k16<type>(float(&d)[4], const unsigned(&a)[4],      \
                                                     unsigned b0, unsigned b1,                 \
                                                     const float(&c)[4]) {                     \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name                                 \
        ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"                       \
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),  \
          "f"(c[2]), "f"(c[3]));                                                               \
  }
MMA_M16N8K16(half, "f16")
MMA_M16N8K16(__nv_bfloat16, "bf16")
#undef MMA_M16N8K16

// Four 8x8 matrices: lanes 8i..8i+7 name the rows of matrix i, 16 bytes each, in shared memory.
// Lane l gets elements 2c and 2c+1 of row g of each.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}

// The same, each matrix transposed: lane l gets elements g of rows 2c and 2c+1.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], const void* row) {
  ldmatrix_x4_trans(r, (unsigned)__cvta_generic_to_shared(row));
}

// Transposes one 8x8 matrix that lies in registers: two 16-bit elements a lane.
__device__ __forceinline__ unsigned movmatrix_trans(unsigned pair) {
  unsigned result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

#else  // the CPU

constexpr unsigned WHOLE_WARP = 0xffffffffu;

template <class T>
inline void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                         const float (&c)[4]) {
  for (int i = 0; i < 4; ++i) d[i] = c[i];
  const int lane = threadIdx.x % 32, g4 = lane & ~3, c2 = 2 * (lane % 4);
  for (int from = 0; from < 4; ++from) {
    for (int half_k = 0; half_k < 2; ++half_k) {
      const float2 upper = unpack_pair<T>(__shfl_sync(WHOLE_WARP, a[2 * half_k], g4 + from));
      const float2 lower = unpack_pair<T>(__shfl_sync(WHOLE_WARP, a[2 * half_k + 1], g4 + from));
      const unsigned b = half_k ? b1 : b0;
      const float2 left = unpack_pair<T>(__shfl_sync(WHOLE_WARP, b, 4 * c2 + from));
      const float2 right = unpack_pair<T>(__shfl_sync(WHOLE_WARP, b, 4 * (c2 + 1) + from));
      d[0] += upper.x * left.x + upper.y * left.y;
      d[1] += upper.x * right.x + upper.y * right.y;
      d[2] += lower.x * left.x + lower.y * left.y;
      d[3] += lower.x * right.x + lower.y * right.y;
    }
  }
}

inline void ldmatrix_x4(unsigned (&r)[4], const void* row) {
  const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const auto from = __shfl_sync(WHOLE_WARP, (unsigned long long)row, 8 * i + g);
    r[i] = reinterpret_cast<const unsigned*>(from)[c];
  }
}

inline void ldmatrix_x4_trans(unsigned (&r)[4], const void* row) {
  const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
  for (int i = 0; i < 4; ++i) {
    unsigned pair = 0;
    for (int k = 0; k < 2; ++k) {
      const auto from = __shfl_sync(WHOLE_WARP, (unsigned long long)row, 8 * i + 2 * c + k);
      pair |= (unsigned)reinterpret_cast<const unsigned short*>(from)[g] << (16 * k);
    }
    r[i] = pair;
  }
}

inline void ldmatrix_x4_trans(unsigned (&r)[4], unsigned long long row) {
  ldmatrix_x4_trans(r, (const void*)row);
}

inline unsigned movmatrix_trans(unsigned pair) {
  const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
  unsigned result = 0;
  for (int k = 0; k < 2; ++k) {
    const unsigned from = __shfl_sync(WHOLE_WARP, pair, 4 * (2 * c + k) + g / 2);
    result |= (from >> (16 * (g % 2)) & 0xffffu) << (16 * k);
  }
  return result;
}

#endif

// c += a * b
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
  mma_m16n8k16<T>(c, a, b0, b1, c);
}

// The same with both registers of B as one value, which keeps them side by side where B lives long.
__device__ __forceinline__ unsigned long long side_by_side(unsigned b0, unsigned b1) {
#ifdef __CUDA_ARCH__
  unsigned long long both;
  asm("mov.b64 %0, {%1,%2};" : "=l"(both) : "r"(b0), "r"(b1));
  return both;
#else
  return (unsigned long long)b1 << 32 | b0;
#endif
}
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4],
                                             unsigned long long b) {
#ifdef __CUDA_ARCH__
  unsigned b0, b1;
  asm("mov.b64 {%0,%1}, %2;" : "=r"(b0), "=r"(b1) : "l"(b));
#else
  const unsigned b0 = (unsigned)b, b1 = (unsigned)(b >> 32);
#endif
  mma_m16n8k16<T>(c, a, b0, b1);
}
