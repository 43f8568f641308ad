// keep_rows.cu — launcher.
#include "cuda/keep_rows.cuh"

#include "cuda/rows.h"

namespace sie_cuda {

sie_status keep_rows(const sie_keep_rows_args *args, const sie_share *share) {
  const sie_keep_rows_args &a = *args;
  bool empty;
  const sie_status status = check_launch(share, a.kept, &empty);
  if (status != SIE_OK) return status;
  if (a.c < 1 || missing(empty, a.kept.n, a.index)) return SIE_INVALID_ARGUMENT;
  if (!valid_rows(a.x, a.c, empty) || !valid_rows(a.y, a.c, empty)) return SIE_INVALID_ARGUMENT;
  if (!is_float(a.x.dtype) || a.y.dtype != a.x.dtype) return SIE_UNSUPPORTED;
  if (empty) return SIE_OK;
  return SIE_LAUNCH(keep_rows_kernel, row_grid(a.kept.cap, 1), row_threads, 0, share->on, a);
}

}  // namespace sie_cuda
