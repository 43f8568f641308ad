// qk_norm_rope.cu — instances and launcher.
#include "cuda/qk_norm_rope.cuh"
#include "cuda/rows.h"

namespace sie_cuda {

namespace {

template <Storage S>
sie_status launch_octets(const sie_qk_norm_rope_args &a, const sie_stream *on) {
  const uint32_t grid = row_grid(a.tokens.cap, 1);
  switch (a.head_dim) {
    case 32:
      return SIE_LAUNCH((qk_norm_rope_octets_kernel<S, 32>), grid, row_threads, 0, on, a);
    case 64:
      return SIE_LAUNCH((qk_norm_rope_octets_kernel<S, 64>), grid, row_threads, 0, on, a);
    case 128:
      return SIE_LAUNCH((qk_norm_rope_octets_kernel<S, 128>), grid, row_threads, 0, on, a);
    default:
      return SIE_LAUNCH((qk_norm_rope_octets_kernel<S, 256>), grid, row_threads, 0, on, a);
  }
}

sie_status check(const sie_qk_norm_rope_args &a, bool empty) {
  if (missing(empty, a.tokens.n, a.seqs.n, a.cu_seqlens)) return SIE_INVALID_ARGUMENT;
  if (a.heads < 1 || a.kv_heads < 0 || a.head_dim < 1) return SIE_INVALID_ARGUMENT;
  if (a.rot < 0 || a.rot > a.head_dim || a.rot % 2 != 0) return SIE_INVALID_ARGUMENT;
  if (a.rot > 0 && missing(empty, a.cos, a.sin)) return SIE_INVALID_ARGUMENT;
  if (a.turns != nullptr && a.first_position != nullptr) return SIE_INVALID_ARGUMENT;
  if (!valid_rows(a.q, int64_t{a.heads} * a.head_dim, empty)) return SIE_INVALID_ARGUMENT;
  if (a.k.p != nullptr && a.k.ld < int64_t{a.kv_heads} * a.head_dim) return SIE_INVALID_ARGUMENT;
  if (a.head_dim > rope_head_max || !is_float(a.q.dtype)) return SIE_UNSUPPORTED;
  if (a.k.p != nullptr && a.k.dtype != a.q.dtype) return SIE_UNSUPPORTED;
  // The head form has a warp for each token and head, and counts columns in int32.
  const int64_t heads = int64_t{a.heads} + a.kv_heads;
  return heads * a.head_dim <= max_columns && a.tokens.cap * heads / row_warps < INT32_MAX ? SIE_OK
                                                                                           : SIE_UNSUPPORTED;
}

Storage form_of(const sie_qk_norm_rope_args &a) {
  if (a.turns != nullptr) return Storage::any;
  const bool head = a.head_dim == 32 || a.head_dim == 64 || a.head_dim == 128 || a.head_dim == 256;
  const bool vectors = aligned_vector(a.q_gamma) && aligned_vector(a.k_gamma) &&
                       (a.rot == 0 || (aligned_vector(a.cos) && aligned_vector(a.sin)));
  return head && vectors && a.rot % 16 == 0 ? storage_of(a.head_dim, a.q, a.k) : Storage::any;
}

}  // namespace

sie_status qk_norm_rope(const sie_qk_norm_rope_args *args, const sie_share *share) {
  const sie_qk_norm_rope_args &a = *args;
  bool empty;
  sie_status status = check_launch(share, a.tokens, &empty);
  if (status == SIE_OK) status = check(a, empty);
  if (status != SIE_OK || empty) return status;
  switch (form_of(a)) {
    case Storage::bf16:
      return launch_octets<Storage::bf16>(a, share->on);
    case Storage::f16:
      return launch_octets<Storage::f16>(a, share->on);
    default:
      break;
  }
  const int64_t heads = int64_t{a.heads} + (a.k.p != nullptr ? a.kv_heads : 0);
  return SIE_LAUNCH(qk_norm_rope_heads_kernel, row_grid(a.tokens.cap * heads, 1), row_threads,
                    sizeof(float) * rope_head_max * row_warps, share->on, a);
}

}  // namespace sie_cuda
