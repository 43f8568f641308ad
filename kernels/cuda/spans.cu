// spans.cu — launcher.
#include "cuda/spans.cuh"

#include "cuda/found_items.h"
#include "cuda/row_launch.cuh"
#include "cuda/spans.h"

namespace sie_cuda {

sie_status spans(const sie_spans_args *args, const sie_share *share) {
  const sie_spans_args &a = *args;
  bool empty;
  sie_status status = check_launch(share, a.words, &empty);
  if (status != SIE_OK) return status;
  status = check_found(a.seqs, a.cu_words, a.cu_labels, a.found, a.found_ld, a.items, a.out, a.write, empty);
  if (status == SIE_INVALID_ARGUMENT) return status;
  if (a.k < 1 || a.widest < 1 || a.widest > SIE_MAX_SPAN_WIDTH || missing(empty, a.words.n))
    return SIE_INVALID_ARGUMENT;
  // A batch without labels may have no memory for them: nothing is read of it then.
  if (!valid_rows(a.starts, a.k, empty) || !valid_rows(a.ends, a.k, empty) || a.labels.ld < a.k ||
      (a.bias.p != nullptr && a.bias.ld < 1))
    return SIE_INVALID_ARGUMENT;
  const bool floats = is_float(a.starts.dtype) && is_float(a.ends.dtype) && is_float(a.labels.dtype) &&
                      (a.bias.p == nullptr || is_float(a.bias.dtype));
  if (status != SIE_OK || !floats || a.k > max_columns) return SIE_UNSUPPORTED;
  const uint32_t grid = static_cast<uint32_t>((a.words.cap + spans_words - 1) / spans_words);
  if (a.write == 0) {
    if (empty) return SIE_OK;
    return SIE_LAUNCH(spans_find_kernel, grid, spans_threads, spans_shared_bytes, share->on, a);
  }
  status = write_found_headers({a.seqs, a.cu_words, a.found, a.found_ld, a.items, a.out}, share->on);
  if (status != SIE_OK || empty) return status;
  return SIE_LAUNCH(spans_write_kernel, grid, spans_threads, spans_shared_bytes, share->on, a);
}

}  // namespace sie_cuda
