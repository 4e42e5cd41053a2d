// The softmax of a row, and its K largest with their places: a warp takes a row, and lanes
// agree on the largest by one instruction on a key of whole numbers.
#define K 8
#define WARPS 8

struct Found {
  float value;
  int id;
};

struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ Found operator()(Found a, Found b) const {
    return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
  }
};

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

__device__ __forceinline__ float from_lane(float x, int apart) {
  return __shfl_xor_sync(0xffffffffu, x, apart);
}
__device__ __forceinline__ Found from_lane(Found x, int apart) {
  return {__shfl_xor_sync(0xffffffffu, x.value, apart), __shfl_xor_sync(0xffffffffu, x.id, apart)};
}

template <class T, class Op>
__device__ __forceinline__ T over_warp(T x, Op op) {
#if METHOD_WARP_SHUFFLE
  for (int apart = 16; apart; apart /= 2) x = op(x, from_lane(x, apart));
  return x;
#else
  __shared__ T held[WARPS][32];
  T* mine = held[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  mine[lane] = x;
  __syncwarp();
  for (int half = 16; half; half /= 2) {
    if (lane < half) mine[lane] = op(mine[lane], mine[lane + half]);
    __syncwarp();
  }
  x = mine[0];
  __syncwarp();
  return x;
#endif
}

#if METHOD_FEWER_INSTRUCTIONS
__device__ __forceinline__ Found largest_of_warp(Found mine) {
  const unsigned bits = __float_as_uint(mine.value + 0.f);  // of two zeros one
  const unsigned key = bits >> 31 ? ~bits : bits | 0x80000000u;  // in the order of the numbers
  const unsigned most = __reduce_max_sync(0xffffffffu, key);
  const unsigned id = __reduce_min_sync(0xffffffffu, key == most ? mine.id : 0x7fffffff);
  return {__uint_as_float(most >> 31 ? most ^ 0x80000000u : ~most), (int)id};
}
#else
__device__ __forceinline__ Found largest_of_warp(Found mine) { return over_warp(mine, Larger()); }
#endif

extern "C" __global__ void top_k(const float* scores, float* weights, int* ids, int rows, int n) {
  const int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* mine = scores + (size_t)row * n;
  float most = -INFINITY, total = 0.f;
  for (int i = lane; i < n; i += 32) most = fmaxf(most, mine[i]);
  most = over_warp(most, Larger());
  for (int i = lane; i < n; i += 32) total += expf(mine[i] - most);
  total = over_warp(total, Sum());
  Found last = {INFINITY, -1};
  for (int k = 0; k < K; ++k) {
    Found best = {-INFINITY, n};
    for (int i = lane; i < n; i += 32) {
      const float x = mine[i];
      if (x < last.value || (x == last.value && i > last.id)) best = Larger()(best, {x, i});
    }
    last = largest_of_warp(best);
    if (lane == 0) {
      weights[row * K + k] = expf(last.value - most) / total;
      ids[row * K + k] = last.id;
    }
  }
}
