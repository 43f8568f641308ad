// smve_project — the largest projections of each row in each repetition (smve.cuh).
//   p[a] = Σ_c x[c]·anchors[r, a, c] in f32, ascending c; the `top` largest are kept, of equals the
//   lower a. A NaN is never kept.
// Shapes   x [R, C]; anchors [repetitions, width, C]; kept lists [repetitions, R, top], in no
//          order. top ≤ 256.
// Types    x bf16 | f16 | f32, divided by its norm with normalize; lists f32 and s32.
// Cost     2·R·C·width·repetitions flop → bound by f32 FMA and shared memory, 24 bytes for 8 of
//          them, and by its instructions, 600 a warp for 256 of them: R = 16k, C = 128, width
//          65,536: 275 GFLOP, 15 ms at 30 % of 67 TFLOP/s. Up to 32 rows are one CTA a repetition,
//          whatever the width: 8.6 ms. Tensor cores could do it with split operands, but not in
//          this order.
// Plan     a CTA of 8 warps has 32 rows of one repetition and takes 64 anchors at a time, 32
//          columns of both in shared memory, transposed; a thread sums 4 rows by 2 anchors. Then
//          each warp checks four rows: a comparison with the least projection that a row keeps
//          rejects nearly all; any other replaces it, and the warp finds the new least.
// Order    anchors ascend, so an equal one never displaces another: bits and choice depend on the
//          row alone.
#ifndef SIE_KERNELS_CUDA_SMVE_PROJECT_CUH
#define SIE_KERNELS_CUDA_SMVE_PROJECT_CUH

#include "cuda/rows.cuh"

namespace sie_cuda {

constexpr int smve_threads = row_threads, smve_warps = row_warps;
constexpr int32_t smve_rows = 32;     // of a CTA
constexpr int32_t smve_anchors = 64;  // at a time
constexpr int32_t smve_columns = 32;  // of both, at a time
constexpr int32_t smve_row_stride = smve_rows + 4, smve_anchor_stride = smve_anchors + 4;  // whole float4s
constexpr int32_t smve_top_max = 256;
constexpr int32_t smve_rows_a_warp = smve_rows / smve_warps;

struct SmveJob {
  sie_rows rows, seqs;
  const int32_t *cu_seqlens;
  sie_tensor x;
  const float *norms;  // [R] or NULL
  const float *anchors;
  int32_t c, repetitions, width, top, max_nonzeros;
  bool is_query;
  int64_t stride;           // rows of a repetition's lists
  float *values;            // [repetitions, stride, top]
  int32_t *columns;         // the same; r·width + anchor, −1: none
  float *pooled_values;     // [stride·repetitions·top]: of a sequence from its first row's place on
  int32_t *pooled_columns;  // the same
  const sie_out_item *items;
  void *out;
};

constexpr int32_t smve_tile_floats =
    smve_columns * (smve_row_stride + smve_anchor_stride) + smve_rows * smve_anchor_stride;
constexpr size_t smve_project_bytes(int32_t top) {
  return sizeof(float) * (smve_tile_floats + 2 * smve_rows * static_cast<size_t>(top));
}

// Columns [begin, begin + smve_columns) of the CTA's rows, [column][row]; zeros outside.
SIE_DEVICE void smve_load_rows(const SmveJob &job, int64_t row, int32_t begin, float *to) {
  const bool present = row < *job.rows.n;
  const float norm = job.norms != nullptr && present ? job.norms[row] : 1.0f;
  const int32_t quad = static_cast<int32_t>(threadIdx.x) % 8 * 4;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const int32_t column = begin + quad + j;
    float v = 0.0f;
    if (present && column < job.c) v = load_element(element_at(job.x, row, column), job.x.dtype, 0);
    if (job.norms != nullptr) v = __fdiv_rn(v, norm);
    to[(quad + j) * smve_row_stride + static_cast<int32_t>(threadIdx.x) / 8] = v;
  }
}

// The same columns of anchors [first, first + smve_anchors) of repetition r, [column][anchor];
// zeros outside.
SIE_DEVICE void smve_load_anchors(const SmveJob &job, int32_t r, int32_t first, int32_t begin, float *to) {
  const int32_t anchor = static_cast<int32_t>(threadIdx.x) / 4;
  const bool present = first + anchor < job.width;
  const float *const from = job.anchors + (static_cast<int64_t>(r) * job.width + first + anchor) * job.c;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int32_t quad = static_cast<int32_t>(threadIdx.x) % 4 * 4 + 16 * half, column = begin + quad;
    float v[4] = {};
    if (present && column + 4 <= job.c && ptx::aligned_for<uint4>(from + column)) {
      const float4 q = ptx::load_global<float4>(from + column);
      v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
    } else if (present) {
#pragma unroll
      for (int j = 0; j < 4; j++) v[j] = column + j < job.c ? from[column + j] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) to[(quad + j) * smve_anchor_stride + anchor] = v[j];
  }
}

// What a row keeps so far: `count` entries in shared memory, and in a full list the least, of
// equals the one of the highest column. One whole warp owns it.
struct SmveList {
  float *values;
  int32_t *columns;
  int32_t count, least_at;
  float least;

  // Every lane calls with the same entry.
  SIE_DEVICE void insert(float value, int32_t column, int32_t top) {
    const int32_t at = count < top ? count : least_at;
    if (ptx::lane_id() == 0) {
      values[at] = value;
      columns[at] = column;
    }
    ptx::sync_warp();
    if (count < top) count++;
    if (count == top) find_least();
  }

 private:
  SIE_DEVICE void find_least() {
    float value = 0.0f;
    int32_t column = -1, at = 0;  // −1: nothing yet
    for (int32_t e = static_cast<int32_t>(ptx::lane_id()); e < count; e += 32)
      take(values[e], columns[e], e, &value, &column, &at);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const float other = ptx::shuffle_xor(value, step);
      const int32_t other_column = ptx::shuffle_xor(column, step), other_at = ptx::shuffle_xor(at, step);
      take(other, other_column, other_at, &value, &column, &at);
    }
    least = value;
    least_at = at;
    ptx::sync_warp();  // all have read before one writes
  }
  SIE_DEVICE static void take(float other, int32_t other_column, int32_t other_at, float *value,
                              int32_t *column, int32_t *at) {
    const bool less = *column < 0 || other < *value || (other == *value && other_column > *column);
    if (other_column < 0 || !less) return;
    *value = other;
    *column = other_column;
    *at = other_at;
  }
};

// Offers a row's projections z[smve_anchors] on the anchors of columns from `column` on, `count` of
// them, to its list.
SIE_DEVICE void smve_offer(const float *z, int32_t column, int32_t count, int32_t top, SmveList *list) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id());
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int32_t at = lane + 32 * half;
    const float own = z[at];
    // A NaN is not larger than anything.
    const bool better = list->count < top ? own == own : own > list->least;
    uint32_t marks = ptx::ballot(at < count && better);
    while (marks != 0) {
      const int32_t from = __ffs(static_cast<int>(marks)) - 1;
      marks &= marks - 1;
      const float value = ptx::shuffle_from(own, from);
      if (list->count < top || value > list->least) list->insert(value, column + from + 32 * half, top);
    }
  }
}

__global__ void __launch_bounds__(smve_threads, 2) smve_project_kernel(const SmveJob job) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  float *const rows = reinterpret_cast<float *>(shared);
  float *const anchors = rows + smve_columns * smve_row_stride;
  float *const z = anchors + smve_columns * smve_anchor_stride;
  float *const values = z + smve_rows * smve_anchor_stride;
  int32_t *const columns = reinterpret_cast<int32_t *>(values + smve_rows * job.top);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * smve_rows;
  if (first_row >= *job.rows.n) return;
  ptx::grid_dependency_launch();
  const int32_t r = static_cast<int32_t>(blockIdx.y), thread = static_cast<int32_t>(threadIdx.x);
  const int32_t warp = thread / 32, lane = thread % 32;

  SmveList lists[smve_rows_a_warp];
#pragma unroll
  for (int i = 0; i < smve_rows_a_warp; i++) {
    const int32_t row = warp * smve_rows_a_warp + i;
    lists[i] = {values + row * job.top, columns + row * job.top, 0, 0, 0.0f};
#pragma unroll 1
    for (int32_t e = lane; e < job.top; e += 32) {
      lists[i].values[e] = 0.0f;
      lists[i].columns[e] = -1;  // none
    }
  }
  const int32_t own_rows = thread % 8 * 4, own_anchors = thread / 8 * 2;
  for (int32_t first = 0; first < job.width; first += smve_anchors) {
    float sum[4][2] = {};
    for (int32_t begin = 0; begin < job.c; begin += smve_columns) {
      __syncthreads();  // the old contents have been read
      smve_load_rows(job, first_row + thread / 8, begin, rows);
      smve_load_anchors(job, r, first, begin, anchors);
      __syncthreads();
#pragma unroll 8
      for (int32_t column = 0; column < smve_columns; column++) {
        const float4 x = ptx::load_shared<float4>(rows + column * smve_row_stride + own_rows);
        const float2 anchor = ptx::load_shared<float2>(anchors + column * smve_anchor_stride + own_anchors);
        const float xs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
          sum[i][0] = __fmaf_rn(xs[i], anchor.x, sum[i][0]);
          sum[i][1] = __fmaf_rn(xs[i], anchor.y, sum[i][1]);
        }
      }
    }
    // The barriers of the columns' loop separate these writes from the reads of the last anchors.
#pragma unroll
    for (int i = 0; i < 4; i++)
      ptx::store_shared(z + (own_rows + i) * smve_anchor_stride + own_anchors,
                        make_float2(sum[i][0], sum[i][1]));
    __syncthreads();
    const int32_t count = min(smve_anchors, job.width - first);
#pragma unroll
    for (int i = 0; i < smve_rows_a_warp; i++) {
      smve_offer(z + (warp * smve_rows_a_warp + i) * smve_anchor_stride, r * job.width + first, count,
                 job.top, &lists[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < smve_rows_a_warp; i++) {
    const int64_t row = first_row + warp * smve_rows_a_warp + i;
    if (row >= *job.rows.n) break;
    const int64_t to = (r * job.stride + row) * job.top;
#pragma unroll 1
    for (int32_t e = lane; e < job.top; e += 32) {
      job.values[to + e] = lists[i].values[e];
      job.columns[to + e] = lists[i].columns[e];
    }
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_SMVE_PROJECT_CUH
