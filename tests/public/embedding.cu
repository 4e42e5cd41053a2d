// The embedding of each token added to that of its position, an element a thread.
__global__ void embedding_forward(float* out,         // [B, T, C]
                                  const int* tokens,  // [B, T]
                                  const float* wte,   // [vocab_size, C]
                                  const float* wpe,   // [T, C]
                                  int B, int T, int C) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= B * T * C) return;
  const int place = i / C, c = i % C;
  out[i] = wte[tokens[place] * C + c] + wpe[place % T * C + c];
}
