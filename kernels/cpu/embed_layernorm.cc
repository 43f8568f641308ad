// embed_layernorm — y = norm(s), s = word_scale·word[id] + position[i + offset] + type[type_id], in
// f32.
//   i counts from 0 in each sequence; the norm is layernorm's, or none: y = s.
// Shapes   ids, type_ids [T]; cu_seqlens [B+1]; tables [vocab, C], row stride ≥ C; γ, β [C]; y, yq
//          [T, C].
// Types    tables f32 | bf16, all one type; y f32 | bf16; yq u8 | e4m3, a scale a row, from the f32
//          result.
// Alias    none.
// Align    element.
// Share    tokens.
// Scratch  C floats: s, then y where yq is wanted.
// Cost     one random row of the word table a token → latency of memory, hidden by prefetching.
// Plan     sum into scratch (L1), then layernorm's row; prefetch the word row two tokens ahead.
// Error    as layernorm.
// Source   Devlin 2018 §3, arXiv:1810.04805
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

template <typename T>
void prefetch_row(const T *row, int64_t c) {
  const char *p = reinterpret_cast<const char *>(row);
  for (int64_t byte = 0; byte < c * static_cast<int64_t>(sizeof(T)); byte += 64) fetch_near(p + byte);
}

template <typename T, typename Y>
void embed_tokens(const sie_embed_layernorm_args *a, Range tokens, float *s) {
  const int64_t ahead = 2, c = a->c;
  const Norm norm = {a->gamma, a->beta, a->eps, a->weight_offset, a->norm == SIE_NORM_LAYER};
  const Vec word_scale = vset(a->word_scale);
  int64_t b = 0;
  for (int64_t t = tokens.first; t < tokens.last; t++) {
    while (t >= a->cu_seqlens[b + 1]) b++;
    if (t + ahead < tokens.last) prefetch_row(row_of<const T>(a->word, a->ids[t + ahead]), c);
    copy_row(row_of<const T>(a->word, a->ids[t]), c, s);
    for (int64_t i = 0; a->word_scale != 0.0f && i < c; i += kLanes)
      vstore_row(s, i, c, vload_row(s, i, c) * word_scale);
    if (a->position.p != nullptr) add_row(s, c, a->position, t - a->cu_seqlens[b] + a->position_offset);
    if (a->type.p != nullptr) add_row(s, c, a->type, a->type_ids != nullptr ? a->type_ids[t] : 0);
    Y *y = row_of<Y>(a->y, t);
    if (a->norm != SIE_NORM_NONE && a->yq.p == nullptr) {
      normalise_row(norm, s, c, y);
      continue;
    }
    if (a->norm != SIE_NORM_NONE) normalise_row(norm, s, c, s);
    copy_row(s, c, y);
    if (a->yq.p != nullptr) quantise_row(s, c, a->yq, t);
  }
}

}  // namespace

sie_status embed_layernorm(const sie_embed_layernorm_args *a, const sie_share *share) {
  if (!is_float(a->word.dtype) || !is_float(a->y.dtype)) return SIE_UNSUPPORTED;
  if (a->norm < SIE_NORM_LAYER || a->norm > SIE_NORM_NONE || !is_twin_or_absent(a->yq))
    return SIE_UNSUPPORTED;
  if (a->position.p != nullptr && a->position.dtype != a->word.dtype) return SIE_UNSUPPORTED;
  if (a->type.p != nullptr && a->type.dtype != a->word.dtype) return SIE_UNSUPPORTED;
  const Range tokens = share_of(*a->tokens.n, share);
  float *scratch = static_cast<float *>(share->scratch);
  const bool from_f32 = a->word.dtype == SIE_F32, to_f32 = a->y.dtype == SIE_F32;
  auto *const run = from_f32 ? (to_f32 ? embed_tokens<float, float> : embed_tokens<float, Bf16>)
                             : (to_f32 ? embed_tokens<Bf16, float> : embed_tokens<Bf16, Bf16>);
  run(a, tokens, scratch);
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
