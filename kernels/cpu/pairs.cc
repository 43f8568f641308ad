// pairs — the words and labels of which one of up to three scores is above the item's threshold.
//   h = W·(t_i∘l_c) + U_i + V_c,  y[o] = H_o·relu(h) + b_o. A NaN is not above a threshold.
// Shapes   t [R, K], U [R, N], l [labels, K], V [labels, N], row strides ≥ columns; W packed
//          [N, K], H [n_logits, N]; found [R, ≥ 32]; items [B], dims ≥ 1. R, B, labels ≥ 0,
//          N, K ≥ 1.
// Types    t, U, l, V f32 | bf16; W of class F32, BF16.
// Alias    none.
// Align    element; the packed weight 64 B; items' offsets 16 bytes.
// Share    write 0: words; write 1: sequences.
// Scratch  pairs_tile rows of K elements and of N floats, then that of the linear.
// Cost     2·N·K flop a pair → bound by the linear of the class.
// Plan     the pairs of neighbouring words, word by word, fill tiles of pairs_tile rows t∘l; the
//          linear of the class multiplies a tile out, and each row of N sums is reduced to its logits
//          while it is in the cache. Pass 1 computes a word again of which found keeps some only.
// Error    that of the linear; sums over N in one chain a lane, then a fixed tree.
// Source   Stepanov & Shtopko 2024, arXiv:2406.12925 §3: the scorer; the fold is derived in ops.h
#include "found_items.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

// Elements [i, i + kLanes) of row r.
SIE_INLINE Vec vectors_of(const sie_tensor &x, int64_t r, int64_t i, int64_t c) {
  return x.dtype == SIE_F32 ? vload_row(row_of<const float>(x, r), i, c)
                            : vload_row(row_of<const Bf16>(x, r), i, c);
}

// A tile of pairs in scratch, and where each is found.
struct Tile {
  const sie_pairs_args *a;
  LinearFn linear;
  sie_linear_args product;
  sie_share share;
  int32_t rows;
  int64_t word[pairs_tile], label[pairs_tile];

  // Takes the next pair: row r of the words, row c of the labels.
  void add(int64_t r, int64_t c) {
    const int64_t k = a->k;
    for (int64_t i = 0; i < k; i += kLanes) {
      const Vec x = vectors_of(a->words_x, r, i, k) * vectors_of(a->labels_x, c, i, k);
      if (product.x.dtype == SIE_F32) {
        vstore_row(row_of<float>(product.x, rows), i, k, x);
      } else {
        vstore_row(row_of<Bf16>(product.x, rows), i, k, x);
      }
    }
    word[rows] = r;
    label[rows++] = c;
  }

  // The logits of pair m, after multiply.
  void logits_of(int64_t m, float *y) const {
    const float *const z = row_of<const float>(product.y, m);
    const Vec zero = vset(0.0f);
    Vec sum[3] = {zero, zero, zero};
    for (int64_t i = 0; i < a->n; i += kLanes) {
      const Vec h = vload_row(z, i, a->n) + vectors_of(a->words_u, word[m], i, a->n) +
                    vectors_of(a->labels_u, label[m], i, a->n);
      const Vec relu = vmax(zero, h);  // in this order a NaN stays one
      for (int32_t o = 0; o < a->n_logits; o++)
        sum[o] = vfma(relu, vload_row(a->head + o * a->n, i, a->n), sum[o]);
    }
    for (int32_t o = 0; o < a->n_logits; o++)
      y[o] = vsum(sum[o]) + (a->head_bias != nullptr ? a->head_bias[o] : 0.0f);
  }

  // Multiplies the pairs out and empties the tile; take(r, c, y) gets those above their threshold.
  template <typename Take>
  void multiply(float threshold, Take take) {
    linear(&product, &share);
    for (int64_t m = 0; m < rows; m++) {
      float y[3];
      logits_of(m, y);
      bool above = false;
      for (int32_t o = 0; o < a->n_logits; o++) above |= y[o] > threshold;
      if (above) take(word[m], label[m], y);
    }
    rows = 0;
  }
};

int32_t dtype_of(uint32_t compute) { return compute == SIE_COMPUTE_BF16 ? SIE_BF16 : SIE_F32; }

int64_t x_bytes(int64_t k) { return pairs_tile * float_bytes(k); }
int64_t z_bytes(int64_t n) { return pairs_tile * float_bytes(n); }

void begin_tile(const sie_pairs_args *a, LinearFn linear, const sie_share *share, Tile *tile) {
  char *const x = static_cast<char *>(share->scratch), *const z = x + x_bytes(a->k);
  tile->a = a;
  tile->linear = linear;
  tile->rows = 0;
  tile->product = {};
  tile->product.rows = {pairs_tile, &tile->rows};
  tile->product.n = a->n;
  tile->product.k = a->k;
  tile->product.w = a->w;
  tile->product.x = {x, float_bytes(a->k) / 4, dtype_of(a->w->compute), 0, nullptr, nullptr, nullptr};
  tile->product.y = {z, float_bytes(a->n) / 4, SIE_F32, 0, nullptr, nullptr, nullptr};
  char *const rest = z + z_bytes(a->n);
  tile->share = {0, 1, rest, share->scratch_bytes - (x_bytes(a->k) + z_bytes(a->n)), nullptr};
}

// Fills found for words [first, end) of sequence b, counted in rows.
void find_words(const sie_pairs_args *a, int64_t b, int64_t first, int64_t end, Tile *tile) {
  const sie_label_range of = sie_labels_of(a->cu_labels, a->label_group, b);
  const int64_t label = of.first, last = label + of.count;
  auto take = [=](int64_t r, int64_t c, const float *y) {
    sie_found_add(a->found + r * a->found_ld, a->n_logits, static_cast<int32_t>(c - label), y);
  };
  for (int64_t r = first; r < end; r++) {
    a->found[r * a->found_ld] = 0;
    for (int64_t c = label; c < last; c++) {
      tile->add(r, c);
      if (tile->rows == pairs_tile) tile->multiply(a->items[b].threshold, take);
    }
  }
  tile->multiply(a->items[b].threshold, take);
}

void add_record(const sie_pairs_args *a, int64_t i, int64_t c, const float *y, sie_found_item *item) {
  const int32_t numbers[] = {static_cast<int32_t>(i), static_cast<int32_t>(c)};
  sie_found_record(item, numbers, y, a->n_logits);
}

// Adds the records of word i of sequence b.
void score_word(const sie_pairs_args *a, int64_t b, int64_t i, Tile *tile, sie_found_item *item) {
  const sie_label_range of = sie_labels_of(a->cu_labels, a->label_group, b);
  const int64_t label = of.first, last = label + of.count;
  auto take = [=](int64_t, int64_t c, const float *y) { add_record(a, i, c - label, y, item); };
  for (int64_t c = label; c < last; c++) {
    tile->add(a->cu_words[b] + i, c);
    if (tile->rows == pairs_tile) tile->multiply(a->items[b].threshold, take);
  }
  tile->multiply(a->items[b].threshold, take);
}

}  // namespace

sie_status pairs(const sie_pairs_args *a, const sie_share *share, LinearFn linear) {
  const bool floats = is_float(a->words_x.dtype) && is_float(a->words_u.dtype) &&
                      is_float(a->labels_x.dtype) && is_float(a->labels_u.dtype);
  if (!floats || !are_found_items(a->items, *a->seqs.n)) return SIE_UNSUPPORTED;
  if (a->n_logits < 1 || a->n_logits > 3) return SIE_INVALID_ARGUMENT;
  Tile tile;
  begin_tile(a, linear, share, &tile);
  const sie_status status = linear(&tile.product, &tile.share);  // no rows: only its refusals count
  if (status != SIE_OK) return status;
  if (a->write != 0) {
    write_items(
        a, a->n_logits, 2 + a->n_logits,
        [=](int64_t, int64_t i, int32_t code, const float *y, sie_found_item *item) {
          add_record(a, i, code, y, item);
        },
        [&](int64_t b, int64_t i, sie_found_item *item) { score_word(a, b, i, &tile, item); }, share);
    return SIE_OK;
  }
  const Range words = share_of(*a->words.n, share);
  for (int64_t r = words.first, b = 0; r < words.last;) {
    b = sequence_of(a->cu_words, b, r);
    const int64_t end = words.last < a->cu_words[b + 1] ? words.last : a->cu_words[b + 1];
    find_words(a, b, r, end, &tile);
    r = end;
  }
  return SIE_OK;
}

int64_t pairs_scratch(const sie_op_bounds *bounds) { return x_bytes(bounds->k) + z_bytes(bounds->n); }

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
