// Latency and issue interval of one instruction, for many instructions.
//
// Each has four kernels. In `lat_*` every instruction needs the result of the one before it. In
// `thr_*` several chains run side by side, so that only the unit's own rate holds them back. Both
// come with two lengths of the loop's body; the difference of the two times is free of the loop
// counter, the branch and the clock reads.
//
// Everything is inline PTX with operands that only the caller knows: the compiler can fold none of
// it. What the assembler made of it is checked before anything is measured.

#define DEVICE __device__ __forceinline__

struct Given {  // what the caller passes, and where the memory operands live
  unsigned a, b;
  float x, y;
  unsigned shared;            // shared-memory address of this lane's cell
  unsigned long long global;  // address of this lane's cell
};

DEVICE unsigned lane_id() {
  unsigned lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

DEVICE long long now() {
  long long cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
}

// ------------------------------------------------------------------------------- instructions
// `start` sets a chain up, `step` is the instruction, `fold` consumes the result.

struct Word {
  static constexpr int BYTES = 4;  // a lane's cell, for what addresses memory
  unsigned v;
  DEVICE void start(const Given& g, unsigned chain) { v = g.a * (chain + 1) + lane_id(); }
  DEVICE unsigned fold() const { return v; }
};

#define WORD_OP(NAME, ...)                                      \
  struct NAME : Word {                                          \
    DEVICE void step(const Given& g, int turn) { __VA_ARGS__; } \
  };

// Floating point state is kept as bits, so that all chains look alike.
#define FLOAT_ASM(TEXT) asm volatile(TEXT : "+r"(v) : "r"(__float_as_uint(g.x)), "r"(__float_as_uint(g.y)))

WORD_OP(Ffma, FLOAT_ASM("{.reg .f32 f, p, q; mov.b32 f, %0; mov.b32 p, %1; mov.b32 q, %2;"
                        " fma.rn.ftz.f32 f, f, p, q; mov.b32 %0, f;}"))
WORD_OP(Fadd, FLOAT_ASM("{.reg .f32 f, p; mov.b32 f, %0; mov.b32 p, %1;"
                        " add.ftz.f32 f, f, p; mov.b32 %0, f;}"))
WORD_OP(Fmul, FLOAT_ASM("{.reg .f32 f, p; mov.b32 f, %0; mov.b32 p, %1;"
                        " mul.ftz.f32 f, f, p; mov.b32 %0, f;}"))
WORD_OP(Fmnmx,
        if (turn & 1) FLOAT_ASM("{.reg .f32 f, p; mov.b32 f, %0; mov.b32 p, %1;"
                                " max.ftz.f32 f, f, p; mov.b32 %0, f;}");
        else FLOAT_ASM("{.reg .f32 f, p; mov.b32 f, %0; mov.b32 p, %2;"
                       " min.ftz.f32 f, f, p; mov.b32 %0, f;}"))
WORD_OP(Hfma2, asm volatile("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(v) : "r"(g.a), "r"(g.b)))
WORD_OP(Imad, asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(v) : "r"(g.a), "r"(g.b)))
#if __CUDA_ARCH__ >= 900  // where two additions become one instruction
WORD_OP(Iadd3, asm volatile("{.reg .u32 t; add.u32 t, %0, %1; add.u32 %0, t, %2;}"
                            : "+r"(v) : "r"(g.a), "r"(g.b)))
#else
WORD_OP(Iadd3,
        if (turn & 1) asm volatile("add.u32 %0, %0, %1;" : "+r"(v) : "r"(g.a));
        else asm volatile("add.u32 %0, %0, %1;" : "+r"(v) : "r"(g.b)))
#endif
WORD_OP(Lop3,
        if (turn & 1) asm volatile("lop3.b32 %0, %0, %1, %2, 0x1e;" : "+r"(v) : "r"(g.a), "r"(g.b));
        else asm volatile("lop3.b32 %0, %0, %1, %2, 0x6a;" : "+r"(v) : "r"(g.a), "r"(g.b)))
WORD_OP(Prmt, asm volatile("prmt.b32 %0, %0, %1, %2;" : "+r"(v) : "r"(g.a), "r"(g.b)))
WORD_OP(Shf, asm volatile("shf.l.wrap.b32 %0, %0, %1, %2;" : "+r"(v) : "r"(g.a), "r"(g.b)))
WORD_OP(IsetpSel, asm volatile("{.reg .pred p; setp.lt.u32 p, %0, %1; selp.b32 %0, %2, %0, p;}"
                               : "+r"(v) : "r"(g.a), "r"(g.b)))
WORD_OP(Ex2, asm volatile("{.reg .f32 f; mov.b32 f, %0; ex2.approx.ftz.f32 f, f; mov.b32 %0, f;}"
                          : "+r"(v)))
// A reciprocal of a reciprocal, or of an exponential, is folded; so an addition stands between.
WORD_OP(RcpFadd, FLOAT_ASM("{.reg .f32 f, p; mov.b32 f, %0; mov.b32 p, %1;"
                           " rcp.approx.ftz.f32 f, f; add.ftz.f32 f, f, p; mov.b32 %0, f;}"))
// The low 16 bits of the result are the next operand.
WORD_OP(HalfToFloat, asm volatile("{.reg .f16 l, h; .reg .f32 f; mov.b32 {l, h}, %0;"
                                  " cvt.f32.f16 f, l; mov.b32 %0, f;}" : "+r"(v)))
#if __CUDA_ARCH__ >= 800
WORD_OP(FloatToHalf2, asm volatile("{.reg .f32 f, p; mov.b32 f, %0; mov.b32 p, %1;"
                                   " cvt.rn.f16x2.f32 %0, f, p;}" : "+r"(v) : "r"(g.a)))
#else
WORD_OP(FloatToHalf2, asm volatile("{.reg .f32 f; .reg .f16 l, h; mov.b32 f, %0; mov.b32 {l, h}, %1;"
                                   " cvt.rn.f16.f32 l, f; mov.b32 %0, {l, h};}"
                                   : "+r"(v) : "r"(g.a)))
#endif
WORD_OP(IntToFloat, asm volatile("{.reg .f32 f; cvt.rn.f32.s32 f, %0; mov.b32 %0, f;}" : "+r"(v)))
WORD_OP(FloatToInt, asm volatile("{.reg .f32 f; mov.b32 f, %0; cvt.rzi.ftz.s32.f32 %0, f;}"
                                 : "+r"(v)))
WORD_OP(ByteToFloat, asm volatile("{.reg .f32 f; .reg .s16 l, h; .reg .s8 c; mov.b32 {l, h}, %0;"
                                  " cvt.s8.s16 c, l; cvt.rn.f32.s8 f, c; mov.b32 %0, f;}"
                                  : "+r"(v)))
WORD_OP(Shfl, asm volatile("shfl.sync.bfly.b32 %0, %0, 16, 0x1f, 0xffffffff;" : "+r"(v)))
WORD_OP(Vote, asm volatile("{.reg .pred p; setp.ne.u32 p, %0, %1;"
                           " vote.sync.ballot.b32 %0, p, 0xffffffff;}" : "+r"(v) : "r"(g.a)))
#if __CUDA_ARCH__ >= 800
WORD_OP(Redux, asm volatile("redux.sync.add.s32 %0, %0, 0xffffffff;" : "+r"(v)))
WORD_OP(Movm, asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(v)))
#endif

// Loads whose value is their own address. Volatile, or the assembler would load less of it.
struct SharedWord : Word {
  DEVICE void start(const Given& g, unsigned) { v = g.shared; }
};
struct Lds32 : SharedWord {
  DEVICE void step(const Given&, int) {
    asm volatile("ld.volatile.shared.u32 %0, [%0];" : "+r"(v));
  }
};
struct Lds64 : SharedWord {
  static constexpr int BYTES = 8;
  DEVICE void step(const Given&, int) {
    asm volatile("{.reg .u32 d; ld.volatile.shared.v2.u32 {%0, d}, [%0];}" : "+r"(v));
  }
};
struct Lds128 : SharedWord {
  static constexpr int BYTES = 16;
  DEVICE void step(const Given&, int) {
    asm volatile("{.reg .u32 d, e, f; ld.volatile.shared.v4.u32 {%0, d, e, f}, [%0];}" : "+r"(v));
  }
};
struct Sts32 : SharedWord {
  DEVICE void step(const Given& g, int) {
    asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(v), "r"(g.a));
  }
};
struct StsLds : SharedWord {
  unsigned cell;
  DEVICE void start(const Given& g, unsigned chain) {
    Word::start(g, chain);
    cell = g.shared;
  }
  DEVICE void step(const Given&, int) {
    asm volatile("st.volatile.shared.u32 [%1], %0; ld.volatile.shared.u32 %0, [%1];"
                 : "+r"(v) : "r"(cell));
  }
};
struct Ldsm : SharedWord {
  static constexpr int BYTES = 16;
  DEVICE void step(const Given&, int) {
    asm volatile("{.reg .b32 d, e, f;"
                 " ldmatrix.sync.aligned.m8n8.x4.shared.b16 {d, e, f, %0}, [%0];}" : "+r"(v));
  }
};

// In global memory volatile would mean past the L1, so the 16-byte load's other half is consumed.
struct GlobalCell {
  static constexpr int BYTES = 8;
  unsigned long long pointer;
  DEVICE void start(const Given& g, unsigned chain) { pointer = g.global + 512ull * chain; }
  DEVICE unsigned fold() const { return (unsigned)(pointer ^ (pointer >> 32)); }
};
struct Ldg32 : GlobalCell {
  static constexpr int BYTES = 4;
  unsigned low, high;
  DEVICE void start(const Given& g, unsigned chain) {
    GlobalCell::start(g, chain);
    low = (unsigned)pointer;
    high = (unsigned)(pointer >> 32);
  }
  DEVICE void step(const Given&, int) {
    asm volatile("{.reg .u64 p; mov.b64 p, {%0, %1}; ld.global.u32 %0, [p];}"
                 : "+r"(low) : "r"(high));
  }
  DEVICE unsigned fold() const { return low ^ high; }
};
struct Ldg64 : GlobalCell {
  DEVICE void step(const Given&, int) {
    asm volatile("ld.global.u64 %0, [%0];" : "+l"(pointer));
  }
};
struct Ldg128 : GlobalCell {
  static constexpr int BYTES = 16;
  unsigned sum;
  DEVICE void start(const Given& g, unsigned chain) {
    GlobalCell::start(g, chain);
    sum = chain;
  }
  DEVICE void step(const Given&, int) {
    asm volatile("{.reg .u64 q; .reg .u32 z, w; ld.global.v2.u64 {%0, q}, [%0];"
                 " mov.b64 {z, w}, q; lop3.b32 %1, %1, z, w, 0x96;}"
                 : "+l"(pointer), "+r"(sum));
  }
  DEVICE unsigned fold() const { return GlobalCell::fold() ^ sum; }
};

// A constant bank holds zeros that the caller could change, and is indexed with what it gave.
__constant__ unsigned constants[64];
struct Ldc : Word {
  DEVICE void start(const Given& g, unsigned chain) { v = (g.b + lane_id() + chain) & g.a & 12; }
  DEVICE void step(const Given&, int) {
    v = *reinterpret_cast<const unsigned*>(reinterpret_cast<const char*>(constants) + v);
  }
};

struct Tile {
  static constexpr int BYTES = 4;
  float c[4];
  unsigned a[4], b[2];
  DEVICE void start(const Given& g, unsigned chain) {
    for (int i = 0; i < 4; ++i) c[i] = g.x * (chain + i + 1), a[i] = g.a + lane_id() * i;
    for (int i = 0; i < 2; ++i) b[i] = g.b + lane_id() * i;
  }
  DEVICE unsigned fold() const { return __float_as_uint(c[0] + c[1] + c[2] + c[3]); }
};
struct Hmma : Tile {
  DEVICE void step(const Given&, int) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9},"
        " {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6},"
        " {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#endif
  }
};
#if __CUDA_ARCH__ >= 800
struct Imma {
  static constexpr int BYTES = 4;
  int c[4];
  unsigned a[4], b[2];
  DEVICE void start(const Given& g, unsigned chain) {
    for (int i = 0; i < 4; ++i) c[i] = g.a * (chain + i + 1), a[i] = g.a + lane_id() * i;
    for (int i = 0; i < 2; ++i) b[i] = g.b + lane_id() * i;
  }
  DEVICE void step(const Given&, int) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9},"
        " {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  DEVICE unsigned fold() const { return c[0] ^ c[1] ^ c[2] ^ c[3]; }
};
#endif

// -------------------------------------------------------------------------------- the timed loop

template <class Op, int CHAINS, int BODY>
DEVICE void timed(long long* out, const char* memory, unsigned* sink, unsigned a, unsigned b,
                  float x, float y, int iterations, int every) {
  // A lane's cell holds its own address in every word, and the cells of a warp lie side by side:
  // a load gives the next address, without bank conflicts. `memory` holds such cells too.
  constexpr int WORDS = Op::BYTES / 4;
  __shared__ alignas(16) unsigned cells[4096];
  const unsigned warp = threadIdx.x / 32;
  unsigned* cell = cells + threadIdx.x * WORDS;
  const unsigned here = (unsigned)__cvta_generic_to_shared(cell);
#pragma unroll
  for (int i = 0; i < WORDS; ++i) cell[i] = here;
  const Given g{a, b, x, y, here, (unsigned long long)memory + Op::BYTES * (threadIdx.x % 32)};
  Op chain[CHAINS];
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) chain[c].start(g, c);
  const bool works = warp % every == 0;
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {  // the first one fills the caches
    __syncthreads();
    if (works) {
      const long long begin = now();
#pragma unroll 1
      for (int i = 0; i < iterations; ++i) {
#pragma unroll
        for (int turn = 0; turn < BODY / CHAINS; ++turn)
#pragma unroll
          for (int c = 0; c < CHAINS; ++c) chain[c].step(g, turn);
      }
      const long long end = now();
      if (threadIdx.x % 32 == 0) {
        out[2 * warp] = begin;
        out[2 * warp + 1] = end;
      }
    }
  }
  unsigned sum = 0;
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) sum ^= chain[c].fold();
  sink[threadIdx.x] = sum;
}

#define ENTRY(NAME, OP, CHAINS, BODY)                                                             \
  extern "C" __global__ void __launch_bounds__(1024)                                              \
      NAME##_##BODY(long long* out, const char* memory, unsigned* sink, unsigned a, unsigned b,    \
                    float x, float y, int iterations, int every) {                                \
    timed<OP, CHAINS, BODY>(out, memory, sink, a, b, x, y, iterations, every);                    \
  }
#define LATENCY(NAME, OP) ENTRY(lat_##NAME, OP, 1, 32) ENTRY(lat_##NAME, OP, 1, 64)
#define INTERVAL(NAME, OP) ENTRY(thr_##NAME, OP, 8, 64) ENTRY(thr_##NAME, OP, 8, 128)
#define BOTH(NAME, OP) LATENCY(NAME, OP) INTERVAL(NAME, OP)

BOTH(ffma, Ffma)
BOTH(fadd, Fadd)
BOTH(fmul, Fmul)
BOTH(fmnmx, Fmnmx)
BOTH(hfma2, Hfma2)
BOTH(imad, Imad)
BOTH(iadd3, Iadd3)
BOTH(lop3, Lop3)
BOTH(prmt, Prmt)
BOTH(shf, Shf)
BOTH(isetp_sel, IsetpSel)
BOTH(ex2, Ex2)
BOTH(rcp_fadd, RcpFadd)
BOTH(half_to_float, HalfToFloat)
BOTH(float_to_half2, FloatToHalf2)
BOTH(int_to_float, IntToFloat)
BOTH(float_to_int, FloatToInt)
BOTH(byte_to_float, ByteToFloat)
BOTH(shfl, Shfl)
BOTH(vote, Vote)
BOTH(lds32, Lds32)
BOTH(lds64, Lds64)
BOTH(lds128, Lds128)
INTERVAL(sts32, Sts32)
LATENCY(sts_lds, StsLds)
BOTH(ldsm, Ldsm)
BOTH(ldg32, Ldg32)
BOTH(ldg64, Ldg64)
// Fewer, because what is loaded besides the address must wait in registers.
ENTRY(lat_ldg128, Ldg128, 1, 8)
ENTRY(lat_ldg128, Ldg128, 1, 16)
ENTRY(thr_ldg128, Ldg128, 2, 4)
ENTRY(thr_ldg128, Ldg128, 2, 8)
BOTH(ldc, Ldc)
BOTH(hmma, Hmma)
#if __CUDA_ARCH__ >= 800
BOTH(redux, Redux)
BOTH(movm, Movm)
BOTH(imma, Imma)
#endif

// A special register depends on nothing, so its chain is in the order of issue: each read is used
// by the next operation, and the loop is not unrolled. The warp's number is a field of its register;
// `special_0` takes the same field of what it has.
template <int READS>
DEVICE void special(long long* out, unsigned* sink, unsigned a, int iterations) {
  unsigned sum = a + lane_id();
  const long long begin = now();
#pragma unroll 1
  for (int i = 0; i < iterations; ++i) {
    unsigned value;
    if (READS) asm volatile("mov.u32 %0, %%warpid;" : "=r"(value));
    else asm volatile("bfe.u32 %0, %1, 8, 7;" : "=r"(value) : "r"(sum));
    asm volatile("lop3.b32 %0, %0, %1, %2, 0x6a;" : "+r"(sum) : "r"(value), "r"(a));
  }
  const long long end = now();
  if (threadIdx.x % 32 == 0) {
    out[2 * (threadIdx.x / 32)] = begin;
    out[2 * (threadIdx.x / 32) + 1] = end;
  }
  sink[threadIdx.x] = sum;
}
extern "C" __global__ void special_0(long long* out, unsigned* sink, unsigned a, int iterations) {
  special<0>(out, sink, a, iterations);
}
extern "C" __global__ void special_1(long long* out, unsigned* sink, unsigned a, int iterations) {
  special<1>(out, sink, a, iterations);
}
