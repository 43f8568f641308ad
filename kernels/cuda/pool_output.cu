// pool_output.cu — instances and launchers of pool and pool_output.
#include "cuda/output_rows.h"
#include "cuda/pool_output.cuh"
#include "cuda/rows.h"

namespace sie_cuda {

namespace {

template <Storage S, int V>
sie_status launch_tokens(const OutputJob &job, int32_t warps_per_row, const sie_stream *on) {
  const size_t shared_bytes = pool_shared_bytes(job.c, warps_per_row);
  if (job.mode == SIE_POOL_ATTENTION) {
    return SIE_LAUNCH((pool_output_kernel<S, V, PoolBy::score>), job.seqs.cap, pool_threads, shared_bytes, on,
                      job, warps_per_row);
  }
  if (job.mode == SIE_POOL_MAX) {
    return SIE_LAUNCH((pool_output_kernel<S, V, PoolBy::size>), job.seqs.cap, pool_threads, shared_bytes, on,
                      job, warps_per_row);
  }
  if (job.mode == SIE_POOL_WEIGHTED_MEAN) {
    return SIE_LAUNCH((pool_output_kernel<S, V, PoolBy::place>), job.seqs.cap, pool_threads, shared_bytes, on,
                      job, warps_per_row);
  }
  return SIE_LAUNCH((pool_output_kernel<S, V, PoolBy::sum>), job.seqs.cap, pool_threads, shared_bytes, on,
                    job, warps_per_row);
}

// V octets a thread and W warps a row, 256·V·W ≥ c. c alone decides, as for everything that fixes
// the order of sums.
template <Storage S>
sie_status launch_tokens(const OutputJob &job, const sie_stream *on) {
  if (job.c <= 256) return launch_tokens<S, 1>(job, 1, on);
  for (int32_t warps = 1; warps <= pool_warps; warps *= 2) {
    if (job.c <= 512 * warps) return launch_tokens<S, 2>(job, warps, on);
    if (job.c <= 768 * warps) return launch_tokens<S, 3>(job, warps, on);
  }
  return SIE_UNSUPPORTED;
}

sie_status launch(const OutputJob &job, const sie_stream *on) {
  const bool one_row = job.cu_seqlens == nullptr || job.mode == SIE_POOL_CLS || job.mode == SIE_POOL_LAST;
  if (one_row) return launch_output_rows(job, on);
  switch (storage_of(job.c, job.x)) {
    case Storage::bf16:
      return launch_tokens<Storage::bf16>(job, on);
    case Storage::f16:
      return launch_tokens<Storage::f16>(job, on);
    default:
      return launch_tokens<Storage::any>(job, on);
  }
}

// The checks that pool and pool_output share.
sie_status check(const OutputJob &job, int64_t c, bool empty) {
  if (c < 1 || missing(empty, job.seqs.n) || !valid_rows(job.x, c, empty)) return SIE_INVALID_ARGUMENT;
  if (job.mode < SIE_POOL_CLS || job.mode > SIE_POOL_MEAN_SQRT) return SIE_INVALID_ARGUMENT;
  if (job.mode == SIE_POOL_ATTENTION && missing(empty, job.w)) return SIE_INVALID_ARGUMENT;
  if ((job.index == nullptr) != (job.cu_whole == nullptr)) return SIE_INVALID_ARGUMENT;
  if (!is_float(job.x.dtype) || c > max_columns) return SIE_UNSUPPORTED;
  const bool one_row = job.cu_seqlens == nullptr || job.mode == SIE_POOL_CLS || job.mode == SIE_POOL_LAST;
  return one_row || c <= row_columns_max ? SIE_OK : SIE_UNSUPPORTED;
}

}  // namespace

sie_status pool(const sie_pool_args *args, const sie_share *share) {
  const sie_pool_args &a = *args;
  OutputJob job = {};
  job.seqs = a.seqs;
  job.cu_seqlens = a.cu_seqlens;
  job.mode = a.mode;
  job.c = static_cast<int32_t>(a.c);
  job.x = a.x;
  job.w = a.w;
  job.index = a.index;
  job.cu_whole = a.cu_whole;
  job.y = a.y;
  bool empty;
  sie_status status = check_launch(share, a.seqs, &empty);
  if (status == SIE_OK) status = check(job, a.c, empty);
  if (status != SIE_OK) return status;
  if (a.y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (!valid_rows(a.y, a.c, empty)) return SIE_INVALID_ARGUMENT;
  return empty ? SIE_OK : launch(job, share->on);
}

sie_status pool_output(const sie_pool_output_args *args, const sie_share *share) {
  const sie_pool_output_args &a = *args;
  OutputJob job = {};
  job.seqs = a.seqs;
  job.cu_seqlens = a.cu_seqlens;
  job.mode = a.mode;
  job.c = static_cast<int32_t>(a.c);
  job.x = a.x;
  job.w = a.w;
  job.index = a.index;
  job.cu_whole = a.cu_whole;
  job.items = a.items;
  job.out = a.out;
  bool empty;
  sie_status status = check_launch(share, a.seqs, &empty);
  if (status == SIE_OK) status = check(job, a.c, empty);
  if (status != SIE_OK || empty) return status;
  if (a.items == nullptr || a.out == nullptr) return SIE_INVALID_ARGUMENT;
  return launch(job, share->on);
}

}  // namespace sie_cuda
