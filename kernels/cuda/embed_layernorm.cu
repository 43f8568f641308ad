// embed_layernorm.cu — instances and launcher.
#include "cuda/embed_layernorm.cuh"
#include "cuda/rows.h"

namespace sie_cuda {

namespace {

template <Storage S>
sie_status launch(const sie_embed_layernorm_args &a, const sie_stream *on) {
  return with_row_shape(a.c, [&](auto shape) {
    constexpr int V = decltype(shape)::V, W = decltype(shape)::W;
    return SIE_LAUNCH((embed_layernorm_kernel<S, V, W>), row_grid(a.tokens.cap, W), row_threads,
                      slot_bytes<W>(norm_reductions), on, a);
  });
}

sie_status check(const sie_embed_layernorm_args &a, bool empty) {
  if (a.c < 1 || missing(empty, a.tokens.n, a.seqs.n, a.ids, a.cu_seqlens)) return SIE_INVALID_ARGUMENT;
  if (a.norm < SIE_NORM_LAYER || a.norm > SIE_NORM_NONE) return SIE_INVALID_ARGUMENT;
  if (a.norm != SIE_NORM_NONE && missing(empty, a.gamma)) return SIE_INVALID_ARGUMENT;
  if (!valid_rows(a.word, a.c, empty) || (!empty && a.y.p == nullptr && a.yq.p == nullptr))
    return SIE_INVALID_ARGUMENT;
  if (a.c > row_columns_max) return SIE_UNSUPPORTED;
  const sie_status status = check_float_rows(a.c, a.word, a.position, a.type, a.y);
  return status == SIE_OK ? check_f8_rows(a.yq, a.c, -1) : status;
}

}  // namespace

sie_status embed_layernorm(const sie_embed_layernorm_args *args, const sie_share *share) {
  const sie_embed_layernorm_args &a = *args;
  bool empty;
  sie_status status = check_launch(share, a.tokens, &empty);
  if (status == SIE_OK) status = check(a, empty);
  if (status != SIE_OK || empty) return status;
  Storage storage = storage_of(a.c, a.word, a.position, a.type, a.y);
  if (!aligned_vector(a.gamma) || !aligned_vector(a.beta) || !aligned_rows(a.yq, 1)) storage = Storage::any;
  switch (storage) {
    case Storage::bf16:
      return launch<Storage::bf16>(a, share->on);
    case Storage::f16:
      return launch<Storage::f16>(a, share->on);
    default:
      return launch<Storage::any>(a, share->on);
  }
}

}  // namespace sie_cuda
