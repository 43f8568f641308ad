// pairs.cu — instances and launcher.
#include "cuda/pairs.cuh"

#include "cuda/found_items.h"
#include "cuda/gemm_pack.h"
#include "cuda/row_launch.cuh"
#include "cuda/spans.h"

namespace sie_cuda {

namespace {

template <class Product>
sie_status launch_pairs(const PairsArgs &args, const sie_stream *on) {
  const uint32_t grid = static_cast<uint32_t>((args.a.words.cap + pairs_words - 1) / pairs_words);
  if (args.a.write == 0)
    return SIE_LAUNCH(pairs_find_kernel<Product>, grid, pairs_threads, pairs_shared_bytes<Product>, on, args);
  return SIE_LAUNCH(pairs_write_kernel<Product>, grid, pairs_threads, pairs_shared_bytes<Product>, on, args);
}

}  // namespace

sie_status pairs(const sie_pairs_args *args, const sie_share *share) {
  const sie_pairs_args &a = *args;
  bool empty;
  sie_status status = check_launch(share, a.words, &empty);
  if (status != SIE_OK) return status;
  status = check_found(a.seqs, a.cu_words, a.cu_labels, a.found, a.found_ld, a.items, a.out, a.write, empty);
  if (status == SIE_INVALID_ARGUMENT) return status;
  if (a.n < 1 || a.k < 1 || a.n_logits < 1 || a.n_logits > pairs_most || missing(empty, a.words.n, a.head))
    return SIE_INVALID_ARGUMENT;
  if (a.w == nullptr || a.w->n != a.n || a.w->k != a.k || missing(empty, a.w->data))
    return SIE_INVALID_ARGUMENT;
  // A batch without labels may have no memory for them: nothing is read of it then.
  if (!valid_rows(a.words_x, a.k, empty) || !valid_rows(a.words_u, a.n, empty) || a.labels_x.ld < a.k ||
      a.labels_u.ld < a.n)
    return SIE_INVALID_ARGUMENT;
  const bool floats = is_float(a.words_x.dtype) && is_float(a.words_u.dtype) && is_float(a.labels_x.dtype) &&
                      is_float(a.labels_u.dtype);
  const uint32_t compute = a.w->compute;
  const bool known = compute == SIE_COMPUTE_F32 || compute == SIE_COMPUTE_BF16 || compute == SIE_COMPUTE_F16;
  GemmLayout layout;
  if (status != SIE_OK || !floats || !known || a.n > max_columns || a.k > max_columns ||
      !gemm_layout(compute, a.n, a.k, &layout))
    return SIE_UNSUPPORTED;
  if (a.write != 0) {
    status = write_found_headers({a.seqs, a.cu_words, a.found, a.found_ld, a.items, a.out}, share->on);
  }
  if (status != SIE_OK || empty) return status;
  const PairsArgs call = {a, static_cast<const uint8_t *>(a.w->data), layout.k_padded * layout.element};
  if (compute == SIE_COMPUTE_F32) return launch_pairs<PairsProductF32>(call, share->on);
  if (compute == SIE_COMPUTE_BF16) return launch_pairs<PairsProduct16<ptx::Operand::bf16>>(call, share->on);
  return launch_pairs<PairsProduct16<ptx::Operand::f16>>(call, share->on);
}

}  // namespace sie_cuda
