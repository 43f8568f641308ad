// smve.cu — the launcher.
#include "cuda/smve.h"

#include "cuda/row_norms.h"
#include "cuda/smve.cuh"

namespace sie_cuda {

namespace {

int64_t round_up(int64_t n) { return (n + 63) / 64 * 64; }

// The places of the intermediates: byte offsets from the start of scratch.
struct Plan {
  int64_t values, columns, pooled_values, pooled_columns, end;
};

Plan plan_of(int64_t rows, int64_t repetitions, int64_t top) {
  const int64_t lists = round_up(rows * repetitions * top * 4);
  Plan p;
  p.values = round_up(rows * 4);  // behind the norms
  p.columns = p.values + lists;
  p.pooled_values = p.columns + lists;
  p.pooled_columns = p.pooled_values + lists;
  p.end = p.pooled_columns + lists;
  return p;
}

sie_status check(const sie_smve_args &a, bool empty) {
  const bool no_rows = empty || a.rows.cap == 0;
  if (a.c < 1 || a.repetitions < 1 || a.width < 1 || a.top < 1 || a.top > a.width)
    return SIE_INVALID_ARGUMENT;
  if (a.max_nonzeros < 0 || a.rows.cap < 0) return SIE_INVALID_ARGUMENT;
  if (missing(empty, a.seqs.n, a.rows.n, a.cu_seqlens, a.items, a.out)) return SIE_INVALID_ARGUMENT;
  if (!valid_rows(a.x, a.c, no_rows) || missing(no_rows, a.anchors)) return SIE_INVALID_ARGUMENT;
  if (!is_float(a.x.dtype) || a.c > max_columns || a.top > smve_top_max) return SIE_UNSUPPORTED;
  if (a.rows.cap > INT32_MAX || a.repetitions > 65535) return SIE_UNSUPPORTED;  // a grid's second extent
  return int64_t{a.repetitions} * a.width <= INT32_MAX ? SIE_OK : SIE_UNSUPPORTED;
}

}  // namespace

int64_t smve_scratch(const sie_op_bounds *bounds) {
  return plan_of(bounds->rows, bounds->repetitions, bounds->top).end;
}

sie_status smve(const sie_smve_args *args, const sie_share *share) {
  const sie_smve_args &a = *args;
  bool empty;
  sie_status status = check_launch(share, a.seqs, &empty);
  if (status == SIE_OK) status = check(a, empty);
  if (status != SIE_OK || empty) return status;
  const Plan plan = plan_of(a.rows.cap, a.repetitions, a.top);
  if (share->scratch == nullptr || share->scratch_bytes < plan.end) return SIE_INVALID_ARGUMENT;
  char *const scratch = static_cast<char *>(share->scratch);
  float *const norms = reinterpret_cast<float *>(scratch);

  SmveJob job = {};
  job.rows = a.rows;
  job.seqs = a.seqs;
  job.cu_seqlens = a.cu_seqlens;
  job.x = a.x;
  job.norms = a.normalize != 0 ? norms : nullptr;
  job.anchors = a.anchors;
  job.c = static_cast<int32_t>(a.c);
  job.repetitions = a.repetitions;
  job.width = a.width;
  job.top = a.top;
  job.max_nonzeros = a.max_nonzeros;
  job.is_query = a.is_query != 0;
  job.stride = a.rows.cap;
  job.values = reinterpret_cast<float *>(scratch + plan.values);
  job.columns = reinterpret_cast<int32_t *>(scratch + plan.columns);
  job.pooled_values = reinterpret_cast<float *>(scratch + plan.pooled_values);
  job.pooled_columns = reinterpret_cast<int32_t *>(scratch + plan.pooled_columns);
  job.items = a.items;
  job.out = a.out;
  if (a.rows.cap > 0) {
    if (job.norms != nullptr) status = launch_row_norms(a.rows, a.x, job.c, norms, share->on);
    if (status != SIE_OK) return status;
    const dim3 grid(static_cast<uint32_t>((a.rows.cap + smve_rows - 1) / smve_rows),
                    static_cast<uint32_t>(a.repetitions));
    status = SIE_LAUNCH(smve_project_kernel, grid, smve_threads, smve_project_bytes(a.top), share->on, job);
    if (status != SIE_OK) return status;
  }
  return SIE_LAUNCH(smve_kernel, static_cast<uint32_t>(a.seqs.cap), smve_threads, smve_pool_bytes, share->on,
                    job);
}

}  // namespace sie_cuda
