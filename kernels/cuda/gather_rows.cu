// gather_rows.cu — launcher.
#include "cuda/gather_rows.cuh"
#include "cuda/rows.h"

namespace sie_cuda {

sie_status gather_rows(const sie_gather_rows_args *args, const sie_share *share) {
  const sie_gather_rows_args &a = *args;
  bool empty;
  const sie_status status = check_launch(share, a.seqs, &empty);
  if (status != SIE_OK) return status;
  if (a.c < 1 || missing(empty, a.seqs.n, a.cu_seqlens)) return SIE_INVALID_ARGUMENT;
  if (!valid_rows(a.x, a.c, empty) || !valid_rows(a.y, a.c, empty)) return SIE_INVALID_ARGUMENT;
  if (!is_float(a.x.dtype) || a.y.dtype != a.x.dtype) return SIE_UNSUPPORTED;
  if (a.which != SIE_POOL_CLS && a.which != SIE_POOL_LAST) return SIE_UNSUPPORTED;
  if (empty) return SIE_OK;
  return SIE_LAUNCH(gather_rows_kernel, row_grid(a.seqs.cap, 1), row_threads, 0, share->on, a);
}

}  // namespace sie_cuda
