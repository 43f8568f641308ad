// embed_layernorm — y = norm(s), s = word_scale·word[id] + position[i + offset] + type[type_id].
//   i counts from 0 in each sequence. s is summed in f32 in that order; the norm is layernorm's, in
//   double. With SIE_NORM_NONE y is s.
// Shapes   ids, type_ids [T]; cu_seqlens [B+1]; tables [vocab, C], row stride ≥ C; γ, β [C]; y, yq
//          [T, C].
// Types    tables, y f32 | bf16 | f16; yq u8 or e4m3 with one scale a row, from the f32 result.
// Alias    none.
// Share    sequences.
// Scratch  2·C floats.
#include "rows.h"

namespace sie_ref {

namespace {

bool supported(const sie_embed_layernorm_args *a) {
  if (!is_float(a->word.dtype) || !is_float(a->y.dtype)) return false;
  if (!is_float_or_absent(a->position) || !is_float_or_absent(a->type)) return false;
  if (a->norm != SIE_NORM_LAYER && a->norm != SIE_NORM_RMS && a->norm != SIE_NORM_NONE) return false;
  return a->yq.p == nullptr || (is_quantised(a->yq) && a->yq.scale_group != 128);
}

}  // namespace

sie_status embed_layernorm(const sie_embed_layernorm_args *a, const sie_share *share) {
  if (!supported(a)) return SIE_UNSUPPORTED;
  const Norm norm = {a->norm, a->gamma, a->beta, a->eps, a->weight_offset};
  const float word_scale = a->word_scale != 0 ? a->word_scale : 1;
  float *sum = static_cast<float *>(share->scratch), *out = sum + a->c;
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    for (int64_t r = a->cu_seqlens[b]; r < a->cu_seqlens[b + 1]; r++) {
      int64_t position = r - a->cu_seqlens[b] + a->position_offset;
      int64_t type = a->type_ids != nullptr ? a->type_ids[r] : 0;
      for (int64_t i = 0; i < a->c; i++) {
        sum[i] = word_scale * static_cast<float>(load(a->word, a->ids[r], i));
        if (a->position.p != nullptr) sum[i] += static_cast<float>(load(a->position, position, i));
        if (a->type.p != nullptr) sum[i] += static_cast<float>(load(a->type, type, i));
      }
      normalise_row(norm, sum, a->c, out);
      store_row(out, a->c, a->y, a->yq, r);
    }
  }
  return SIE_OK;
}

}  // namespace sie_ref
