// The softmax of a row, and its K largest with their places: a thread takes a row.
#define K 8

extern "C" __global__ void top_k(const float* scores, float* weights, int* ids, int rows, int n) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* mine = scores + (size_t)row * n;
  float most = -INFINITY, total = 0.f;
  for (int i = 0; i < n; ++i) most = fmaxf(most, mine[i]);
  for (int i = 0; i < n; ++i) total += expf(mine[i] - most);
  float last = INFINITY;
  int last_id = -1;
  for (int k = 0; k < K; ++k) {
    float best = -INFINITY;
    int best_id = n;
    for (int i = 0; i < n; ++i) {
      const bool is_left = mine[i] < last || (mine[i] == last && i > last_id);
      if (is_left && (mine[i] > best || best_id == n)) best = mine[i], best_id = i;
    }
    weights[row * K + k] = expf(best - most) / total;
    ids[row * K + k] = last_id = best_id;
    last = best;
  }
}
