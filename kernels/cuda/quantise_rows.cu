// quantise_rows.cu — instances and launcher.
#include "cuda/quantise_rows.cuh"
#include "cuda/rows.h"

namespace sie_cuda {

namespace {

template <Storage S>
sie_status launch_rows(const sie_quantise_rows_args &a, const sie_stream *on) {
  return with_row_shape(a.c, [&](auto shape) {
    constexpr int V = decltype(shape)::V, W = decltype(shape)::W;
    return SIE_LAUNCH((quantise_rows_kernel<S, V, W>), row_grid(a.rows.cap, W), row_threads, slot_bytes<W>(1),
                      on, a);
  });
}

template <Storage S>
sie_status launch(const sie_quantise_rows_args &a, const sie_stream *on) {
  if (a.y.scale_group == -1) return launch_rows<S>(a, on);
  const int64_t across = (a.c + block_warp_columns - 1) / block_warp_columns;
  return SIE_LAUNCH(quantise_blocks_kernel<S>, dim3(row_grid(a.rows.cap, 1), across), row_threads, 0, on, a);
}

}  // namespace

sie_status quantise_rows(const sie_quantise_rows_args *args, const sie_share *share) {
  const sie_quantise_rows_args &a = *args;
  bool empty;
  sie_status status = check_launch(share, a.rows, &empty);
  if (status != SIE_OK) return status;
  if (a.c < 1 || missing(empty, a.rows.n, a.y.p) || !valid_rows(a.x, a.c, empty)) return SIE_INVALID_ARGUMENT;
  if (!is_float(a.x.dtype) || a.c > (a.y.scale_group == -1 ? row_columns_max : max_columns))
    return SIE_UNSUPPORTED;
  status = check_f8_rows(a.y, a.c, a.y.scale_group == -1 ? -1 : block_columns);
  if (status != SIE_OK || empty) return status;
  switch (aligned_rows(a.y, 1) ? storage_of(a.c, a.x) : Storage::any) {
    case Storage::bf16:
      return launch<Storage::bf16>(a, share->on);
    case Storage::f16:
      return launch<Storage::f16>(a, share->on);
    default:
      return launch<Storage::any>(a, share->on);
  }
}

}  // namespace sie_cuda
