// sparse_row.cuh — how the threads of a CTA write a sparse output row (sie_output_sparse_args): 32
// lanes at a time, each with up to four neighbouring columns, in ascending order.
#ifndef SIE_KERNELS_CUDA_SPARSE_ROW_CUH
#define SIE_KERNELS_CUDA_SPARSE_ROW_CUH

#include "cuda/rows.cuh"

namespace sie_cuda {

SIE_DEVICE bool is_sparse_item(const sie_out_item &item) {
  return (item.dtype == SIE_F32 || item.dtype == SIE_F16) && item.dims > 0 && item.normalize == 0;
}

struct SparseRow {
  int32_t *header;
  int32_t room;
  bool half;

  SIE_DEVICE SparseRow(const sie_out_item &item, void *base)
      : header(reinterpret_cast<int32_t *>(static_cast<char *>(base) + item.offset)),
        room(item.dims),
        half(item.dtype == SIE_F16) {}

  // One thread.
  SIE_DEVICE void write_header(int32_t count) const {
    header[0] = count;
    header[1] = header[2] = header[3] = 0;
  }
  // Entry `at`, where there is room for it.
  SIE_DEVICE void write(int32_t at, int32_t column, float value) const {
    if (at >= room) return;
    header[4 + at] = column;
    if (half) {
      reinterpret_cast<uint16_t *>(header + 4 + room)[at] = ptx::to_f16(value);
    } else {
      reinterpret_cast<float *>(header + 4 + room)[at] = value;
    }
  }
};

// The place of the first of a lane's kept columns, counted from the warp's first; bit j of kept:
// its column j. Whole warps call, and *count becomes the number that the warp keeps.
SIE_DEVICE int32_t place_in_warp(uint32_t kept, int32_t *count) {
  const uint32_t before = (1u << ptx::lane_id()) - 1u;
  int32_t place = 0, all = 0;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const uint32_t lanes = ptx::ballot((kept >> j & 1u) != 0);
    place += __popc(lanes & before);
    all += __popc(lanes);
  }
  *count = all;
  return place;
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_SPARSE_ROW_CUH
