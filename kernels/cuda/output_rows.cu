// output_rows.cu — instances and launchers.
#include "cuda/output_rows.cuh"

#include "cuda/output_rows.h"
#include "cuda/rows.h"

namespace sie_cuda {

namespace {

constexpr int32_t warp_columns_max = 2048;  // wider rows are the CTA's

}  // namespace

sie_status launch_output_rows(const OutputJob &job, const sie_stream *on) {
  if (job.c <= warp_columns_max) {
    return SIE_LAUNCH(output_rows_kernel<1>, row_grid(job.seqs.cap, 1), row_threads, 0, on, job);
  }
  return SIE_LAUNCH(output_rows_kernel<row_warps>, row_grid(job.seqs.cap, row_warps), row_threads,
                    slot_bytes<row_warps>(output_reductions), on, job);
}

sie_status output_rows(const sie_output_rows_args *args, const sie_share *share) {
  const sie_output_rows_args &a = *args;
  bool empty;
  const sie_status status = check_launch(share, a.seqs, &empty);
  if (status != SIE_OK) return status;
  if (a.c < 1 || missing(empty, a.seqs.n, a.items, a.out) || !valid_rows(a.x, a.c, empty)) {
    return SIE_INVALID_ARGUMENT;
  }
  if (a.x.dtype != SIE_F32 || a.c > max_columns) return SIE_UNSUPPORTED;
  if (empty) return SIE_OK;
  OutputJob job = {};
  job.seqs = a.seqs;
  job.c = static_cast<int32_t>(a.c);
  job.x = a.x;
  job.items = a.items;
  job.out = a.out;
  return launch_output_rows(job, share->on);
}

}  // namespace sie_cuda
