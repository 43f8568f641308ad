// pairs — the words and labels of which one of up to three scores is above the item's threshold.
//   h = W·(t_i∘l_c) + U_i + V_c,  y[o] = H_o·relu(h) + b_o; t∘l rounded once to f32, then to the
//   weight's type; sums in double, W's and y's rounded once to f32. A NaN is not above a threshold.
// Shapes   t [R, K], U [R, N], l [labels, K], V [labels, N], row strides ≥ columns; W [N, K], H
//          [n_logits, N]; found [R, ≥ 32]; items [B], dims ≥ 1. R, B, labels ≥ 0, N, K ≥ 1.
// Types    t, U, l, V f32 | bf16 | f16; W of class F32, BF16 or F16.
// Alias    none.
// Share    write 0: words; write 1: sequences.
// Scratch  K and N floats, then that of the linear.
// Source   Stepanov & Shtopko 2024, arXiv:2406.12925 §3: the scorer; the fold is derived in ops.h
#include "found_items.h"

namespace sie_ref {

namespace {

int32_t dtype_of(uint32_t compute) {
  if (compute == SIE_COMPUTE_BF16) return SIE_BF16;
  return compute == SIE_COMPUTE_F16 ? SIE_F16 : SIE_F32;
}

int64_t floats_of(int64_t n, int64_t k) { return (n + k + 1) / 2 * 2; }

// y[n_logits] of word row i and label row c; z has room for floats_of.
void score_pair(const sie_pairs_args *a, int64_t i, int64_t c, float *z, const sie_share *share, float *y) {
  const int32_t one = 1;
  sie_linear_args product = {};
  product.rows = {1, &one};
  product.n = a->n;
  product.k = a->k;
  product.x = {z + a->n, a->k, dtype_of(a->w->compute), 0, nullptr, nullptr, nullptr};
  product.w = a->w;
  product.y = {z, a->n, SIE_F32, 0, nullptr, nullptr, nullptr};
  for (int64_t k = 0; k < a->k; k++) {
    store(product.x, 0, k, static_cast<float>(load(a->words_x, i, k) * load(a->labels_x, c, k)));
  }
  linear(&product, share);
  for (int32_t o = 0; o < a->n_logits; o++) {
    double sum = a->head_bias != nullptr ? static_cast<double>(a->head_bias[o]) : 0;
    for (int64_t n = 0; n < a->n; n++) {
      const double h = static_cast<double>(z[n]) + load(a->words_u, i, n) + load(a->labels_u, c, n);
      sum += (h < 0 ? 0 : h) * static_cast<double>(a->head[o * a->n + n]);
    }
    y[o] = static_cast<float>(sum);
  }
}

template <typename Emit>
void score_word(const sie_pairs_args *a, int64_t b, int64_t i, const sie_share *share, Emit emit) {
  float *z = static_cast<float *>(share->scratch);
  sie_share alone = {0, 1, z + floats_of(a->n, a->k), 0, nullptr};
  const sie_label_range of = sie_labels_of(a->cu_labels, a->label_group, b);
  for (int64_t c = 0; c < of.count; c++) {
    float y[3];
    score_pair(a, a->cu_words[b] + i, of.first + c, z, &alone, y);
    bool above = false;
    for (int32_t o = 0; o < a->n_logits; o++) above = above || y[o] > a->items[b].threshold;
    if (above) emit(static_cast<int32_t>(c), y);
  }
}

}  // namespace

sie_status pairs(const sie_pairs_args *a, const sie_share *share) {
  bool floats = is_float(a->words_x.dtype) && is_float(a->words_u.dtype) && is_float(a->labels_x.dtype) &&
                is_float(a->labels_u.dtype);
  bool known = a->w->compute == SIE_COMPUTE_F32 || a->w->compute == SIE_COMPUTE_BF16 ||
               a->w->compute == SIE_COMPUTE_F16;
  if (!floats || !known || !are_found_items(a->items, *a->seqs.n)) return SIE_UNSUPPORTED;
  if (a->n_logits < 1 || a->n_logits > 3) return SIE_INVALID_ARGUMENT;
  if (a->write != 0) {
    auto number = [](int64_t, int64_t i, int32_t code, int32_t *numbers) {
      numbers[0] = static_cast<int32_t>(i);
      numbers[1] = code;
    };
    auto score = [=](int64_t b, int64_t i, auto emit) { score_word(a, b, i, share, emit); };
    write_items(a, a->n_logits, 2 + a->n_logits, number, score, share);
    return SIE_OK;
  }
  const Range words = share_of(*a->words.n, share);
  for (int64_t r = words.first, b = 0; r < words.last; r++) {
    b = sequence_of(a->cu_words, b, r);
    int32_t *row = a->found + r * a->found_ld;
    row[0] = 0;
    score_word(a, b, r - a->cu_words[b], share,
               [=](int32_t code, const float *y) { sie_found_add(row, a->n_logits, code, y); });
  }
  return SIE_OK;
}

int64_t pairs_scratch(const sie_op_bounds *bounds) {
  return floats_of(bounds->n, bounds->k) * 4 + (bounds->k + (bounds->n + 1) / 2) * 8;
}

}  // namespace sie_ref
