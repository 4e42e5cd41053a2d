// Storing pieces of rows, as a kernel does whose lanes hold parts of an output.
#define DEVICE __device__ __forceinline__

// A warp stores 4 bytes a lane, BYTES of them side by side in a row of 128 bytes. Its next store
// goes on in these rows until they are full. In the end it waits until all can be seen.
template <int BYTES, int COUNT>
DEVICE void stores(long long* out, unsigned char* room) {
  constexpr int LANES = BYTES / 4, ROWS = 32 / LANES, PIECES = 128 / BYTES;
  const int warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned char* here = room + (size_t)warp * COUNT * 128 + lane / LANES * 128 + lane % LANES * 4;
  __syncthreads();
  const long long begin = clock64();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    unsigned char* to = here + i / PIECES * ROWS * 128 + i % PIECES * BYTES;
    asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(lane) : "memory");
  }
  __threadfence();
  const long long end = clock64();
  if (lane == 0) {
    out[2 * warp] = begin;
    out[2 * warp + 1] = end;
  }
}
#define STORES(BYTES, COUNT)                                                                   \
  extern "C" __global__ void __launch_bounds__(256) stores_##BYTES##_##COUNT(                  \
      long long* out, unsigned char* room) {                                                   \
    stores<BYTES, COUNT>(out, room);                                                           \
  }
STORES(16, 32)
STORES(16, 96)
STORES(32, 32)
STORES(32, 96)
STORES(64, 32)
STORES(64, 96)
STORES(128, 32)
STORES(128, 96)
