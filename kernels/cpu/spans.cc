// spans — the spans of words whose score for a label is above the item's threshold.
//   y[i,w,c] = relu(A_i + B_(i+w))·M_c + m_c for i + w in the sequence, w < W. One FMA chain a logit,
//   k ascending, then m. A NaN is not above a threshold.
// Shapes   A, B [R, K], M [labels, K], m [labels, 1] or absent, row strides ≥ columns; found
//          [R, ≥ 32]; items [B], dims ≥ 1. R, B, labels ≥ 0, K ≥ 1, 1 ≤ W ≤ 256.
// Types    A, B, M, m f32 | bf16.
// Alias    none.
// Align    element; items' offsets 16 bytes.
// Share    write 0: words; write 1: sequences.
// Scratch  a panel and kRows rows of K floats; kRows rows of labels.
// Cost     2·K flop a span and label → bound by the FMA ports; 3·K for the span itself, once a
//          panel of labels.
// Plan     labels in panels of kPanel, transposed as gemm_tile.h takes its right side. Each word's
//          spans pass them in tiles of kRows widths, whose sums relu(A_i + B_j) lie in scratch; a
//          tile's logits are compared and dropped at once. So the labels of one word come panel by
//          panel, and found keeps the least codes. Pass 1 computes a word again of which found keeps
//          some only: all labels of a tile of widths, in order.
// Error    sie_tol_dot over K, and one rounding of A + B.
// Source   Zaratiana 2024, arXiv:2311.08526 §2: the span layer; the fold is derived in ops.h
#include "found_items.h"
#include "panel.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

// A panel of labels in scratch: rows [first, first + count) of M; first −1: empty. A row that a panel
// begins with belongs to one group of labels, whose end decides count.
struct Labels {
  float *b;  // [K][width], width = count in whole vectors
  int64_t first, count;
  alignas(64) float bias[kPanel];
};

float element(const sie_tensor &x, int64_t row) {
  return x.dtype == SIE_F32 ? *row_of<const float>(x, row)
                            : sie_f32_from_bf16(row_of<const Bf16>(x, row)->bits);
}

void load_labels(const sie_spans_args *a, int64_t first, int64_t count, Labels *panel) {
  if (panel->first == first) return;
  panel->first = first;
  panel->count = count;
  if (a->labels.dtype == SIE_F32) {
    transpose_rows(row_of<const float>(a->labels, first), a->labels.ld, count, a->k, panel->b);
  } else {
    transpose_rows(row_of<const Bf16>(a->labels, first), a->labels.ld, count, a->k, panel->b);
  }
  for (int64_t c = 0; c < kPanel; c++)
    panel->bias[c] = c < count && a->bias.p != nullptr ? element(a->bias, first + c) : 0.0f;
}

// h[m] = relu(s + e[m]) for `count` neighbouring rows e.
template <typename S, typename E>
void add_ends(const S *s, const E *e, int64_t ld, int64_t count, int64_t k, float *h) {
  const Vec zero = vset(0.0f);
  for (int64_t i = 0; i < k; i += kLanes) {
    const Vec start = vload_row(s, i, k);
    // In this order a NaN stays one.
    for (int64_t m = 0; m < count; m++)
      vstore_row(h + m * k, i, k, vmax(zero, start + vload_row(e + m * ld, i, k)));
  }
}

// The sums of spans that begin with word row `row` and have widths w … w + count − 1.
void fill_spans(const sie_spans_args *a, int64_t row, int64_t w, int64_t count, float *h) {
  const bool wide_s = a->starts.dtype == SIE_F32, wide_e = a->ends.dtype == SIE_F32;
  const int64_t end = row + w, ld = a->ends.ld;
  if (wide_s && wide_e)
    add_ends(row_of<const float>(a->starts, row), row_of<const float>(a->ends, end), ld, count, a->k, h);
  else if (wide_s)
    add_ends(row_of<const float>(a->starts, row), row_of<const Bf16>(a->ends, end), ld, count, a->k, h);
  else if (wide_e)
    add_ends(row_of<const Bf16>(a->starts, row), row_of<const float>(a->ends, end), ld, count, a->k, h);
  else
    add_ends(row_of<const Bf16>(a->starts, row), row_of<const Bf16>(a->ends, end), ld, count, a->k, h);
}

// Scratch, and the panel that it holds.
struct Work {
  Labels panel;
  float *h;       // [kRows][K]
  float *logits;  // [kRows][labels in whole vectors]
};

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

void multiply_spans(const Work &work, int64_t rows, int64_t k, float *z, int64_t ldz) {
  const int64_t vecs = vectors_in(work.panel.count);
  multiply_tile(
      kHere, rows, vecs,
      {work.h, k, work.panel.b, vecs * kLanes, k, z, ldz, work.panel.bias, nullptr, 0, 0, nullptr, 0});
}

// Adds what is above the threshold of z [rows][kPanel]: widths from w on, labels from `label` on of
// the sequence's `labels`.
void take_above(const float *z, int64_t rows, int64_t w, int64_t label, int64_t count, int64_t labels,
                float threshold, int32_t *found) {
  const Vec limit = vset(threshold);
  for (int64_t m = 0; m < rows; m++) {
    for (int64_t c = 0; c < count; c += kLanes) {
      uint32_t above = vpositive(vload(z + m * kPanel + c) - limit);
      if (count - c < kLanes) above &= (1u << (count - c)) - 1;
      for (; above != 0; above &= above - 1) {
        const int64_t at = c + __builtin_ctz(above);
        sie_found_add(found, 1, static_cast<int32_t>((w + m) * labels + label + at), z + m * kPanel + at);
      }
    }
  }
}

// Fills found for words [first, end) of sequence b, counted in rows.
void find_words(const sie_spans_args *a, int64_t b, int64_t first, int64_t end, Work *work) {
  const sie_label_range of = sie_labels_of(a->cu_labels, a->label_group, b);
  const int64_t label = of.first, labels = of.count;
  alignas(64) float z[kRows * kPanel];
  for (int64_t r = first; r < end; r++) a->found[r * a->found_ld] = 0;
  for (int64_t c = 0; c < labels; c += kPanel) {
    const int64_t count = least(labels - c, kPanel);
    load_labels(a, label + c, count, &work->panel);
    for (int64_t r = first; r < end; r++) {
      const int64_t widths = least(a->cu_words[b + 1] - r, a->widest), tiles = tile_count(widths);
      for (int64_t t = 0; t < tiles; t++) {
        const int64_t w = tile_start(widths, tiles, t), rows = tile_start(widths, tiles, t + 1) - w;
        fill_spans(a, r, w, rows, work->h);
        multiply_spans(*work, rows, a->k, z, kPanel);
        take_above(z, rows, w, c, count, labels, a->items[b].threshold, a->found + r * a->found_ld);
      }
    }
  }
}

void add_record(int64_t i, int64_t w, int64_t c, float y, sie_found_item *item) {
  const int32_t numbers[] = {static_cast<int32_t>(i), static_cast<int32_t>(w), static_cast<int32_t>(c)};
  sie_found_record(item, numbers, &y, 1);
}

// Adds the records of word i of sequence b.
void score_word(const sie_spans_args *a, int64_t b, int64_t i, Work *work, sie_found_item *item) {
  const sie_label_range of = sie_labels_of(a->cu_labels, a->label_group, b);
  const int64_t label = of.first, labels = of.count, r = a->cu_words[b] + i, ld = vectors_in(labels) * kLanes;
  const int64_t widths = least(a->cu_words[b + 1] - r, a->widest), tiles = tile_count(widths);
  for (int64_t t = 0; t < tiles; t++) {
    const int64_t w = tile_start(widths, tiles, t), rows = tile_start(widths, tiles, t + 1) - w;
    fill_spans(a, r, w, rows, work->h);
    for (int64_t c = 0; c < labels; c += kPanel) {
      load_labels(a, label + c, least(labels - c, kPanel), &work->panel);
      multiply_spans(*work, rows, a->k, work->logits + c, ld);
    }
    for (int64_t m = 0; m < rows; m++) {
      for (int64_t c = 0; c < labels; c++) {
        const float y = work->logits[m * ld + c];
        if (y > a->items[b].threshold) add_record(i, w + m, c, y, item);
      }
    }
  }
}

}  // namespace

sie_status spans(const sie_spans_args *a, const sie_share *share) {
  const bool floats = is_float(a->starts.dtype) && is_float(a->ends.dtype) && is_float(a->labels.dtype) &&
                      is_float_or_absent(a->bias);
  if (!floats || !are_found_items(a->items, *a->seqs.n)) return SIE_UNSUPPORTED;
  if (a->widest < 1 || a->widest > SIE_MAX_SPAN_WIDTH) return SIE_INVALID_ARGUMENT;
  Work work;
  work.panel.b = static_cast<float *>(share->scratch);
  work.panel.first = -1;
  work.h = work.panel.b + float_bytes(kPanel * a->k) / 4;
  work.logits = work.h + float_bytes(kRows * a->k) / 4;
  if (a->write != 0) {
    write_items(
        a, 1, 4,
        [=](int64_t b, int64_t i, int32_t code, const float *y, sie_found_item *item) {
          const int32_t labels = static_cast<int32_t>(sie_labels_of(a->cu_labels, a->label_group, b).count);
          add_record(i, code / labels, code % labels, *y, item);
        },
        [&](int64_t b, int64_t i, sie_found_item *item) { score_word(a, b, i, &work, item); }, share);
    return SIE_OK;
  }
  const Range words = share_of(*a->words.n, share);
  for (int64_t r = words.first, b = 0; r < words.last;) {
    b = sequence_of(a->cu_words, b, r);
    const int64_t end = least(words.last, a->cu_words[b + 1]);
    find_words(a, b, r, end, &work);
    r = end;
  }
  return SIE_OK;
}

int64_t spans_scratch(const sie_op_bounds *bounds) {
  return float_bytes(kPanel * bounds->k) + float_bytes(kRows * bounds->k) +
         float_bytes(kRows * vectors_in(bounds->labels) * kLanes);
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
