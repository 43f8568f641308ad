// embed_layernorm — y = LN(word[id] + position[i + offset] + type[type_id])·γ + β, i from 0 in each sequence.
//   μ = Σ s/C,  σ² = Σ (s−μ)²/C,  y = (s−μ)/√(σ²+ε)·γ + β      with s the sum of the three rows, in double
// Shapes   ids, type_ids [T]; cu_seqlens [B+1]; tables [vocab, C], row stride ≥ C; γ, β [C]; y, yq [T, C].
// Types    tables f32 | bf16; y f32 | bf16; yq u8 with scale and zero, quantised from the f32 result.
// Alias    none.                                   Share    sequences.
// Scratch  C doubles and C floats.
#include "rows.h"

namespace sie_ref {

sie_status embed_layernorm(const sie_embed_layernorm_args *a, const sie_share *share) {
  if (!is_float(a->word.dtype) || !is_float(a->y.dtype)) return SIE_UNSUPPORTED;
  double *sum = static_cast<double *>(share->scratch);
  float *out = reinterpret_cast<float *>(sum + a->c);
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    for (int64_t r = a->cu_seqlens[b]; r < a->cu_seqlens[b + 1]; r++) {
      int64_t position = r - a->cu_seqlens[b] + a->position_offset;
      int64_t type = a->type_ids != nullptr ? a->type_ids[r] : 0;
      for (int64_t i = 0; i < a->c; i++) {
        sum[i] = load(a->word, a->ids[r], i);
        if (a->position.p != nullptr) sum[i] += load(a->position, position, i);
        if (a->type.p != nullptr) sum[i] += load(a->type, type, i);
      }
      normalise_row(sum, a->c, a->gamma, a->beta, a->eps, out);
      store_row(out, a->c, a->y, a->yq, r);
    }
  }
  return SIE_OK;
}

}  // namespace sie_ref
