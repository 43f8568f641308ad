// sequence_of.cuh — finds the sequence that a token belongs to.
#ifndef SIE_KERNELS_CUDA_SEQUENCE_OF_CUH
#define SIE_KERNELS_CUDA_SEQUENCE_OF_CUH

#include "cuda/ptx/device.h"
#include "cuda/ptx/warp.h"

namespace sie_cuda {

// The sequence that holds token t: the last of cu_seqlens[0 … n] that is ≤ t. A search with 32
// probes a step, by a whole warp.
struct Sequence {
  int32_t index, start;
};

SIE_DEVICE Sequence sequence_of(const int32_t *cu_seqlens, int32_t n, int32_t t) {
  int32_t first = 0, count = n + 1;  // the entry is among `count` from `first` on
  while (true) {
    const int32_t step = (count + 31) / 32;
    const int32_t at = static_cast<int32_t>(ptx::lane_id()) * step;
    const int32_t entry = at < count ? cu_seqlens[first + at] : INT32_MAX;
    const int32_t last = __popc(ptx::ballot(entry <= t)) - 1;  // cu_seqlens[0] = 0 ≤ t
    first += last * step;
    if (step == 1) return {first, ptx::shuffle_from(entry, last)};
    count = count - last * step < step ? count - last * step : step;
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_SEQUENCE_OF_CUH
