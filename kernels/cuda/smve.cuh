// smve — the sparse multi-vector encoding of each sequence's rows, as a sparse output row.
//   The formulas are at sie_smve_args (kernels/ops.h). With normalize the rows' norms come first
//   (row_norms.cu), then the largest projections of each row (smve_project.cuh), then this kernel:
//   their sums by column, the values, with a limit the largest of them, the output.
// Shapes   lists [repetitions, R, top] of smve_project; items [B]. repetitions·width < 2³¹.
// Types    values f32 | f16. An item of another type, without room, or with normalize is not
//          written.
// Alias    none.
// Cost     a document of 512 rows, top 32, 65,536 columns: its lists, 131 KB, are read 64 times
//          from L1 or L2, a warp looking for its 1024 columns: 8 MB, some 10 µs on one SM; the
//          projections before take 8.6 GFLOP.
// Plan     a CTA of 8 warps a sequence, smve_range columns at a time in shared memory, each warp's
//          own 1024 of them. Rows ascend, and within a row columns differ, so no addition waits for
//          another. Columns that are not 0 are pooled into scratch, ascending, by counts and
//          ballots. With a limit the limit-th largest magnitude is found bit by bit, and of equals
//          the lower columns stay.
// Error    f32 sums over rows ascending; bits depend on the item alone. A projection within
//          rounding of a row's last kept one may take its place.
// Source   Spisak and Galovic 2026, topk.io/blog/20260311-smve-multi-vector-retrieval
#ifndef SIE_KERNELS_CUDA_SMVE_CUH
#define SIE_KERNELS_CUDA_SMVE_CUH

#include "cuda/smve_project.cuh"
#include "cuda/sparse_row.cuh"

namespace sie_cuda {

constexpr int32_t smve_range = 8192, smve_warp_range = smve_range / smve_warps;

struct SmveShared {
  float *sums;      // [smve_range]
  int32_t *counts;  // [smve_range]
  int32_t *warps;   // [2][smve_warps]
};
constexpr size_t smve_pool_bytes = smve_range * 8 + 2 * smve_warps * 4;

// The sum of x over the warps before this one, and over all. Every thread calls; the lanes of a
// warp pass the same x.
struct Places {
  int32_t before, all;
};
SIE_DEVICE Places smve_places(int32_t x, int32_t *warps) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  if (ptx::lane_id() == 0) warps[warp] = x;
  __syncthreads();
  Places places = {0, 0};
#pragma unroll
  for (int w = 0; w < smve_warps; w++) {
    if (w < warp) places.before += warps[w];
    places.all += warps[w];
  }
  __syncthreads();  // may be overwritten
  return places;
}

SIE_DEVICE uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// Sums and counts of the warp's columns [low, high) over the rows of a sequence; `from`: column of
// the warp's first sum.
SIE_DEVICE void smve_add_rows(const SmveJob &job, int32_t first, int32_t rows, int64_t low, int64_t high,
                              float *sums, int32_t *counts) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id());
  for (int32_t i = lane; i < smve_warp_range; i += 32) sums[i] = 0.0f, counts[i] = 0;
  ptx::sync_warp();
  if (low >= high) return;
  for (int64_t r = low / job.width; r <= (high - 1) / job.width; r++) {
    const int64_t list = (r * job.stride + first) * job.top;
    for (int32_t row = 0; row < rows; row++) {
      for (int32_t e = lane; e < job.top; e += 32) {
        const int64_t at = list + static_cast<int64_t>(row) * job.top + e;
        const int32_t column = job.columns[at];
        if (column < low || column >= high) continue;
        const float value = job.values[at];
        sums[column - low] += value;
        counts[column - low] += value != 0.0f ? 1 : 0;
      }
      ptx::sync_warp();  // the next row may have the same columns in other lanes
    }
  }
}

// Writes the values of a sequence's columns to its place in scratch, ascending; returns their
// number.
SIE_DEVICE int32_t smve_pool(const SmveJob &job, int32_t first, int32_t rows, const SmveShared &shared,
                             float *values, int32_t *columns) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32, lane = static_cast<int32_t>(ptx::lane_id());
  float *const sums = shared.sums + warp * smve_warp_range;
  int32_t *const counts = shared.counts + warp * smve_warp_range;
  const int64_t all = static_cast<int64_t>(job.repetitions) * job.width;
  int32_t pooled = 0;
  for (int64_t base = 0; base < all; base += smve_range) {
    const int64_t low = base + warp * smve_warp_range, end = low + smve_warp_range,
                  high = end < all ? end : all;
    smve_add_rows(job, first, rows, low, high, sums, counts);
    int32_t own = 0;
    for (int32_t i = lane; i < smve_warp_range; i += 32) own += counts[i] != 0 && sums[i] != 0.0f ? 1 : 0;
    const Places places =
        smve_places(static_cast<int32_t>(ptx::reduce_add(static_cast<uint32_t>(own))), shared.warps);
    int32_t place = pooled + places.before;
    for (int32_t i = lane; i < smve_warp_range; i += 32) {
      const bool kept = counts[i] != 0 && sums[i] != 0.0f;
      const uint32_t lanes = ptx::ballot(kept);
      if (kept) {
        const int32_t at = place + __popc(lanes & ((1u << lane) - 1u));
        values[at] = job.is_query ? sums[i] : __fdiv_rn(sums[i], static_cast<float>(counts[i]));
        columns[at] = static_cast<int32_t>(low) + i;
      }
      place += __popc(lanes);
    }
    pooled += places.all;
  }
  __syncthreads();  // pooled values have been written, for all
  return pooled;
}

// The number of values with a magnitude of at least `least`.
SIE_DEVICE int32_t smve_count_from(const float *values, int32_t count, uint32_t least, int32_t *warps) {
  int32_t own = 0;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += smve_threads)
    own += magnitude(values[i]) >= least ? 1 : 0;
  return smve_places(static_cast<int32_t>(ptx::reduce_add(static_cast<uint32_t>(own))), warps).all;
}

__global__ void __launch_bounds__(smve_threads, 2) smve_kernel(const SmveJob job) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(memory);
  const SmveShared shared = {reinterpret_cast<float *>(memory),
                             reinterpret_cast<int32_t *>(memory) + smve_range,
                             reinterpret_cast<int32_t *>(memory) + 2 * smve_range};
  const int64_t b = blockIdx.x;
  if (b >= *job.seqs.n) return;
  const sie_out_item item = job.items[b];
  if (!is_sparse_item(item)) return;
  const int32_t first = job.cu_seqlens[b], rows = job.cu_seqlens[b + 1] - first;
  const int64_t place = static_cast<int64_t>(first) * job.repetitions * job.top;
  float *const values = job.pooled_values + place;
  int32_t *const columns = job.pooled_columns + place;
  const int32_t count = rows > 0 ? smve_pool(job, first, rows, shared, values, columns) : 0;

  // Finds the limit-th largest magnitude bit by bit; of the values equal to it as many as still
  // have room are kept, ascending.
  uint32_t least = 0;
  int32_t equals = 0;
  if (job.max_nonzeros > 0 && count > job.max_nonzeros) {
    for (uint32_t bit = 1u << 30; bit != 0; bit >>= 1) {
      if (smve_count_from(values, count, least | bit, shared.warps) >= job.max_nonzeros) least |= bit;
    }
    equals = job.max_nonzeros - smve_count_from(values, count, least + 1, shared.warps);
  }

  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32, lane = static_cast<int32_t>(ptx::lane_id());
  const int32_t stretch = (count + 32 * smve_warps - 1) / (32 * smve_warps) * 32;
  const int32_t begin = min(count, warp * stretch), end = min(count, begin + stretch);
  int32_t own_larger = 0, own_equal = 0;
  for (int32_t i = begin + lane; i < end; i += 32) {
    own_larger += magnitude(values[i]) > least ? 1 : 0;
    own_equal += magnitude(values[i]) == least ? 1 : 0;
  }
  Places larger =
      smve_places(static_cast<int32_t>(ptx::reduce_add(static_cast<uint32_t>(own_larger))), shared.warps);
  Places equal =
      smve_places(static_cast<int32_t>(ptx::reduce_add(static_cast<uint32_t>(own_equal))), shared.warps);
  const SparseRow to(item, job.out);
  if (threadIdx.x == 0) to.write_header(larger.all + min(equal.all, equals));
  for (int32_t at = begin; at < end; at += 32) {
    const int32_t i = at + lane;
    const float value = i < end ? values[i] : 0.0f;
    const bool is_larger = i < end && magnitude(value) > least,
               is_equal = i < end && magnitude(value) == least;
    const uint32_t larger_lanes = ptx::ballot(is_larger), equal_lanes = ptx::ballot(is_equal),
                   below = (1u << lane) - 1u;
    const int32_t equals_before = equal.before + __popc(equal_lanes & below);
    if (is_larger || (is_equal && equals_before < equals)) {
      to.write(larger.before + __popc(larger_lanes & below) + min(equals_before, equals), columns[i], value);
    }
    larger.before += __popc(larger_lanes);
    equal.before += __popc(equal_lanes);
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_SMVE_CUH
