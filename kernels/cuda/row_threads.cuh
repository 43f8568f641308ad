// row_threads.cuh — the threads of a row, one warp or several, and their reductions.
#ifndef SIE_KERNELS_CUDA_ROW_THREADS_CUH
#define SIE_KERNELS_CUDA_ROW_THREADS_CUH

#include "cuda/ptx/device.h"
#include "cuda/ptx/named_barrier.h"
#include "cuda/ptx/warp.h"

namespace sie_cuda {

constexpr int row_threads = 256;  // of a CTA of the row kernels: 8/W rows
constexpr int row_warps = row_threads / 32;

// The W warps that hold a row together. slots: shared memory of those W warps, W doubles for each
// reduction of a kernel; W = 1 needs none. Every thread of the row calls each reduction, in the
// same order, and gets the same bits. Rows: of a CTA, `row` is below; 0: not known here, which takes all 16
// hardware barriers of the CTA unless `row` is a constant.
template <int W, int Rows = 0>
class RowThreads {
 public:
  SIE_DEVICE RowThreads(uint32_t row, double *slots)
      : thread_(threadIdx.x % (32 * W)), row_(row), slots_(slots) {}

  static constexpr int count = 32 * W;
  SIE_DEVICE uint32_t thread() const { return thread_; }

  SIE_DEVICE float sum(float x) {
    x = ptx::warp_sum(x);
    if (W == 1) return x;
    const float *of = meet(x);
    float all = of[0];
#pragma unroll
    for (int w = 1; w < W; w++) all += of[w];
    return all;
  }
  SIE_DEVICE double sum(double x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += ptx::shuffle_xor(x, step);
    if (W == 1) return x;
    const double *of = meet(x);
    double all = of[0];
#pragma unroll
    for (int w = 1; w < W; w++) all += of[w];
    return all;
  }
  SIE_DEVICE float max(float x) {
    x = ptx::warp_max(x);
    if (W == 1) return x;
    const float *of = meet(x);
    float all = of[0];
#pragma unroll
    for (int w = 1; w < W; w++) all = fmaxf(all, of[w]);
    return all;
  }
  SIE_DEVICE float min(float x) { return -max(-x); }

 private:
  // The values of the W warps. Each reduction has its own slots, so one barrier suffices.
  template <class T>
  SIE_DEVICE const T *meet(T x) {
    T *const of = reinterpret_cast<T *>(slots_);
    slots_ += W;
    if (thread_ % 32 == 0) of[thread_ / 32] = x;
    if constexpr (Rows > 0) {
      ptx::named_barrier_sync_of<1, Rows>(row_, 32 * W);
    } else {
      ptx::named_barrier_sync(1 + row_, 32 * W);
    }
    return of;
  }

  uint32_t thread_, row_;
  double *slots_;
};

// Doubles of slots a CTA of row_threads needs for `reductions` of each row.
template <int W>
constexpr size_t slot_bytes(int reductions) {
  return W == 1 ? 0 : static_cast<size_t>(row_warps) * static_cast<size_t>(reductions) * sizeof(double);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ROW_THREADS_CUH
