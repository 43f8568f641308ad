// splade — y[b, v] = max(0, max over the tokens i of sequence b of (x_i·Wᵀ + bias)[v]); 0 without
// tokens.
//   Each token's logits are those of linear, rounded to f32. A NaN does not count in the maximum.
// Shapes   x [T, K], W [N, K], y [B, N]; cu_seqlens [B+1].
// Types    as linear's x and W; y f32.
// Alias    none.
// Share    sequences.
// Scratch  linear's, then N floats.
#include "rows.h"

namespace sie_ref {

namespace {

// Row t of a tensor with its scales, zero point and outlier.
sie_tensor row_at(const sie_tensor &x, int64_t t, int64_t k) {
  const int64_t size = x.dtype == SIE_F32 ? 4 : (x.dtype == SIE_U8 || x.dtype == SIE_F8E4M3 ? 1 : 2);
  sie_tensor row = x;
  row.p = static_cast<char *>(x.p) + t * x.ld * size;
  if (x.scale != nullptr) row.scale += t * scales_of_row(x, k);
  if (x.zero != nullptr) row.zero += t;
  if (x.outlier != nullptr) row.outlier += t;
  return row;
}

}  // namespace

int64_t splade_scratch(const sie_op_bounds *bounds) {
  return (bounds->k + (bounds->n + 1) / 2) * 8 + bounds->n * 4;
}

sie_status splade(const sie_splade_args *a, const sie_share *share) {
  if (a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  const int32_t none = 0, one = 1;
  float *logits = reinterpret_cast<float *>(static_cast<double *>(share->scratch) + a->k + (a->n + 1) / 2);
  const sie_share whole = {0, 1, share->scratch, share->scratch_bytes, nullptr};
  sie_linear_args token = {};
  token.rows = {1, &none};
  token.n = a->n;
  token.k = a->k;
  token.x = a->x;
  token.w = a->w;
  token.bias = a->bias;
  token.y = {logits, a->n, SIE_F32, 0, nullptr, nullptr, nullptr};
  const sie_status status = linear(&token, &whole);  // refuses what it does not have
  if (status != SIE_OK) return status;
  token.rows.n = &one;
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    float *y = static_cast<float *>(a->y.p) + b * a->y.ld;
    for (int64_t v = 0; v < a->n; v++) y[v] = 0;
    for (int64_t t = a->cu_seqlens[b]; t < a->cu_seqlens[b + 1]; t++) {
      token.x = row_at(a->x, t, a->k);
      linear(&token, &whole);
      for (int64_t v = 0; v < a->n; v++) y[v] = logits[v] > y[v] ? logits[v] : y[v];
    }
  }
  return SIE_OK;
}

}  // namespace sie_ref
