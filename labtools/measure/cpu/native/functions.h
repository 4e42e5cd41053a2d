// Functions that a GPU's compiler knows without being told and CUDA's headers have for the GPU only.
// Included by cuda_on_cpu.h, inside which all names it needs are known.
#pragma once
#include <cfloat>
#include <climits>
#include <ctime>  // its clock() is not a GPU's

// <cmath> takes these away as macros and keeps them in std.
using std::isfinite;
using std::isgreater;
using std::isinf;
using std::isless;
using std::isnan;
using std::isnormal;
using std::signbit;

// What is promised to the compiler is held against what happens.
#define __builtin_assume(condition) ((condition) ? (void)0 : lab_trap("__builtin_assume(" #condition ") does not hold"))

// ---- time: it goes on, and says nothing of a GPU ----
LAB_INLINE long long clock64() { return lab_clock(); }
#define clock() (int(lab_clock()))

// ---- rounding to other sides: a double holds the exact sum or product of two floats ----
namespace lab {
LAB_INLINE float towards_zero(double x) {
  const float f = float(x);
  return fabs(double(f)) > fabs(x) ? nextafterf(f, 0.0f) : f;
}
LAB_INLINE float up(double x) {
  const float f = float(x);
  return double(f) < x ? nextafterf(f, HUGE_VALF) : f;
}
LAB_INLINE float down(double x) {
  const float f = float(x);
  return double(f) > x ? nextafterf(f, -HUGE_VALF) : f;
}
}  // namespace lab
#define LAB_ROUNDED(side, to)                                                                                  \
  LAB_INLINE float __fadd_##side(float x, float y) { return lab::to(double(x) + double(y)); }                  \
  LAB_INLINE float __fsub_##side(float x, float y) { return lab::to(double(x) - double(y)); }                  \
  LAB_INLINE float __fmul_##side(float x, float y) { return lab::to(double(x) * double(y)); }                  \
  LAB_INLINE float __fdiv_##side(float x, float y) { return lab::to(double(x) / double(y)); }                  \
  LAB_INLINE float __fmaf_##side(float x, float y, float z) { return lab::to(double(x) * double(y) + double(z)); } \
  LAB_INLINE float __frcp_##side(float x) { return lab::to(1.0 / double(x)); }                                 \
  LAB_INLINE float __fsqrt_##side(float x) { return lab::to(sqrt(double(x))); }
LAB_ROUNDED(rz, towards_zero)
LAB_ROUNDED(ru, up)
LAB_ROUNDED(rd, down)
#undef LAB_ROUNDED

// ---- conversions ----
#define LAB_TO_WHOLE(name, from, T)                                    \
  LAB_INLINE T name##_rn(from x) { return static_cast<T>(nearbyint(double(x))); }   \
  LAB_INLINE T name##_rz(from x) { return static_cast<T>(double(x)); }              \
  LAB_INLINE T name##_rd(from x) { return static_cast<T>(floor(double(x))); }       \
  LAB_INLINE T name##_ru(from x) { return static_cast<T>(ceil(double(x))); }
LAB_TO_WHOLE(__float2uint, float, unsigned)
LAB_TO_WHOLE(__float2ll, float, long long)
LAB_TO_WHOLE(__float2ull, float, unsigned long long)
LAB_TO_WHOLE(__double2int, double, int)
LAB_TO_WHOLE(__double2uint, double, unsigned)
LAB_TO_WHOLE(__double2ll, double, long long)
#undef LAB_TO_WHOLE
// Of a half or a bfloat16 to a whole number, and of a whole number to a bfloat16.
namespace lab {
template <class W>
inline __nv_bfloat16 whole_to_bfloat16(W x, bool up, bool down) {
  const __nv_bfloat16 near = __float2bfloat16(float(x));
  __nv_bfloat16_raw raw = near;
  const long double have = float(near), want = x;
  if (have > want && (down || (!up && want > 0))) raw.x = want > 0 ? raw.x - 1 : raw.x + 1;
  if (have < want && (up || (!down && want < 0))) raw.x = want > 0 ? raw.x + 1 : raw.x - 1;
  return raw;
}
}  // namespace lab
#define LAB_HALF_TO_WHOLE(T, half, name, W)                                                     \
  LAB_INLINE W __##half##2##name##_rn(T x) { return static_cast<W>(nearbyintf(float(x))); }     \
  LAB_INLINE W __##half##2##name##_rd(T x) { return static_cast<W>(floorf(float(x))); }         \
  LAB_INLINE W __##half##2##name##_ru(T x) { return static_cast<W>(ceilf(float(x))); }
#define LAB_HALVES_AND_WHOLE(name, W)                                                           \
  LAB_HALF_TO_WHOLE(__half, half, name, W)                                                      \
  LAB_HALF_TO_WHOLE(__nv_bfloat16, bfloat16, name, W)                                           \
  inline __nv_bfloat16 __##name##2bfloat16_rz(W x) { return lab::whole_to_bfloat16(x, false, false); } \
  inline __nv_bfloat16 __##name##2bfloat16_rd(W x) { return lab::whole_to_bfloat16(x, false, true); }  \
  inline __nv_bfloat16 __##name##2bfloat16_ru(W x) { return lab::whole_to_bfloat16(x, true, false); }
LAB_HALVES_AND_WHOLE(int, int)
LAB_HALVES_AND_WHOLE(uint, unsigned)
LAB_HALVES_AND_WHOLE(short, short)
LAB_HALVES_AND_WHOLE(ushort, unsigned short)
LAB_HALVES_AND_WHOLE(ll, long long)
LAB_HALVES_AND_WHOLE(ull, unsigned long long)
#undef LAB_HALF_TO_WHOLE
#undef LAB_HALVES_AND_WHOLE
LAB_INLINE float __int2float_rz(int x) { return lab::towards_zero(double(x)); }
LAB_INLINE float __uint2float_rn(unsigned x) { return float(x); }
LAB_INLINE float __uint2float_rz(unsigned x) { return lab::towards_zero(double(x)); }
LAB_INLINE float __ll2float_rn(long long x) { return float(x); }
LAB_INLINE float __ull2float_rn(unsigned long long x) { return float(x); }
LAB_INLINE double __int2double_rn(int x) { return double(x); }
LAB_INLINE double __uint2double_rn(unsigned x) { return double(x); }
LAB_INLINE double __ll2double_rn(long long x) { return double(x); }
LAB_INLINE float __double2float_rn(double x) { return float(x); }
LAB_INLINE float __double2float_rz(double x) { return lab::towards_zero(x); }
LAB_INLINE long long __double_as_longlong(double x) { return lab::bits<long long>(x); }
LAB_INLINE double __longlong_as_double(long long x) { return lab::bits<double>(x); }

// ---- mathematics ----
LAB_INLINE float __tanf(float x) { return __sinf(x) / __cosf(x); }
LAB_INLINE void __sincosf(float x, float* s, float* c) {
  *s = __sinf(x);
  *c = __cosf(x);
}
LAB_INLINE float rcbrtf(float x) { return 1.0f / cbrtf(x); }
LAB_INLINE float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
LAB_INLINE float sinpif(float x) { return float(sin(M_PI * double(x))); }
LAB_INLINE float cospif(float x) { return float(cos(M_PI * double(x))); }
LAB_INLINE float normcdff(float x) { return float(0.5 * erfc(-double(x) * M_SQRT1_2)); }
LAB_INLINE double __dadd_rn(double x, double y) { return x + y; }
LAB_INLINE double __dsub_rn(double x, double y) { return x - y; }
LAB_INLINE double __dmul_rn(double x, double y) { return x * y; }
LAB_INLINE double __ddiv_rn(double x, double y) { return x / y; }
LAB_INLINE double __drcp_rn(double x) { return 1.0 / x; }
LAB_INLINE double __dsqrt_rn(double x) { return sqrt(x); }
LAB_INLINE double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

// Of one half, of one bfloat16, and of pairs of either.
#define LAB_OF_HALF(name, value)                                                         \
  inline __half h##name(__half h) {                                                      \
    const float x = float(h);                                                            \
    return __half(float(value));                                                         \
  }                                                                                      \
  inline __nv_bfloat16 h##name(__nv_bfloat16 h) {                                        \
    const float x = float(h);                                                            \
    return __nv_bfloat16(float(value));                                                  \
  }                                                                                      \
  inline __half2 h2##name(__half2 h) { return __half2(h##name(h.x), h##name(h.y)); }     \
  inline __nv_bfloat162 h2##name(__nv_bfloat162 h) { return __nv_bfloat162(h##name(h.x), h##name(h.y)); }
LAB_OF_HALF(exp, expf(x))
LAB_OF_HALF(exp2, exp2f(x))
LAB_OF_HALF(exp10, powf(10.0f, x))
LAB_OF_HALF(log, logf(x))
LAB_OF_HALF(log2, log2f(x))
LAB_OF_HALF(log10, log10f(x))
LAB_OF_HALF(sqrt, sqrtf(x))
LAB_OF_HALF(rsqrt, 1.0f / sqrtf(x))
LAB_OF_HALF(rcp, 1.0f / x)
LAB_OF_HALF(sin, sinf(x))
LAB_OF_HALF(cos, cosf(x))
LAB_OF_HALF(tanh, tanhf(x))
LAB_OF_HALF(tanh_approx, tanhf(x))
LAB_OF_HALF(ceil, ceilf(x))
LAB_OF_HALF(floor, floorf(x))
LAB_OF_HALF(rint, nearbyintf(x))
LAB_OF_HALF(trunc, truncf(x))
#undef LAB_OF_HALF
// a * b + c of one and of a pair. A double holds the product and the sum, so one rounding.
#define LAB_FMA(T, T2, name, value)                                    \
  inline T name(T a, T b, T c) {                                       \
    const double x = double(float(a)) * double(float(b)) + double(float(c)); \
    return T(double(value));                                           \
  }                                                                    \
  inline T2 LAB_PAIR(name)(T2 a, T2 b, T2 c) {                         \
    return T2(name(a.x, b.x, c.x), name(a.y, b.y, c.y));               \
  }
#define LAB_PAIR(name) LAB_PAIR_##name
#define LAB_PAIR___hfma __hfma2
#define LAB_PAIR___hfma_relu __hfma2_relu
#define LAB_PAIR___hfma_sat __hfma2_sat
#define LAB_FMAS(T, T2)                                                \
  LAB_FMA(T, T2, __hfma, x)                                            \
  LAB_FMA(T, T2, __hfma_relu, (x > 0.0 ? x : 0.0))                     \
  LAB_FMA(T, T2, __hfma_sat, (x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0))    \
  inline T2 __hcmadd(T2 a, T2 b, T2 c) {                               \
    return T2(__hfma(-a.y, b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))); \
  }
LAB_FMAS(__half, __half2)
LAB_FMAS(__nv_bfloat16, __nv_bfloat162)
#undef LAB_FMAS
#undef LAB_FMA

// ---- whole numbers ----
LAB_INLINE int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
LAB_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
LAB_INLINE unsigned long long __brevll(unsigned long long x) {
  return uint64_t(__brev(unsigned(x))) << 32 | __brev(unsigned(x >> 32));
}
LAB_INLINE unsigned __fns(unsigned mask, unsigned base, int offset) {
  for (int step = offset < 0 ? -1 : 1, at = int(base), left = offset ? abs(offset) : 1; at >= 0 && at < 32; at += step) {
    if (mask >> at & 1u && --left == 0) return unsigned(at);
    if (!offset) break;
  }
  return ~0u;
}
LAB_INLINE unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
LAB_INLINE long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
LAB_INLINE unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
LAB_INLINE unsigned __sad(int x, int y, unsigned z) { return unsigned(x > y ? int64_t(x) - y : int64_t(y) - x) + z; }
LAB_INLINE unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x > y ? x - y : y - x) + z; }
LAB_INLINE int __hadd(int x, int y) { return int((int64_t(x) + y) >> 1); }
LAB_INLINE int __rhadd(int x, int y) { return int((int64_t(x) + y + 1) >> 1); }
LAB_INLINE unsigned __uhadd(unsigned x, unsigned y) { return unsigned((uint64_t(x) + y) >> 1); }
LAB_INLINE unsigned __urhadd(unsigned x, unsigned y) { return unsigned((uint64_t(x) + y + 1) >> 1); }
LAB_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) << (shift & 31u) >> 32);
}
LAB_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) >> (shift & 31u));
}
LAB_INLINE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
LAB_INLINE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}

namespace lab {
// The parts of a word, each of type T: byte or half-word number i.
template <class T>
LAB_INLINE T part(unsigned x, int i) {
  return T(x >> (8 * int(sizeof(T)) * i));
}
template <class T, class F>
LAB_INLINE unsigned each(unsigned x, unsigned y, F f) {
  constexpr int bits = 8 * int(sizeof(T));
  unsigned r = 0;
  for (int i = 0; i < 32 / bits; ++i) r |= (unsigned(f(part<T>(x, i), part<T>(y, i))) & ((1u << bits) - 1)) << (bits * i);
  return r;
}
template <class A, class B>
LAB_INLINE int dot4(unsigned x, unsigned y) {
  int sum = 0;
  for (int i = 0; i < 4; ++i) sum += int(part<A>(x, i)) * int(part<B>(y, i));
  return sum;
}
template <class A, class B>
LAB_INLINE int dot2(unsigned x, unsigned y, int first) {
  return int(part<A>(x, 0)) * int(part<B>(y, first)) + int(part<A>(x, 1)) * int(part<B>(y, first + 1));
}
}  // namespace lab
LAB_INLINE int __dp4a(int x, int y, int z) { return lab::dot4<int8_t, int8_t>(unsigned(x), unsigned(y)) + z; }
LAB_INLINE unsigned __dp4a(unsigned x, unsigned y, unsigned z) {
  return unsigned(lab::dot4<uint8_t, uint8_t>(x, y)) + z;
}
LAB_INLINE int __dp4a(char4 x, char4 y, int z) { return __dp4a(lab::bits<int>(x), lab::bits<int>(y), z); }
LAB_INLINE unsigned __dp4a(uchar4 x, uchar4 y, unsigned z) {
  return __dp4a(lab::bits<unsigned>(x), lab::bits<unsigned>(y), z);
}
LAB_INLINE int __dp2a_lo(int x, int y, int z) { return lab::dot2<int16_t, int8_t>(unsigned(x), unsigned(y), 0) + z; }
LAB_INLINE int __dp2a_hi(int x, int y, int z) { return lab::dot2<int16_t, int8_t>(unsigned(x), unsigned(y), 2) + z; }
LAB_INLINE unsigned __dp2a_lo(unsigned x, unsigned y, unsigned z) { return unsigned(lab::dot2<uint16_t, uint8_t>(x, y, 0)) + z; }
LAB_INLINE unsigned __dp2a_hi(unsigned x, unsigned y, unsigned z) { return unsigned(lab::dot2<uint16_t, uint8_t>(x, y, 2)) + z; }
#define LAB_EACH(name, T, value) \
  LAB_INLINE unsigned name(unsigned x, unsigned y) { return lab::each<T>(x, y, [](T a, T b) { return value; }); }
namespace lab {
template <class T>
LAB_INLINE int saturated(int x) {
  constexpr int low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  return x < low ? low : x > high ? high : x;
}
}  // namespace lab
#define LAB_OF_SIGN(n, g, T)                                                            \
  LAB_EACH(__vcmpge##g##n, T, a >= b ? 0xffff : 0)                                      \
  LAB_EACH(__vcmpgt##g##n, T, a > b ? 0xffff : 0)                                       \
  LAB_EACH(__vcmple##g##n, T, a <= b ? 0xffff : 0)                                      \
  LAB_EACH(__vcmplt##g##n, T, a < b ? 0xffff : 0)                                       \
  LAB_EACH(__vmax##g##n, T, a > b ? a : b)                                              \
  LAB_EACH(__vmin##g##n, T, a < b ? a : b)                                              \
  LAB_EACH(__vadd##g##s##n, T, lab::saturated<T>(a + b))                                \
  LAB_EACH(__vsub##g##s##n, T, lab::saturated<T>(a - b))                                \
  LAB_EACH(__vabsdiff##g##n, T, a > b ? a - b : b - a)                                  \
  LAB_INLINE unsigned __vsad##g##n(unsigned x, unsigned y) {                            \
    unsigned sum = 0;                                                                   \
    for (int i = 0; i < n; ++i) sum += abs(lab::part<T>(x, i) - lab::part<T>(y, i));    \
    return sum;                                                                         \
  }
#define LAB_PARTS(n, S, U)                                                              \
  LAB_EACH(__vadd##n, U, a + b)                                                         \
  LAB_EACH(__vsub##n, U, a - b)                                                         \
  LAB_EACH(__vcmpeq##n, U, a == b ? 0xffff : 0)                                         \
  LAB_EACH(__vcmpne##n, U, a != b ? 0xffff : 0)                                         \
  LAB_OF_SIGN(n, s, S)                                                                  \
  LAB_OF_SIGN(n, u, U)                                                                  \
  LAB_INLINE unsigned __vneg##n(unsigned x) { return __vsub##n(0, x); }                 \
  LAB_INLINE unsigned __vnegss##n(unsigned x) { return __vsubss##n(0, x); }             \
  LAB_INLINE unsigned __vabs##n(unsigned x) { return lab::each<S>(x, x, [](S a, S) { return abs(a); }); } \
  LAB_INLINE unsigned __vabsss##n(unsigned x) { return __vmaxs##n(x, __vnegss##n(x)); }
LAB_PARTS(2, int16_t, uint16_t)
LAB_PARTS(4, int8_t, uint8_t)
#undef LAB_PARTS
#undef LAB_OF_SIGN
#undef LAB_EACH

// ---- warps, addresses, atomics ----
template <class T>
LAB_INLINE unsigned __match_all_sync(unsigned mask, T value, int* all) {
  *all = __match_any_sync(mask, value) == mask;
  return *all ? mask : 0u;
}
LAB_INLINE unsigned __isShared(const void* p) { return lab_is_shared(p) != 0; }
LAB_INLINE unsigned __isGlobal(const void* p) { return lab_is_shared(p) == 0; }
LAB_INLINE size_t __cvta_generic_to_shared(const void* p) { return reinterpret_cast<size_t>(p); }
LAB_INLINE size_t __cvta_generic_to_global(const void* p) { return reinterpret_cast<size_t>(p); }

namespace lab {
// atomicAdd of halves: a loop of compare and swap, as older GPUs have it too.
template <class T, class Word, class F>
LAB_INLINE T add_by_swap(T* address, int number, F sum) {
  uint64_t old = lab_atomic(address, LAB_ATOMIC_OR, number, 0, 0);
  for (;;) {
    const T before = unpack<T>(old);
    const uint64_t found = lab_atomic(address, LAB_ATOMIC_CAS, number, pack(sum(before)), old);
    if (Word(found) == Word(old)) return before;
    old = found;
  }
}
}  // namespace lab
#define LAB_COMMA ,
#define LAB_ADD_HALF(T, Word, number, value)                                                       \
  inline T atomicAdd(T* address, T more) {                                                         \
    return lab::add_by_swap<T, Word>(address, number, [more](T before) { return T(value); });      \
  }
LAB_ADD_HALF(__half, uint16_t, LAB_SHORT, float(before) + float(more))
LAB_ADD_HALF(__nv_bfloat16, uint16_t, LAB_SHORT, float(before) + float(more))
LAB_ADD_HALF(__half2, uint32_t, LAB_UNSIGNED, __half(float(before.x) + float(more.x)) LAB_COMMA __half(float(before.y) + float(more.y)))
LAB_ADD_HALF(__nv_bfloat162, uint32_t, LAB_UNSIGNED,
             __nv_bfloat16(float(before.x) + float(more.x)) LAB_COMMA __nv_bfloat16(float(before.y) + float(more.y)))
#undef LAB_ADD_HALF
#undef LAB_COMMA
