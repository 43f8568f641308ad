// output_sparse.cu — launcher.
#include "cuda/output_sparse.cuh"

#include "cuda/rows.h"

namespace sie_cuda {

sie_status output_sparse(const sie_output_sparse_args *args, const sie_share *share) {
  const sie_output_sparse_args &a = *args;
  bool empty;
  const sie_status status = check_launch(share, a.seqs, &empty);
  if (status != SIE_OK) return status;
  if (a.c < 1 || missing(empty, a.seqs.n, a.items, a.out) || !valid_rows(a.x, a.c, empty)) {
    return SIE_INVALID_ARGUMENT;
  }
  if (a.transform < SIE_SPARSE_AS_IS || a.transform > SIE_SPARSE_LOG_LOG) return SIE_INVALID_ARGUMENT;
  if (a.x.dtype != SIE_F32 || a.c > max_columns) return SIE_UNSUPPORTED;
  if (empty) return SIE_OK;
  return SIE_LAUNCH(output_sparse_kernel, static_cast<uint32_t>(a.seqs.cap), sparse_threads,
                    sparse_warps * sizeof(int32_t), share->on, a);
}

}  // namespace sie_cuda
