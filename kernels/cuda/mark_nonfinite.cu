// mark_nonfinite.cu — launcher.
#include "cuda/mark_nonfinite.cuh"

#include "cuda/rows.h"

namespace sie_cuda {

sie_status mark_nonfinite(const sie_mark_nonfinite_args *args, const sie_share *share) {
  const sie_mark_nonfinite_args &a = *args;
  const bool each = a.cu_seqlens == nullptr || a.which != 0;  // a row of each sequence
  const sie_rows &units = each ? a.seqs : a.rows;
  bool empty;
  const sie_status status = check_launch(share, units, &empty);
  if (status != SIE_OK) return status;
  if (a.c < 1 || a.seqs.cap < 0 || missing(empty, units.n, a.seqs.n, a.flags)) return SIE_INVALID_ARGUMENT;
  if (a.which != 0 && a.which != SIE_POOL_CLS && a.which != SIE_POOL_LAST) return SIE_INVALID_ARGUMENT;
  if (!valid_rows(a.x, a.c, empty)) return SIE_INVALID_ARGUMENT;
  const bool quantised = a.x.dtype == SIE_U8 || (a.x.dtype == SIE_F8E4M3 && a.x.scale_group != 0);
  if ((!is_float(a.x.dtype) && !quantised) || a.c > max_columns || a.seqs.cap > INT32_MAX)
    return SIE_UNSUPPORTED;
  if (empty) return SIE_OK;
  if (quantised && a.x.scale == nullptr) return SIE_INVALID_ARGUMENT;
  return SIE_LAUNCH(mark_nonfinite_kernel, row_grid(units.cap, 1), row_threads, 0, share->on, a);
}

}  // namespace sie_cuda
