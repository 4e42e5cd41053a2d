// Small kernels, each held by one thing that is known: what holds it was changed, and its time
// moved with it (bounds.toml). TWICE doubles the work of the pipe that the kernel asks most of.
#include <cuda_fp16.h>
#ifndef TWICE
#define TWICE 0
#endif
constexpr int PASSES = 1 + TWICE;

__device__ __forceinline__ float sum_of_warp(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}
__device__ __forceinline__ int first_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ unsigned shared_of(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

extern "C" {
// ------------------------------------------------------- memory: `mask` makes the data fit a cache

__global__ void copy_vector(const float4* x, float4* out, int n, int mask) {  // [n], [n]
  for (int i = first_thread(); i < n; i += gridDim.x * blockDim.x) out[i & mask] = x[i & mask];
}
__global__ void axpy(const float4* x, float4* y, float a, int n, int mask) {  // [n], [n]
  for (int i = first_thread(); i < n; i += gridDim.x * blockDim.x) {
    const float4 u = x[i & mask], v = y[i & mask];
    y[i & mask] = make_float4(a * u.x + v.x, a * u.y + v.y, a * u.z + v.z, a * u.w + v.w);
  }
}
// A block a row of 4096.
__global__ void softmax_row(const float4* x, float4* out, int mask) {  // [rows, 1024]
  __shared__ float parts[2][8];
  const size_t row = (blockIdx.x & mask) * (size_t)1024;
  float4 v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = x[row + threadIdx.x + 256 * i];
  float most = -INFINITY;
#pragma unroll
  for (int i = 0; i < 4; ++i) most = fmaxf(most, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, offset));
  if (threadIdx.x % 32 == 0) parts[0][threadIdx.x / 32] = most;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 8; ++i) most = fmaxf(most, parts[0][i]);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] = make_float4(__expf(v[i].x - most), __expf(v[i].y - most), __expf(v[i].z - most),
                       __expf(v[i].w - most));
    sum += v[i].x + v[i].y + v[i].z + v[i].w;
  }
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) parts[1][threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += parts[1][i];
  const float by = 1 / sum;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    out[row + threadIdx.x + 256 * i] = make_float4(v[i].x * by, v[i].y * by, v[i].z * by, v[i].w * by);
}
// A warp a row of 4096 halves.
__global__ void matrix_vector(const uint4* a, const uint4* x, float* out, int mask) {
  // [rows, 512], [512], [rows]
  const int row = first_thread() / 32, lane = threadIdx.x % 32;
  const uint4* from = a + (size_t)(row & mask) * 512;
  float sum = 0;
#pragma unroll
  for (int i = lane; i < 512; i += 32) {
    const uint4 u = from[i], v = x[i];
    const __half2 *p = reinterpret_cast<const __half2*>(&u), *q = reinterpret_cast<const __half2*>(&v);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 b = __half22float2(p[j]), c = __half22float2(q[j]);
      sum = fmaf(b.x, c.x, fmaf(b.y, c.y, sum));
    }
  }
  sum = sum_of_warp(sum);
  if (lane == 0) out[row] = sum;
}
// Rows of 1 KiB in the order of an index.
__global__ void gather_rows(const float4* x, const int* rows, float4* out, int mask) {
  // [count, 64], [blocks * 4], [blocks * 4, 64]
  const int row = blockIdx.x * 4 + threadIdx.x / 64, at = threadIdx.x % 64;
  out[(size_t)(row & mask) * 64 + at] = x[(size_t)(rows[row] & mask) * 64 + at];
}
__global__ void sum_blocks(const float4* x, float* out, int n, int mask) {  // [n], [blocks]
  __shared__ float parts[8];
  float sum = 0;
#pragma unroll 8
  for (int i = first_thread(); i < n; i += gridDim.x * blockDim.x) {
    const float4 v = x[i & mask];
    sum += v.x + v.y + v.z + v.w;
  }
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 8; ++i) sum += parts[i];
    out[blockIdx.x] = sum;
  }
}
// What all blocks read again and again: 24 MB from the L2, or `mask` lets the L1 have it.
__global__ void sum_again(const float4* x, float* out, int n, int mask) {  // [n], [threads]
  float sum = 0;
#pragma unroll 8
  for (int i = threadIdx.x + 4096 * blockIdx.x; i < n + 4096 * blockIdx.x; i += blockDim.x) {
    const float4 v = x[i & mask];
    sum += v.x + v.y + v.z + v.w;
  }
  out[first_thread()] = sum;
}

// ---------------------------------------------------------------------------------------- pipes

__device__ __forceinline__ void read_again(const float* p) {
  float x;
  asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(x) : "r"(shared_of(p)));
}
// A thread an element of C: its loads are of the L1.
__global__ void product_naive(const float* a, const float* b, float* c, int n) {
  // [2, n, n], [2, n, n], [n, n]
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  float sum = 0, more = 0;
  for (int k = 0; k < n; ++k) {
    sum = fmaf(a[row * n + k], b[k * n + column], sum);
    if (TWICE) more = fmaf(a[(n + row) * n + k], b[(n + k) * n + column], more);
  }
  c[row * n + column] = n < 0 ? more : sum;
}
__global__ void product_shared(const float* a, const float* b, float* c, int n) {  // [n, n] each
  __shared__ float of_a[32][32], of_b[32][32];
  const int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 32 + x, row = blockIdx.y * 32 + y;
  float sum = 0;
  for (int k = 0; k < n; k += 32) {
    of_a[y][x] = a[row * n + k + x];
    of_b[y][x] = b[(k + y) * n + column];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      sum = fmaf(of_a[y][i], of_b[i][x], sum);
      if (TWICE) {
        read_again(&of_b[i][x]);
        if (i % 4 == 0) read_again(&of_a[y][i]);
      }
    }
    __syncthreads();
  }
  c[row * n + column] = sum;
}
// 64 x 64 of C a block, eight of a column a thread.
__global__ void product_column(const float* a, const float* b, float* c, int n) {  // [n, n] each
  __shared__ float of_a[64][8], of_b[8][64];
  const int x = threadIdx.x % 64, y = threadIdx.x / 64;
  const int row = blockIdx.y * 64, column = blockIdx.x * 64;
  float sum[8] = {};
  for (int k = 0; k < n; k += 8) {
    of_a[threadIdx.x / 8][threadIdx.x % 8] = a[(row + threadIdx.x / 8) * n + k + threadIdx.x % 8];
    of_b[y][x] = b[(k + y) * n + column + x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float one = of_b[i][x];
      if (TWICE) read_again(&of_b[i][x]);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        sum[j] = fmaf(of_a[8 * y + j][i], one, sum[j]);
        if (TWICE) read_again(&of_a[8 * y + j][i]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) c[(row + 8 * y + j) * n + column + x] = sum[j];
}
// 128 x 128 of C a block, 8 x 8 a thread.
__global__ void __launch_bounds__(256) product_tile(const float* a, const float* b, float* c, int n) {
  // [n, n] each, a by columns
  __shared__ float4 of_a[2][8][32], of_b[2][8][32];
  const int t = threadIdx.x, x = t % 16, y = t / 16;
  const int row = blockIdx.y * 128, column = blockIdx.x * 128;
  const float4 *from_a = reinterpret_cast<const float4*>(a + (size_t)(t / 32) * n + row) + t % 32;
  const float4 *from_b = reinterpret_cast<const float4*>(b + (size_t)(t / 32) * n + column) + t % 32;
  float sum[8][8] = {}, extra[8] = {};
  of_a[0][t / 32][t % 32] = *from_a;
  of_b[0][t / 32][t % 32] = *from_b;
  __syncthreads();
  for (int k = 0; k < n; k += 8) {
    const int now = k / 8 % 2, last = k + 8 >= n;
    const float4 next_a = from_a[last ? 0 : (size_t)(k + 8) * n / 4];
    const float4 next_b = from_b[last ? 0 : (size_t)(k + 8) * n / 4];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 p[2] = {of_a[now][i][2 * y], of_a[now][i][2 * y + 1]};
      const float4 q[2] = {of_b[now][i][x], of_b[now][i][x + 16]};
      const float u[8] = {p[0].x, p[0].y, p[0].z, p[0].w, p[1].x, p[1].y, p[1].z, p[1].w};
      const float v[8] = {q[0].x, q[0].y, q[0].z, q[0].w, q[1].x, q[1].y, q[1].z, q[1].w};
#pragma unroll
      for (int r = 0; r < 8; ++r)
#pragma unroll
        for (int s = 0; s < 8; ++s) {
          sum[r][s] = fmaf(u[r], v[s], sum[r][s]);
          if (TWICE) asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(extra[s]) : "f"(u[r]), "f"(v[s]));
        }
    }
    of_a[1 - now][t / 32][t % 32] = next_a;
    of_b[1 - now][t / 32][t % 32] = next_b;
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    float4* to = reinterpret_cast<float4*>(c + (size_t)(row + 8 * y + r) * n + column);
    to[x] = make_float4(sum[r][0] + 0 * extra[r], sum[r][1], sum[r][2], sum[r][3]);
    to[x + 16] = make_float4(sum[r][4], sum[r][5], sum[r][6], sum[r][7]);
  }
}

// Eight results a thread, each of a chain of its own.
#define LOOP_OF(name, type, start, one)                            \
  __global__ void name(type* out, int trips) {                     \
    type x[8];                                                     \
    _Pragma("unroll") for (int i = 0; i < 8; ++i) x[i] = start;    \
    for (int k = 0; k < trips; ++k) {                              \
      _Pragma("unroll") for (int j = 0; j < 2 * PASSES; ++j)       \
      _Pragma("unroll") for (int i = 0; i < 8; ++i) { one; }       \
    }                                                              \
    type sum = x[0];                                               \
    _Pragma("unroll") for (int i = 1; i < 8; ++i) sum += x[i];     \
    out[first_thread()] = sum;                                     \
  }
LOOP_OF(multiply_add, float, threadIdx.x + i, asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x[i])))
LOOP_OF(exponential, float, threadIdx.x + i, asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i])))
LOOP_OF(inverse_root, float, threadIdx.x + i, asm volatile("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(x[i])))
LOOP_OF(logic, int, threadIdx.x + i, asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;" : "+r"(x[i]) : "r"(trips), "r"(k)))
LOOP_OF(whole_multiply, int, threadIdx.x + i, asm volatile("mad.lo.s32 %0, %0, %0, %1;" : "+r"(x[i]) : "r"(trips)))
LOOP_OF(twice_as_precise, double, threadIdx.x + i, asm volatile("fma.rn.f64 %0, %0, %0, %0;" : "+d"(x[i])))
LOOP_OF(shuffles, int, threadIdx.x + i, x[i] = __shfl_xor_sync(0xffffffffu, x[i], 1 + j))

__global__ void half_multiply_add(__half2* out, int trips) {
  unsigned x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = threadIdx.x + i;
  for (int k = 0; k < trips; ++k)
#pragma unroll
    for (int j = 0; j < 2 * PASSES; ++j)
#pragma unroll
      for (int i = 0; i < 8; ++i) asm volatile("fma.rn.f16x2 %0, %0, %0, %0;" : "+r"(x[i]));
  unsigned all = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) all ^= x[i];
  out[first_thread()] = reinterpret_cast<__half2&>(all);
}
// Floats to whole numbers and back.
__global__ void conversions(float* out, int trips) {
  float x[8];
  int y[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = threadIdx.x + i;
  for (int k = 0; k < trips; ++k)
#pragma unroll
    for (int j = 0; j < PASSES; ++j)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        asm volatile("cvt.rni.s32.f32 %0, %1;" : "=r"(y[i]) : "f"(x[i]));
        asm volatile("cvt.rn.f32.s32 %0, %1;" : "=f"(x[i]) : "r"(y[i]));
      }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += x[i];
  out[first_thread()] = sum;
}
// Reads of shared memory, `stride` words from one lane to the next.
__global__ void shared_reads(float* out, int trips, int stride) {
  __shared__ float held[8192];
  for (int i = threadIdx.x; i < 8192; i += blockDim.x) held[i] = i;
  __syncthreads();
  const unsigned from = shared_of(held) + 4 * (threadIdx.x % 32 * stride % 4096);
  float sum = 0;
  for (int k = 0; k < trips; ++k)
#pragma unroll
    for (int j = 0; j < 8 * PASSES; ++j) {
      float x;
      asm volatile("ld.volatile.shared.f32 %0, [%1+128];" : "=f"(x) : "r"(from + 128 * (j % 8)));
      sum += x;
    }
  out[first_thread()] = sum;
}
__global__ void shared_wide_reads(float* out, int trips) {
  __shared__ float4 held[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) held[i] = make_float4(i, i, i, i);
  __syncthreads();
  const unsigned from = shared_of(held) + 16 * (threadIdx.x % 32);
  float sum = 0;
  for (int k = 0; k < trips; ++k)
#pragma unroll
    for (int j = 0; j < 8 * PASSES; ++j) {
      float4 x;
      asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                   : "r"(from + 512 * (j % 8)));
      sum += x.x + x.w;
    }
  out[first_thread()] = sum;
}
__global__ void shared_writes(float* out, int trips) {
  __shared__ float held[2048];
  const unsigned to = shared_of(held) + 4 * threadIdx.x;
  for (int k = 0; k < trips; ++k)
#pragma unroll
    for (int j = 0; j < 8 * PASSES; ++j)
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + 1024 * (j % 8)), "f"((float)k) : "memory");
  __syncthreads();
  out[first_thread()] = held[threadIdx.x];
}
// Counts in shared memory, no two lanes of a warp at one place.
__global__ void counts(int* out, int trips) {
  __shared__ int held[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) held[i] = 0;
  __syncthreads();
  for (int k = 0; k < trips; ++k)
#pragma unroll
    for (int j = 0; j < 4 * PASSES; ++j)
      asm volatile("red.shared.add.s32 [%0], 1;" ::"r"(shared_of(held) + 4 * ((threadIdx.x * 33 + 32 * j) % 1024)) : "memory");
  __syncthreads();
  out[first_thread()] = held[threadIdx.x];
}
// Loads that the L1 has, each lane in a line of its own.
__global__ void lines_of_lanes(const float* x, float* out, int trips) {  // [8192], [threads]
  float sum = 0;
  const float* from = x + 32 * (threadIdx.x % 32);
  for (int k = 0; k < trips; ++k)
#pragma unroll
    for (int j = 0; j < 4 * PASSES; ++j) {
      float v;
      asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(from + 1024 * j + k % 8));
      sum += v;
    }
  out[first_thread()] = sum;
}
// Products of 16 x 8 x 16 on tensor cores, four sums each.
__global__ void tensor_products(float* out, int trips) {
  float c[4][4] = {};
  const unsigned a = threadIdx.x, b = blockIdx.x;
  for (int k = 0; k < trips; ++k)
#pragma unroll
    for (int j = 0; j < PASSES; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %4, %5}, "
            "{%5, %4}, {%0, %1, %2, %3};"
            : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
            : "r"(a), "r"(b));
  out[first_thread()] = c[0][0] + c[1][1] + c[2][2] + c[3][3];
}
// The same with both factors read from shared memory: four matrices for each two products.
__global__ void tensor_from_shared(float* out, int trips) {
  __shared__ __half held[64 * 64];
  for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) held[i] = __float2half(i % 7);
  __syncthreads();
  float c[4][4] = {};
  const unsigned from = shared_of(held) + 128 * (threadIdx.x % 32) + 16 * (threadIdx.x % 8);
  for (int k = 0; k < trips; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned a[4];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                   : "r"(from ^ 16 * i ^ k % 2 * 64));
#pragma unroll
      for (int again = 0; again < PASSES; ++again)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
          "{%4, %6}, {%0, %1, %2, %3};"
          : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));
    }
  out[first_thread()] = c[0][0] + c[1][1] + c[2][2] + c[3][3];
}
// Attention of 64 queries a block over `keys` keys that stand in shared memory, in turns of 64:
// scores, weights, sums. A warp has 16 queries; D is 64.
__global__ void __launch_bounds__(128) attention_mma(const uint4* q, const uint4* kv, float* out, int keys) {
  // [blocks, 64, 8], [64, 8], [blocks, 128]
  __shared__ uint4 held[64 * 8], of_q[64 * 8];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  for (int i = t; i < 512; i += 128) {
    held[i ^ i / 8 % 8] = kv[i];
    of_q[i ^ i / 8 % 8] = q[blockIdx.x * 512 + i];
  }
  __syncthreads();
  unsigned a[4][4];
#pragma unroll
  for (int d = 0; d < 4; ++d) {
    const int row = 16 * warp + lane % 16, chunk = 2 * d + lane / 16;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[d][0]), "=r"(a[d][1]), "=r"(a[d][2]), "=r"(a[d][3])
                 : "r"(shared_of(of_q) + 16 * (8 * row + (chunk ^ row % 8))));
  }
  float acc[8][4] = {}, weight_sum[2] = {};
  for (int n = 0; n < keys; n += 64) {
#pragma unroll
    for (int half = 0; half < 4; ++half) {  // of 16 keys
      float s[2][4] = {};
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        unsigned b[4];
        const int row = 16 * (half ^ n / 64 % 4) + lane % 8 + lane / 16 * 8, chunk = 2 * d + lane / 8 % 2;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                     : "r"(shared_of(held) + 16 * (8 * row + (chunk ^ row % 8))));
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int again = 0; again < PASSES; ++again)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                "{%8, %9}, {%0, %1, %2, %3};"
                : "+f"(s[i][0]), "+f"(s[i][1]), "+f"(s[i][2]), "+f"(s[i][3])
                : "r"(a[d][0]), "r"(a[d][1]), "r"(a[d][2]), "r"(a[d][3]), "r"(b[2 * i]), "r"(b[2 * i + 1]));
      }
      unsigned p[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(s[i][j]));
          weight_sum[j / 2] += s[i][j];
        }
        const __half2 low = __floats2half2_rn(s[i][0], s[i][1]), high = __floats2half2_rn(s[i][2], s[i][3]);
        p[2 * i] = reinterpret_cast<const unsigned&>(low);
        p[2 * i + 1] = reinterpret_cast<const unsigned&>(high);
      }
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        unsigned b[4];
        const int row = 16 * (half ^ n / 64 % 4) + lane % 16, chunk = 2 * d + lane / 16;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                     : "r"(shared_of(held) + 16 * (8 * row + (chunk ^ row % 8))));
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int again = 0; again < PASSES; ++again)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                "{%8, %9}, {%0, %1, %2, %3};"
                : "+f"(acc[2 * d + i][0]), "+f"(acc[2 * d + i][1]), "+f"(acc[2 * d + i][2]), "+f"(acc[2 * d + i][3])
                : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(b[2 * i]), "r"(b[2 * i + 1]));
      }
    }
  }
  float sum = weight_sum[0] + weight_sum[1];
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += acc[i][0] + acc[i][1] + acc[i][2] + acc[i][3];
  out[first_thread()] = sum;
}

// -------------------------------------------------------------------------------- issue slots

// Two multiply-adds and one logic instruction in turn fill the slots, and no pipe.
__global__ void mixed(float* out, int trips) {
  float x[8];
  int y[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = y[i] = threadIdx.x + i;
  for (int k = 0; k < trips; ++k)
#pragma unroll
    for (int j = 0; j < 2 * PASSES; ++j)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x[i]));
        asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;" : "+r"(y[i]) : "r"(trips), "r"(k));
        asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x[(i + 4) % 8]));
      }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += x[i] + y[i];
  out[first_thread()] = sum;
}
// Four-bit codes to floats: shifts, masks, a bias by logic, a multiply-add.
__global__ void unpack(const unsigned* codes, float* out, int trips) {  // [threads], [threads]
  unsigned word = codes[first_thread()];
  float sum[8] = {};
  for (int k = 0; k < trips; ++k) {
#pragma unroll
    for (int j = 0; j < PASSES; ++j) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        unsigned bits;
        asm volatile("shr.u32 %0, %1, %2;" : "=r"(bits) : "r"(word), "r"(4 * i));
        asm volatile("lop3.b32 %0, %0, 15, 0x4b000000, 0xea;" : "+r"(bits));
        float value;
        asm volatile("add.rn.f32 %0, %1, 0fCB000008;" : "=f"(value) : "f"(__uint_as_float(bits)));
        asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(sum[i]) : "f"(value), "f"(value));
        asm volatile("fma.rn.f32 %0, %1, %1, %0;" : "+f"(sum[7 - i]) : "f"(value));
      }
    }
    word += k;
  }
  float all = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) all += sum[i];
  out[first_thread()] = all;
}

// -------------------------------------------------------------------------------------- chains

__global__ void chase(const int* next, int* out, int trips, int step, int mask) {  // [n], [threads]
  int at = first_thread() * 32 & mask;
  for (int k = 0; k < trips; ++k) at = (next[at] + step) & mask;
  out[first_thread()] = at;
}
#define CHAIN_OF(name, one)                                \
  __global__ void name(float* out, int trips) {            \
    float x = threadIdx.x;                                 \
    for (int k = 0; k < trips; ++k) {                      \
      _Pragma("unroll") for (int j = 0; j < 16; ++j) one;  \
    }                                                      \
    out[first_thread()] = x;                               \
  }
CHAIN_OF(chain_multiply_add, asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x)))
CHAIN_OF(chain_root, asm volatile("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(x)))
CHAIN_OF(chain_shuffle, x += __shfl_xor_sync(0xffffffffu, x, 1 + j % 5))

__global__ void chain_shared(int* out, int trips) {
  __shared__ int held[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) held[i] = i * 4;
  __syncthreads();
  unsigned at = threadIdx.x * 4;
  const unsigned base = shared_of(held);
  for (int k = 0; k < trips; ++k)
#pragma unroll
    for (int j = 0; j < 8; ++j) asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(at) : "r"(base + (at & 4092)));
  out[first_thread()] = at;
}
// All warps of a block meet at every step.
__global__ void chain_barrier(float* out, int trips) {
  __shared__ float parts[8];
  float x = threadIdx.x;
  for (int k = 0; k < trips; ++k) {
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x += parts[(threadIdx.x / 32 + 1) % 8];
    __syncthreads();
  }
  out[first_thread()] = x;
}
// One key after another by a warp: a dot product by shuffles, a running softmax.
__global__ void one_key(const float4* k, const float4* v, float4* out, int keys) {
  // [blocks, keys, 32], as k, [blocks, 32]
  k += (size_t)blockIdx.x * keys * 32 + threadIdx.x;
  v += (size_t)blockIdx.x * keys * 32 + threadIdx.x;
  const float4 q = make_float4(0.1f, 0.2f, 0.3f, 0.4f);
  float most = -INFINITY, sum = 0;
  float4 acc = {};
#pragma unroll 1
  for (int n = 0; n < keys; ++n) {
    const float4 a = k[n * 32];
    const float score = sum_of_warp(q.x * a.x + q.y * a.y + q.z * a.z + q.w * a.w);
    const float now = fmaxf(most, score), keep = __expf(most - now), p = __expf(score - now);
    const float4 b = v[n * 32];
    most = now;
    sum = sum * keep + p;
    acc = make_float4(acc.x * keep + p * b.x, acc.y * keep + p * b.y, acc.z * keep + p * b.z,
                      acc.w * keep + p * b.w);
  }
  out[blockIdx.x * 32 + threadIdx.x] = make_float4(acc.x / sum, acc.y / sum, acc.z / sum, acc.w / sum);
}
// The same by a block of 128, which meets twice a key.
__global__ void one_key_of_block(const float* k, const float* v, float* out, int keys) {
  // [blocks, keys, 128], as k, [blocks, 128]
  __shared__ float parts[4];
  k += (size_t)blockIdx.x * keys * 128 + threadIdx.x;
  v += (size_t)blockIdx.x * keys * 128 + threadIdx.x;
  float most = -INFINITY, sum = 0, acc = 0;
#pragma unroll 1
  for (int n = 0; n < keys; ++n) {
    const float part = sum_of_warp(0.1f * k[n * 128]);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
    __syncthreads();
    const float score = parts[0] + parts[1] + parts[2] + parts[3];
    __syncthreads();
    const float now = fmaxf(most, score), keep = __expf(most - now), p = __expf(score - now);
    most = now;
    sum = sum * keep + p;
    acc = acc * keep + p * v[n * 128];
  }
  out[blockIdx.x * 128 + threadIdx.x] = acc / sum;
}
// A thread adds up a column, one load after another.
__global__ void column_sum(const float* x, float* out, int rows, int width) {  // [rows, width], [width]
  float sum = 0;
#pragma unroll 1
  for (int row = 0; row < rows; ++row) sum = sqrtf(sum + x[(size_t)row * width + first_thread()]);
  out[first_thread()] = sum;
}

// -------------------------------------------------------------------------------------- launch

__global__ void add_few(const float* x, float* out, int n) {  // [n], [n]
  for (int i = first_thread(); i < n * PASSES; i += gridDim.x * blockDim.x) out[i % n] = x[i % n] + 1;
}
__global__ void sum_few(const float* x, float* out) {  // [256 * 2], [blocks]
  __shared__ float parts[8];
  float sum = x[threadIdx.x] + (TWICE ? x[threadIdx.x + 256] : 0);
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = parts[0] + parts[1] + parts[2] + parts[3];
}
__global__ void empty() {}
}
