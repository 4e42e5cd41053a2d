// One load after another: each address needs the value loaded before it.
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

// Whether this block's SM is the one to measure on; -1 takes all. The grid has one block for each
// SM, and a block that ended at once would leave its place to another one's.
DEVICE bool chosen(int wanted_sm) {
  if (wanted_sm < 0) return true;
  const long long until = now() + 8000;
  while (now() < until) {
  }
  return (int)this_sm() == wanted_sm;
}

constexpr int LINE = 128;  // bytes between two cells of a chain

// ------------------------------------------------------------------------- laying out a chain

// Cell order[i] gets the address of cell order[i + 1], the last one that of the first.
extern "C" __global__ void lay_chain(char* cells, const int* __restrict__ order, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  char* next = cells + (long long)LINE * order[i + 1 == count ? 0 : i + 1];
  *reinterpret_cast<char**>(cells + (long long)LINE * order[i]) = next;
}

// A chain through all 2^bits cells without a table: rank r follows rank a r + c (a full period),
// and ranks are scattered over the cells by a bijection.
DEVICE unsigned long long scatter(unsigned long long rank, int bits) {
  const unsigned long long mask = (1ull << bits) - 1;
  rank = (rank * 0x9e3779b97f4a7c15ull) & mask;
  rank ^= rank >> ((bits + 1) / 2);
  return (rank * 0xd1342543de82ef95ull) & mask;
}
extern "C" __global__ void lay_scattered(char* cells, int bits) {
  const unsigned long long count = 1ull << bits;
  for (unsigned long long rank = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
       rank < count; rank += (unsigned long long)gridDim.x * blockDim.x) {
    const unsigned long long next = (rank * 6364136223846793005ull + 1442695040888963407ull) & (count - 1);
    *reinterpret_cast<char**>(cells + LINE * scatter(rank, bits)) = cells + LINE * scatter(next, bits);
  }
}

// Reads every line once, so that it lies in the L2.
extern "C" __global__ void touch(const char* __restrict__ cells, unsigned* sink,
                                 unsigned long long lines) {
  unsigned sum = 0;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < lines;
       i += (unsigned long long)gridDim.x * blockDim.x) {
    unsigned word;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(word) : "l"(cells + LINE * i));
    sum ^= word;
  }
  if (sum == 0x9e3779b9u) sink[0] = sum;
}

// ------------------------------------------------------------------------------- the chase

#define CHASE(NAME, LOAD)                                                                        \
  extern "C" __global__ void NAME(long long* out, const char* start, int wanted_sm, int warm,    \
                                  int steps) {                                                   \
    if (!chosen(wanted_sm) || threadIdx.x != 0) return;                                          \
    unsigned long long cell = (unsigned long long)start;                                         \
    _Pragma("unroll 1") for (int i = 0; i < warm; ++i)                                           \
        asm volatile(LOAD " %0, [%0];" : "+l"(cell)::"memory");                                  \
    const long long begin = now();                                                               \
    _Pragma("unroll 1") for (int i = 0; i < steps; i += 16) {                                    \
      _Pragma("unroll") for (int j = 0; j < 16; ++j)                                             \
          asm volatile(LOAD " %0, [%0];" : "+l"(cell)::"memory");                                \
    }                                                                                            \
    const long long end = now();                                                                 \
    out[0] = begin;                                                                              \
    out[1] = end;                                                                                \
    out[2] = cell; /* where the next measurement goes on */                                      \
  }
CHASE(chase_ca, "ld.global.u64")
CHASE(chase_cg, "ld.global.cg.u64")

// ------------------------------------------------------------------- rows, a warp at a time

template <int BYTES>
struct Lane;
template <>
struct Lane<2> {
  static DEVICE unsigned load_ca(unsigned long long p) {
    unsigned short v;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
    return v;
  }
  static DEVICE unsigned load_cg(unsigned long long p) {
    unsigned short v;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
    return v;
  }
};
template <>
struct Lane<4> {
  static DEVICE unsigned load_ca(unsigned long long p) {
    unsigned v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
  }
  static DEVICE unsigned load_cg(unsigned long long p) {
    unsigned v;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
  }
};
template <>
struct Lane<8> {
  static DEVICE unsigned load_ca(unsigned long long p) {
    unsigned v, w;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v), "=r"(w) : "l"(p) : "memory");
    return v | w;
  }
  static DEVICE unsigned load_cg(unsigned long long p) {
    unsigned v, w;
    asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(v), "=r"(w) : "l"(p) : "memory");
    return v | w;
  }
};
template <>
struct Lane<16> {
  static DEVICE unsigned load_ca(unsigned long long p) {
    unsigned v, w, x, y;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v), "=r"(w), "=r"(x), "=r"(y) : "l"(p) : "memory");
    return v | w | x | y;
  }
  static DEVICE unsigned load_cg(unsigned long long p) {
    unsigned v, w, x, y;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v), "=r"(w), "=r"(x), "=r"(y) : "l"(p) : "memory");
    return v | w | x | y;
  }
};

constexpr int STEPS_A_TRIP = 8;

// One warp a block, as a decode kernel's warp walks its rows: a step asks for LOADS rows and needs
// all of them before it asks for the next. The buffer holds zeros, which only the caller knows, so
// the loaded words can be part of the next address. The address without them is ready long before:
// what a step takes is the loads and a few three-input logic operations.
template <int BYTES, int LOADS, bool L1>
DEVICE void walk(long long* out, const char* rows, unsigned long long block_bytes, unsigned stride,
                 unsigned wrap, int warm, int steps, int wanted_sm) {
  if (!chosen(wanted_sm)) return;
  const unsigned long long first = (unsigned long long)rows + blockIdx.x * block_bytes +
                                   (threadIdx.x % 32) * BYTES;
  unsigned offset = 0, carried = 0;
  long long begin = 0, end = 0;
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {  // the first one is not counted
    const int count = round == 0 ? warm : steps;
    begin = now();
#pragma unroll 1
    for (int i = 0; i < count; i += STEPS_A_TRIP) {
#pragma unroll
      for (int step = 0; step < STEPS_A_TRIP; ++step) {
        const unsigned long long here = first + offset;
        // No carry can come of zeros: the high half is known early.
        const unsigned low = (unsigned)here | carried;
        const unsigned high = (unsigned)(here >> 32);
        unsigned long long address;
        asm volatile("mov.b64 %0, {%1, %2};" : "=l"(address) : "r"(low), "r"(high));
        unsigned words[LOADS];
#pragma unroll
        for (int j = 0; j < LOADS; ++j)
          words[j] = L1 ? Lane<BYTES>::load_ca(address + j * 32 * BYTES)
                        : Lane<BYTES>::load_cg(address + j * 32 * BYTES);
        carried = 0;
#pragma unroll
        for (int j = 0; j < LOADS; ++j) carried |= words[j];
        offset = (offset + stride) & wrap;
      }
    }
    end = now();
  }
  if (threadIdx.x % 32 == 0) {
    out[3 * blockIdx.x] = begin;
    out[3 * blockIdx.x + 1] = end;
    out[3 * blockIdx.x + 2] = this_sm() + carried;
  }
}

#define WALK(BYTES, LOADS)                                                                         \
  extern "C" __global__ void walk_ca_##BYTES##_##LOADS(                                            \
      long long* out, const char* rows, unsigned long long block_bytes, unsigned stride,           \
      unsigned wrap, int warm, int steps, int wanted_sm) {                                         \
    walk<BYTES, LOADS, true>(out, rows, block_bytes, stride, wrap, warm, steps, wanted_sm);        \
  }                                                                                                \
  extern "C" __global__ void walk_cg_##BYTES##_##LOADS(                                            \
      long long* out, const char* rows, unsigned long long block_bytes, unsigned stride,           \
      unsigned wrap, int warm, int steps, int wanted_sm) {                                         \
    walk<BYTES, LOADS, false>(out, rows, block_bytes, stride, wrap, warm, steps, wanted_sm);       \
  }
#define WALKS(BYTES) WALK(BYTES, 1) WALK(BYTES, 2) WALK(BYTES, 4)
WALKS(2)
WALKS(4)
WALKS(8)
WALKS(16)
