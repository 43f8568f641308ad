// output_sparse — the columns of each row with x > 0, and t(x) of them, as sparse output rows.
//   t(x) = x, log(1 + x) or log(1 + log(1 + x)). A NaN is not > 0.
// Shapes   x [B, C], row stride ≥ C; items [B], dims ≥ 1. B ≥ 0, 1 ≤ C ≤ 2²⁰.
// Types    x f32; values f32 | f16. An item of another type, without room, or with normalize is not
//          written.
// Alias    none.
// Align    out and the items' offsets 16 bytes; x any, 128-bit loads where it allows.
// Cost     4·B·C bytes read from memory, once more from L2 → memory bound: B = 128, C = 30,522
//          15.6 MB, 5 µs at 3.0 TB/s; what is kept, some 200 columns a row, is little.
// Plan     a CTA of 16 warps a row, each warp a stretch of it: count, one barrier, then write.
//          Places come from ballots and the counts of the warps before: ascending columns without
//          an atomic, the same bytes in every run. A lane has four neighbouring columns of 128.
// Error    log1pf, twice at most: ≤ 3·2⁻²³ relative, then the store's rounding.
#ifndef SIE_KERNELS_CUDA_OUTPUT_SPARSE_CUH
#define SIE_KERNELS_CUDA_OUTPUT_SPARSE_CUH

#include "cuda/sparse_row.cuh"

namespace sie_cuda {

constexpr int sparse_threads = 512, sparse_warps = sparse_threads / 32;
constexpr int32_t sparse_step = 128;  // columns of a warp at a time

// Columns [column, column + 4) of a row, and which of them are > 0; none from c on.
SIE_DEVICE uint32_t load_kept(const float *row, int32_t column, int32_t c, float (&v)[4]) {
  if (column + 4 <= c && ptx::aligned_for<uint4>(row + column)) {
    const float4 q = ptx::load_global<float4>(row + column);
    v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
  } else {
#pragma unroll
    for (int j = 0; j < 4; j++) v[j] = column + j < c ? row[column + j] : 0.0f;
  }
  uint32_t kept = 0;
#pragma unroll
  for (int j = 0; j < 4; j++) kept |= v[j] > 0.0f ? 1u << j : 0u;
  return kept;
}

__global__ void __launch_bounds__(sparse_threads, 2) output_sparse_kernel(const sie_output_sparse_args a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  int32_t *const counts = reinterpret_cast<int32_t *>(shared);  // of the warps
  const int64_t b = blockIdx.x;
  if (b >= *a.seqs.n) return;
  const sie_out_item item = a.items[b];
  if (!is_sparse_item(item)) return;
  const int32_t c = static_cast<int32_t>(a.c), lane = static_cast<int32_t>(ptx::lane_id());
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const float *const row = static_cast<const float *>(a.x.p) + b * a.x.ld;
  const int32_t steps = (c + sparse_warps * sparse_step - 1) / (sparse_warps * sparse_step);
  const int32_t begin = min(c, warp * steps * sparse_step), end = min(c, begin + steps * sparse_step);

  int32_t own = 0;
#pragma unroll 4
  for (int32_t at = begin; at < end; at += sparse_step) {
    float v[4];
    own += __popc(load_kept(row, at + 4 * lane, end, v));
  }
  const int32_t of_warp = static_cast<int32_t>(ptx::reduce_add(static_cast<uint32_t>(own)));
  if (lane == 0) counts[warp] = of_warp;
  __syncthreads();
  ptx::grid_dependency_launch();

  int32_t place = 0, all = 0;
#pragma unroll
  for (int w = 0; w < sparse_warps; w++) {
    if (w < warp) place += counts[w];
    all += counts[w];
  }
  const SparseRow to(item, a.out);
  if (threadIdx.x == 0) to.write_header(all);
  for (int32_t at = begin; at < end && place < item.dims; at += sparse_step) {
    float v[4];
    const uint32_t kept = load_kept(row, at + 4 * lane, end, v);
    int32_t of_step, next = place + place_in_warp(kept, &of_step);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if ((kept >> j & 1u) == 0) continue;
      float value = v[j];
      for (int32_t log = 0; log < a.transform; log++) value = log1pf(value);
      to.write(next++, at + 4 * lane + j, value);
    }
    place += of_step;
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_OUTPUT_SPARSE_CUH
