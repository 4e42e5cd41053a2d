// Put in front of a kernel so that a C++ compiler for the CPU accepts it unedited.
// CUDA's own headers supply the types (half, half2, uint2, float4, dim3 and so on); what they
// leave to the GPU compiler is here: qualifiers, built-in variables, warp functions, atomics.
#pragma once
#include <cassert>  // a GPU's compiler knows assert() without being told
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sys/types.h>  // uint, ushort, ulong
#include <new>
#include <type_traits>
#include <utility>

// With the CPU's own instruction these are here, further down; the header's are slower.
#if defined(__F16C__)
#define __half2float lab_slow__half2float
#define __half22float2 lab_slow__half22float2
#define __float2half lab_slow__float2half
#define __float2half_rn lab_slow__float2half_rn
#define __float22half2_rn lab_slow__float22half2_rn
#endif
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#undef __half2float
#undef __half22float2
#undef __float2half
#undef __float2half_rn
#undef __float22half2_rn
#include <math_constants.h>
#include <vector_functions.h>
#include <vector_types.h>

#include "interface.h"

// What these would bring is here already, or is for programs that launch kernels.
#define __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_API_H__
#define __DEVICE_LAUNCH_PARAMETERS_H__

typedef unsigned char uchar;

#define LAB_INLINE inline __attribute__((always_inline))

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __restrict__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ LAB_INLINE
#ifdef __wasm__  // a function that waits becomes a part of its kernel, which is a coroutine
#define __noinline__
#else
#define __noinline__ __attribute__((noinline))
#endif
#define __launch_bounds__(...)
#define __restrict__ __restrict
// Thread-local storage is the one segment that holds nothing but shared variables: blocks run
// one after another on one CPU thread, so it is the shared memory of the block that runs now.
// `extern __shared__ T name[]` stays a declaration; the build makes the name an alias.
// `used`: whatever is not seen to be written may still not be taken for zero.
#define __shared__ thread_local __attribute__((used))
// A standard attribute may not stand behind __shared__ in C++; this form may stand anywhere.
namespace lab {
template <size_t N>
constexpr size_t alignment() { return N; }
template <class T>
constexpr size_t alignment() { return alignof(T); }
LAB_INLINE uint3 indices(lab_index i) { return {i.x, i.y, i.z}; }
LAB_INLINE dim3 sizes(lab_index i) { return {i.x, i.y, i.z}; }
}  // namespace lab
#define alignas(...) __attribute__((aligned(lab::alignment<__VA_ARGS__>())))

#define threadIdx (lab::indices(lab_thread_index()))
#define blockIdx (lab::indices(lab_block_index()))
#define blockDim (lab::sizes(lab_block_dim()))
#define gridDim (lab::sizes(lab_grid_dim()))
#define warpSize 32

// A kernel may have a heap, but whether it stays within what it got there is not watched.
#define LAB_NO_HEAP __attribute__((error("the CPU runner has no heap for kernels")))
LAB_NO_HEAP void* lab_malloc(size_t bytes);
#ifndef __wasm__  // whose library has declared them
LAB_NO_HEAP void* operator new(size_t bytes);
LAB_NO_HEAP void* operator new[](size_t bytes);
#endif
#define malloc(bytes) lab_malloc(bytes)

// ---- half: the same results as the header's conversions, by the CPU's own instruction ----
// <immintrin.h> would make half of what is read here; gcc and clang know the instruction without it.
#if defined(__F16C__)
namespace lab {
typedef short Halves __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(16)));
LAB_INLINE float from_half_bits(unsigned short bits) {
  return __builtin_ia32_vcvtph2ps(Halves{short(bits), 0, 0, 0, 0, 0, 0, 0})[0];
}
LAB_INLINE float to_float(__half h) { return from_half_bits(__half_raw(h).x); }
LAB_INLINE __half to_half(float f) {
  __half_raw raw;
  constexpr int nearest_even = 0;
  raw.x = (unsigned short)__builtin_ia32_vcvtps2ph(Floats{f, 0, 0, 0}, nearest_even)[0];
  return raw;
}
LAB_INLINE float2 to_float2(__half2 h) {
  const __half2_raw raw(h);
  return make_float2(from_half_bits(raw.x), from_half_bits(raw.y));
}
LAB_INLINE __half2 to_half2(float2 f) { return __half2(to_half(f.x), to_half(f.y)); }
}  // namespace lab
LAB_INLINE float __half2float(__half h) { return lab::to_float(h); }
LAB_INLINE float2 __half22float2(__half2 h) { return lab::to_float2(h); }
LAB_INLINE __half __float2half(float f) { return lab::to_half(f); }
LAB_INLINE __half __float2half_rn(float f) { return lab::to_half(f); }
LAB_INLINE __half2 __float22half2_rn(float2 f) { return lab::to_half2(f); }
#endif

// ---- arithmetic ----
LAB_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
LAB_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
// As the fast functions of a GPU do it: large arguments are rounded on their way.
LAB_INLINE float __expf(float x) { return exp2f(x * 1.44269504f); }
LAB_INLINE float __exp10f(float x) { return exp2f(x * 3.32192809f); }
LAB_INLINE float __logf(float x) { return log2f(x) * 0.693147181f; }
LAB_INLINE float __log2f(float x) { return log2f(x); }
LAB_INLINE float __log10f(float x) { return log10f(x); }
LAB_INLINE float __powf(float x, float y) { return exp2f(y * log2f(x)); }
LAB_INLINE double lab_part_of_turn(float x) {
  const float turns = x * 0.159154943f;
  return 6.283185307179586 * double(turns - rintf(turns));
}
LAB_INLINE float __sinf(float x) { return float(sin(lab_part_of_turn(x))); }
LAB_INLINE float __cosf(float x) { return float(cos(lab_part_of_turn(x))); }
LAB_INLINE float __fdividef(float x, float y) { return x / y; }
LAB_INLINE float __fdiv_rn(float x, float y) { return x / y; }
LAB_INLINE float __frcp_rn(float x) { return 1.0f / x; }
LAB_INLINE float __fsqrt_rn(float x) { return sqrtf(x); }
LAB_INLINE float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
LAB_INLINE float __fadd_rn(float x, float y) { return x + y; }
LAB_INLINE float __fsub_rn(float x, float y) { return x - y; }
LAB_INLINE float __fmul_rn(float x, float y) { return x * y; }
LAB_INLINE float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
LAB_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
LAB_INLINE int __mul24(int x, int y) { return x * y; }
LAB_INLINE int __mulhi(int x, int y) { return int((int64_t(x) * y) >> 32); }
LAB_INLINE unsigned __umulhi(unsigned x, unsigned y) { return unsigned((uint64_t(x) * y) >> 32); }
LAB_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
LAB_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
LAB_INLINE int __ffs(int x) { return __builtin_ffs(x); }
LAB_INLINE int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
LAB_INLINE unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
LAB_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t both = uint64_t(y) << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i);
    unsigned byte = unsigned(both >> (8 * (choice & 7u))) & 0xffu;
    if (choice & 8u) byte = byte & 0x80u ? 0xffu : 0u;
    r |= byte << (8 * i);
  }
  return r;
}

namespace lab {
template <class To, class From>
LAB_INLINE To bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To result;
  __builtin_memcpy(&result, &value, sizeof result);
  return result;
}
template <class T>
LAB_INLINE uint64_t pack(T value) {
  static_assert(sizeof(T) <= 8, "a warp function moves at most 8 bytes");
  uint64_t word = 0;
  __builtin_memcpy(&word, &value, sizeof value);
  return word;
}
template <class T>
LAB_INLINE T unpack(uint64_t word) {
  T value;
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}
template <class T>
constexpr int number() {
  if (std::is_same<T, float>::value) return LAB_FLOAT;
  if (std::is_same<T, double>::value) return LAB_DOUBLE;
  if (sizeof(T) == 2) return LAB_SHORT;
  if (sizeof(T) == 8) return std::is_signed<T>::value ? LAB_LONG : LAB_UNSIGNED_LONG;
  return std::is_signed<T>::value ? LAB_INT : LAB_UNSIGNED;
}
template <class T>
LAB_INLINE T atomic(T* address, int op, T operand, T compare = T()) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "atomics of 2, 4 or 8 bytes");
  return unpack<T>(lab_atomic(address, op, number<T>(), pack(operand), pack(compare)));
}
template <class T>
LAB_INLINE std::remove_cv_t<T> guess(T* address) {
  const int number = sizeof(T) == 2 ? LAB_SHORT : sizeof(T) == 4 ? LAB_UNSIGNED : LAB_UNSIGNED_LONG;
  return unpack<std::remove_cv_t<T>>(lab_atomic((void*)address, LAB_ATOMIC_OR, number, 0, 0));
}
}  // namespace lab

LAB_INLINE float __int_as_float(int x) { return lab::bits<float>(x); }
LAB_INLINE int __float_as_int(float x) { return lab::bits<int>(x); }
LAB_INLINE float __uint_as_float(unsigned x) { return lab::bits<float>(x); }
LAB_INLINE unsigned __float_as_uint(float x) { return lab::bits<unsigned>(x); }
LAB_INLINE int __float2int_rn(float x) { return int(nearbyintf(x)); }
LAB_INLINE int __float2int_rz(float x) { return int(x); }
LAB_INLINE int __float2int_rd(float x) { return int(floorf(x)); }
LAB_INLINE int __float2int_ru(float x) { return int(ceilf(x)); }
LAB_INLINE float __int2float_rn(int x) { return float(x); }

// CUDA's min and max take any two numbers of one family, in the global namespace.
#define LAB_MIN_MAX(T)                                        \
  LAB_INLINE T min(T a, T b) { return b < a ? b : a; }        \
  LAB_INLINE T max(T a, T b) { return a < b ? b : a; }
LAB_MIN_MAX(int)
LAB_MIN_MAX(unsigned)
LAB_MIN_MAX(long)
LAB_MIN_MAX(unsigned long)
LAB_MIN_MAX(long long)
LAB_MIN_MAX(unsigned long long)
#undef LAB_MIN_MAX
LAB_INLINE unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
LAB_INLINE unsigned min(unsigned a, int b) { return min(a, unsigned(b)); }
LAB_INLINE unsigned max(int a, unsigned b) { return max(unsigned(a), b); }
LAB_INLINE unsigned max(unsigned a, int b) { return max(a, unsigned(b)); }
LAB_INLINE float min(float a, float b) { return fminf(a, b); }
LAB_INLINE float max(float a, float b) { return fmaxf(a, b); }
LAB_INLINE double min(double a, double b) { return fmin(a, b); }
LAB_INLINE double max(double a, double b) { return fmax(a, b); }

// ---- block and warp ----
LAB_INLINE void __syncthreads() { lab_barrier(LAB_BARRIER, 0); }
LAB_INLINE int __syncthreads_count(int p) { return lab_barrier(LAB_BARRIER_COUNT, p); }
LAB_INLINE int __syncthreads_and(int p) { return lab_barrier(LAB_BARRIER_AND, p); }
LAB_INLINE int __syncthreads_or(int p) { return lab_barrier(LAB_BARRIER_OR, p); }
LAB_INLINE void __syncwarp(unsigned mask = 0xffffffffu) {
  lab_collective(LAB_SYNCWARP, mask, 0, 0, 32);
}
LAB_INLINE unsigned __activemask() { return lab_active_mask(); }
#define LAB_SHUFFLE(name, op, argument)                                                 \
  template <class T>                                                                    \
  LAB_INLINE T name(unsigned mask, T value, argument, int width = 32) {                 \
    return lab::unpack<T>(lab_collective(op, mask, lab::pack(value), int(which), width)); \
  }
LAB_SHUFFLE(__shfl_sync, LAB_SHFL, int which)
LAB_SHUFFLE(__shfl_xor_sync, LAB_SHFL_XOR, int which)
LAB_SHUFFLE(__shfl_up_sync, LAB_SHFL_UP, unsigned which)
LAB_SHUFFLE(__shfl_down_sync, LAB_SHFL_DOWN, unsigned which)
#undef LAB_SHUFFLE
#define LAB_VOTE(name, T, op) \
  LAB_INLINE T name(unsigned mask, int p) { return T(lab_collective(op, mask, p != 0, 0, 32)); }
LAB_VOTE(__ballot_sync, unsigned, LAB_BALLOT)
LAB_VOTE(__any_sync, int, LAB_ANY)
LAB_VOTE(__all_sync, int, LAB_ALL)
#undef LAB_VOTE
template <class T>
LAB_INLINE unsigned __match_any_sync(unsigned mask, T value) {
  return unsigned(lab_collective(LAB_MATCH_ANY, mask, lab::pack(value), 0, 32));
}
#define LAB_REDUCE(name, T, op)                                           \
  LAB_INLINE T name(unsigned mask, T value) {                             \
    return lab::unpack<T>(lab_collective(op, mask, lab::pack(value), 0, 32)); \
  }
LAB_REDUCE(__reduce_add_sync, int, LAB_REDUCE_ADD)
LAB_REDUCE(__reduce_add_sync, unsigned, LAB_REDUCE_ADD)
LAB_REDUCE(__reduce_min_sync, int, LAB_REDUCE_MIN_SIGNED)
LAB_REDUCE(__reduce_min_sync, unsigned, LAB_REDUCE_MIN_UNSIGNED)
LAB_REDUCE(__reduce_max_sync, int, LAB_REDUCE_MAX_SIGNED)
LAB_REDUCE(__reduce_max_sync, unsigned, LAB_REDUCE_MAX_UNSIGNED)
LAB_REDUCE(__reduce_and_sync, unsigned, LAB_REDUCE_AND)
LAB_REDUCE(__reduce_or_sync, unsigned, LAB_REDUCE_OR)
LAB_REDUCE(__reduce_xor_sync, unsigned, LAB_REDUCE_XOR)
#undef LAB_REDUCE

// ---- the matrix product of mma.cuh ----
// The header has one for any C++ compiler: 32 shuffles, at each of which every lane waits for the
// others. This one waits once. A call prefers it, since its sum so far is no constant.
namespace lab {
template <class T>
LAB_INLINE float2 pair_of(unsigned word) {
  return float2{bits<float>(word << 16), bits<float>(word & 0xffff0000u)};  // bfloat16: upper half
}
template <>
LAB_INLINE float2 pair_of<__half>(unsigned word) {
  return __half22float2(bits<__half2>(word));
}
template <class T>
using if_half = typename std::enable_if<std::is_same<T, __half>::value ||
                                        std::is_same<T, __nv_bfloat16>::value>::type;
}  // namespace lab
template <class T, class = lab::if_half<T>>
inline void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                         float (&c)[4]) {
  lab_product mine;
  for (int i = 0; i < 6; ++i) {
    const float2 pair = lab::pair_of<T>(i < 4 ? a[i] : i == 4 ? b0 : b1);
    float* to = i < 4 ? mine.a + 2 * i : mine.b + 2 * (i - 4);
    to[0] = pair.x;
    to[1] = pair.y;
  }
  for (int i = 0; i < 4; ++i) mine.c[i] = c[i];
  lab_multiply(&mine);
  for (int i = 0; i < 4; ++i) d[i] = mine.c[i];
}

LAB_INLINE void __threadfence() { lab_fence(); }
LAB_INLINE void __threadfence_system() { lab_fence(); }
LAB_INLINE void __threadfence_block() { lab_fence_block(); }
[[noreturn]] LAB_INLINE void __trap() { lab_trap("__trap()"); }
LAB_INLINE void __nanosleep(unsigned) { lab_give_way(); }

// ---- atomics ----
namespace lab {
template <class T>
struct same {  // keeps the second argument from taking part in deduction: atomicAdd(&u, 1)
  using type = T;
};
}  // namespace lab
#define LAB_ATOMIC_NAMED(name, op)                                        \
  template <class T>                                                      \
  LAB_INLINE T name(T* address, typename lab::same<T>::type value) {      \
    return lab::atomic<T>(address, op, value);                            \
  }
#define LAB_ATOMIC(name, op)                       \
  LAB_ATOMIC_NAMED(name, op)                       \
  LAB_ATOMIC_NAMED(name##_block, op | LAB_IN_BLOCK) \
  LAB_ATOMIC_NAMED(name##_system, op)
LAB_ATOMIC(atomicAdd, LAB_ATOMIC_ADD)
LAB_ATOMIC(atomicMin, LAB_ATOMIC_MIN)
LAB_ATOMIC(atomicMax, LAB_ATOMIC_MAX)
LAB_ATOMIC(atomicExch, LAB_ATOMIC_EXCHANGE)
LAB_ATOMIC(atomicAnd, LAB_ATOMIC_AND)
LAB_ATOMIC(atomicOr, LAB_ATOMIC_OR)
LAB_ATOMIC(atomicXor, LAB_ATOMIC_XOR)
LAB_ATOMIC(atomicInc, LAB_ATOMIC_INC)
LAB_ATOMIC(atomicDec, LAB_ATOMIC_DEC)
#undef LAB_ATOMIC
#undef LAB_ATOMIC_NAMED
#define LAB_ATOMIC(scope, more)                                                           \
  template <class T>                                                                      \
  LAB_INLINE T atomicSub##scope(T* address, typename lab::same<T>::type value) {          \
    return lab::atomic<T>(address, LAB_ATOMIC_ADD | more, T(0) - value);                  \
  }                                                                                       \
  template <class T>                                                                      \
  LAB_INLINE T atomicCAS##scope(T* address, typename lab::same<T>::type compare,          \
                                typename lab::same<T>::type value) {                      \
    return lab::atomic<T>(address, LAB_ATOMIC_CAS | more, value, compare);                \
  }
LAB_ATOMIC(, 0)
LAB_ATOMIC(_block, LAB_IN_BLOCK)
LAB_ATOMIC(_system, 0)
#undef LAB_ATOMIC
inline float2 atomicAdd(float2* address, float2 more) {
  return {atomicAdd(&address->x, more.x), atomicAdd(&address->y, more.y)};
}
inline float4 atomicAdd(float4* address, float4 more) {
  return {atomicAdd(&address->x, more.x), atomicAdd(&address->y, more.y),
          atomicAdd(&address->z, more.z), atomicAdd(&address->w, more.w)};
}

#include "functions.h"

// ---- loads and stores with a cache hint: the hint says nothing about right or wrong ----
#define LAB_LOAD(name) \
  template <class T> LAB_INLINE T name(const T* address) { return *address; }
LAB_LOAD(__ldca)
LAB_LOAD(__ldcg)
LAB_LOAD(__ldcs)
LAB_LOAD(__ldlu)
#undef LAB_LOAD
template <class T>
LAB_INLINE T __ldg(const T* address) {
  lab_read_only(address, sizeof(T));
  return *address;
}
// Asked anew each time, as a flag is; of a vector each load is one anyway.
template <class T>
LAB_INLINE typename std::enable_if<std::is_arithmetic<T>::value, T>::type __ldcv(const T* address) {
  return *static_cast<const volatile T*>(address);
}
template <class T>
LAB_INLINE typename std::enable_if<!std::is_arithmetic<T>::value, T>::type __ldcv(const T* address) {
  return *address;
}
#define LAB_STORE(name) \
  template <class T> LAB_INLINE void name(T* address, typename lab::same<T>::type value) { *address = value; }
LAB_STORE(__stwb)
LAB_STORE(__stcg)
LAB_STORE(__stcs)
LAB_STORE(__stwt)
#undef LAB_STORE

// ---- asynchronous copies: <cuda_pipeline_primitives.h> ----
#define _CUDA_PIPELINE_PRIMITIVES_H_
#define _CUDA_PIPELINE_H_
#define _CUDA_PIPELINE_HELPERS_H_
LAB_INLINE void __pipeline_memcpy_async(void* shared, const void* global, size_t bytes,
                                        size_t zero_fill = 0) {
  lab_copy_async(shared, global, bytes, zero_fill);
}
LAB_INLINE void __pipeline_commit() { lab_copy_commit(); }
LAB_INLINE void __pipeline_wait_prior(size_t groups) { lab_copy_wait(groups); }

// ---- how the runtime calls a kernel ----
namespace lab {
template <class T>
constexpr lab_parameter parameter() {
  return {std::is_pointer<T>::value          ? 'p'
          : std::is_floating_point<T>::value ? 'f'
          : !std::is_integral<T>::value      ? 's'
          : std::is_signed<T>::value         ? 'i'
                                             : 'u',
          unsigned(sizeof(T))};
}
template <class A>
LAB_INLINE A parameter_value(int index) {
  if constexpr (sizeof(A) > sizeof(uint64_t)) {
    A value;
    lab_read_structure(&value, index, sizeof value);
    return value;
  } else {
    return unpack<A>(lab_argument(index));
  }
}
template <class... A, size_t... I>
void spread(void (*kernel)(A...), std::index_sequence<I...>) {
  kernel(parameter_value<A>(int(I))...);
}
template <class... A>
void call(void (*kernel)(A...)) {
  spread(kernel, std::index_sequence_for<A...>());
}
template <class... A>
struct parameters_of {
  static constexpr lab_parameter list[sizeof...(A) + 1] = {parameter<A>()..., {'.', 0}};
};
template <class... A>
constexpr const lab_parameter* parameter_list(void (*)(A...)) {
  return parameters_of<A...>::list;
}
template <class... A>
constexpr int parameter_count(void (*)(A...)) {
  return int(sizeof...(A));
}
}  // namespace lab
