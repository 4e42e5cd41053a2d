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

#define SUMS_64(c) \
  "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), \
  "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), \
  "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), \
  "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
#define NAMES_64 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define SUMS_80(c) \
  "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), \
  "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), \
  "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), \
  "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), \
  "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39])
#define NAMES_80 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39"
#define SUMS_96(c) \
  "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), \
  "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), \
  "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), \
  "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), \
  "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), \
  "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47])
#define NAMES_96 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define SUMS_128(c) \
  "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), \
  "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), \
  "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), \
  "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), \
  "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), \
  "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), \
  "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), \
  "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
#define NAMES_128 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define SUMS_160(c) \
  "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), \
  "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), \
  "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), \
  "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), \
  "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), \
  "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), \
  "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), \
  "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63]), \
  "+f"(c[64]), "+f"(c[65]), "+f"(c[66]), "+f"(c[67]), "+f"(c[68]), "+f"(c[69]), "+f"(c[70]), "+f"(c[71]), \
  "+f"(c[72]), "+f"(c[73]), "+f"(c[74]), "+f"(c[75]), "+f"(c[76]), "+f"(c[77]), "+f"(c[78]), "+f"(c[79])
#define NAMES_160 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63," \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define SUMS_176(c) \
  "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), \
  "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), \
  "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), \
  "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), \
  "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), \
  "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), \
  "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), \
  "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63]), \
  "+f"(c[64]), "+f"(c[65]), "+f"(c[66]), "+f"(c[67]), "+f"(c[68]), "+f"(c[69]), "+f"(c[70]), "+f"(c[71]), \
  "+f"(c[72]), "+f"(c[73]), "+f"(c[74]), "+f"(c[75]), "+f"(c[76]), "+f"(c[77]), "+f"(c[78]), "+f"(c[79]), \
  "+f"(c[80]), "+f"(c[81]), "+f"(c[82]), "+f"(c[83]), "+f"(c[84]), "+f"(c[85]), "+f"(c[86]), "+f"(c[87])
#define NAMES_176 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63," \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
  "%80,%81,%82,%83,%84,%85,%86,%87"

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
#undef WGMMA
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

#else  // the CPU: a product is done at once, and each lane reads what its own sums need

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
inline void close_products() {}
template <int GROUPS>
inline void wait_for_products() {}
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
  for (int h = 0; h < 2; ++h) {
    float2 left[8];
    for (int k = 0; k < 8; ++k)
      left[k] = pair_at<T>(a.tile + (16 * warp + 8 * h + lane / 4) * 128 + 4 * k);
    for (int t = 0; t < N / 8; ++t) {
      for (int i = 0; i < 2; ++i) {
        float& sum = c[4 * t + 2 * h + i];
        if (!add) sum = 0.f;
        for (int k = 0; k < 8; ++k) {
          const float2 right = pair_at<T>(b.tile + (8 * t + lane % 4 * 2 + i) * 128 + 4 * k);
          sum += left[k].x * right.x + left[k].y * right.y;
        }
      }
    }
  }
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
  for (int t = 0; t < N / 8; ++t) {
    for (int i = 0; add ? false : i < 4; ++i) c[4 * t + i] = 0.f;
    for (int k = 0; k < 16; ++k) {
      const float2 right =
          pair_at<T>(b.tile + t / 8 * b.next_64 + k * 128 + (t % 8 * 8 + column) * 2);
      for (int i = 0; i < 4; ++i) c[4 * t + i] += left[i / 2][k] * (i % 2 ? right.y : right.x);
    }
  }
}

#endif
