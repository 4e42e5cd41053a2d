// Attention by mma.sync on tiles of 64 keys, which cp.async brings two at a time.
#include <cuda_fp16.h>

#include <cstdint>

constexpr int D = 64, TILE = 64, PITCH = D + 8, THREADS = 128;

__device__ __forceinline__ uint32_t shared_of(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void load_tile(half (*tile)[PITCH], const half* from, int first, int length) {
  for (int i = threadIdx.x; i < TILE * D / 8; i += THREADS) {
    const int row = i / (D / 8), column = i % (D / 8) * 8;
    const bool there = first + row < length;
    const half* source = from + (size_t)(there ? first + row : 0) * D + column;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_of(&tile[row][column])),
                 "l"(source), "r"(there ? 16 : 0)
                 : "memory");
  }
}

__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_of(row))
               : "memory");
}

__device__ __forceinline__ void ldmatrix_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_of(row))
               : "memory");
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention(const half* q, const half* k, const half* v, half* out, int length, float scale) {
  __shared__ __align__(16) half q_tile[TILE][PITCH], k_tile[2][TILE][PITCH], v_tile[2][TILE][PITCH];
  const size_t head = (size_t)blockIdx.y * length * D;
  const int first_row = blockIdx.x * TILE, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int tiles = (length + TILE - 1) / TILE;
  load_tile(q_tile, q + head, first_row, length);
  load_tile(k_tile[0], k + head, 0, length);
  load_tile(v_tile[0], v + head, 0, length);
  asm volatile("cp.async.commit_group;" ::: "memory");

  uint32_t a[4][4];
  float o[D / 8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % 2;
    if (tile + 1 < tiles) {
      load_tile(k_tile[stage ^ 1], k + head, (tile + 1) * TILE, length);
      load_tile(v_tile[stage ^ 1], v + head, (tile + 1) * TILE, length);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group %0;" ::"n"(1) : "memory");
    __syncthreads();
    if (tile == 0)
      for (int i = 0; i < 4; ++i) ldmatrix(a[i], &q_tile[warp * 16 + lane % 16][i * 16 + lane / 16 * 8]);

    float s[TILE / 8][4] = {};
#pragma unroll
    for (int n = 0; n < TILE / 16; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t b[4];
        ldmatrix(b, &k_tile[stage][n * 16 + lane % 8 + lane / 16 * 8][i * 16 + lane / 8 % 2 * 8]);
        mma(s[2 * n], a[i], b[0], b[1]);
        mma(s[2 * n + 1], a[i], b[2], b[3]);
      }
    }
    for (int half_row = 0; half_row < 2; ++half_row) {
      float now = most[half_row];
#pragma unroll
      for (int n = 0; n < TILE / 8; ++n) {
        for (int j = 0; j < 2; ++j) {
          const int key = tile * TILE + n * 8 + lane % 4 * 2 + j;
          float& x = s[n][2 * half_row + j];
          x = key < length ? x * scale * 1.44269504f : -INFINITY;
          now = fmaxf(now, x);
        }
      }
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
      const float rescale = exp2_fast(most[half_row] - now);
      most[half_row] = now;
      sum[half_row] *= rescale;
#pragma unroll
      for (int n = 0; n < TILE / 8; ++n) {
        for (int j = 0; j < 2; ++j) {
          float& x = s[n][2 * half_row + j];
          x = exp2_fast(x - now);
          sum[half_row] += x;
          o[n][2 * half_row + j] *= rescale;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < TILE / 16; ++i) {
      const uint32_t p[4] = {pack(s[2 * i][0], s[2 * i][1]), pack(s[2 * i][2], s[2 * i][3]),
                             pack(s[2 * i + 1][0], s[2 * i + 1][1]), pack(s[2 * i + 1][2], s[2 * i + 1][3])};
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        uint32_t b[4];
        ldmatrix_trans(b, &v_tile[stage][i * 16 + lane % 16][n * 16 + lane / 16 * 8]);
        mma(o[2 * n], p, b[0], b[1]);
        mma(o[2 * n + 1], p, b[2], b[3]);
      }
    }
    __syncthreads();
  }
  for (int half_row = 0; half_row < 2; ++half_row) {
    float all = sum[half_row];
    all += __shfl_xor_sync(0xffffffffu, all, 1);
    all += __shfl_xor_sync(0xffffffffu, all, 2);
    const int row = first_row + warp * 16 + lane / 4 + half_row * 8;
    if (row >= length) continue;
    for (int n = 0; n < D / 8; ++n)
      *reinterpret_cast<half2*>(out + head + (size_t)row * D + n * 8 + lane % 4 * 2) =
          __floats2half2_rn(o[n][2 * half_row] / all, o[n][2 * half_row + 1] / all);
  }
}
