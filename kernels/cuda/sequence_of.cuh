// sequence_of.cuh — finds the sequence that a token belongs to.
#ifndef SIE_KERNELS_CUDA_SEQUENCE_OF_CUH
#define SIE_KERNELS_CUDA_SEQUENCE_OF_CUH

#include "cuda/ptx/device.h"
#include "cuda/ptx/warp.h"

namespace sie_cuda {

struct Sequence {
  int32_t index, start;  // start: the entry at index
};

// The last of entries 0 … count − 1, which ascend from 0 on, that is ≤ t. A search with 32 probes a
// step, by a whole warp.
template <class Entry>
SIE_DEVICE Sequence last_at_most(int32_t count, int32_t t, const Entry &entry_at) {
  int32_t first = 0;  // the entry is among `count` from `first` on
  while (true) {
    const int32_t step = (count + 31) / 32;
    const int32_t at = static_cast<int32_t>(ptx::lane_id()) * step;
    const int32_t entry = at < count ? entry_at(first + at) : INT32_MAX;
    const int32_t last = __popc(ptx::ballot(entry <= t)) - 1;  // entry 0 is 0 ≤ t
    first += last * step;
    if (step == 1) return {first, ptx::shuffle_from(entry, last)};
    count = count - last * step < step ? count - last * step : step;
  }
}

// The sequence that holds token t: the last of cu_seqlens[0 … n] that is ≤ t.
SIE_DEVICE Sequence sequence_of(const int32_t *cu_seqlens, int32_t n, int32_t t) {
  return last_at_most(n + 1, t, [=](int32_t i) { return cu_seqlens[i]; });
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_SEQUENCE_OF_CUH
