// cub's reductions of a warp and of a block; as there, the first thread alone has the result.
#pragma once
#include <cooperative_groups.h>

namespace cub {
enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS
};

namespace of_cpu {
template <class T, class Derived>
struct Reductions {
  LAB_INLINE T Sum(T value) { return me().Reduce(value, cooperative_groups::plus<T>()); }
  LAB_INLINE T Sum(T value, int valid) {
    return me().Reduce(value, cooperative_groups::plus<T>(), valid);
  }
  LAB_INLINE T Max(T value) { return me().Reduce(value, cooperative_groups::greater<T>()); }
  LAB_INLINE T Min(T value) { return me().Reduce(value, cooperative_groups::less<T>()); }

 private:
  LAB_INLINE Derived& me() { return static_cast<Derived&>(*this); }
};
}  // namespace of_cpu

template <class T, int N = 32>
struct WarpReduce : of_cpu::Reductions<T, WarpReduce<T, N>> {
  struct TempStorage {};
  LAB_INLINE explicit WarpReduce(TempStorage&) {}
  template <class F>
  LAB_INLINE T Reduce(T value, F f, int valid = N) {
    namespace cg = cooperative_groups;
    const auto tile = cg::tiled_partition<N>(cg::this_thread_block());
    const int me = int(tile.thread_rank());
    for (int by = 1; by < N; by *= 2) {
      const T other = tile.shfl_down(value, by);
      if (me % (2 * by) == 0 && me + by < valid) value = f(value, other);
    }
    return value;
  }
};

template <class T, int X, BlockReduceAlgorithm A = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1,
          int Z = 1>
struct BlockReduce : of_cpu::Reductions<T, BlockReduce<T, X, A, Y, Z>> {
  struct TempStorage {
    alignas(T) unsigned char of_warps[(X * Y * Z + 31) / 32 * sizeof(T)];
  };
  T* of_warps;
  LAB_INLINE explicit BlockReduce(TempStorage& storage) : of_warps((T*)storage.of_warps) {}
  template <class F>
  LAB_INLINE T Reduce(T value, F f, int valid = X * Y * Z) {
    const int me = int(cooperative_groups::of_cpu::thread_rank());
    typename WarpReduce<T>::TempStorage none;
    value = WarpReduce<T>(none).Reduce(value, f, valid - me / 32 * 32);
    if (X * Y * Z <= 32) return value;
    if (me % 32 == 0) of_warps[me / 32] = value;
    __syncthreads();
    for (int i = 1; me == 0 && i * 32 < valid; ++i) value = f(value, of_warps[i]);
    return value;
  }
};
}  // namespace cub
