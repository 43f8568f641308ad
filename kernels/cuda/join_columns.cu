// join_columns.cu — launcher.
#include "cuda/join_columns.cuh"

#include "cuda/rows.h"

namespace sie_cuda {

sie_status join_columns(const sie_join_columns_args *args, const sie_share *share) {
  const sie_join_columns_args &a = *args;
  bool empty, floats = is_float(a.y.dtype);
  const sie_status status = check_launch(share, a.rows, &empty);
  if (status != SIE_OK) return status;
  if (a.c[0] < 1 || missing(empty, a.rows.n)) return SIE_INVALID_ARGUMENT;
  int64_t columns = 0;
  for (int i = 0; i < SIE_MAX_JOINED; i++) {
    if (a.c[i] == 0) continue;
    if (a.c[i] < 0 || !valid_rows(a.x[i], a.c[i], empty)) return SIE_INVALID_ARGUMENT;
    if (a.c[i] > max_columns) return SIE_UNSUPPORTED;
    floats = floats && is_float(a.x[i].dtype);
    columns += a.c[i];
  }
  if (!valid_rows(a.y, columns, empty)) return SIE_INVALID_ARGUMENT;
  if (!floats || columns > max_columns) return SIE_UNSUPPORTED;
  if (empty) return SIE_OK;
  return SIE_LAUNCH(join_columns_kernel, row_grid(a.rows.cap, 1), row_threads, 0, share->on, a);
}

}  // namespace sie_cuda
