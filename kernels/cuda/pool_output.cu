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

template <Storage S>
sie_status launch_tokens(const OutputJob &job, const sie_stream *on) {
  const PoolShape shape = pool_shape(job.c);
  if (shape.octets == 1) return launch_tokens<S, 1>(job, shape.warps, on);
  if (shape.octets == 2) return launch_tokens<S, 2>(job, shape.warps, on);
  return shape.octets == 3 ? launch_tokens<S, 3>(job, shape.warps, on) : SIE_UNSUPPORTED;
}

// Whether sequences of up to `longest` rows (0: of any number) are pooled in parts.
bool in_parts(int64_t longest) { return longest == 0 || longest > part_rows; }

// Bytes of a part's sums and of its weights.
int64_t part_bytes(int64_t c) {
  return static_cast<int64_t>(sizeof(float)) * padded_columns(static_cast<int32_t>(c)) +
         static_cast<int64_t>(sizeof(double));
}

// Places of the parts of sequences with so many rows together.
int64_t part_places(int64_t rows, int64_t seqs) { return rows / part_rows + seqs; }

template <Storage S, PoolBy By>
sie_status launch_parts(const OutputJob &job, const PoolParts &parts, uint32_t grid, const PoolShape &shape,
                        const sie_stream *on) {
  const sie_status status =
      SIE_LAUNCH((pool_part_kernel<S, By>), dim3(grid, static_cast<uint32_t>(shape.octets)), pool_threads,
                 part_shared_bytes, on, job, parts, shape.warps);
  if (status != SIE_OK) return status;
  return SIE_LAUNCH((pool_join_kernel<By>), job.seqs.cap, join_threads, join_shared_bytes(job.c), on, job,
                    parts);
}

template <Storage S>
sie_status launch_parts(const OutputJob &job, int32_t longest, const sie_share *share) {
  const PoolShape shape = pool_shape(job.c);
  int64_t places = share->scratch_bytes / part_bytes(job.c);
  if (share->scratch == nullptr || places < job.seqs.cap) return SIE_INVALID_ARGUMENT;
  float *const sums = static_cast<float *>(share->scratch);
  const PoolParts parts = {sums, reinterpret_cast<double *>(sums + places * padded_columns(job.c))};
  if (longest > 0 && places > part_places(longest, 1) * job.seqs.cap)
    places = part_places(longest, 1) * job.seqs.cap;
  // No more CTAs than run at a time.
  int64_t grid = (2 * int64_t{share->on->multiprocessors} + shape.octets - 1) / shape.octets;
  if (grid > places) grid = places;
  const uint32_t ctas = static_cast<uint32_t>(grid < 1 ? 1 : grid);
  if (job.mode == SIE_POOL_MAX) return launch_parts<S, PoolBy::size>(job, parts, ctas, shape, share->on);
  if (job.mode == SIE_POOL_WEIGHTED_MEAN)
    return launch_parts<S, PoolBy::place>(job, parts, ctas, shape, share->on);
  return launch_parts<S, PoolBy::sum>(job, parts, ctas, shape, share->on);
}

template <Storage S>
sie_status launch(const OutputJob &job, int32_t longest, const sie_share *share) {
  if (job.mode == SIE_POOL_ATTENTION || !in_parts(longest)) return launch_tokens<S>(job, share->on);
  return launch_parts<S>(job, longest, share);
}

sie_status launch(const OutputJob &job, int32_t longest, const sie_share *share) {
  const bool one_row = job.cu_seqlens == nullptr || job.mode == SIE_POOL_CLS || job.mode == SIE_POOL_LAST;
  if (one_row) return launch_output_rows(job, share->on);
  switch (storage_of(job.c, job.x)) {
    case Storage::bf16:
      return launch<Storage::bf16>(job, longest, share);
    case Storage::f16:
      return launch<Storage::f16>(job, longest, share);
    default:
      return launch<Storage::any>(job, longest, share);
  }
}

// What pool and pool_output have in common.
template <class Args>
OutputJob job_of(const Args &a) {
  OutputJob job = {};
  job.seqs = a.seqs;
  job.cu_seqlens = a.cu_seqlens;
  job.mode = a.mode;
  job.c = static_cast<int32_t>(a.c);
  job.x = a.x;
  job.w = a.w;
  job.index = a.index;
  job.cu_whole = a.cu_whole;
  return job;
}

// The checks that both share.
sie_status check(const OutputJob &job, int64_t c, int32_t longest, bool empty) {
  if (c < 1 || longest < 0 || missing(empty, job.seqs.n) || !valid_rows(job.x, c, empty))
    return SIE_INVALID_ARGUMENT;
  if (job.mode < SIE_POOL_CLS || job.mode > SIE_POOL_MEAN_SQRT) return SIE_INVALID_ARGUMENT;
  if (job.mode == SIE_POOL_ATTENTION && missing(empty, job.w)) return SIE_INVALID_ARGUMENT;
  if ((job.index == nullptr) != (job.cu_whole == nullptr)) return SIE_INVALID_ARGUMENT;
  if (!is_float(job.x.dtype) || c > max_columns) return SIE_UNSUPPORTED;
  const bool one_row = job.cu_seqlens == nullptr || job.mode == SIE_POOL_CLS || job.mode == SIE_POOL_LAST;
  return one_row || c <= row_columns_max ? SIE_OK : SIE_UNSUPPORTED;
}

}  // namespace

int64_t pool_scratch(const sie_op_bounds *bounds) {
  if (bounds->c < 1 || bounds->c > row_columns_max || !in_parts(bounds->max_len)) return 0;
  return part_places(bounds->rows, bounds->seqs) * part_bytes(bounds->c);
}

sie_status pool(const sie_pool_args *args, const sie_share *share) {
  const sie_pool_args &a = *args;
  OutputJob job = job_of(a);
  job.y = a.y;
  bool empty;
  sie_status status = check_launch(share, a.seqs, &empty);
  if (status == SIE_OK) status = check(job, a.c, a.longest, empty);
  if (status != SIE_OK) return status;
  if (a.y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (!valid_rows(a.y, a.c, empty)) return SIE_INVALID_ARGUMENT;
  return empty ? SIE_OK : launch(job, a.longest, share);
}

sie_status pool_output(const sie_pool_output_args *args, const sie_share *share) {
  const sie_pool_output_args &a = *args;
  OutputJob job = job_of(a);
  job.items = a.items;
  job.out = a.out;
  bool empty;
  sie_status status = check_launch(share, a.seqs, &empty);
  if (status == SIE_OK) status = check(job, a.c, a.longest, empty);
  if (status != SIE_OK || empty) return status;
  if (a.items == nullptr || a.out == nullptr) return SIE_INVALID_ARGUMENT;
  return launch(job, a.longest, share);
}

}  // namespace sie_cuda
