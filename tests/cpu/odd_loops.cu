// Kernels whose loops are odd: what decides how often they go round is no counter up to an argument.
// Each stretch is the body of a kernel that has `k` (halves, normally distributed), `bits` (the same as
// 16-bit integers), `lens` (the lengths of the sequences), `n` = 40, `x` (what is stored), `t` (the
// thread) and `b` (the block). The line marked with an asterisk is gone through once a trip.
#include <cuda_fp16.h>
__device__ __noinline__ int depth_of(int n) {
  if (n <= 1) return 0;
  return 1 + depth_of(n & 1 ? 3 * n + 1 : n >> 1);  //*
}
__device__ __noinline__ float fold(const half* k, int from, int to) {
  if (to - from == 1) return __half2float(k[from]);
  const int mid = (from + to) / 2;
  return fold(k, from, mid) + fold(k, mid, to);  //*
}
__device__ __noinline__ int chase(const unsigned short* bits, int at, int left) {
  if (left == 0 || bits[at] % 7 == 0) return left;
  return chase(bits, bits[at] % 4096, left - 1);  //*
}
__device__ int flag, lock;
extern "C" __global__ void odd(const half* __restrict__ k, const int* __restrict__ lens,
                               half* __restrict__ out, int n) {
  const unsigned short* bits = (const unsigned short*)k;
  const int t = threadIdx.x, b = blockIdx.x;
  float x = 0.f;
#define K(i) __half2float(k[i])

// -- counters that are floats
//@ float counter
  for (float f = 0.f; f < 50.f; f += 0.7f)
    x += K((int)f * 64);  //*
//@ float halves
  for (float f = 1000.f; f > 1e-3f; f *= 0.5f)
    x += K((int)f);  //*
//@ float sum
  float f = 0.f; while (f < 0.3f) {
    f += 0.001f; x += K(t + (int)f);  //*
  }
//@ float of thread
  for (float f = (float)t; f < 90.f; f += 1.5f)
    x += K((int)f);  //*
//@ harmonic
  float s = 0.f; int i = 1; while (s < 4.f) {
    s += 1.f / i++;  //*
  } x = s;
//@ newton
  float y = 2.f + t, r = y; while (fabsf(r * r - y) > 1e-3f * y) {
    r = 0.5f * (r + y / r);  //*
  } x = r;
//@ double counter
  for (double d = 0.; d < 5.; d += 0.125)
    x += K((int)(d * 64));  //*
//@ decay
  float f = 1.f; do {
    f = f * 0.9f + 0.001f; x += f;  //*
  } while (f > 0.02f);
//@ bisection
  float lo = 0.f, hi = 8.f; while (hi - lo > 1e-4f) {
    const float m = 0.5f * (lo + hi); if (m * m < 3.f + t) lo = m; else hi = m;  //*
  } x = lo;
//@ float bits
  float f = 1.f + t; while (__float_as_int(f) & 0x7f800000) {
    f *= 0.25f; x += f;  //*
  }

// -- data say how often
//@ until data
  for (int i = 0; K(i * 64) < 2.f; i++)
    x += K(i * 64 + t);  //*
//@ until a sum
  int i = 0; while (x < 9.f) {
    x += fabsf(K(64 * i + t)); i++;  //*
  }
//@ break on data
  for (int i = 0; i < 300; i++) {
    x += K(i * 64 + t);  //*
    if (x > 6.f) break; }
//@ return on data
  for (int i = 0; i < 300; i++) {
    x += K(i * 64 + t);  //*
    if (x > 6.f) { out[b * 64 + t] = k[0]; return; } }
//@ as many as data
  const int m = bits[5] % 97;
  for (int i = 0; i < m; i++)
    x += K(i * 64 + t);  //*
//@ many by thread
  const int m = bits[t] % 61;
  for (int i = 0; i < m; i++)
    x += K(i * 64 + t);  //*
//@ many by block
  const int m = bits[b * 7] % 61 + 20;
  for (int i = 0; i < m; i++)
    x += K(i * 64 + t);  //*
//@ stride from data
  const int step = bits[3] % 5 + 1;
  for (int i = 0; i < 4096; i += step)
    x += K(i);  //*
//@ down from data
  int m = bits[t + 64] & 127; while (m--)
    x += K(m);  //*
//@ two ways
  if (K(7 * b) > 0.f) for (int i = 0; i < 200; i++)
    x += K(i * 64 + t);  //*
  else x *= 2.f;
//@ linked list
  int p = t, i = 0; while (p && i < 60) {
    p = bits[p] & 1023; i++;  //*
  } x = p;
//@ data in ranges
  for (int s = 0; s < 4; s++)
  for (int i = bits[s] & 31; i < 32 + (bits[s + 9] & 31); i++)
    x += K(i * 8 + t);  //*
//@ search for zero
  int i = t; while (bits[i] & 15)
    i += 3;  //*
    x = i;
//@ argmax until
  float m = -9.f; int i = 0; for (; i < 400 && m < 2.2f; i++) {
    m = fmaxf(m, K(t * 400 + i));  //*
  } x = m;
//@ run length
  int i = t * 64, run = 0; while (run < 5) {
    run = K(i) > 0.f ? run + 1 : 0; i++;  //*
  } x = i;
//@ product
  float p = 1.f; int i = 0; do {
    p *= 0.5f + 0.1f * fabsf(K(i * 64 + t)); i++;  //*
  } while (p > 1e-6f); x = p;
//@ half compare
  int i = 0; while (__hlt(k[i * 32 + t], __float2half(1.5f)))
    i++;  //*
    x = i;
//@ half sum
  half s = __float2half(0.f); int i = 0; while (__half2float(s) < 20.f) {
    s = __hadd(s, __habs(k[i * 64 + t])); i++;  //*
  } x = i;
//@ exponential
  int i = 0; while (x < 30.f) {
    x += exp2f(K(i * 64 + t)); i++;  //*
  }
//@ square root
  int i = 0; while (x < 30.f) {
    x += sqrtf(fabsf(K(i * 64 + t))); i++;  //*
  }

// -- searches, bits, number theory
//@ binary search
  int lo = 0, hi = 4096; while (lo < hi) {
    const int m = (lo + hi) / 2;
    if ((int)bits[m] * 0 + m * 3 < t * 40) lo = m + 1; else hi = m;  //*
  } x = lo;
//@ binary search in data
  int lo = 0, hi = 4096; while (hi - lo > 1) {
    const int m = (lo + hi) >> 1; if (K(m) < 0.1f * t - 3.f) lo = m; else hi = m;  //*
  } x = lo;
//@ collatz
  unsigned c = 27 + t; while (c != 1) {
    c = c & 1 ? 3 * c + 1 : c >> 1;  //*
    x += 1.f; }
//@ collatz of data
  unsigned c = bits[t] + 1u; while (c != 1) {
    c = c & 1 ? 3 * c + 1 : c >> 1;  //*
    x += 1.f; }
//@ clear low bits
  unsigned c = 0x5a5a5a5au * (t + 1); while (c) {
    c &= c - 1; x += 1.f;  //*
  }
//@ clear bits of data
  unsigned c = bits[t] * 65537u; while (c) {
    c &= c - 1; x += 1.f;  //*
  }
//@ gcd
  int a = 3600 + t, c = 1001 + b; while (c) {
    const int r = a % c; a = c; c = r;  //*
  } x = a;
//@ gcd of data
  int a = bits[t] + 1, c = bits[t + 1] + 1; while (c) {
    const int r = a % c; a = c; c = r;  //*
  } x = a;
//@ log by shifts
  for (unsigned s = bits[t] | 1; s; s >>= 1)
    x += K(s);  //*
//@ by leading bit
  unsigned c = bits[t] + 1u; while (c) {
    c ^= 1u << (31 - __clz(c)); x += 1.f;  //*
  }
//@ random walk
  unsigned s = 1u + t; int at = 0, i = 0; while (abs(at) < 6 && i < 500) {
    s = s * 1664525u + 1013904223u; at += s >> 31 ? 1 : -1; i++;  //*
  } x = i;
//@ strided
  for (int i = t; i < lens[0] * 10; i += blockDim.x)
    x += K(i);  //*
//@ doubling
  for (int i = 1; i < 4096; i <<= 1)
    x += K(i + t);  //*

// -- shapes of loops
//@ triangle
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
    x += K(i * 64 + j);  //*
//@ triangle of data
  const int m = bits[2] % 30 + 5; for (int i = 0; i < m; i++)
    for (int j = 0; j <= i; j++)
    x += K(i * 64 + j);  //*
//@ goto
  int i = bits[t] & 63;
  again:
    x += K(i * 8);  //*
    if (i-- > 0) goto again;
//@ two exits
  for (int i = 0;; i++) {
    if (i == 90 + t) break;
    x += K(i * 64);  //*
    if (x < -12.f) break; }
//@ continue
  for (int i = 0; i < 128; i++) {
    if (bits[i] & 1) continue;
    for (int j = 0; j < 8; j++)
    x += K(i * 64 + j * 2 + t);  //*
  }
//@ state machine
  int s = 0, i = 0; while (s != 3) {
    const int v = bits[i * 64 + t] & 3;
    s = s == v ? s + 1 : s; i++;  //*
  } x = i;

// -- recursion
//@ recursion
  x = depth_of(20 + t);
//@ recursion in two
  x = fold(k, 0, 33);
//@ recursion on data
  x = chase(bits, t, 20);

// -- warps, shared memory, other threads
//@ vote
  int i = 0; while (__any_sync(~0u, K(i * 64 + t) < 1.2f) && i < 200)
    i++;  //*
    x = i;
//@ warp sum
  int i = 0; do { float s = K(i * 64 + t);
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    x += fabsf(s); i++;  //*
  } while (x < 40.f);
//@ shared counts
  __shared__ int m[64]; m[t] = bits[t] & 63; __syncthreads();
  for (int i = 0; i < m[63 - t]; i++)
    x += K(i * 64 + t);  //*
//@ shared queue
  __shared__ int head; for (;;) { __syncthreads();
    if (t == 0) head = bits[(int)x] & 31; __syncthreads();
    if (head == 0) break;
    x += 1.f;  //*
  }
//@ block sum
  __shared__ float s[64]; int i = 0; float total = 0.f; while (total < 300.f) {
    s[t] = fabsf(K(i * 64 + t)); __syncthreads(); for (int w = 32; w; w >>= 1) {
    if (t < w) s[t] += s[t + w]; __syncthreads(); }
    total += s[0]; i++; __syncthreads();  //*
  } x = total;
//@ spin on a flag
  volatile int* f = &flag; if (t == 63) { __threadfence(); *f = 1; }
  else if (t < 32) while (*f == 0)
    x += 1.f;  //*
//@ lock
  if (t % 32 == 0) { while (atomicCAS(&lock, 0, 1) != 0)
    x += 1.f;  //*
    atomicExch(&lock, 0); }
//@ ticket
  __shared__ int next; if (t == 0) next = 0; __syncthreads();
  while (atomicAdd(&next, 1) < 500)
    x += 1.f;  //*
