// mark_nonfinite — flags the sequences that have a row with an element that is NaN or infinite.
// Shapes   x [R, C], row stride ≥ C; cu_seqlens [B+1]; place [B]; flags holds every place. R ≥ 0,
//          C ≥ 1.
// Types    x bf16 | f16 | f32 | u8 | e4m3.
// Alias    none.
// Cost     R·C elements read → memory bound: 16k rows of 768 in bf16 25 MB, 9 µs at 3.0 TB/s. First
//          or last rows: the time of a launch.
// Plan     one warp a row, octets a lane; the warp of a bad row finds its sequence and sets its
//          flag. For first and last rows, one warp a sequence.
// Error    none.
#ifndef SIE_KERNELS_CUDA_MARK_NONFINITE_CUH
#define SIE_KERNELS_CUDA_MARK_NONFINITE_CUH

#include "cuda/ptx/atomic.h"
#include "cuda/rows.cuh"

namespace sie_cuda {

// Whether the lane's part of row r is finite.
SIE_DEVICE bool finite_part(const sie_tensor &x, int64_t c, int64_t r) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id());
  bool bad = false;
  if (x.dtype == SIE_U8 || x.dtype == SIE_F8E4M3) {
    const int64_t scales = x.scale_group == 128 ? (c + 127) / 128 : 1;
    for (int64_t i = lane; i < scales; i += 32) bad |= !(x.scale[r * scales + i] * 0.0f == 0.0f);
    const uint8_t *bytes = static_cast<const uint8_t *>(x.p) + r * x.ld;
    for (int64_t i = lane; x.dtype == SIE_F8E4M3 && i < c; i += 32) bad |= (bytes[i] & 0x7fu) == 0x7fu;
    return !bad;
  }
  for (int64_t column = 8 * lane; column < c; column += 8 * 32) {
    float v[8];
    load_octet_any(x, r, static_cast<int32_t>(column), static_cast<int32_t>(c), v);
#pragma unroll
    for (int j = 0; j < 8; j++) bad |= !(v[j] * 0.0f == 0.0f);
  }
  return !bad;
}

__global__ void __launch_bounds__(row_threads, 4) mark_nonfinite_kernel(const sie_mark_nonfinite_args a) {
  ptx::grid_dependency_wait();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * row_warps + threadIdx.x / 32;
  const int32_t n_seqs = *a.seqs.n;
  int64_t row = i;
  int32_t b = static_cast<int32_t>(i);
  if (a.cu_seqlens == nullptr || a.which != 0) {  // a warp for each sequence
    if (i >= n_seqs) return;
    if (a.cu_seqlens != nullptr) {
      const int32_t first = a.cu_seqlens[i], end = a.cu_seqlens[i + 1];
      if (end <= first) return;
      row = a.which == SIE_POOL_CLS ? first : end - 1;
    }
  } else if (i >= *a.rows.n) {
    return;
  }
  ptx::grid_dependency_launch();
  if (ptx::ballot(!finite_part(a.x, a.c, row)) == 0) return;
  if (a.cu_seqlens != nullptr && a.which == 0) {
    b = sequence_of(a.cu_seqlens, n_seqs, static_cast<int32_t>(row)).index;
  }
  if (ptx::lane_id() == 0) ptx::reduce_max_global(a.flags + (a.place != nullptr ? a.place[b] : b), 1);
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_MARK_NONFINITE_CUH
