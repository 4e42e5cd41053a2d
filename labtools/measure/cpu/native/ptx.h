// What the C++ that `translate.py` makes of PTX is made of: the instructions that are no single
// expression of C++. All of it is inlined into the statement that stands for an instruction, so that
// what the runtime says of an access names the line of that instruction.
//
// An address in shared memory is a distance from `lab_shared_base`, as small as on a GPU; every other
// one, a generic one above all, is an address of this process.
#pragma once
#include <array>

#include "functions.h"

namespace lab {
namespace ptx {

typedef uint8_t __attribute__((may_alias)) Word1;
typedef uint16_t __attribute__((may_alias)) Word2;
typedef uint32_t __attribute__((may_alias)) Word4;
typedef uint64_t __attribute__((may_alias)) Word8;
typedef uint32_t Word16 __attribute__((vector_size(16), may_alias));

// Part number `i` of what one access brought, and the other way round.
template <class T, class V>
LAB_INLINE T part_of(const V& whole, int i) {
  T part;
  __builtin_memcpy(&part, reinterpret_cast<const char*>(&whole) + i * sizeof(T), sizeof part);
  return part;
}
template <class V, class T>
LAB_INLINE V joined(std::array<T, sizeof(V) / sizeof(T)> parts) {
  V whole;
  __builtin_memcpy(&whole, &parts, sizeof whole);
  return whole;
}

// ---- numbers of 16 bits ----
struct Half {
#if defined(__F16C__)  // the header's constructors are calls, and each is watched
  static LAB_INLINE float from(uint16_t bits) { return from_half_bits(bits); }
  static LAB_INLINE uint16_t to(float x) {
    return uint16_t(__builtin_ia32_vcvtps2ph(Floats{x, 0, 0, 0}, 0)[0]);
  }
#else
  static LAB_INLINE float from(uint16_t bits) {
    __half_raw raw;
    raw.x = bits;
    return __half2float(raw);
  }
  static LAB_INLINE uint16_t to(float x) { return __half_raw(__float2half_rn(x)).x; }
#endif
  static LAB_INLINE uint16_t to(double x) { return __half_raw(__half(x)).x; }
};
struct Bfloat {
  static LAB_INLINE float from(uint16_t bits) { return lab::bits<float>(uint32_t(bits) << 16); }
  static LAB_INLINE uint16_t to(float x) {
    const uint32_t bits = lab::bits<uint32_t>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
  static LAB_INLINE uint16_t to(double x) { return __nv_bfloat16_raw(__double2bfloat16(x)).x; }
};
template <class E, class F, class... A>
LAB_INLINE uint16_t one(F f, A... a) {
  return E::to(f(E::from(a)...));
}
template <class E, class F, class... A>
LAB_INLINE uint32_t pair(F f, A... a) {
  return one<E>(f, uint16_t(a)...) | uint32_t(one<E>(f, uint16_t(a >> 16)...)) << 16;
}
template <class E, class F>
LAB_INLINE uint32_t pair_of_tests(F f, uint32_t a, uint32_t b) {
  return uint32_t(f(E::from(uint16_t(a)), E::from(uint16_t(b)))) |
         uint32_t(f(E::from(uint16_t(a >> 16)), E::from(uint16_t(b >> 16)))) << 1;
}
template <class E>
LAB_INLINE uint16_t towards_zero_16(float x) {
  const uint16_t near = E::to(x);
  return fabsf(E::from(near)) > fabsf(x) ? uint16_t(near - 1) : near;
}

LAB_INLINE uint32_t two_halves(float low, float high) { return Half::to(low) | uint32_t(Half::to(high)) << 16; }
template <class E, class T>
LAB_INLINE uint16_t nearest_16(T x) { return E::to(x); }

// ---- arithmetic ----
LAB_INLINE float fused(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
LAB_INLINE double fused(double x, double y, double z) { return __builtin_fma(x, y, z); }
// Of 16-bit numbers a double holds the product and the sum: one rounding, that of the result.
LAB_INLINE double fused_16(float x, float y, float z) { return double(x) * double(y) + double(z); }
template <class T>
LAB_INLINE T saturated_float(T x) {
  return x > T(0) ? (x < T(1) ? x : T(1)) : T(0);
}
template <class T>
LAB_INLINE T not_negative(T x) {
  return x > T(0) || x != x ? x : T(0);
}
template <class T>
LAB_INLINE T least(T x, T y) { return std::isnan(x) ? y : std::isnan(y) ? x : x < y || (x == y && std::signbit(x)) ? x : y; }
template <class T>
LAB_INLINE T most(T x, T y) { return std::isnan(x) ? y : std::isnan(y) ? x : x > y || (x == y && std::signbit(y)) ? x : y; }
template <class T>
LAB_INLINE T least_or_nan(T x, T y) { return std::isnan(x) ? x : std::isnan(y) ? y : least(x, y); }
template <class T>
LAB_INLINE T most_or_nan(T x, T y) { return std::isnan(x) ? x : std::isnan(y) ? y : most(x, y); }

template <class T>
LAB_INLINE T within(__int128 x) {
  constexpr __int128 low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  return T(x < low ? low : x > high ? high : x);
}
template <class T>
LAB_INLINE T shifted_left(T x, uint32_t by) { return by >= 8 * sizeof(T) ? T(0) : T(x << by); }
template <class T>
LAB_INLINE T shifted_right(T x, uint32_t by) {
  if (by >= 8 * sizeof(T)) return x < T(0) ? T(-1) : T(0);
  return T(x >> by);
}
template <unsigned TABLE>
LAB_INLINE uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r = 0;
  if (TABLE & 1) r |= ~a & ~b & ~c;
  if (TABLE & 2) r |= ~a & ~b & c;
  if (TABLE & 4) r |= ~a & b & ~c;
  if (TABLE & 8) r |= ~a & b & c;
  if (TABLE & 16) r |= a & ~b & ~c;
  if (TABLE & 32) r |= a & ~b & c;
  if (TABLE & 64) r |= a & b & ~c;
  if (TABLE & 128) r |= a & b & c;
  return r;
}
template <class T>
LAB_INLINE T field(T x, uint32_t from, uint32_t length) {
  constexpr uint32_t bits = 8 * sizeof(T);
  from &= 255;
  length &= 255;
  const uint32_t sign = std::min(from + length ? from + length - 1 : 0, bits - 1);
  const bool fill = std::is_signed<T>::value && length && (uint64_t(x) >> sign & 1u);
  T r = fill ? T(-1) : T(0);
  for (uint32_t i = 0; i < std::min(length, bits); ++i) {
    const bool set = from + i < bits ? uint64_t(x) >> (from + i) & 1u : fill;
    r = T((uint64_t(r) & ~(1ull << i)) | uint64_t(set) << i);
  }
  return r;
}
template <class T>
LAB_INLINE T inserted(T x, T into, uint32_t from, uint32_t length) {
  constexpr uint32_t bits = 8 * sizeof(T);
  from &= 255;
  length &= 255;
  if (!length || from >= bits) return into;
  const T mask = T((length >= bits ? ~T(0) : T((T(1) << length) - 1)) << from);
  return T((into & ~mask) | (T(x << from) & mask));
}
template <class T>
LAB_INLINE uint32_t highest(T x) {  // the highest bit that differs from the sign
  uint64_t bits = uint64_t(x);
  if (x < T(0)) bits = ~bits;
  bits &= ~0ull >> (64 - 8 * sizeof(T));
  return bits ? 63u - uint32_t(__builtin_clzll(bits)) : ~0u;
}
template <class T>
LAB_INLINE T with_carry(T x, T y, bool before, bool& carry) {
  const unsigned __int128 sum = (unsigned __int128)x + y + before;
  carry = sum >> (8 * sizeof(T)) & 1;
  return T(sum);
}

// ---- conversions ----
enum Side { NEAREST, TOWARDS_ZERO, DOWN, UP };
LAB_INLINE double to_side(double x, Side side) {
  return side == NEAREST ? nearbyint(x) : side == DOWN ? floor(x) : side == UP ? ceil(x) : trunc(x);
}
template <class T>
LAB_INLINE T whole(double x, Side side) {
  if (std::isnan(x)) return T(0);
  x = to_side(x, side);
  constexpr double end = double(std::numeric_limits<T>::max()) + (sizeof(T) < 8 ? 1.0 : 0.0);
  if (x >= end) return std::numeric_limits<T>::max();
  if (x <= double(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return T(x);
}
LAB_INLINE uint32_t rounded_tf32(float x) {  // to nearest, ties away from zero
  const uint32_t bits = lab::bits<uint32_t>(x);
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
}
template <int EXPONENT, int MANTISSA>  // e4m3 without infinity, e5m2 with
LAB_INLINE float from_fp8(uint8_t bits) {
  const int exponent = bits >> MANTISSA & ((1 << EXPONENT) - 1), mantissa = bits & ((1 << MANTISSA) - 1);
  constexpr int bias = (1 << (EXPONENT - 1)) - 1, last = (1 << EXPONENT) - 1;
  float x = exponent ? ldexpf(float((1 << MANTISSA) + mantissa), exponent - bias - MANTISSA)
                     : ldexpf(float(mantissa), 1 - bias - MANTISSA);
  if (EXPONENT == 4 ? (bits & 0x7f) == 0x7f : exponent == last && mantissa) x = NAN;
  if (EXPONENT == 5 && exponent == last && !mantissa) x = HUGE_VALF;
  return bits & 0x80 ? -x : x;
}
template <int EXPONENT, int MANTISSA>
LAB_INLINE uint8_t to_fp8(float x) {  // to nearest even; beyond the largest it is the largest
  constexpr int bias = (1 << (EXPONENT - 1)) - 1;
  constexpr float largest = EXPONENT == 4 ? 448.0f : 57344.0f;
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return uint8_t(sign | 0x7f);
  x = fabsf(x);
  if (x >= largest) return uint8_t(sign | (EXPONENT == 4 ? 0x7e : 0x7b));
  int exponent = x > 0.0f ? ilogbf(x) : 1 - bias;
  if (exponent < 1 - bias) exponent = 1 - bias;
  const int steps = int(nearbyintf(ldexpf(x, MANTISSA - exponent)));  // 1 << MANTISSA is one
  const int code = ((exponent + bias - 1) << MANTISSA) + steps;
  return uint8_t(sign | std::min(code, EXPONENT == 4 ? 0x7e : 0x7b));
}
struct E4m3 {
  static LAB_INLINE float from(uint8_t bits) { return from_fp8<4, 3>(bits); }
  static LAB_INLINE uint8_t to(float x) { return to_fp8<4, 3>(x); }
};
struct E5m2 {
  static LAB_INLINE float from(uint8_t bits) { return from_fp8<5, 2>(bits); }
  static LAB_INLINE uint8_t to(float x) { return to_fp8<5, 2>(x); }
};
template <class E>
LAB_INLINE uint16_t pair_of_fp8(float low, float high) {
  return uint16_t(E::to(low) | E::to(high) << 8);
}

// ---- warps ----
LAB_INLINE unsigned threads() {
  const lab_index n = lab_block_dim();
  return n.x * n.y * n.z;
}
LAB_INLINE unsigned thread() {
  const lab_index i = lab_thread_index(), n = lab_block_dim();
  return i.x + n.x * (i.y + n.y * i.z);
}
LAB_INLINE unsigned lane() { return thread() % 32; }
LAB_INLINE unsigned warp() { return thread() / 32; }
// The last operand of shfl holds the width of the parts in its upper bits and a clamp below.
LAB_INLINE uint32_t shuffled(int op, uint32_t mask, uint32_t x, uint32_t by, uint32_t clamp, bool& inside) {
  const int width = 32 - int(clamp >> 8 & 31u), me = int(lane()), first = me & ~(width - 1);
  by &= 31u;
  const int from = op == LAB_SHFL ? first | int(by) : op == LAB_SHFL_XOR ? me ^ int(by) : op == LAB_SHFL_UP ? me - int(by) : me + int(by);
  inside = op == LAB_SHFL_UP ? from >= first : from < first + width;
  return uint32_t(lab_collective(op, mask, x, int(by), width));
}
LAB_INLINE uint32_t elected(uint32_t mask) {
  return uint32_t(__builtin_ctz(unsigned(lab_collective(LAB_BALLOT, mask, 1, 0, 32))));
}

// ---- barriers ----
LAB_INLINE void named_barrier(uint32_t number, uint32_t count, bool waits) {
  if (number == 0 && waits && (!count || count == threads()))
    lab_barrier(LAB_BARRIER, 0);
  else
    lab_named_barrier(number, count ? count : threads(), waits);
}
LAB_INLINE int reduced(int op, uint32_t number, bool p) {
  if (number) lab_trap("a barrier other than number 0 that counts what threads say");
  return lab_barrier(op, p);
}
LAB_INLINE void end_of_barrier(const void* barrier) { lab_phase_parity(const_cast<void*>(barrier)); }
// What an arrival returns, and a wait takes: the parity of the phase.
LAB_INLINE uint64_t arrived(void* barrier, uint32_t arrivals, long long bytes) {
  const unsigned parity = lab_phase_parity(barrier);
  lab_phase_arrive(barrier, arrivals, bytes);
  return parity;
}
LAB_INLINE bool waited(void* barrier, uint64_t parity, bool blocks) {
  if (!blocks && lab_phase_parity(barrier) == (parity & 1)) {
    lab_give_way();
    return false;
  }
  lab_phase_wait(barrier, unsigned(parity & 1));
  return true;
}

// ---- copies ----
LAB_INLINE void copy_async(void* shared, const void* global, uint32_t bytes, uint32_t from_there) {
  lab_copy_async(shared, global, bytes, bytes - std::min(bytes, from_there));
}
LAB_INLINE void copies_arrive(void* barrier, bool counted) {
  lab_copy_commit();
  lab_copy_wait(0);
  if (counted) lab_phase_arrive(barrier, 1, 0);
}
LAB_INLINE void copy_bulk(void* to, const void* from, uint32_t bytes, void* barrier) {
  if (bytes % 16) lab_trap("a bulk copy moves a multiple of 16 bytes");
  for (uint32_t i = 0; i < bytes; i += 16)
    *reinterpret_cast<Word16*>(static_cast<char*>(to) + i) =
        *reinterpret_cast<const Word16*>(static_cast<const char*>(from) + i);
  if (barrier) lab_phase_arrive(barrier, 0, -(long long)bytes);
}

// ---- atomics ----
template <class E>
LAB_INLINE uint64_t add_16(void* address, int number, uint32_t more) {
  uint64_t old = lab_atomic(address, LAB_ATOMIC_OR, number, 0, 0);
  for (;;) {
    const auto sum = [](float x, float y) { return x + y; };
    const uint32_t next = number == LAB_SHORT ? one<E>(sum, uint16_t(old), uint16_t(more)) : pair<E>(sum, uint32_t(old), more);
    const uint64_t found = lab_atomic(address, LAB_ATOMIC_CAS, number, next, old);
    if (found == old) return old;
    old = found;
  }
}

// ---- matrices ----
// A lane's words of A, four or fewer, of B, two or fewer, as the elements of `lab_product`. What k an
// element belongs to may be chosen anew as long as A and B agree: so one product serves each shape.
template <class E>
struct Sixteen {  // pairs of 16 bits
  static constexpr int each = 2;
  static LAB_INLINE float at(uint32_t word, int i) { return E::from(uint16_t(word >> (16 * i))); }
};
template <class T>
struct Eight {
  static constexpr int each = 4;
  static LAB_INLINE float at(uint32_t word, int i) { return float(T(word >> (8 * i))); }
};
template <class E>
struct Fp8 {
  static constexpr int each = 4;
  static LAB_INLINE float at(uint32_t word, int i) { return E::from(uint8_t(word >> (8 * i))); }
};
struct Tf32 {
  static constexpr int each = 1;
  static LAB_INLINE float at(uint32_t word, int) { return lab::bits<float>(word & ~0x1fffu); }
};
// By value and by themselves: so nothing of it is watched. Words of A come in pairs, of a row and of
// the row eight below; a word of B goes with each.
template <class T>
struct Four {
  T at[4];
};
template <class A, class B, class C, int N>
__attribute__((noinline, no_sanitize("thread"))) Four<C> product(Four<C> c, lab_words a, uint32_t b0, uint32_t b1) {
  constexpr int elements = A::each * N;  // of a row, in a lane
  constexpr int at_once = elements < 4 ? elements : 4;
  for (int start = 0; start < elements; start += at_once) {
    lab_product mine = {};
    for (int i = 0; i < at_once; ++i) {
      const int word = (start + i) / A::each, of = (start + i) % A::each, place = i / 2 * 4 + i % 2;
      mine.a[place] = A::at(a.word[2 * word], of);
      mine.a[place + 2] = A::at(a.word[2 * word + 1], of);
      mine.b[i] = B::at(word ? b1 : b0, of);
    }
    if (std::is_same<C, float>::value)
      for (int i = 0; i < 4; ++i) mine.c[i] = float(c.at[i]);
    lab_multiply_at(&mine, __builtin_return_address(0));
    // A sum of 16 products of whole numbers of 8 bits is exact in a float.
    for (int i = 0; i < 4; ++i) c.at[i] = std::is_same<C, float>::value ? C(mine.c[i]) : C(c.at[i] + C(mine.c[i]));
  }
  return c;
}
// ---- products of four warps: done where they stand, whoever waits for them ----
// Where in shared memory an element of 16 bits of a tile is that a descriptor names, whose rows go
// along K or along M or N.
LAB_INLINE uint32_t element_at(uint64_t tile, bool along_mn, uint32_t mn, uint32_t k) {
  const uint32_t start = uint32_t(tile & 0x3fff) << 4, leading = uint32_t(tile >> 16 & 0x3fff) << 4;
  const uint32_t stride = uint32_t(tile >> 32 & 0x3fff) << 4, mode = uint32_t(tile >> 62);
  const uint32_t row = mode ? 256u >> mode : 16;  // bytes
  const uint32_t inner = along_mn ? mn : k, outer = along_mn ? k : mn;
  if (!mode) return start + mn / 8 * stride + k / 8 * leading + outer % 8 * row + inner % 8 * 2;
  uint32_t at = start + outer / 8 * stride + outer % 8 * row;
  at += along_mn ? inner / (row / 2) * leading + inner % (row / 2) * 2 : inner * 2;
  return at ^ (at >> 7 & (row / 16 - 1)) << 4;
}
// Elements k and k + 1.
LAB_INLINE uint32_t two_at(const char* shared, uint64_t tile, bool along_mn, uint32_t mn, uint32_t k) {
  const uint32_t low = element_at(tile, along_mn, mn, k);
  if (!along_mn) return *reinterpret_cast<const Word4*>(shared + low);
  const uint32_t high = element_at(tile, along_mn, mn, k + 1);
  const uint32_t words[] = {*reinterpret_cast<const Word4*>(shared + (low & ~3u)), *reinterpret_cast<const Word4*>(shared + (high & ~3u))};
  return (words[0] >> (low & 2) * 8 & 0xffffu) | words[1] >> (high & 2) * 8 << 16;
}
LAB_INLINE lab_words rows_of_tile(const char* shared, uint64_t tile, bool along_m) {
  const uint32_t row = warp() % 4 * 16 + lane() / 4, k = lane() % 4 * 2;
  lab_words a;
  for (unsigned i = 0; i < 4; ++i) a.word[i] = two_at(shared, tile, along_m, row + i % 2 * 8, k + i / 2 * 8);
  return a;
}
template <int N>
struct Sums {
  float at[N / 2];
};
template <class E, int N>
LAB_INLINE Sums<N> product_of_four(const char* shared, Sums<N> c, lab_words a, uint64_t b, bool along_n, bool adds) {
  for (int t = 0; t < N / 8; ++t) {
    uint32_t words[2];
    for (unsigned h = 0; h < 2; ++h) words[h] = two_at(shared, b, along_n, unsigned(t) * 8 + lane() / 4, lane() % 4 * 2 + h * 8);
    Four<float> sums = {};
    for (int i = 0; adds && i < 4; ++i) sums.at[i] = c.at[4 * t + i];
    sums = product<Sixteen<E>, Sixteen<E>, float, 2>(sums, a, words[0], words[1]);
    for (int i = 0; i < 4; ++i) c.at[4 * t + i] = sums.at[i];
  }
  return c;
}
LAB_INLINE void store_matrices(char* row, int count, bool transposed, lab_words words) {
  const unsigned l = lane(), g = l / 4, c = l % 4;
  lab_need_aligned(row, l < 8u * unsigned(count) ? 16 : 1);
  for (int i = 0; i < count; ++i) {
    if (!transposed) {
      char* to = reinterpret_cast<char*>(lab_collective(LAB_SHFL, ~0u, pack(row), 8 * i + int(g), 32));
      reinterpret_cast<Word4*>(to)[c] = words.word[i];
    } else {
      for (unsigned k = 0; k < 2; ++k) {
        char* to = reinterpret_cast<char*>(lab_collective(LAB_SHFL, ~0u, pack(row), 8 * i + int(2 * c + k), 32));
        reinterpret_cast<Word2*>(to)[g] = uint16_t(words.word[i] >> (16 * k));
      }
    }
  }
}
LAB_INLINE uint32_t transposed_matrix(uint32_t word) {
  const unsigned l = lane(), g = l / 4, c = l % 4;
  uint32_t result = 0;
  for (unsigned k = 0; k < 2; ++k) {
    const uint64_t from = lab_collective(LAB_SHFL, ~0u, word, int(4 * (2 * c + k) + g / 2), 32);
    result |= (uint32_t(from) >> (16 * (g % 2)) & 0xffffu) << (16 * k);
  }
  return result;
}

// ---- wmma of 16x16x16: who holds what of a matrix is nobody's business, so it is as for `product` ----
struct Fragment {
  uint32_t word[8];  // of half a matrix has each element twice
};
template <class W>
LAB_INLINE W& element_of(char* matrix, uint32_t length, bool rows, uint32_t row, uint32_t column) {
  return reinterpret_cast<W*>(matrix)[rows ? row * length + column : column * length + row];
}
LAB_INLINE Fragment fragment_at(char* matrix, uint32_t length, bool rows, bool is_b) {
  const uint32_t g = lane() / 4, c = lane() % 4 * 2;
  Fragment f;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t k = c + (is_b ? i % 2 : i / 2) * 8, other = g + (is_b ? i / 2 : i % 2) * 8;
    uint32_t two[2];
    for (uint32_t j = 0; j < 2; ++j)
      two[j] = element_of<Word2>(matrix, length, rows, is_b ? k + j : other, is_b ? other : k + j);
    f.word[i] = f.word[i + 4] = two[0] | two[1] << 16;
  }
  return f;
}
template <class E>
LAB_INLINE Sums<16> product_of_16(Sums<16> c, Fragment a, Fragment b) {
  for (int t = 0; t < 2; ++t) {
    Four<float> part = {{c.at[4 * t], c.at[4 * t + 1], c.at[4 * t + 2], c.at[4 * t + 3]}};
    const lab_words words = {{a.word[0], a.word[1], a.word[2], a.word[3]}};
    part = product<Sixteen<E>, Sixteen<E>, float, 2>(part, words, b.word[2 * t], b.word[2 * t + 1]);
    for (int i = 0; i < 4; ++i) c.at[4 * t + i] = part.at[i];
  }
  return c;
}
LAB_INLINE Sums<16> sums_of(lab_words w) {
  Sums<16> c;
  for (int i = 0; i < 8; ++i) c.at[i] = Half::from(uint16_t(w.word[i / 2] >> i % 2 * 16));
  return c;
}
LAB_INLINE lab_words halves_of(Sums<16> c) {
  lab_words w;
  for (int i = 0; i < 4; ++i) w.word[i] = two_halves(c.at[2 * i], c.at[2 * i + 1]);
  return w;
}
template <class W>
LAB_INLINE Sums<16> sums_at(char* matrix, uint32_t length, bool rows) {
  Sums<16> c;
  for (uint32_t i = 0; i < 8; ++i) {
    const W word = element_of<W>(matrix, length, rows, lane() / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane() % 4 * 2 + i % 2);
    c.at[i] = sizeof(W) == 2 ? Half::from(uint16_t(word)) : lab::bits<float>(uint32_t(word));
  }
  return c;
}
template <class W>
LAB_INLINE void store_sums(char* matrix, uint32_t length, bool rows, Sums<16> c) {
  for (uint32_t i = 0; i < 8; ++i)
    element_of<W>(matrix, length, rows, lane() / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane() % 4 * 2 + i % 2) =
        sizeof(W) == 2 ? W(Half::to(c.at[i])) : W(lab::bits<uint32_t>(c.at[i]));
}

// ---- text: what vprintf is given is a row of values, each at a multiple of its size ----
inline uint32_t print(const char* format, const char* values) {
  size_t at = 0;
  const auto next = [&](size_t bytes) {
    at = (at + bytes - 1) / bytes * bytes;
    uint64_t word = 0;
    __builtin_memcpy(&word, values + at, bytes);
    at += bytes;
    return word;
  };
  uint32_t count = 0;
  for (const char* p = format; *p;) {
    if (*p != '%' || p[1] == '%') {
      p += *p == '%';
      putchar(*p++);
      continue;
    }
    char one[32];
    size_t length = 0;
    int longs = 0;
    do {
      longs += *p == 'l' || *p == 'z';
      one[length++] = *p++;
    } while (*p && length < 30 && !strchr("diouxXeEfFgGaAcsp", *p));
    const char kind = *p;
    if (!kind) break;
    one[length++] = *p++;
    one[length] = 0;
    ++count;
    if (strchr("eEfFgGaA", kind))
      printf(one, lab::bits<double>(next(8)));
    else if (kind == 's' || kind == 'p')
      printf(one, reinterpret_cast<const char*>(next(8)));
    else if (longs)
      printf(one, next(8));
    else
      printf(one, uint32_t(next(4)));
  }
  return count;
}

}  // namespace ptx
}  // namespace lab
