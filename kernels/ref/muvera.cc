// muvera — the fixed dimensional encoding of each sequence's token vectors, as an output row.
//   The formulas are at sie_muvera_args (kernels/ops.h). Tokens and blocks are in double and
//   rounded to f32; the sketch is in f32, in its order.
// Shapes   x [T, C], row stride ≥ C; simhash [R, C, k]; ams [R, C]; sketch [R·2ᵏ·P]; items [B].
// Types    x f32 | bf16 | f16; output types as output_rows.
// Alias    none.
// Share    sequences.
// Scratch  C doubles for the mean, C for a token, 2ᵏ·P for a block, L for norms; F floats; 2ᵏ + L
//          integers.
// Source   Dhulipala 2024 §2, arXiv:2405.19504; the Gray code and the sketch of google/graph-mining
#include "rows.h"

namespace sie_ref {

namespace {

struct Sizes {
  int64_t projected, partitions, block, encoding, out;  // columns
};

Sizes sizes_of(int64_t c, int64_t repetitions, int64_t bits, int64_t projected, int64_t final_dims) {
  Sizes s;
  s.projected = projected != 0 ? projected : c;
  s.partitions = int64_t{1} << bits;
  s.block = s.partitions * s.projected;
  s.encoding = repetitions * s.block;
  s.out = final_dims != 0 ? final_dims : s.encoding;
  return s;
}

// One sequence and its working memory.
struct Item {
  const sie_muvera_args *a;
  Sizes sizes;
  int64_t first, tokens;
  double *mean, *token, *block;  // [C], [C], [2ᵏ·P]
  double *norm;                  // [L]: what each token is divided by
  float *out;                    // [F]
  int32_t *counts, *partition;   // [2ᵏ], [L]
};

double centred(const Item &item, int64_t token, int64_t column) {
  double x = load(item.a->x, item.first + token, column) / item.norm[token];
  if (item.a->center != nullptr) x -= static_cast<double>(item.a->center[column]);
  return x;
}

void find_norms(const Item &item) {
  for (int64_t t = 0; t < item.tokens; t++) {
    double sum = 0;
    for (int64_t c = 0; c < item.a->c; c++) {
      const double x = load(item.a->x, item.first + t, c);
      sum += x * x;
    }
    const double norm = sqrt(sum);
    item.norm[t] = item.a->normalize == 0 ? 1 : (norm < 1e-12 ? 1e-12 : norm);
  }
}

void load_token(const Item &item, int64_t token) {
  for (int64_t c = 0; c < item.a->c; c++) item.token[c] = centred(item, token, c) - item.mean[c];
}

// The partition of the token in item.token: the Gray code of its number has the token's sign bits.
int32_t partition_of(const Item &item, int64_t repetition) {
  const sie_muvera_args *a = item.a;
  int32_t g = 0;
  for (int64_t i = 0; i < a->simhash_bits; i++) {
    double s = 0;
    for (int64_t c = 0; c < a->c; c++)
      s += item.token[c] * static_cast<double>(a->simhash[(repetition * a->c + c) * a->simhash_bits + i]);
    g = 2 * g + ((s > 0 ? 1 : 0) ^ (g & 1));
  }
  return g;
}

// Adds ψ(item.token) to partition g of the block.
void add_token(const Item &item, int64_t repetition, int64_t g) {
  double *sum = item.block + g * item.sizes.projected;
  for (int64_t c = 0; c < item.a->c; c++) {
    if (item.a->projected == 0) {
      sum[c] += item.token[c];
      continue;
    }
    int32_t to = item.a->ams[repetition * item.a->c + c];
    sum[to < 0 ? ~to : to] += to < 0 ? -item.token[c] : item.token[c];
  }
}

// The first token whose bits differ least from those of partition g.
int64_t nearest_token(const Item &item, int32_t g) {
  int64_t nearest = 0;
  int best = 64;
  for (int64_t t = 0; t < item.tokens; t++) {
    int32_t other = item.partition[t];
    int distance = __builtin_popcount(static_cast<uint32_t>((g ^ (g >> 1)) ^ (other ^ (other >> 1))));
    if (distance < best) nearest = t, best = distance;
  }
  return nearest;
}

void fill_block(const Item &item, int64_t repetition) {
  const sie_muvera_args *a = item.a;
  for (int64_t i = 0; i < item.sizes.block; i++) item.block[i] = 0;
  for (int64_t g = 0; g < item.sizes.partitions; g++) item.counts[g] = 0;
  for (int64_t t = 0; t < item.tokens; t++) {
    load_token(item, t);
    item.partition[t] = partition_of(item, repetition);
    item.counts[item.partition[t]]++;
    add_token(item, repetition, item.partition[t]);
  }
  if (a->is_query != 0) return;
  for (int64_t g = 0; g < item.sizes.partitions; g++) {
    double *sum = item.block + g * item.sizes.projected;
    for (int64_t j = 0; j < item.sizes.projected && item.counts[g] > 0; j++) sum[j] /= item.counts[g];
    if (item.counts[g] > 0 || a->fill_empty == 0) continue;
    load_token(item, nearest_token(item, static_cast<int32_t>(g)));
    add_token(item, repetition, g);
  }
}

void encode(const Item &item) {
  const sie_muvera_args *a = item.a;
  for (int64_t j = 0; j < item.sizes.out; j++) item.out[j] = 0;
  if (item.tokens == 0) return;
  find_norms(item);
  for (int64_t c = 0; c < a->c; c++) {
    item.mean[c] = 0;
    for (int64_t t = 0; t < item.tokens && a->center_tokens != 0; t++) item.mean[c] += centred(item, t, c);
    item.mean[c] /= static_cast<double>(item.tokens);
  }
  for (int64_t r = 0; r < a->repetitions; r++) {
    fill_block(item, r);
    for (int64_t i = 0; i < item.sizes.block; i++) {
      int64_t at = r * item.sizes.block + i;
      float v = static_cast<float>(item.block[i]);
      if (a->final_dims == 0) {
        item.out[at] = v;
      } else {
        int32_t to = a->sketch[at];
        item.out[to < 0 ? ~to : to] += to < 0 ? -v : v;
      }
    }
  }
}

}  // namespace

int64_t muvera_scratch(const sie_op_bounds *bounds) {
  if (bounds->simhash_bits < 0 || bounds->simhash_bits > 10) return 0;
  Sizes s =
      sizes_of(bounds->c, bounds->repetitions, bounds->simhash_bits, bounds->projected, bounds->final_dims);
  return (2 * bounds->c + s.block + bounds->max_len) * 8 + s.out * 4 + (s.partitions + bounds->max_len) * 4;
}

sie_status muvera(const sie_muvera_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype)) return SIE_UNSUPPORTED;
  if (a->repetitions < 1 || a->simhash_bits < 0 || a->simhash_bits > 10) return SIE_INVALID_ARGUMENT;
  Item item = {};
  item.a = a;
  item.sizes = sizes_of(a->c, a->repetitions, a->simhash_bits, a->projected, a->final_dims);
  item.mean = static_cast<double *>(share->scratch);
  item.token = item.mean + a->c;
  item.block = item.token + a->c;
  item.norm = item.block + item.sizes.block;
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    item.first = a->cu_seqlens[b];
    item.tokens = a->cu_seqlens[b + 1] - a->cu_seqlens[b];
    item.out = reinterpret_cast<float *>(item.norm + item.tokens);
    item.counts = reinterpret_cast<int32_t *>(item.out + item.sizes.out);
    item.partition = item.counts + item.sizes.partitions;
    encode(item);
    sie_status status = write_item(a->items[b], item.sizes.out, item.out, a->out);
    if (status != SIE_OK) return status;
  }
  return SIE_OK;
}

}  // namespace sie_ref
