// attention_disentangled — y = softmax(scale·(q·kᵀ + q·K_b + k·Q_b))·v per sequence and head, b the
// row of the tables K and Q by distance.
//   s_j = log₂e·scale·(q·k_j + k_j·Q_b + q·K_b),  b = buckets[position − j]
//   p_j = 2^(s_j − max s),  y = (Σ p_j·v_j)/Σ p_j
// Shapes   as attention's; K, Q [position_rows, H·D], one of them may be absent; buckets
//          [2·reach + 1], never falling. 1 ≤ D ≤ 256; a key head for each head.
// Types    q, k, v, y f32 | bf16, all one type; K, Q f32; computed in f32.
// Mask     full.
// Alias    none.
// Align    element.
// Share    (head, sequence) pairs, heads first, in ranges; where there are fewer than parts, the
//          queries of each pair are split as well.
// Scratch  the head's tables, kᵀ and v of kBlockKeys keys at most, the scores of kSuperRows queries;
//          for longer items also the sums of kChunkRows rows. At D = 64 and 512 rows: 1.1 MB.
// Cost     with w the rows of a table that queries and keys of a tile meet: 2·D·(2 + (w + w')/L)
//          flop a pair. At L = 128 some 2.1 times attention's, at 512 with DeBERTa's buckets 1.7.
// Plan     both tables are packed in panels of columns, as keys are, once for the sequences of a head.
//          K's rows are in reverse, so that both ascend with a vector's lanes. A product begins at a
//          whole vector, so that its loads cross no lines. kSuperRows queries at a time:
//          kLanes keys are multiplied with the rows of Q that these queries meet, and the products
//          brought to the scores through a transposition; then, in tiles of kRows queries, q·kᵀ is
//          added, q is multiplied with the rows of K that the tile meets, and each score takes its
//          own; softmax and values as in attention. A vector of neighbouring distances has
//          neighbouring rows, so it is a load where each has a row of its own, and a load and a
//          permutation where several share one.
// Order    each of the three products is one FMA chain over D, and they are added as s_j says. In a
//          block as attention; blocks begin at multiples of kBlockKeys. So a row's bits depend on its
//          query, its position and the item's keys alone.
// Error    as attention's, with 3·D for D.
// Source   He 2021 §3, arXiv:2006.03654; the blocks: Milakov and Gimelshein 2018, arXiv:1805.02867
#include <float.h>

#include "attention_tile.h"
#include "key_rows.h"
#include "position_rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kBlockKeys = 512;
// Queries for which kLanes keys are multiplied at once. With the keys of a tile that is a whole
// number of panels of distances.
constexpr int64_t kSuperRows = 128;
constexpr int64_t kChunkRows = 9 * kSuperRows;

// Where the intermediates of one head lie in the scratch, in floats. The rows by distance come first.
struct Layout {
  int64_t d;                      // padded to vectors
  int64_t columns;                // of a packed table, in whole panels
  int64_t product_ld, scores_ld;  // room behind the last row for vectors that begin there
  int64_t key_table, query_table, k, v, query, few, product, scores, values, top, total, end;
};

Layout layout_of(int64_t keys, int64_t head_dim, int64_t rows, int64_t reach) {
  const int64_t block = padded(lesser(keys, kBlockKeys)), longer = keys > kBlockKeys ? kChunkRows : 0;
  Layout at;
  at.d = padded(head_dim);
  at.columns = (rows + kPanel - 1) / kPanel * kPanel;
  at.product_ld = padded(rows) + 3 * kLanes;
  at.scores_ld = block + kLanes;
  at.key_table = 2 * padded(distances(reach));
  at.query_table = at.key_table + head_dim * at.columns;
  at.k = at.query_table + head_dim * at.columns;
  at.v = at.k + block * head_dim;
  at.query = at.v + block * at.d;
  at.few = at.query + kSuperRows * at.d;
  at.product = at.few + kLanes * at.d;
  at.scores = at.product + kLanes * at.product_ld;
  at.values = at.scores + kSuperRows * at.scores_ld;
  at.top = at.values + longer * at.d;
  at.total = at.top + longer;
  at.end = at.total + longer;
  return at;
}

// The first column of a column's vector.
SIE_INLINE int64_t vector_of(int64_t column) { return column / kLanes * kLanes; }

// One (sequence, head) pair at work.
template <typename T>
struct Work {
  const sie_attention_args *a;
  Layout at;
  float *scratch;
  DistanceRows by_query, by_key;  // rows of Q by i − j, and of K, in reverse, by j − i
  const T *q;
  T *y;
  Segment<T> k, v;
  int64_t d, queries, keys, position;  // position: of query 0

  float *part(int64_t place) const { return scratch + place; }
};

// `keys` keys from key `first` of the item on, packed; neighbouring queries [row, row + rows).
struct Block {
  int64_t first, keys;
};
struct Tile {
  int64_t row, rows;
};

// out[rows, c − base] = a[rows, D]·(column c of a table in panels), for c from base, a vector's first,
// to the end of the vector of `last`.
SIE_INLINE void multiply_rows(int64_t rows, const float *a, const Layout &at, int64_t d, const float *table,
                              int64_t base, int64_t last, float *out) {
  for (int64_t c = base, vecs; c <= last; c += vecs * kLanes) {
    const int64_t panel = c / kPanel * kPanel;
    vecs = lesser(last / kLanes + 1, panel / kLanes + kVecs) - c / kLanes;
    multiply_tile(rows, vecs, a, at.d, table + panel * d + (c - panel), kPanel, d, out + (c - base),
                  at.product_ld);
  }
}

// s[i, j] = k_j·Q_b of the block's keys and the tile's queries.
template <typename T>
void query_terms(const Work<T> &w, const Block &block, const Tile &tile) {
  const Layout &at = w.at;
  float *const few = w.part(at.few), *const product = w.part(at.product), *const s = w.part(at.scores);
  const int64_t near = w.position + tile.row - block.first;  // the distance of query 0 and key 0
  const int64_t tiles = tile_count(kLanes);
  for (int64_t j = 0; j < block.keys; j += kLanes) {
    for (int64_t m = 0; m < kLanes; m++) {
      const bool there = j + m < block.keys;
      const T *key = there ? w.k.row(block.first + j + m) : nullptr;
      for (int64_t c = 0; c < w.d; c += kLanes)
        vstore(few + m * at.d + c, there ? vload_row(key, c, w.d) : vset(0.0f));
    }
    int64_t base[kLanes], last[kLanes];
    for (int64_t t = 0; t < tiles; t++) {
      const int64_t from = tile_start(kLanes, tiles, t), to = tile_start(kLanes, tiles, t + 1);
      const int64_t low = vector_of(w.by_query.row(near - (j + to - 1))),
                    high = w.by_query.row(near + tile.rows - 1 - (j + from));
      multiply_rows(to - from, few + from * at.d, at, w.d, w.part(at.query_table), low, high,
                    product + from * at.product_ld);
      for (int64_t m = from; m < to; m++) base[m] = low, last[m] = high;
    }
    for (int64_t i = 0; i < tile.rows; i += kLanes) {
      Vec terms[kLanes];
      if (w.by_query.is_linear(near + i - j - (kLanes - 1), 2 * kLanes - 1)) {
        const float *const p = product + (near + i - j + w.by_query.shift);
#pragma GCC unroll 16
        for (int m = 0; m < kLanes; m++) terms[m] = vload(p + (m * at.product_ld - m - base[m]));
      } else {
        for (int m = 0; m < kLanes; m++)
          terms[m] = w.by_query.take(product + m * at.product_ld, base[m], last[m], near + i - j - m);
      }
      vtranspose(terms);
      float *const to = s + i * at.scores_ld + j;
      if (i + kLanes <= tile.rows) {
#pragma GCC unroll 16
        for (int m = 0; m < kLanes; m++) vstore(to + m * at.scores_ld, terms[m]);
      } else {
        for (int m = 0; m < tile.rows - i; m++) vstore(to + m * at.scores_ld, terms[m]);
      }
    }
  }
}

// Adds q·k_j and q·K_b to s [rows, keys], or makes their sum. `near` is the distance of key 0 from
// query 0.
template <typename T>
SIE_INLINE void score_rows(const Work<T> &w, int64_t keys, int64_t near, int64_t rows, const float *query,
                           float *s) {
  const Layout &at = w.at;
  const float *const add = w.a->pos_query.p != nullptr ? s : nullptr;
  for (int64_t n0 = 0; n0 < keys; n0 += kPanel) {
    const int64_t width = padded(lesser(keys - n0, kPanel));
    multiply_tile(kHere, rows, width / kLanes,
                  {query, at.d, w.part(at.k) + n0 * w.d, width, w.d, s + n0, at.scores_ld, nullptr,
                   add != nullptr ? add + n0 : nullptr, at.scores_ld, 0, nullptr, 0});
  }
  if (w.a->pos_key.p == nullptr) return;
  const int64_t base = vector_of(w.by_key.row(near - (rows - 1))), last = w.by_key.row(near + keys - 1);
  float *const product = w.part(at.product);
  multiply_rows(rows, query, at, w.d, w.part(at.key_table), base, last, product);
  for (int64_t m = 0; m < rows; m++) {
    float *const to = s + m * at.scores_ld;
    const float *const p = product + m * at.product_ld;
    for (int64_t j = 0; j < keys; j += kLanes)
      vstore(to + j, vload(to + j) + w.by_key.take(p, base, last, near - m + j));
  }
}

// What an item of several blocks knows of a chunk's rows: the largest score, the sum of the weights,
// and the weighted values [D].
struct Sums {
  float *top, *total, *values;
};

template <typename T>
SIE_INLINE void store_rows(const Work<T> &w, const Tile &tile, const float *out, const float *factor) {
  for (int64_t m = 0; m < tile.rows; m++) {
    T *const y = w.y + (tile.row + m) * w.a->y.ld;
    for (int64_t c = 0; c < w.d; c += kLanes)
      vstore_row(y, c, w.d, vload(out + m * w.at.d + c) * vset(factor[m]));
  }
}

// Softmax and weighted values of kRows rows at most of one block. Where it is the whole item, y is
// written; else it is joined to the sums of these rows.
template <typename T>
void attend_rows(const Work<T> &w, const Block &block, const Tile &tile, float *s, const Sums *sums) {
  alignas(64) float own[kRows * kMaxHeadDim];
  const Layout &at = w.at;
  float most[kRows], sum[kRows];
  for (int64_t m = 0; m < tile.rows; m++) most[m] = sums != nullptr ? sums->top[m] : -__builtin_inff();
  int64_t m = 0;
  for (; m + 3 <= tile.rows; m += 3)
    softmax_rows<3>(s + m * at.scores_ld, at.scores_ld, block.keys, most + m, sum + m);
  for (; m < tile.rows; m++) softmax_rows<1>(s + m * at.scores_ld, 0, block.keys, most + m, sum + m);
  const float *const v = w.part(at.v);
  if (sums == nullptr) {
    value_tile(tile.rows, s, at.scores_ld, v, at.d, {0, block.keys}, nullptr, own);
    for (m = 0; m < tile.rows; m++) sum[m] = 1.0f / sum[m];
    return store_rows(w, tile, own, sum);
  }
  for (m = 0; m < tile.rows; m++) {
    float shrink = 1.0f, *const values = sums->values + m * at.d;
    if (most[m] != sums->top[m]) {
      const Vec by = vpow2_weight(vset(sums->top[m] - most[m]));
      for (int64_t c = 0; c < at.d; c += kLanes) vstore(values + c, vload(values + c) * by);
      shrink = vfirst(by);
    }
    sums->total[m] = sums->total[m] * shrink + sum[m];
    sums->top[m] = most[m];
  }
  value_tile(tile.rows, s, at.scores_ld, v, at.d, {0, block.keys}, sums->values, sums->values);
}

// A block and kSuperRows queries at most.
template <typename T>
void attend_block(const Work<T> &w, const Block &block, const Tile &tile, const Sums *sums) {
  const Layout &at = w.at;
  float *const query = w.part(at.query);
  const Vec factor = vset(w.a->scale * 1.44269504f);
  for (int64_t m = 0; m < tile.rows; m++) {
    const T *const q = w.q + (tile.row + m) * w.a->q.ld;
    for (int64_t c = 0; c < w.d; c += kLanes) vstore(query + m * at.d + c, vload_row(q, c, w.d) * factor);
  }
  if (w.a->pos_query.p != nullptr) query_terms(w, block, tile);
  const int64_t tiles = tile_count(tile.rows);
  for (int64_t i = 0; i < tiles; i++) {
    const int64_t from = tile_start(tile.rows, tiles, i), rows = tile_start(tile.rows, tiles, i + 1) - from;
    float *const s = w.part(at.scores) + from * at.scores_ld;
    score_rows(w, block.keys, block.first - (w.position + tile.row + from), rows, query + from * at.d, s);
    const Sums here =
        sums != nullptr ? Sums{sums->top + from, sums->total + from, sums->values + from * at.d} : Sums{};
    attend_rows(w, block, {tile.row + from, rows}, s, sums != nullptr ? &here : nullptr);
  }
}

template <typename T>
Block pack_block(const Work<T> &w, int64_t first, int64_t keys) {
  pack_keys(w.k.from(first), {0, keys}, keys, w.d, w.part(w.at.k));
  pack_values<false>(w.v.from(first), {0, keys}, w.d, w.at.d, w.part(w.at.v));
  return {first, keys};
}

// A chunk of an item of several blocks.
template <typename T>
void attend_chunk(const Work<T> &w, const Tile &chunk) {
  const Layout &at = w.at;
  const Sums sums = {w.part(at.top), w.part(at.total), w.part(at.values)};
  memset(sums.values, 0, static_cast<size_t>(chunk.rows * at.d) * sizeof(float));
  memset(sums.total, 0, static_cast<size_t>(chunk.rows) * sizeof(float));
  // The lowest of the finite numbers: a block of scores of −∞ must not give −∞ − −∞.
  for (int64_t r = 0; r < chunk.rows; r++) sums.top[r] = -FLT_MAX;
  for (int64_t key = 0; key < w.keys; key += kBlockKeys) {
    const Block block = pack_block(w, key, lesser(w.keys - key, kBlockKeys));
    for (int64_t r = 0; r < chunk.rows; r += kSuperRows) {
      const Sums here = {sums.top + r, sums.total + r, sums.values + r * at.d};
      attend_block(w, block, {chunk.row + r, lesser(chunk.rows - r, kSuperRows)}, &here);
    }
  }
  for (int64_t r = 0; r < chunk.rows; r += kRows) {
    const Tile tile = {chunk.row + r, lesser(chunk.rows - r, kRows)};
    float factor[kRows];
    for (int64_t m = 0; m < tile.rows; m++)  // a row whose scores are all −∞ has no weights
      factor[m] = sums.top[r + m] == -FLT_MAX ? __builtin_nanf("") : 1.0f / sums.total[r + m];
    store_rows(w, tile, sums.values + r * at.d, factor);
  }
}

// Queries [rows.first, rows.last) of a pair.
template <typename T>
void attend_pair(const Work<T> &w, Range rows) {
  const int64_t count = rows.last - rows.first;
  if (count <= 0) return;
  if (w.keys <= 0) {
    for (int64_t r = rows.first; r < rows.last; r++)
      memset(w.y + r * w.a->y.ld, 0, static_cast<size_t>(w.d) * sizeof(T));
    return;
  }
  const bool whole = w.keys <= kBlockKeys;
  const int64_t step = whole ? kSuperRows : kChunkRows, steps = (count + step - 1) / step;
  const Block block = whole ? pack_block(w, 0, w.keys) : Block{};
  for (int64_t i = 0; i < steps; i++) {
    const int64_t from = count * i / steps;
    const Tile tile = {rows.first + from, count * (i + 1) / steps - from};
    if (whole) {
      attend_block(w, block, tile, nullptr);
    } else {
      attend_chunk(w, tile);
    }
  }
}

template <typename T>
void attend_items(const sie_attention_args *a, const sie_share *share) {
  const int64_t seqs = *a->seqs.n, pairs = seqs * a->heads, d = a->head_dim;
  if (pairs <= 0) return;
  const int64_t splits = pairs < share->parts ? (share->parts + pairs - 1) / pairs : 1;
  const Range items = share_of(pairs * splits, share);
  int64_t longest = 0, most_keys = 0;
  for (int64_t b = 0; b < seqs; b++) {
    const int64_t queries = a->cu_q[b + 1] - a->cu_q[b], keys = a->cu_kv[b + 1] - a->cu_kv[b];
    if (keys > most_keys) most_keys = keys;
    if (queries > longest) longest = queries;
  }
  if (most_keys > longest) longest = most_keys;
  Work<T> w = {};
  w.a = a;
  w.d = d;
  w.scratch = static_cast<float *>(share->scratch);
  w.at = layout_of(most_keys, d, a->position_rows, a->bucket_reach);
  const int64_t reach = a->bucket_reach, rows = a->position_rows;
  int32_t *const memory = reinterpret_cast<int32_t *>(w.scratch);
  w.by_query = list_rows(reach, memory, [&](int64_t x) { return a->buckets[x + reach]; });
  w.by_key = list_rows(reach, memory + padded(distances(reach)),
                       [&](int64_t x) { return static_cast<int32_t>(rows) - 1 - a->buckets[reach - x]; });
  int64_t packed = -1;
  for (int64_t item = items.first; item < items.last; item++) {
    const int64_t head = item / splits / seqs, b = item / splits % seqs, column = head * d;
    w.queries = a->cu_q[b + 1] - a->cu_q[b];
    w.keys = a->cu_kv[b + 1] - a->cu_kv[b];
    const Range own = queries_of(a, w.queries);
    const int64_t all = own.last - own.first, split = item % splits;
    if (all <= 0) continue;
    if (packed != head) {
      packed = head;
      if (a->pos_key.p != nullptr)
        pack_rows(a->pos_key, column, d, rows, true, 1.0f, w.by_key.row(-longest), w.by_key.row(longest),
                  w.part(w.at.key_table), kPanel);
      if (a->pos_query.p != nullptr)
        pack_rows(a->pos_query, column, d, rows, false, a->scale * 1.44269504f, w.by_query.row(-longest),
                  w.by_query.row(longest), w.part(w.at.query_table), kPanel);
    }
    w.position = a->queries_first ? 0 : w.keys - w.queries;
    w.q = row_of<const T>(a->q, a->cu_q[b]) + column;
    w.y = row_of<T>(a->y, a->cu_q[b]) + column;
    w.k = {row_of<const T>(a->k, a->cu_kv[b]) + column, a->k.ld};
    w.v = {row_of<const T>(a->v, a->cu_kv[b]) + column, a->v.ld};
    attend_pair(w, {own.first + all * split / splits, own.first + all * (split + 1) / splits});
  }
}

sie_status check(const sie_attention_args *a) {
  if (!is_float(a->q.dtype) || a->k.dtype != a->q.dtype || a->v.dtype != a->q.dtype ||
      a->y.dtype != a->q.dtype) {
    return SIE_UNSUPPORTED;
  }
  if (a->head_dim < 1 || a->head_dim > kMaxHeadDim) return SIE_UNSUPPORTED;
  return check_positions(a);
}

}  // namespace

sie_status attention_disentangled(const sie_attention_args *a, const sie_share *share) {
  const sie_status status = check(a);
  if (status != SIE_OK) return status;
  if (a->q.dtype == SIE_F32) {
    attend_items<float>(a, share);
  } else {
    attend_items<Bf16>(a, share);
  }
  return SIE_OK;
}

int64_t attention_disentangled_scratch(const sie_op_bounds *bounds) {
  if (bounds->head_dim < 1 || bounds->head_dim > kMaxHeadDim) return 0;
  return layout_of(bounds->max_len, bounds->head_dim, bounds->position_rows, bounds->bucket_reach).end *
         static_cast<int64_t>(sizeof(float));
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
