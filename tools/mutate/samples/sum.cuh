// sum — every kind of mutation once, and what looks like one and is none: a < b, "x < y", /* i < n
// */.
#ifndef SAMPLE_SUM_CUH
#define SAMPLE_SUM_CUH

#include "cuda/ptx/warp.h"

#define TWICE(x) ((x) * 2)

namespace sample {

template <class T, int Stages>
struct Ring {
  static constexpr int bytes = Stages * 128;
  T at[Stages * 2];
  int next(int i) const { return i + 1 < Stages ? i + 1 : 0; }
};

constexpr int padded(int c) { return (c + 7) / 8 * 8; }

template <class T>
__global__ void __launch_bounds__(32 * 4, 1) sum_kernel(const T *x, int64_t ld, int n, T *y) {
  static_assert(sizeof(T) % 4 == 0, "whole words");
  ptx::grid_dependency_wait();
  const int lane = static_cast<int>(threadIdx.x) & 31, row = blockIdx.x * 4 + threadIdx.x / 32;
  float buffer[4 * 2];
  if (row >= n) return;
  ptx::cp_async_wait<Stages - 2>();
  ptx::mbarrier_wait(&barrier, parity);
  float sum = 0.5f * 2;
  for (int i = lane; i < padded(n) && i != 7; i += 32) sum += x[row * ld + i];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += ptx::shuffle_xor(sum, step);
  if (lane == 0) ptx::fence_proxy_async();
  __syncthreads();  // a comment; with a barrier __syncthreads();
  if constexpr (sizeof(T) == 4) {
    if (lane == 0) y[row] = sum < buffer[0] ? sum : buffer[0];
  }
  call("a < b", 'x', static_cast<Ring<T, 2>>(lane));
}

}  // namespace sample

#endif
