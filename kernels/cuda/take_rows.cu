// take_rows.cu — launcher.
#include "cuda/take_rows.cuh"

#include "cuda/places.h"

namespace sie_cuda {

sie_status take_rows(const sie_take_rows_args *args, const sie_share *share) {
  const sie_take_rows_args &a = *args;
  bool empty;
  const sie_status status = check_launch(share, a.rows, &empty);
  if (status != SIE_OK) return status;
  if (a.c < 1 || missing(empty, a.rows.n, a.seqs.n, a.cu_seqlens)) return SIE_INVALID_ARGUMENT;
  if (!valid_rows(a.x, a.c, empty) || !valid_rows(a.y, a.c, empty)) return SIE_INVALID_ARGUMENT;
  if (!is_float(a.x.dtype) || a.y.dtype != a.x.dtype || a.c > max_columns) return SIE_UNSUPPORTED;
  if (a.cu_x != nullptr) {
    const bool cls = a.which == SIE_POOL_CLS, tail = a.which == SIE_POOL_LAST;
    if (!cls && !tail && a.which != SIE_POOL_MEAN) return SIE_UNSUPPORTED;
    if ((!tail && missing(empty, a.first)) || (!cls && missing(empty, a.last))) return SIE_INVALID_ARGUMENT;
  }
  if (empty) return SIE_OK;
  return SIE_LAUNCH(take_rows_kernel, row_grid(a.rows.cap, 1), row_threads, 0, share->on, a);
}

}  // namespace sie_cuda
