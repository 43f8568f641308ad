// maxsim.cu — launcher.
#include "cuda/maxsim.cuh"

#include "cuda/maxsim.h"
#include "cuda/row_launch.cuh"

namespace sie_cuda {

sie_status maxsim(const sie_maxsim_args *args, const sie_share *share) {
  const sie_maxsim_args &a = *args;
  bool empty;
  const sie_status status = check_launch(share, a.seqs, &empty);
  if (status != SIE_OK) return status;
  if (a.c < 1 || a.rows.cap < 0 || missing(empty, a.seqs.n, a.cu_seqlens, a.queries, a.cu_queries, a.partner))
    return SIE_INVALID_ARGUMENT;
  if (!valid_rows(a.x, a.c, empty) || !valid_rows(a.y, 1, empty)) return SIE_INVALID_ARGUMENT;
  if (!is_float(a.x.dtype) || a.y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (a.c > max_columns || a.rows.cap > INT32_MAX) return SIE_UNSUPPORTED;
  if (empty) return SIE_OK;
  return SIE_LAUNCH(maxsim_kernel, static_cast<uint32_t>(a.seqs.cap), maxsim_threads, maxsim_shared_bytes,
                    share->on, a);
}

}  // namespace sie_cuda
