// found_items.cu — the kernel of the headers, and the checks that spans and pairs share.
//   header[b] = {Σ counts of the words of sequence b, 0, 0, 0}
// Shapes   found [R, ≥ 32], cu_words [B+1], items [B].
// Cost     a sector of 32 bytes a word: at 384 words of 128 items 1.6 MB, the time of a launch.
// Plan     a warp a sequence.
#include "cuda/found_items.h"

#include "cuda/found_items.cuh"
#include "cuda/row_launch.cuh"

namespace sie_cuda {

namespace {

__global__ void __launch_bounds__(row_threads, 4) found_headers_kernel(const FoundItems a) {
  ptx::grid_dependency_wait();
  const int64_t b = static_cast<int64_t>(blockIdx.x) * row_warps + threadIdx.x / 32;
  if (b >= *a.seqs.n) return;
  ptx::grid_dependency_launch();
  const sie_out_item item = a.items[b];
  if (!is_found_item(item)) return;
  const int32_t last = a.cu_words[b + 1];
  uint32_t count = 0;
  for (int32_t r = a.cu_words[b] + static_cast<int32_t>(ptx::lane_id()); r < last; r += 32) {
    count += static_cast<uint32_t>(a.found[r * a.found_ld]);
  }
  count = ptx::reduce_add(count);
  int32_t *const header = reinterpret_cast<int32_t *>(static_cast<char *>(a.out) + item.offset);
  if (ptx::lane_id() == 0) ptx::store_global_whole(header, make_uint4(count, 0, 0, 0));
}

}  // namespace

sie_status write_found_headers(const FoundItems &items, const sie_stream *on) {
  if (items.seqs.cap == 0) return SIE_OK;
  return SIE_LAUNCH(found_headers_kernel, row_grid(items.seqs.cap, 1), row_threads, 0, on, items);
}

sie_status check_found(const sie_rows &seqs, const int32_t *cu_words, const int32_t *cu_labels,
                       const int32_t *found, int64_t found_ld, const sie_out_item *items, const void *out,
                       int32_t write, bool empty) {
  if (seqs.cap < 0 || found_ld < SIE_FOUND_WORDS || write < 0 || write > 1) return SIE_INVALID_ARGUMENT;
  if (missing(empty, cu_labels, found)) return SIE_INVALID_ARGUMENT;
  if (missing(empty && seqs.cap == 0, seqs.n, cu_words, items)) return SIE_INVALID_ARGUMENT;
  if (write != 0 && missing(seqs.cap == 0, out)) return SIE_INVALID_ARGUMENT;
  return seqs.cap > INT32_MAX ? SIE_UNSUPPORTED : SIE_OK;
}

}  // namespace sie_cuda
