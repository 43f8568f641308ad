// spans — the spans of words whose score for a label is above the item's threshold.
//   y[i,w,c] = relu(A_i + B_(i+w))·M_c + m_c for i + w in the sequence, w < W; sums in double,
//   rounded once to f32, then compared. A NaN is not above a threshold.
// Shapes   A, B [R, K], M [labels, K], m [labels, 1] or absent, row strides ≥ columns; found
//          [R, ≥ 32]; items [B], dims ≥ 1. R, B, labels ≥ 0, K ≥ 1, 1 ≤ W ≤ 256.
// Types    A, B, M, m f32 | bf16 | f16.
// Alias    none.
// Share    write 0: words; write 1: sequences.
// Source   Zaratiana 2024, arXiv:2311.08526 §2: the span layer; the fold is derived in ops.h
#include "found_items.h"

namespace sie_ref {

namespace {

template <typename Emit>
void score_word(const sie_spans_args *a, int64_t b, int64_t i, Emit emit) {
  const int64_t first = a->cu_words[b], words = a->cu_words[b + 1] - first;
  const sie_label_range of = sie_labels_of(a->cu_labels, a->label_group, b);
  const int64_t label = of.first, labels = of.count;
  for (int64_t w = 0; w < a->widest && i + w < words; w++) {
    for (int64_t c = 0; c < labels; c++) {
      double sum = 0;
      for (int64_t k = 0; k < a->k; k++) {
        const double h = load(a->starts, first + i, k) + load(a->ends, first + i + w, k);
        // Not fmax, which would hide a NaN.
        sum += (h < 0 ? 0 : h) * load(a->labels, label + c, k);
      }
      const float y = static_cast<float>(a->bias.p != nullptr ? sum + load(a->bias, label + c, 0) : sum);
      if (y > a->items[b].threshold) emit(static_cast<int32_t>(w * labels + c), &y);
    }
  }
}

}  // namespace

sie_status spans(const sie_spans_args *a, const sie_share *share) {
  bool floats = is_float(a->starts.dtype) && is_float(a->ends.dtype) && is_float(a->labels.dtype) &&
                is_float_or_absent(a->bias);
  if (!floats || !are_found_items(a->items, *a->seqs.n)) return SIE_UNSUPPORTED;
  if (a->widest < 1 || a->widest > SIE_MAX_SPAN_WIDTH) return SIE_INVALID_ARGUMENT;
  if (a->write != 0) {
    auto number = [=](int64_t b, int64_t i, int32_t code, int32_t *numbers) {
      const int32_t labels = static_cast<int32_t>(sie_labels_of(a->cu_labels, a->label_group, b).count);
      numbers[0] = static_cast<int32_t>(i);
      numbers[1] = code / labels;
      numbers[2] = code % labels;
    };
    auto score = [=](int64_t b, int64_t i, auto emit) { score_word(a, b, i, emit); };
    write_items(a, 1, 4, number, score, share);
    return SIE_OK;
  }
  const Range words = share_of(*a->words.n, share);
  for (int64_t r = words.first, b = 0; r < words.last; r++) {
    b = sequence_of(a->cu_words, b, r);
    int32_t *row = a->found + r * a->found_ld;
    row[0] = 0;
    score_word(a, b, r - a->cu_words[b],
               [=](int32_t code, const float *y) { sie_found_add(row, 1, code, y); });
  }
  return SIE_OK;
}

}  // namespace sie_ref
