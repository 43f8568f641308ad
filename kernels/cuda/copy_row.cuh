// copy_row.cuh — copies a row with one warp, for gather_rows and keep_rows.
#ifndef SIE_KERNELS_CUDA_COPY_ROW_CUH
#define SIE_KERNELS_CUDA_COPY_ROW_CUH

#include "cuda/rows.cuh"

namespace sie_cuda {

// Copies `count` elements of type E by one warp; zeros where `from` is null.
template <class E>
SIE_DEVICE void copy_elements(E *to, const E *from, int64_t count) {
  constexpr int under_way = 4;
  for (int64_t begin = ptx::lane_id(); begin < count; begin += 32 * under_way) {
    E e[under_way] = {};
#pragma unroll
    for (int i = 0; i < under_way; i++) {
      if (from != nullptr && begin + 32 * i < count) e[i] = from[begin + 32 * i];
    }
#pragma unroll
    for (int i = 0; i < under_way; i++) {
      if (begin + 32 * i < count) to[begin + 32 * i] = e[i];
    }
  }
}

// Copies a row of c elements with one warp, in the widest accesses that both places allow; writes
// zeros where `from` is null.
SIE_DEVICE void copy_row(char *to, const char *from, int64_t c, int32_t dtype) {
  const int64_t bytes = c * element_bytes(dtype);
  if (bytes % 16 == 0 && ptx::aligned_for<uint4>(to) && ptx::aligned_for<uint4>(from)) {
    copy_elements(reinterpret_cast<uint4 *>(to), reinterpret_cast<const uint4 *>(from), bytes / 16);
  } else if (dtype == SIE_F32) {
    copy_elements(reinterpret_cast<uint32_t *>(to), reinterpret_cast<const uint32_t *>(from), c);
  } else {
    copy_elements(reinterpret_cast<uint16_t *>(to), reinterpret_cast<const uint16_t *>(from), c);
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_COPY_ROW_CUH
