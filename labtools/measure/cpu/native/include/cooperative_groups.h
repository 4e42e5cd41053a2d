// Cooperative groups of a block and of a warp, by the runner's own barriers and warp functions.
#pragma once
#include <cuda/barrier>

namespace cooperative_groups {

namespace of_cpu {
LAB_INLINE unsigned thread_rank() {
  const lab_index t = lab_thread_index(), n = lab_block_dim();
  return t.x + n.x * (t.y + n.y * t.z);
}
LAB_INLINE unsigned block_size() { return blockDim.x * blockDim.y * blockDim.z; }
LAB_INLINE unsigned block_rank() {
  const lab_index b = lab_block_index(), n = lab_grid_dim();
  return b.x + n.x * (b.y + n.y * b.z);
}
LAB_INLINE unsigned num_blocks() { return gridDim.x * gridDim.y * gridDim.z; }
LAB_INLINE dim3 dim(uint3 i) { return dim3(i.x, i.y, i.z); }

// Threads of one warp: the lanes of a mask, ranked in their order. What is not a tile of a known
// size may be a whole block, which has no mask.
struct Lanes {
  unsigned mask;
  LAB_INLINE unsigned size() const { return unsigned(__popc(mask)); }
  LAB_INLINE unsigned num_threads() const { return size(); }
  LAB_INLINE unsigned thread_rank() const {
    return unsigned(__popc(mask & ((1u << of_cpu::thread_rank() % 32) - 1)));
  }
  LAB_INLINE void sync() const { __syncwarp(mask); }
  LAB_INLINE int lane_of(unsigned rank) const { return int(__fns(mask, 0, int(rank) + 1)); }
  template <class T>
  LAB_INLINE T from_lane(T value, int lane) const {
    if constexpr (sizeof(T) <= 8) {
      return __shfl_sync(mask, value, lane);
    } else {
      static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 32, "a group exchanges at most 32 bytes");
      unsigned words[sizeof(T) / 4];
      __builtin_memcpy(words, &value, sizeof value);
      for (unsigned& word : words) word = __shfl_sync(mask, word, lane);
      __builtin_memcpy(&value, words, sizeof value);
      return value;
    }
  }
  template <class T>
  LAB_INLINE T shfl(T value, unsigned rank) const {
    return from_lane(value, lane_of(rank % size()));
  }
  template <class T>
  LAB_INLINE T shfl_up(T value, unsigned by) const {
    const unsigned me = thread_rank();
    return from_lane(value, lane_of(me >= by ? me - by : me));
  }
  template <class T>
  LAB_INLINE T shfl_down(T value, unsigned by) const {
    const unsigned me = thread_rank();
    return from_lane(value, lane_of(me + by < size() ? me + by : me));
  }
  template <class T>
  LAB_INLINE T shfl_xor(T value, unsigned by) const {
    const unsigned other = thread_rank() ^ by;
    return from_lane(value, lane_of(other < size() ? other : thread_rank()));
  }
  LAB_INLINE unsigned packed(unsigned lanes) const {  // bit i: of the thread with rank i
    unsigned ranks = 0, n = size();
    for (unsigned i = 0; i < n; ++i) ranks |= (lanes >> lane_of(i) & 1u) << i;
    return ranks;
  }
  LAB_INLINE int any(int p) const { return __any_sync(mask, p); }
  LAB_INLINE int all(int p) const { return __all_sync(mask, p); }
  LAB_INLINE unsigned ballot(int p) const { return packed(__ballot_sync(mask, p)); }
  template <class T>
  LAB_INLINE unsigned match_any(T value) const {
    return packed(__match_any_sync(mask, value));
  }
  template <class T>
  LAB_INLINE unsigned match_all(T value, int& all) const {
    return packed(__match_all_sync(mask, value, &all));
  }
};
}  // namespace of_cpu

struct thread_block {
  static LAB_INLINE void sync() { __syncthreads(); }
  static LAB_INLINE unsigned thread_rank() { return of_cpu::thread_rank(); }
  static LAB_INLINE unsigned size() { return of_cpu::block_size(); }
  static LAB_INLINE unsigned num_threads() { return of_cpu::block_size(); }
  static LAB_INLINE dim3 group_index() { return of_cpu::dim(blockIdx); }
  static LAB_INLINE dim3 thread_index() { return of_cpu::dim(threadIdx); }
  static LAB_INLINE dim3 group_dim() { return of_cpu::dim(blockDim); }
  static LAB_INLINE dim3 dim_threads() { return of_cpu::dim(blockDim); }
};
LAB_INLINE thread_block this_thread_block() { return {}; }

struct grid_group {
  __attribute__((error("the CPU runs blocks one after another, so the whole grid cannot meet")))
  void sync() const;
  static LAB_INLINE bool is_valid() { return true; }
  static LAB_INLINE unsigned block_rank() { return of_cpu::block_rank(); }
  static LAB_INLINE unsigned num_blocks() { return of_cpu::num_blocks(); }
  static LAB_INLINE dim3 block_index() { return of_cpu::dim(blockIdx); }
  static LAB_INLINE dim3 group_dim() { return of_cpu::dim(gridDim); }
  static LAB_INLINE dim3 dim_blocks() { return of_cpu::dim(gridDim); }
  static LAB_INLINE unsigned long long size() {
    return 1ull * of_cpu::num_blocks() * of_cpu::block_size();
  }
  static LAB_INLINE unsigned long long num_threads() { return size(); }
  static LAB_INLINE unsigned long long thread_rank() {
    return 1ull * of_cpu::block_rank() * of_cpu::block_size() + of_cpu::thread_rank();
  }
};
LAB_INLINE grid_group this_grid() { return {}; }

struct coalesced_group : of_cpu::Lanes {};
LAB_INLINE coalesced_group coalesced_threads() { return {{__activemask()}}; }
template <class Group, class Label>
LAB_INLINE coalesced_group labeled_partition(const Group& group, Label label) {
  return {{__match_any_sync(group.mask, label)}};
}
template <class Group>
LAB_INLINE coalesced_group binary_partition(const Group& group, bool label) {
  return labeled_partition(group, int(label));
}

struct thread_group : of_cpu::Lanes {
  template <class Group>
  LAB_INLINE thread_group(const Group& group) : Lanes{0} {
    if constexpr (std::is_base_of<Lanes, Group>::value) mask = group.mask;
  }
  LAB_INLINE unsigned size() const { return mask ? Lanes::size() : of_cpu::block_size(); }
  LAB_INLINE unsigned num_threads() const { return size(); }
  LAB_INLINE unsigned thread_rank() const {
    return mask ? Lanes::thread_rank() : of_cpu::thread_rank();
  }
  LAB_INLINE void sync() const { mask ? Lanes::sync() : __syncthreads(); }
};

template <unsigned N, class Parent = void>
struct thread_block_tile : thread_block_tile<N> {};
template <unsigned N>
struct thread_block_tile<N, void> : of_cpu::Lanes {
  static_assert(N <= 32 && (N & (N - 1)) == 0, "on the CPU a tile has at most 32 threads");
  static LAB_INLINE constexpr unsigned size() { return N; }
  static LAB_INLINE constexpr unsigned num_threads() { return N; }
  LAB_INLINE unsigned thread_rank() const { return of_cpu::thread_rank() % N; }
  LAB_INLINE unsigned meta_group_rank() const { return of_cpu::thread_rank() / N; }
  LAB_INLINE unsigned meta_group_size() const { return (of_cpu::block_size() + N - 1) / N; }
};
namespace of_cpu {
LAB_INLINE unsigned tile_mask(unsigned n) {
  return (n == 32 ? ~0u : (1u << n) - 1) << (of_cpu::thread_rank() % 32 & ~(n - 1));
}
}  // namespace of_cpu
template <unsigned N, class Parent>
LAB_INLINE thread_block_tile<N, Parent> tiled_partition(const Parent&) {
  thread_block_tile<N, Parent> tile;
  tile.mask = of_cpu::tile_mask(N);
  return tile;
}
template <class Parent>
LAB_INLINE thread_group tiled_partition(const Parent&, unsigned n) {
  return coalesced_group{{of_cpu::tile_mask(n)}};
}

template <class Group>
LAB_INLINE void sync(const Group& group) { group.sync(); }
template <class Group>
LAB_INLINE void wait(const Group& group) {
  lab_copy_wait(0);
  group.sync();
}
template <unsigned Left, class Group>
LAB_INLINE void wait_prior(const Group& group) {
  lab_copy_wait(Left);
  group.sync();
}
template <class Group, class F>
LAB_INLINE void invoke_one(const Group& group, F f) {
  if (group.thread_rank() == 0) f();
}

#define LAB_OPERATION(name, value)                                          \
  template <class T = void>                                                 \
  struct name {                                                             \
    LAB_INLINE T operator()(T a, T b) const { return T(value); }            \
  };                                                                        \
  template <>                                                               \
  struct name<void> {                                                       \
    template <class T>                                                      \
    LAB_INLINE T operator()(T a, T b) const { return T(value); }            \
  };
LAB_OPERATION(plus, a + b)
LAB_OPERATION(less, b < a ? b : a)
LAB_OPERATION(greater, a < b ? b : a)
LAB_OPERATION(bit_and, a & b)
LAB_OPERATION(bit_or, a | b)
LAB_OPERATION(bit_xor, a ^ b)
#undef LAB_OPERATION

template <class Group, class T, class F>
LAB_INLINE T reduce(const Group& group, T value, F f) {
  const unsigned n = group.size();
  if ((n & (n - 1)) == 0) {
    for (unsigned by = n / 2; by; by /= 2) value = f(value, group.shfl_xor(value, by));
    return value;
  }
  T sum = group.shfl(value, 0);
  for (unsigned i = 1; i < n; ++i) sum = f(sum, group.shfl(value, i));
  return sum;
}
template <class Group, class T, class F = plus<T>>
LAB_INLINE T inclusive_scan(const Group& group, T value, F f = F()) {
  for (unsigned by = 1; by < group.size(); by *= 2) {
    const T before = group.shfl_up(value, by);
    if (group.thread_rank() >= by) value = f(before, value);
  }
  return value;
}
template <class Group, class T, class F = plus<T>>
LAB_INLINE T exclusive_scan(const Group& group, T value, F f = F()) {
  const T before = group.shfl_up(inclusive_scan(group, value, f), 1);
  return group.thread_rank() ? before : T();
}

template <class Group>
LAB_INLINE void memcpy_async(const Group& group, void* to, const void* from, size_t bytes) {
  cuda::of_cpu::copy(group, to, from, bytes);
  lab_copy_commit();
}
template <class Group, class T>
LAB_INLINE void memcpy_async(const Group& group, T* to, size_t room, const T* from, size_t count) {
  memcpy_async(group, to, from, sizeof(T) * (count < room ? count : room));
}

__attribute__((error("the CPU runs blocks one after another, so those of a cluster cannot meet")))
thread_block this_cluster();

}  // namespace cooperative_groups
