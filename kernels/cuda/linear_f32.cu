// linear_f32.cu — instance and launcher.
#include "cuda/linear_f32.cuh"

#include "cuda/gemm_call.h"
#include "cuda/ptx/launch.h"
#include "cuda/row_launch.cuh"

namespace sie_cuda {

sie_status linear_f32(const sie_linear_args *a, const sie_stream *on) {
  GemmCall call;
  const sie_status status = gemm_call(a, on, &call);
  if (status != SIE_OK) return status;
  // A tile is too narrow for the scale of 128 columns of y.
  if (a->w->compute != SIE_COMPUTE_F32 || on->sm < oldest_sm || a->y.dtype == SIE_F8E4M3)
    return SIE_UNSUPPORTED;
  const int64_t row_tiles = divide_up(a->rows.cap, f32_rows), column_tiles = divide_up(a->n, f32_columns);
  if (row_tiles * column_tiles > INT32_MAX) return SIE_UNSUPPORTED;
  if (row_tiles == 0) return SIE_OK;

  LinearF32Args args = {};
  args.rows = a->rows.n;
  args.x = static_cast<const uint8_t *>(a->x.p);
  args.w = static_cast<const uint8_t *>(a->w->data);
  args.x_row = a->x.ld * call.layout.element;
  args.w_row = call.layout.k_padded * call.layout.element;
  args.k = static_cast<int32_t>(a->k);
  args.row_tiles = static_cast<int32_t>(row_tiles);
  args.epilogue = call.epilogue;
  return SIE_LAUNCH(linear_f32_kernel, static_cast<uint32_t>(row_tiles * column_tiles), f32_threads,
                    f32_shared_bytes, on, args);
}

}  // namespace sie_cuda
