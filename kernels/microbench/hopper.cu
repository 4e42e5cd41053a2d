// What sm_90a alone has: products of a warpgroup, barriers that count bytes, copies by a tensor map.
#include "bulk_copy.cuh"
#include "wgmma.cuh"

#ifdef __CUDA_ARCH__
#define DEVICE __device__ __forceinline__

DEVICE long long now() {
  long long cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
}
DEVICE unsigned this_sm() {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  return sm;
}
// Begin, end and SM of this warp.
DEVICE void keep_times(long long* out, long long begin, long long end) {
  if (threadIdx.x % 32) return;
  long long* to = out + 3 * (threadIdx.x / 32);
  to[0] = begin, to[1] = end, to[2] = this_sm();
}

// ------------------------------------------------------------------------------- products

// BODY products of m64 n N k16 into the same sums, then a wait for all of them. Every warpgroup of
// the block multiplies; what it multiplies is zero. STARTING counts only until all are started.
template <int N, int BODY, bool REGISTERS, bool STARTING = false>
DEVICE void products(long long* out, float* sink, int trips) {
  __shared__ __align__(1024) half a_tile[64 * 64];
  __shared__ __align__(1024) half b_tile[N * 64];
  for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) a_tile[i] = half();
  for (int i = threadIdx.x; i < N * 64; i += blockDim.x) b_tile[i] = half();
  publish_stores();
  __syncthreads();
  const TileDescriptor a = tile_descriptor(a_tile), b = tile_descriptor(b_tile, 64 * 16 * 2);
  const unsigned zeros[4] = {0u, 0u, 0u, 0u};
  float sums[N / 2];
#pragma unroll
  for (float& x : sums) x = 0.f;
  open_products();
  long long begin = 0, end = 0, starting = 0;
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {
    const int count = round == 0 ? 2 : trips;
    starting = 0;
    begin = now();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      if (STARTING) starting -= now();
      open_products();
#pragma unroll
      for (int j = 0; j < BODY; ++j) {
        if (REGISTERS)
          wgmma_registers<half, N>(sums, zeros, b, true);
        else
          wgmma_shared<half, N>(sums, a, b, true);
      }
      close_products();
      if (STARTING) starting += now();
      wait_for_products<0>();
      hold(sums);
    }
    end = now();
  }
  float sum = 0.f;
  for (const float x : sums) sum += x;
  sink[threadIdx.x] = sum;
  keep_times(out, begin, STARTING ? begin + starting : end);
}
#define PRODUCTS(N, BODY)                                                                    \
  extern "C" __global__ void __launch_bounds__(384)                                          \
      product_shared_##BODY##_##N(long long* out, float* sink, int trips) {                  \
    products<N, BODY, false>(out, sink, trips);                                              \
  }                                                                                          \
  extern "C" __global__ void __launch_bounds__(384)                                          \
      product_registers_##BODY##_##N(long long* out, float* sink, int trips) {               \
    products<N, BODY, true>(out, sink, trips);                                               \
  }
#define STARTS(N, BODY)                                                                      \
  extern "C" __global__ void __launch_bounds__(384)                                          \
      start_shared_##BODY##_##N(long long* out, float* sink, int trips) {                    \
    products<N, BODY, false, true>(out, sink, trips);                                        \
  }                                                                                          \
  extern "C" __global__ void __launch_bounds__(384)                                          \
      start_registers_##BODY##_##N(long long* out, float* sink, int trips) {                 \
    products<N, BODY, true, true>(out, sink, trips);                                         \
  }
PRODUCTS(64, 1)
PRODUCTS(64, 4)
PRODUCTS(64, 16)
PRODUCTS(128, 1)
PRODUCTS(128, 4)
PRODUCTS(128, 16)
STARTS(64, 4)
STARTS(64, 16)
STARTS(128, 4)
STARTS(128, 16)

// Cycles and nanoseconds of one stretch in which two warpgroups keep the tensor cores busy. What
// they multiply is drawn, for products of zeros take less power.
extern "C" __global__ void __launch_bounds__(256) product_clock(long long* out, float* sink,
                                                                long long cycles) {
  __shared__ __align__(1024) half a_tile[64 * 64];
  __shared__ __align__(1024) half b_tile[128 * 64];
  unsigned drawn = 2654435761u * (threadIdx.x + 1 + 1024 * blockIdx.x);
  const auto draw = [&](half* to, int size) {
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
      drawn = drawn * 1664525u + 1013904223u;
      to[i] = __float2half((int)(drawn >> 16) / 32768.f - 1.f);
    }
  };
  draw(a_tile, 64 * 64);
  draw(b_tile, 128 * 64);
  publish_stores();
  __syncthreads();
  const TileDescriptor a = tile_descriptor(a_tile), b = tile_descriptor(b_tile);
  float sums[64];
#pragma unroll
  for (float& x : sums) x = 0.f;
  long long begin_ns, end_ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin_ns)::"memory");
  const long long begin = now();
  long long end;
#pragma unroll 1
  do {
    open_products();
#pragma unroll
    for (int j = 0; j < 16; ++j)
      wgmma_shared<half, 128>(sums, a + j % 4 * 2, b + j % 4 * 2, true);
    close_products();
    wait_for_products<0>();
    hold(sums);
    end = now();
  } while (end - begin < cycles);
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end_ns)::"memory");
  float sum = 0.f;
  for (const float x : sums) sum += x;
  sink[256 * blockIdx.x + threadIdx.x] = sum;
  if (threadIdx.x == 0) {
    out[2 * blockIdx.x] = end - begin;
    out[2 * blockIdx.x + 1] = end_ns - begin_ns;
  }
}

// ------------------------------------------------------------------------------- barriers

// Two warps hand each other the turn, BODY times: the one waits, its first lane arrives, the other
// waits.
template <int BODY>
DEVICE void turns(long long* out, int trips) {
  __shared__ Barrier given[2];
  if (threadIdx.x == 0) {
    init_barrier(given[0], 1);
    init_barrier(given[1], 1);
    publish_barriers();
  }
  __syncthreads();
  const int warp = threadIdx.x / 32;
  int phase = 0;
  const long long begin = now();
#pragma unroll 1
  for (int i = 0; i < trips; ++i) {
#pragma unroll
    for (int j = 0; j < BODY; ++j) {
      if (warp == 0 && threadIdx.x == 0) arrive(given[1]);
      if (warp == 0) wait_barrier(given[0], phase);
      if (warp == 1) wait_barrier(given[1], phase);
      if (warp == 1 && threadIdx.x == 32) arrive(given[0]);
      __syncwarp();
      phase ^= 1;
    }
  }
  keep_times(out, begin, now());
}
extern "C" __global__ void phase_turn_2(long long* out, int trips) { turns<2>(out, trips); }
extern "C" __global__ void phase_turn_4(long long* out, int trips) { turns<4>(out, trips); }

// One lane arrives and waits for the phase that it ended itself.
template <int BODY>
DEVICE void own_phases(long long* out, int trips) {
  __shared__ Barrier mine;
  if (threadIdx.x) return;
  init_barrier(mine, 1);
  publish_barriers();
  int phase = 0;
  const long long begin = now();
#pragma unroll 1
  for (int i = 0; i < trips; ++i) {
#pragma unroll
    for (int j = 0; j < BODY; ++j) {
      arrive(mine);
      wait_barrier(mine, phase);
      phase ^= 1;
    }
  }
  keep_times(out, begin, now());
}
extern "C" __global__ void phase_own_2(long long* out, int trips) { own_phases<2>(out, trips); }
extern "C" __global__ void phase_own_4(long long* out, int trips) { own_phases<4>(out, trips); }

// A warp asks for a phase that has ended.
template <int BODY>
DEVICE void ended_phases(long long* out, int trips) {
  __shared__ Barrier ready;
  if (threadIdx.x == 0) {
    init_barrier(ready, 1);
    publish_barriers();
    arrive(ready);
  }
  __syncthreads();
  const long long begin = now();
#pragma unroll 1
  for (int i = 0; i < trips; ++i) {
#pragma unroll
    for (int j = 0; j < BODY; ++j) wait_barrier(ready, 0);
  }
  keep_times(out, begin, now());
}
extern "C" __global__ void phase_ended_2(long long* out, int trips) { ended_phases<2>(out, trips); }
extern "C" __global__ void phase_ended_4(long long* out, int trips) { ended_phases<4>(out, trips); }

// Two warpgroups hand each other the turn by named barriers, BODY times.
template <int BODY>
DEVICE void named_turns(long long* out, int trips) {
  const int group = threadIdx.x / 128;
  if (group == 1) named_arrive<256>(1);
  const long long begin = now();
#pragma unroll 1
  for (int i = 0; i < trips; ++i) {
#pragma unroll
    for (int j = 0; j < BODY; ++j) {
      named_sync<256>(1 + group);
      named_arrive<256>(2 - group);
    }
  }
  if (group == 0) named_sync<256>(1);
  keep_times(out, begin, now());
}
extern "C" __global__ void named_turn_4(long long* out, int trips) { named_turns<4>(out, trips); }
extern "C" __global__ void named_turn_8(long long* out, int trips) { named_turns<8>(out, trips); }

// ------------------------------------------------------------------------------- copies

// Whether this block's SM is the one to measure on; -1 takes all.
DEVICE bool chosen(int wanted_sm) {
  if (wanted_sm < 0) return true;
  const long long until = now() + 8000;
  while (now() < until) {
  }
  return (int)this_sm() == wanted_sm;
}

// One thread copies boxes of ROWS rows of 128 bytes, with DEPTH of them on their way.
template <int ROWS, int DEPTH>
DEVICE void boxes(long long* out, const TensorMap& map, unsigned long long block_bytes,
                  unsigned stride, unsigned wrap, int warm, int steps, int wanted_sm) {
  extern __shared__ __align__(1024) unsigned char room[];
  __shared__ Barrier full[DEPTH];
  if (!chosen(wanted_sm)) return;
  if (threadIdx.x) return;
  for (Barrier& one : full) init_barrier(one, 1);
  publish_barriers();
  const int first = (int)(blockIdx.x * block_bytes / 128);
  unsigned offset = 0;
  const auto start = [&](int place) {
    arrive_expecting(full[place], ROWS * 128);
    copy_box(room + place * ROWS * 128, map, 0, first + (int)(offset / 128), 0, full[place]);
    offset = (offset + stride) & wrap;
  };
  for (int place = 0; place < DEPTH - 1; ++place) start(place);
  int phase = 0;
  long long begin = 0, end = 0;
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {
    const int count = (round == 0 ? warm : steps) / DEPTH;
    begin = now();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
#pragma unroll
      for (int place = 0; place < DEPTH; ++place) {
        start((place + DEPTH - 1) % DEPTH);
        wait_barrier(full[place], phase);
      }
      phase ^= 1;
    }
    end = now();
  }
  for (int place = 0; place < DEPTH - 1; ++place) wait_barrier(full[place], phase);
  out[3 * blockIdx.x] = begin;
  out[3 * blockIdx.x + 1] = end;
  out[3 * blockIdx.x + 2] = this_sm();
}
#define BOXES(ROWS, DEPTH)                                                                      \
  extern "C" __global__ void boxes_##ROWS##_##DEPTH(                                            \
      long long* out, const __grid_constant__ TensorMap map, unsigned long long block_bytes,    \
      unsigned stride, unsigned wrap, int warm, int steps, int wanted_sm) {                     \
    boxes<ROWS, DEPTH>(out, map, block_bytes, stride, wrap, warm, steps, wanted_sm);            \
  }
BOXES(8, 1)
BOXES(32, 1)
BOXES(64, 1)
BOXES(128, 1)
BOXES(256, 1)
BOXES(64, 4)
BOXES(128, 2)
BOXES(128, 4)
#endif
