// Attention forward with mma.sync m16n8k16, a block of four warps on 64 queries.
#include <cuda_fp16.h>

#include <cstdint>

constexpr int DIM = 128, BLOCK_Q = 64, BLOCK_KV = 64, NUM_WARPS = 4, TB_SIZE = NUM_WARPS * 32;
constexpr int STRIDE = DIM + 8;  // of a row in shared memory, in elements

__device__ __forceinline__ uint32_t smem_address(const void* ptr) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(ptr));
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t* reg, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(reg[0]), "=r"(reg[1]), "=r"(reg[2]), "=r"(reg[3])
               : "r"(address));
}

__device__ __forceinline__ void ldmatrix_x2(uint32_t* reg, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(reg[0]), "=r"(reg[1])
               : "r"(address));
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t* reg, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(reg[0]), "=r"(reg[1])
               : "r"(address));
}

__device__ __forceinline__ void mma_m16n8k16(const uint32_t* a, const uint32_t* b, float* d) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(d[0]), "f"(d[1]), "f"(d[2]),
        "f"(d[3]));
}

// 64 rows from global to shared memory, 16 bytes a thread at a time.
__device__ __forceinline__ void load_rows(half* smem, const half* gmem) {
  for (int i = threadIdx.x * 8; i < BLOCK_KV * DIM; i += TB_SIZE * 8)
    *reinterpret_cast<uint4*>(smem + i / DIM * STRIDE + i % DIM) = *reinterpret_cast<const uint4*>(gmem + i);
}

__device__ __forceinline__ void load_rows_async(half* smem, const half* gmem) {
  for (int i = threadIdx.x * 8; i < BLOCK_KV * DIM; i += TB_SIZE * 8)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_address(smem + i / DIM * STRIDE + i % DIM)),
                 "l"(gmem + i));
}

__device__ __forceinline__ void load_queries(uint32_t (&Q_rmem)[DIM / 16][4], const half* Q_smem) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int k = 0; k < DIM / 16; k++)
    ldmatrix_x4(Q_rmem[k], smem_address(Q_smem + (warp * 16 + lane % 16) * STRIDE + k * 16 + lane / 16 * 8));
}

// One tile of keys and values: scores, their part of the softmax, and the weighted sum.
struct Rows {
  float O_rmem[DIM / 8][4] = {};
  float row_max[2] = {-INFINITY, -INFINITY};
  float row_sum[2] = {0.f, 0.f};

  __device__ __forceinline__ void attend(const uint32_t (&Q_rmem)[DIM / 16][4], const half* K_smem, float scale,
                                         uint32_t (&P_rmem)[BLOCK_KV / 16][4]) {
    const int lane = threadIdx.x % 32;
    float S_rmem[BLOCK_KV / 8][4] = {};
#pragma unroll
    for (int n = 0; n < BLOCK_KV / 8; n++) {
#pragma unroll
      for (int k = 0; k < DIM / 16; k++) {
        uint32_t K_rmem[2];
        ldmatrix_x2(K_rmem, smem_address(K_smem + (n * 8 + lane % 8) * STRIDE + k * 16 + lane / 8 % 2 * 8));
        mma_m16n8k16(Q_rmem[k], K_rmem, S_rmem[n]);
      }
    }
#pragma unroll
    for (int n = 0; n < BLOCK_KV / 8; n++)
      for (int i = 0; i < 4; i++) S_rmem[n][i] *= scale;

    float new_max[2] = {row_max[0], row_max[1]};
#pragma unroll
    for (int n = 0; n < BLOCK_KV / 8; n++) {
      new_max[0] = fmaxf(new_max[0], fmaxf(S_rmem[n][0], S_rmem[n][1]));
      new_max[1] = fmaxf(new_max[1], fmaxf(S_rmem[n][2], S_rmem[n][3]));
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      new_max[r] = fmaxf(new_max[r], __shfl_xor_sync(0xffffffff, new_max[r], 1));
      new_max[r] = fmaxf(new_max[r], __shfl_xor_sync(0xffffffff, new_max[r], 2));
      const float rescale = __expf(row_max[r] - new_max[r]);
      row_max[r] = new_max[r];
      row_sum[r] *= rescale;
#pragma unroll
      for (int d = 0; d < DIM / 8; d++) {
        O_rmem[d][2 * r] *= rescale;
        O_rmem[d][2 * r + 1] *= rescale;
      }
    }
#pragma unroll
    for (int n = 0; n < BLOCK_KV / 8; n++) {
      float* s = S_rmem[n];
      for (int i = 0; i < 4; i++) {
        s[i] = __expf(s[i] - row_max[i / 2]);
        row_sum[i / 2] += s[i];
      }
      half2* p = reinterpret_cast<half2*>(P_rmem[n / 2]);
      p[n % 2 * 2] = __float22half2_rn({s[0], s[1]});
      p[n % 2 * 2 + 1] = __float22half2_rn({s[2], s[3]});
    }
  }

  __device__ __forceinline__ void accumulate(const uint32_t (&P_rmem)[BLOCK_KV / 16][4], const half* V_smem) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < BLOCK_KV / 16; k++) {
#pragma unroll
      for (int d = 0; d < DIM / 8; d++) {
        uint32_t V_rmem[2];
        ldmatrix_x2_trans(V_rmem, smem_address(V_smem + (k * 16 + lane % 16) * STRIDE + d * 8));
        mma_m16n8k16(P_rmem[k], V_rmem, O_rmem[d]);
      }
    }
  }

  __device__ __forceinline__ void store(half* O) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      row_sum[r] += __shfl_xor_sync(0xffffffff, row_sum[r], 1);
      row_sum[r] += __shfl_xor_sync(0xffffffff, row_sum[r], 2);
      half* row = O + (warp * 16 + lane / 4 + r * 8) * DIM + lane % 4 * 2;
#pragma unroll
      for (int d = 0; d < DIM / 8; d++)
        *reinterpret_cast<half2*>(row + d * 8) =
            __float22half2_rn({O_rmem[d][2 * r] / row_sum[r], O_rmem[d][2 * r + 1] / row_sum[r]});
    }
  }
};

__global__ void __launch_bounds__(TB_SIZE)
    flash_attention(const half* Q,  // [heads, len, DIM]
                    const half* K,  // [heads, len, DIM]
                    const half* V,  // [heads, len, DIM]
                    half* O,        // [heads, len, DIM]
                    int len, float scale) {
  __shared__ __align__(16) half K_smem[BLOCK_KV * STRIDE], V_smem[BLOCK_KV * STRIDE];
  const size_t head = (size_t)blockIdx.y * len * DIM, first = (size_t)blockIdx.x * BLOCK_Q * DIM;
  half* const Q_smem = K_smem;
  load_rows(Q_smem, Q + head + first);
  __syncthreads();
  uint32_t Q_rmem[DIM / 16][4], P_rmem[BLOCK_KV / 16][4];
  load_queries(Q_rmem, Q_smem);
  __syncthreads();

  Rows rows;
  for (int kv = 0; kv < len; kv += BLOCK_KV) {
    load_rows(K_smem, K + head + (size_t)kv * DIM);
    load_rows(V_smem, V + head + (size_t)kv * DIM);
    __syncthreads();
    rows.attend(Q_rmem, K_smem, scale, P_rmem);
    rows.accumulate(P_rmem, V_smem);
    __syncthreads();
  }
  rows.store(O + head + first);
}

// The next keys arrive while this tile is computed, and its values while its scores are.
__global__ void __launch_bounds__(TB_SIZE)
    flash_attention_async(const half* Q, const half* K, const half* V, half* O, int len, float scale) {
  extern __shared__ __align__(16) half smem[];  // Q and V share a tile, K has two
  half* const V_smem = smem;
  half* const K_smem = smem + BLOCK_KV * STRIDE;
  const size_t head = (size_t)blockIdx.y * len * DIM, first = (size_t)blockIdx.x * BLOCK_Q * DIM;
  load_rows_async(smem, Q + head + first);
  asm volatile("cp.async.commit_group;");
  load_rows_async(K_smem, K + head);
  asm volatile("cp.async.commit_group;");
  asm volatile("cp.async.wait_group 1;");
  __syncthreads();
  uint32_t Q_rmem[DIM / 16][4], P_rmem[BLOCK_KV / 16][4];
  load_queries(Q_rmem, smem);

  Rows rows;
  for (int kv = 0; kv < len; kv += BLOCK_KV) {
    const int stage = kv / BLOCK_KV % 2;
    __syncthreads();
    load_rows_async(V_smem, V + head + (size_t)kv * DIM);
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;");
    __syncthreads();
    if (kv + BLOCK_KV < len)
      load_rows_async(K_smem + (stage ^ 1) * BLOCK_KV * STRIDE, K + head + (size_t)(kv + BLOCK_KV) * DIM);
    asm volatile("cp.async.commit_group;");
    rows.attend(Q_rmem, K_smem + stage * BLOCK_KV * STRIDE, scale, P_rmem);
    asm volatile("cp.async.wait_group 1;");
    __syncthreads();
    rows.accumulate(P_rmem, V_smem);
  }
  rows.store(O + head + first);
}
