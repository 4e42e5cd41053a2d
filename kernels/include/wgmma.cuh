// The matrix instructions of a warpgroup, four warps: wgmma.m64nNk16 for fp16 and bf16, fp32 sums.
//
// C [64 x N]: warp w of the four has rows 16 w to 16 w + 15, laid out as mma.cuh says for eight
// columns at a time: c[4 t + i] is element i of columns 8 t to 8 t + 7. A from registers is laid
// out as there too. What lies in shared memory is named by a descriptor. Its rows have 64 elements,
// 128 bytes, whose chunks of 16 bytes are exchanged as the copy engine does: chunk i of row r
// stands at i ^ r % 8. A tile begins at a multiple of 1024 bytes.
#pragma once
#include "mma.cuh"

#ifdef __CUDA_ARCH__

using TileDescriptor = unsigned long long;

// Of a tile whose rows are along M or N and whose 64 columns are along K, or (IN_K false) the other
// way round; `next_64` bytes further lie the next 64 columns.
__device__ __forceinline__ TileDescriptor tile_descriptor(const void* tile, int next_64 = 0) {
  const unsigned long long address = (unsigned)__cvta_generic_to_shared(tile);
  return (address & 0x3ffff) >> 4 | (unsigned long long)(next_64 >> 4) << 16 |
         (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}
__device__ __forceinline__ void open_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void close_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int GROUPS>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}
// Nothing that uses the registers is moved across this.
template <int N>
__device__ __forceinline__ void hold(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

// c = a * b (+ c). A and B [N x 16] have their 16 elements along K side by side.
template <class T, int N>
__device__ __forceinline__ void wgmma_shared(float (&c)[N / 2], TileDescriptor a,
                                             TileDescriptor b, bool add);
// c += a * b. A is in registers; B [16 x N] has its elements along N side by side.
template <class T, int N>
__device__ __forceinline__ void wgmma_registers(float (&c)[N / 2], const unsigned (&a)[4],
                                                TileDescriptor b, bool add);

// Lists of registers, and their names in an instruction, for N / 2 sums.
#define S8(c, i)                                                                                  \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]),   \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define S16(c, i) S8(c, i), S8(c, i + 8)
#define S32(c, i) S16(c, i), S16(c, i + 16)
#define S64(c, i) S32(c, i), S32(c, i + 32)
#define SUMS_16(c) S8(c, 0)
#define SUMS_32(c) S16(c, 0)
#define SUMS_64(c) S32(c, 0)
#define SUMS_80(c) S32(c, 0), S8(c, 32)
#define SUMS_96(c) S32(c, 0), S16(c, 32)
#define SUMS_128(c) S64(c, 0)
#define SUMS_160(c) S64(c, 0), S16(c, 64)
#define SUMS_176(c) S64(c, 0), S16(c, 64), S8(c, 80)
#define SUMS_256(c) S64(c, 0), S64(c, 64)
#define NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7"
#define NAMES_32 NAMES_16 \
  ",%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES_64 NAMES_32 \
  ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_80 NAMES_64 \
  ",%32,%33,%34,%35,%36,%37,%38,%39"
#define NAMES_96 NAMES_80 \
  ",%40,%41,%42,%43,%44,%45,%46,%47"
#define NAMES_128 NAMES_96 \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_160 NAMES_128 \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define NAMES_176 NAMES_160 \
  ",%80,%81,%82,%83,%84,%85,%86,%87"
#define NAMES_256 NAMES_176 \
  ",%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103" \
  ",%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119" \
  ",%120,%121,%122,%123,%124,%125,%126,%127"

#define WGMMA(type, kind, n, p0, p1, p2, p3, p4, p5)                                             \
  template <>                                                                                   \
  __device__ __forceinline__ void wgmma_shared<type, n>(                                        \
      float(&c)[n / 2], TileDescriptor a, TileDescriptor b, bool add) {                 \
    asm volatile("{.reg .pred p;setp.ne.b32 p, %" #p2 ", 0;"                                    \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." kind "." kind " {" NAMES_##n \
                 "}, %" #p0 ", %" #p1 ", p, 1, 1, 0, 0;}"                                       \
                 : SUMS_##n(c)                                                                  \
                 : "l"(a), "l"(b), "r"((int)add));                                              \
  }                                                                                             \
  template <>                                                                                   \
  __device__ __forceinline__ void wgmma_registers<type, n>(                                     \
      float(&c)[n / 2], const unsigned(&a)[4], TileDescriptor b, bool add) {                \
    asm volatile("{.reg .pred p;setp.ne.b32 p, %" #p5 ", 0;"                                    \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." kind "." kind " {" NAMES_##n \
                 "}, {%" #p0 ",%" #p1 ",%" #p2 ",%" #p3 "}, %" #p4 ", p, 1, 1, 1;}"             \
                 : SUMS_##n(c)                                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));          \
  }
WGMMA(half, "f16", 16, 8, 9, 10, 11, 12, 13)
WGMMA(__nv_bfloat16, "bf16", 16, 8, 9, 10, 11, 12, 13)
WGMMA(half, "f16", 32, 16, 17, 18, 19, 20, 21)
WGMMA(__nv_bfloat16, "bf16", 32, 16, 17, 18, 19, 20, 21)
WGMMA(half, "f16", 64, 32, 33, 34, 35, 36, 37)
WGMMA(__nv_bfloat16, "bf16", 64, 32, 33, 34, 35, 36, 37)
WGMMA(half, "f16", 80, 40, 41, 42, 43, 44, 45)
WGMMA(__nv_bfloat16, "bf16", 80, 40, 41, 42, 43, 44, 45)
WGMMA(half, "f16", 96, 48, 49, 50, 51, 52, 53)
WGMMA(__nv_bfloat16, "bf16", 96, 48, 49, 50, 51, 52, 53)
WGMMA(half, "f16", 128, 64, 65, 66, 67, 68, 69)
WGMMA(__nv_bfloat16, "bf16", 128, 64, 65, 66, 67, 68, 69)
WGMMA(half, "f16", 160, 80, 81, 82, 83, 84, 85)
WGMMA(__nv_bfloat16, "bf16", 160, 80, 81, 82, 83, 84, 85)
WGMMA(half, "f16", 176, 88, 89, 90, 91, 92, 93)
WGMMA(__nv_bfloat16, "bf16", 176, 88, 89, 90, 91, 92, 93)
WGMMA(half, "f16", 256, 128, 129, 130, 131, 132, 133)
WGMMA(__nv_bfloat16, "bf16", 256, 128, 129, 130, 131, 132, 133)
#undef WGMMA
#undef S8
#undef S16
#undef S32
#undef S64
#undef SUMS_16
#undef NAMES_16
#undef SUMS_32
#undef NAMES_32
#undef SUMS_64
#undef NAMES_64
#undef SUMS_80
#undef NAMES_80
#undef SUMS_96
#undef NAMES_96
#undef SUMS_128
#undef NAMES_128
#undef SUMS_160
#undef NAMES_160
#undef SUMS_176
#undef NAMES_176
#undef SUMS_256
#undef NAMES_256

#else  // the CPU: a product is done when it is waited for; each lane reads what its own sums need

struct TileDescriptor {
  unsigned long long tile;
  int next_64;
};
// On by so many times 16 bytes.
inline TileDescriptor operator+(TileDescriptor one, int chunks) {
  return {one.tile + 16ll * chunks, one.next_64};
}
inline TileDescriptor tile_descriptor(const void* tile, int next_64 = 0) {
  if ((unsigned long long)tile % 1024) lab_trap("a tile of wgmma begins at a multiple of 1024 bytes");
  return {(unsigned long long)tile, next_64};
}
inline void open_products() {}
inline void close_products() { lab_later_close(); }
template <int GROUPS>
inline void wait_for_products() {
  lab_later_wait(GROUPS);
}
template <class F>
inline void do_later(const F& product) {
  static_assert(sizeof product <= 256, "what a product keeps");
  lab_later([](const void* copy) { (*static_cast<const F*>(copy))(); }, &product, sizeof product);
}
template <int N>
inline void hold(float (&)[N]) {}

// Two neighbouring elements at a byte of a tile whose chunks are exchanged.
template <class T>
inline float2 pair_at(unsigned long long at) {
  return unpack_pair<T>(*reinterpret_cast<const unsigned*>(at ^ (at >> 3 & 0x70)));
}
template <class T, int N>
inline void wgmma_shared(float (&c)[N / 2], TileDescriptor a, TileDescriptor b, bool add) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  do_later([=, sums = c] {
    for (int h = 0; h < 2; ++h) {
      float2 left[8];
      for (int k = 0; k < 8; ++k)
        left[k] = pair_at<T>(a.tile + (16 * warp + 8 * h + lane / 4) * 128 + 4 * k);
      for (int t = 0; t < N / 8; ++t) {
        for (int i = 0; i < 2; ++i) {
          float& sum = sums[4 * t + 2 * h + i];
          if (!add) sum = 0.f;
          for (int k = 0; k < 8; ++k) {
            const float2 right = pair_at<T>(b.tile + (8 * t + lane % 4 * 2 + i) * 128 + 4 * k);
            sum += left[k].x * right.x + left[k].y * right.y;
          }
        }
      }
    }
  });
}
template <class T, int N>
inline void wgmma_registers(float (&c)[N / 2], const unsigned (&a)[4], TileDescriptor b,
                            bool add) {
  const int lane = threadIdx.x % 32, column = lane % 4 * 2;
  float left[2][16];
  for (int i = 0; i < 4; ++i) {
    for (int from = 0; from < 4; ++from) {
      const float2 pair = unpack_pair<T>(__shfl_sync(WHOLE_WARP, a[i], (lane & ~3) + from));
      left[i % 2][i / 2 * 8 + 2 * from] = pair.x;
      left[i % 2][i / 2 * 8 + 2 * from + 1] = pair.y;
    }
  }
  do_later([=, sums = c] {
    for (int t = 0; t < N / 8; ++t) {
      for (int i = 0; add ? false : i < 4; ++i) sums[4 * t + i] = 0.f;
      for (int k = 0; k < 16; ++k) {
        const float2 right =
            pair_at<T>(b.tile + t / 8 * b.next_64 + k * 128 + (t % 8 * 8 + column) * 2);
        for (int i = 0; i < 4; ++i)
          sums[4 * t + i] += left[i / 2][k] * (i % 2 ? right.y : right.x);
      }
    }
  });
}

#endif
