// nvcuda::wmma of half and bfloat16, by the runner's own product of 16 by 8 by 16.
#pragma once
#include <type_traits>

namespace nvcuda {
namespace wmma {
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static_assert(M * N == 256 && M % 8 + N % 8 == 0 && K == 16 && sizeof(T) >= 2 && sizeof(T) <= 4,
                "on the CPU a warp multiplies matrices of half or bfloat16, 16 elements deep");
  static constexpr bool is_a = std::is_same<Use, matrix_a>::value;
  static constexpr bool is_b = std::is_same<Use, matrix_b>::value;
  static constexpr int num_elements = is_a ? M / 2 : is_b ? N / 2 : 8;
  T x[num_elements];
};

namespace of_cpu {
// Row and column of a lane's element: those of the registers of mma.m16n8k16, of which two stand
// side by side, below each other, or below each other and turned, with A in the place of B.
template <int M>
LAB_INLINE int2 place(int i, bool is_a, bool is_b) {
  const uint3 at = threadIdx;
  const int lane = int(at.x + blockDim.x * (at.y + blockDim.y * at.z)) % 32;
  const int row = lane / 4, column = lane % 4 * 2 + i % 2, half = i / 2 % 2 * 8;
  int2 place;
  if (M == 8 ? is_b : is_a) {
    place = {row + half + i / 8 * 16, column + i / 4 % 2 * 8};
  } else if (M == 8 ? is_a : is_b) {
    place = {column + half, row + i / 4 * 8};
  } else {
    place = {row + half + (M == 16 ? 0 : i / 4 * 16), column + (M == 16 ? i / 4 * 8 : 0)};
  }
  return M == 8 ? int2{place.y, place.x} : place;
}
template <class Use, int M, int N, int K, class T, class L, class Move>
LAB_INLINE void each(const fragment<Use, M, N, K, T, L>& one, unsigned stride, bool by_rows,
                     Move move) {
  for (int i = 0; i < one.num_elements; ++i) {
    const int2 at = place<M>(i, one.is_a, one.is_b);
    move(i, by_rows ? size_t(at.x) * stride + at.y : size_t(at.y) * stride + at.x);
  }
  __syncwarp();
}
}  // namespace of_cpu

template <class Use, int M, int N, int K, class T, class L>
inline void load_matrix_sync(fragment<Use, M, N, K, T, L>& to, const T* from, unsigned stride) {
  const bool by_rows = std::is_same<L, row_major>::value;
  of_cpu::each(to, stride, by_rows, [&](int i, size_t at) { to.x[i] = from[at]; });
}
template <int M, int N, int K, class T>
inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& to, const T* from, unsigned stride,
                             layout_t layout) {
  const bool by_rows = layout == mem_row_major;
  of_cpu::each(to, stride, by_rows, [&](int i, size_t at) { to.x[i] = from[at]; });
}
template <int M, int N, int K, class T>
inline void store_matrix_sync(T* to, const fragment<accumulator, M, N, K, T>& from, unsigned stride,
                              layout_t layout) {
  const bool by_rows = layout == mem_row_major;
  of_cpu::each(from, stride, by_rows, [&](int i, size_t at) { to[at] = from.x[i]; });
}
template <class Use, int M, int N, int K, class T, class L, class V>
LAB_INLINE void fill_fragment(fragment<Use, M, N, K, T, L>& to, const V& value) {
  for (T& one : to.x) one = T(value);
}
template <int M, int N, int K, class TD, class T, class LA, class LB, class TC>
inline void mma_sync(fragment<accumulator, M, N, K, TD>& d,
                     const fragment<matrix_a, M, N, K, T, LA>& a,
                     const fragment<matrix_b, M, N, K, T, LB>& b,
                     const fragment<accumulator, M, N, K, TC>& c) {
  const T *as = M == 8 ? b.x : a.x, *bs = M == 8 ? a.x : b.x;
  for (int half = 0; half < 2; ++half) {
    lab_product mine;
    for (int i = 0; i < 8; ++i) mine.a[i] = float(as[i + (M == 16 ? 0 : half * 8)]);
    for (int i = 0; i < 4; ++i) mine.b[i] = float(bs[i + (M == 16 ? half * 4 : 0)]);
    for (int i = 0; i < 4; ++i) mine.c[i] = float(c.x[half * 4 + i]);
    lab_multiply(&mine);
    for (int i = 0; i < 4; ++i) d.x[half * 4 + i] = TD(mine.c[i]);
  }
}
}  // namespace wmma
}  // namespace nvcuda
