// half, bfloat16, their pairs and the vector types, in place of CUDA's headers where those cannot be
// handed on: each operation is done in float and rounded once, as the intrinsics do it.
#pragma once
#include <cstdint>
#include <cstring>

#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __align__(bytes)
#define LAB_HEADER inline __attribute__((always_inline))

// ---- vectors ----
#define LAB_VECTOR_OF(T, name, align2, align4)                                                     \
  struct name##1 { T x; };                                                                         \
  struct __attribute__((aligned(align2))) name##2 { T x, y; };                                     \
  struct name##3 { T x, y, z; };                                                                   \
  struct __attribute__((aligned(align4))) name##4 { T x, y, z, w; };                               \
  LAB_HEADER name##1 make_##name##1(T x) { return {x}; }                                           \
  LAB_HEADER name##2 make_##name##2(T x, T y) { return {x, y}; }                                   \
  LAB_HEADER name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                           \
  LAB_HEADER name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
LAB_VECTOR_OF(signed char, char, 2, 4)
LAB_VECTOR_OF(unsigned char, uchar, 2, 4)
LAB_VECTOR_OF(short, short, 4, 8)
LAB_VECTOR_OF(unsigned short, ushort, 4, 8)
LAB_VECTOR_OF(int, int, 8, 16)
LAB_VECTOR_OF(unsigned, uint, 8, 16)
LAB_VECTOR_OF(long long, longlong, 16, 16)
LAB_VECTOR_OF(unsigned long long, ulonglong, 16, 16)
LAB_VECTOR_OF(float, float, 8, 16)
LAB_VECTOR_OF(double, double, 16, 16)
#undef LAB_VECTOR_OF
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

// ---- bits ----
namespace lab {
LAB_HEADER float of_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
LAB_HEADER uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return bits;
}
struct HalfCode {
  LAB_HEADER static float decode(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
    if (rest >= 0x7c00u) return of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    return of_bits(sign) + of_bits(sign | rest << 13) * 0x1p112f;
  }
  static uint16_t encode(float f) {  // to the nearest, of two the even one
    const uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return 0x7fffu;
    if (rest >= 0x477ff000u) return uint16_t(sign | 0x7c00u);
    if (rest < 0x38800000u) return uint16_t(sign | (bits_of(of_bits(rest) + 0.5f) & 0x7ffu));  // 0.5f: its last bit is worth 2^-24
    const uint32_t odd = rest >> 13 & 1u;
    return uint16_t(sign | ((rest - 0x38000000u + 0xfffu + odd) >> 13));
  }
};
struct BfloatCode {
  LAB_HEADER static float decode(uint16_t bits) { return of_bits(uint32_t(bits) << 16); }
  LAB_HEADER static uint16_t encode(float f) {
    const uint32_t bits = bits_of(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
};
}  // namespace lab

// ---- the two types, and pairs of them ----
#define LAB_HALF_TYPE(T, Code)                                                                     \
  struct T##_raw { unsigned short x; };                                                            \
  struct T##2_raw { unsigned short x, y; };                                                        \
  struct __attribute__((aligned(2))) T {                                                           \
    unsigned short __x;                                                                            \
    T() = default;                                                                                 \
    LAB_HEADER T(T##_raw raw) : __x(raw.x) {}                                                      \
    LAB_HEADER T(float f) : __x(lab::Code::encode(f)) {}                                           \
    LAB_HEADER T(double f) : T(float(f)) {}                                                        \
    LAB_HEADER T(int i) : T(float(i)) {}                                                           \
    LAB_HEADER T(unsigned i) : T(float(i)) {}                                                      \
    LAB_HEADER T(long long i) : T(float(i)) {}                                                     \
    LAB_HEADER operator float() const { return lab::Code::decode(__x); }                           \
    LAB_HEADER operator T##_raw() const { return {__x}; }                                          \
    LAB_HEADER T& operator+=(T o) { return *this = T(float(*this) + float(o)); }                   \
    LAB_HEADER T& operator-=(T o) { return *this = T(float(*this) - float(o)); }                   \
    LAB_HEADER T& operator*=(T o) { return *this = T(float(*this) * float(o)); }                   \
    LAB_HEADER T& operator/=(T o) { return *this = T(float(*this) / float(o)); }                   \
  };                                                                                               \
  struct __attribute__((aligned(4))) T##2 {                                                        \
    T x, y;                                                                                        \
    T##2() = default;                                                                              \
    LAB_HEADER T##2(T x, T y) : x(x), y(y) {}                                                      \
    LAB_HEADER T##2(T##2_raw raw) : x(T##_raw{raw.x}), y(T##_raw{raw.y}) {}                        \
    LAB_HEADER operator T##2_raw() const { return {x.__x, y.__x}; }                                \
    LAB_HEADER T##2& operator+=(T##2 o) { x += o.x; y += o.y; return *this; }                      \
    LAB_HEADER T##2& operator-=(T##2 o) { x -= o.x; y -= o.y; return *this; }                      \
    LAB_HEADER T##2& operator*=(T##2 o) { x *= o.x; y *= o.y; return *this; }                      \
    LAB_HEADER T##2& operator/=(T##2 o) { x /= o.x; y /= o.y; return *this; }                      \
  };                                                                                               \
  LAB_HALF_OPERATOR(T, +, __hadd)                                                                  \
  LAB_HALF_OPERATOR(T, -, __hsub)                                                                  \
  LAB_HALF_OPERATOR(T, *, __hmul)                                                                  \
  LAB_HALF_OPERATOR(T, /, __hdiv)                                                                  \
  LAB_HEADER T operator-(T a) { return T##_raw{(unsigned short)(a.__x ^ 0x8000u)}; }               \
  LAB_HEADER T __hneg(T a) { return -a; }                                                          \
  LAB_HEADER T __habs(T a) { return T##_raw{(unsigned short)(a.__x & 0x7fffu)}; }                  \
  LAB_HEADER T##2 __hneg2(T##2 a) { return {-a.x, -a.y}; }                                         \
  LAB_HEADER T##2 __habs2(T##2 a) { return {__habs(a.x), __habs(a.y)}; }                           \
  LAB_HEADER bool __hisnan(T a) { return float(a) != float(a); }                                   \
  LAB_HEADER T __hmax(T a, T b) { return __hisnan(a) ? b : float(b) > float(a) ? b : a; }          \
  LAB_HEADER T __hmin(T a, T b) { return __hisnan(a) ? b : float(b) < float(a) ? b : a; }          \
  LAB_HEADER T##2 __hmax2(T##2 a, T##2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }         \
  LAB_HEADER T##2 __hmin2(T##2 a, T##2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }         \
  LAB_HALF_COMPARISON(T, <, __hlt)                                                                 \
  LAB_HALF_COMPARISON(T, <=, __hle)                                                                \
  LAB_HALF_COMPARISON(T, >, __hgt)                                                                 \
  LAB_HALF_COMPARISON(T, >=, __hge)                                                                \
  LAB_HALF_COMPARISON(T, ==, __heq)                                                                \
  LAB_HALF_COMPARISON(T, !=, __hne)
#define LAB_HALF_OPERATOR(T, sign, name)                                                           \
  LAB_HEADER T operator sign(T a, T b) { return T(float(a) sign float(b)); }                       \
  LAB_HEADER T##2 operator sign(T##2 a, T##2 b) { return {a.x sign b.x, a.y sign b.y}; }           \
  LAB_HEADER T name(T a, T b) { return a sign b; }                                                 \
  LAB_HEADER T##2 LAB_HALF_PAIR(name)(T##2 a, T##2 b) { return a sign b; }
#define LAB_HALF_PAIR(name) LAB_HALF_PAIR_##name
#define LAB_HALF_PAIR___hadd __hadd2
#define LAB_HALF_PAIR___hsub __hsub2
#define LAB_HALF_PAIR___hmul __hmul2
#define LAB_HALF_PAIR___hdiv __h2div
#define LAB_HALF_COMPARISON(T, sign, name)                                                         \
  LAB_HEADER bool operator sign(T a, T b) { return float(a) sign float(b); }                       \
  LAB_HEADER bool name(T a, T b) { return float(a) sign float(b); }
LAB_HALF_TYPE(__half, HalfCode)
LAB_HALF_TYPE(__nv_bfloat16, BfloatCode)
#undef LAB_HALF_COMPARISON
#undef LAB_HALF_OPERATOR
#undef LAB_HALF_TYPE
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

// ---- conversions ----
#define LAB_HALF_NAMES(T, one, two, both)                                                          \
  LAB_HEADER float __##one##2float(T h) { return float(h); }                                       \
  LAB_HEADER float2 __##two##2float2(T##2 h) { return {float(h.x), float(h.y)}; }                  \
  LAB_HEADER T __float2##one(float f) { return T(f); }                                             \
  LAB_HEADER T __float2##one##_rn(float f) { return T(f); }                                        \
  LAB_HEADER T __double2##one(double f) { return T(f); }                                           \
  LAB_HEADER T __int2##one##_rn(int i) { return T(float(i)); }                                     \
  LAB_HEADER T __uint2##one##_rn(unsigned i) { return T(float(i)); }                               \
  LAB_HEADER int __##one##2int_rz(T h) { return int(float(h)); }                                   \
  LAB_HEADER unsigned __##one##2uint_rz(T h) { return unsigned(float(h)); }                        \
  LAB_HEADER T##2 __float22##both##_rn(float2 f) { return {T(f.x), T(f.y)}; }                      \
  LAB_HEADER T##2 __floats2##both##_rn(float x, float y) { return {T(x), T(y)}; }                  \
  LAB_HEADER T##2 __float2##both##_rn(float f) { return {T(f), T(f)}; }                            \
  LAB_HEADER T##2 __halves2##both(T x, T y) { return {x, y}; }                                     \
  LAB_HEADER T##2 __##one##2##both(T h) { return {h, h}; }                                         \
  LAB_HEADER T##2 make_##both(T x, T y) { return {x, y}; }                                         \
  LAB_HEADER T __low2##one(T##2 h) { return h.x; }                                                 \
  LAB_HEADER T __high2##one(T##2 h) { return h.y; }                                                \
  LAB_HEADER T##2 __low2##both(T##2 h) { return {h.x, h.x}; }                                      \
  LAB_HEADER T##2 __high2##both(T##2 h) { return {h.y, h.y}; }                                     \
  LAB_HEADER T##2 __lowhigh2highlow(T##2 h) { return {h.y, h.x}; }                                 \
  LAB_HEADER float __low2float(T##2 h) { return float(h.x); }                                      \
  LAB_HEADER float __high2float(T##2 h) { return float(h.y); }                                     \
  LAB_HEADER unsigned short __##one##_as_ushort(T h) { return h.__x; }                             \
  LAB_HEADER short __##one##_as_short(T h) { return short(h.__x); }                                \
  LAB_HEADER T __ushort_as_##one(unsigned short bits) { return T##_raw{bits}; }                    \
  LAB_HEADER T __short_as_##one(short bits) { return T##_raw{(unsigned short)bits}; }
LAB_HALF_NAMES(__half, half, half2, half2)
LAB_HALF_NAMES(__nv_bfloat16, bfloat16, bfloat162, bfloat162)
#undef LAB_HALF_NAMES
#undef LAB_HEADER

// ---- math_constants.h ----
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_PI_F 3.141592654f
