// attention_disentangled — y = softmax(scale·(q·kᵀ + q·K_b + k·Q_b))·v per sequence and head, bf16,
// on AMX tiles; b the row of the tables K and Q by distance.
//   t_j = scale·log₂e·((q·k_j + q·K_b) + k_j·Q_b),  b = buckets[position − j]
//   p_j = bf16(2^(t_j − max t)),  y = Σ p_j·v_j / Σ p_j
// Shapes   as attention's; K, Q [position_rows, H·D], one of them may be absent; buckets
//          [2·reach + 1], never falling, and never skipping a row. D = 32, 64, 128 or 256; a key head
//          for each head.
// Types    q, k, v, y bf16; K, Q f32, rounded to bf16 as they are packed.
// Mask     full.
// Alias    none.
// Align    any; 64 B rows of a head load fastest.
// Share    (head, sequence) pairs, heads first, in ranges; where there are fewer than parts, the
//          queries of each pair are split as well.
// Scratch  the head's tables, kᵀ and v of kBlockKeys keys at most, one tile of scores, its products
//          with K and Q; for longer items also the sums of kChunkRows rows. At D = 64 and 512 rows:
//          0.4 MB, for longer items 0.7 MB.
// Cost     beside attention's, with w the rows of K that 32 queries and a block's keys meet, and w'
//          the rows of Q that 32 queries and 32 keys meet, 63 at most: 2·D·w/L + 2·D·w'/32 flop a
//          pair on tiles, and some 8 instructions for 16 pairs on the vector unit.
// Plan     both tables are rounded once for the sequences of a head: K to tiles of columns, in
//          reverse, so that they ascend with the keys, Q to rows. Per 32 queries: q·kᵀ as in
//          attention; q times the columns of K that the tile meets, of which 16 keys take theirs by
//          one load, where each distance has a column of its own, or a load and a permutation. Then,
//          for each 32 keys, the rows of Q that they meet times kᵀ, from the tiles that q·kᵀ reads.
//          In these products the scores of a query lie along a diagonal: four rounds of blends move
//          lane l of each row up by 15 − l rows. Softmax and values as in attention.
// Order    each of the three products is one chain over D, and they are added as t_j says. Blocks as
//          in attention. So a row's bits depend on its query, its position and the item's keys alone.
// Error    as attention's; K and Q have bf16's relative error 2⁻⁹, as q and k have it.
// Source   He 2021 §3, arXiv:2006.03654; the blocks: Milakov and Gimelshein 2018, arXiv:1805.02867
#include <float.h>

#include "amx_softmax.h"
#include "kernels_amx.h"
#include "position_rows.h"

namespace sie_cpu {
namespace {

using SIE_ISA_NS::DistanceRows;

// The rows of Q that kQueryBlock queries and kKeyStep keys meet, in whole tiles.
constexpr int64_t kBandRows = kQueryBlock + kKeyStep;

// Where the intermediates of one head lie in the scratch, in bytes. The rows by distance come first.
struct Layout {
  int64_t scores_ld, product_ld;  // elements
  int64_t key_table, query_table, k, v, q, scores, product, band, values, top, total, end;
};

int64_t lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

Layout layout_of(int64_t keys, int64_t d, int64_t rows, int64_t reach) {
  const int64_t block = whole_steps(lesser(keys, kBlockKeys)), longer = keys > kBlockKeys ? kChunkRows : 0;
  Layout at;
  // The extra line keeps rows of a power-of-two length from sharing one cache set; the product's is
  // for vectors that begin at its last column.
  at.scores_ld = block + 16;
  at.product_ld = whole_steps(rows) + 16;
  at.key_table = lines(2 * SIE_ISA_NS::distances(reach) * 4);
  at.query_table = at.key_table + whole_steps(rows) * d * 2;
  at.k = at.query_table + (rows + kBandRows) * d * 2;  // a tile that begins at the last row
  at.v = at.k + block * d * 2;
  at.q = at.v + block * d * 2;
  at.scores = at.q + kQueryBlock * d * 2;
  at.product = at.scores + kQueryBlock * at.scores_ld * 4;
  at.band = at.product + kQueryBlock * at.product_ld * 4;
  at.values = at.band + kBandRows * kKeyStep * 4;
  at.top = at.values + longer * d * 4;
  at.total = at.top + longer * 4;
  at.end = at.total + longer * 4;
  return at;
}

// One (sequence, head) pair at work.
struct Work {
  const sie_attention_args *args;
  Layout at;
  char *scratch;
  DistanceRows by_query, by_key;  // rows of Q by i − j, and of K, in reverse, by j − i
  const char *q;                  // query 0
  char *y;
  int64_t q_ld, y_ld;  // bytes
  KeyRows k, v;
  int64_t keys, position;  // position: of query 0

  char *part(int64_t place) const { return scratch + place; }
  float *floats(int64_t place) const { return (float *)(scratch + place); }
};

// Packed keys: `keys` of the item from key `first` on.
struct Block {
  int64_t first, keys;
};

// Up to kQueryBlock neighbouring queries.
struct Tile {
  int64_t query, rows;
};

// Rows [first, last) of one head of a table as bf16, row r at dst + 2·D·r; in reverse r is row
// position_rows − 1 − r of the table.
template <int D>
void round_rows(const sie_attention_args *a, const sie_tensor &table, int64_t head, bool reverse, Range rows,
                char *dst) {
  for (int64_t r = rows.first; r < rows.last; r++) {
    const int64_t row = reverse ? a->position_rows - 1 - r : r;
    const float *const from = (const float *)table.p + row * table.ld + head * D;
    for (int i = 0; i < D; i += 32) {
      const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16), _mm512_loadu_ps(from + i));
      _mm512_storeu_si512(dst + 2 * (r * D + i), (__m512i)x);
    }
  }
}

// Packs the tables of a head, of which items of `longest` positions read rows of their distances.
template <int D>
void pack_tables(const Work &w, int64_t head, int64_t longest) {
  const sie_attention_args *const a = w.args;
  char *const rows = w.part(w.at.query_table);
  if (a->pos_key.p) {  // the place of Q's rows takes K's on their way
    const Range steps = {w.by_key.row(-longest) / kKeyStep * kKeyStep,
                         whole_steps(w.by_key.row(longest) + 1)};
    round_rows<D>(a, a->pos_key, head, true, {steps.first, lesser(steps.last, a->position_rows)}, rows);
    pack_keys<D>({nullptr, rows, 0, 2 * D, 0}, 0, a->position_rows, steps, w.part(w.at.key_table));
  }
  if (a->pos_query.p)
    round_rows<D>(a, a->pos_query, head, false, {w.by_query.row(-longest), w.by_query.row(longest) + 1},
                  rows);
}

// Adds q·K_b to the scores of a tile, whose first query is `near` before the block's first key. q has
// 16·RowTiles rows.
template <int D, int RowTiles>
void add_key_terms(const Work &w, const Block &block, int64_t rows, int64_t near, const char *q,
                   int64_t q_ld) {
  const int64_t base = w.by_key.row(near - (rows - 1)), last = w.by_key.row(near + block.keys - 1);
  const int64_t from = base / kKeyStep * kKeyStep, ld = w.at.product_ld;
  float *const product = w.floats(w.at.product);
  query_scores<D, RowTiles>(q, q_ld, w.part(w.at.key_table) + from / 16 * (D / 32) * kTileBytes,
                            {0, whole_steps(last + 1) - from}, product, ld);
  for (int64_t m = 0; m < rows; m++) {
    float *const s = w.floats(w.at.scores) + m * w.at.scores_ld;
    const float *const p = product + m * ld + (base - from);
    for (int64_t j = 0; j < block.keys; j += 16)
      _mm512_store_ps(s + j,
                      _mm512_add_ps(_mm512_load_ps(s + j), w.by_key.take(p, base, last, near - m + j)));
  }
}

// s[i][l] += row i + 15 − l of a band, at its lane l, for 16 rows of s and 16 lanes. rows[n] is where
// row n begins.
void add_diagonals(const float *band, const int32_t *rows, float *s, int64_t ld) {
  __m512 x[31];
#pragma GCC unroll 31
  for (int n = 0; n < 31; n++) x[n] = _mm512_loadu_ps(band + rows[n]);
  // Each round moves the lanes whose bit of 15 − l is set.
#pragma GCC unroll 31
  for (int n = 0; n < 23; n++) x[n] = _mm512_mask_mov_ps(x[n], 0x00ff, x[n + 8]);
#pragma GCC unroll 31
  for (int n = 0; n < 19; n++) x[n] = _mm512_mask_mov_ps(x[n], 0x0f0f, x[n + 4]);
#pragma GCC unroll 31
  for (int n = 0; n < 17; n++) x[n] = _mm512_mask_mov_ps(x[n], 0x3333, x[n + 2]);
#pragma GCC unroll 31
  for (int n = 0; n < 16; n++) {
    const __m512 sum = _mm512_mask_mov_ps(x[n], 0x5555, x[n + 1]);
    _mm512_store_ps(s + n * ld, _mm512_add_ps(_mm512_load_ps(s + n * ld), sum));
  }
}

// Adds k_j·Q_b to the scores of a tile of 16·RowTiles rows, whose first query is `near` behind the
// block's first key.
template <int D, int RowTiles>
void add_query_terms(const Work &w, const Block &block, int64_t queries, int64_t near) {
  float *const band = w.floats(w.at.band);
  const char *const table = w.part(w.at.query_table);
  for (int64_t j = 0; j < block.keys; j += kKeyStep) {
    const int64_t keys = lesser(block.keys - j, kKeyStep);
    const int64_t low = w.by_query.row(near - (j + keys - 1)), high = w.by_query.row(near + queries - 1 - j);
    const char *const k = w.part(w.at.k) + j / 16 * (D / 32) * kTileBytes;
    for (int64_t r = low; r <= high; r += 32) {
      (high - r < 16 ? query_scores<D, 1> : query_scores<D, 2>)(table + 2 * D * r, 2 * D, k, {0, kKeyStep},
                                                                band + (r - low) * kKeyStep, kKeyStep);
    }
    // Of the distances from near − j − 31 on; those that no query and key have take any row.
    int32_t rows[kBandRows];
    for (int64_t n = 0; n < 16 * RowTiles + 31; n++) {
      const int64_t row = w.by_query.row(near - j - 31 + n);
      rows[n] = (int32_t)((row < low ? 0 : lesser(row, high) - low) * kKeyStep);
    }
    for (int t = 0; t < RowTiles; t++) {
      float *const s = w.floats(w.at.scores) + 16 * t * w.at.scores_ld + j;
      add_diagonals(band, rows + 16 * t + 16, s, w.at.scores_ld);
      add_diagonals(band + 16, rows + 16 * t, s + 16, w.at.scores_ld);
    }
  }
}

char *y_of(const Work &w, int64_t query) { return w.y + query * w.y_ld; }

// Attention of one tile to one block. With sums the block is joined to them; without, it is the whole
// item, and y is written.
template <int D, int RowTiles>
void attend_tile(const Work &w, const Block &block, const Tile &tile, const Sums *sums) {
  const Layout &at = w.at;
  const Range keys = {0, block.keys}, steps = steps_of(keys);
  float *const scores = w.floats(at.scores);
  const char *q = w.q + tile.query * w.q_ld;
  int64_t q_ld = w.q_ld;
  if (tile.rows < 16 * RowTiles) {  // a full tile load would run past the last row
    char *const copy = w.part(at.q);
    memset(copy, 0, (size_t)(2 * D * 16 * RowTiles));
    for (int64_t m = 0; m < tile.rows; m++) memcpy(copy + m * 2 * D, q + m * q_ld, 2 * D);
    q = copy;
    q_ld = 2 * D;
  }
  query_scores<D, RowTiles>(q, q_ld, w.part(at.k), steps, scores, at.scores_ld);
  const int64_t near = w.position + tile.query - block.first;
  if (w.args->pos_key.p) add_key_terms<D, RowTiles>(w, block, tile.rows, -near, q, q_ld);
  if (w.args->pos_query.p) add_query_terms<D, RowTiles>(w, block, tile.rows, near);

  const float scale_log2 = w.args->scale * kLog2e;
  float factor[kQueryBlock];  // of the row: 1/Σp in a whole item, else what the values so far shrink by
  for (int64_t m = 0; m < tile.rows; m++) {
    float alone = -__builtin_inff(), *const top = sums ? &sums->top[m] : &alone;
    const float before = *top;
    const float sum = softmax_row(scores + m * at.scores_ld, keys, steps, scale_log2, top);
    factor[m] = sums ? shrink_of(before, *top) : 1.0f / sum;
    if (sums) sums->total[m] = sums->total[m] * factor[m] + sum;
  }
  alignas(64) float weighted[kQueryBlock * 32];
  for (int t = 0; t < D / 32; t++) {
    weighted_values<D, RowTiles>(scores, at.scores_ld, w.part(at.v), steps, t, weighted);
    for (int64_t m = 0; m < tile.rows; m++) {
      const float *const x = weighted + 32 * m;
      if (sums)
        join_row(sums->values + m * D + 32 * t, factor[m], x);
      else
        store_row(x, factor[m], false, y_of(w, tile.query + m) + 64 * t);
    }
  }
}

template <int D>
Block pack_block(const Work &w, int64_t first, int64_t keys) {
  const Range steps = {0, whole_steps(keys)};
  pack_keys<D>(w.k, first, keys, steps, w.part(w.at.k));
  pack_values<D>(w.v, first, keys, steps, w.part(w.at.v));
  return {first, keys};
}

// Neighbouring queries and one block, with sums or without as in attend_tile.
template <int D>
void attend_block(const Work &w, const Block &block, Range queries, const Sums *sums) {
  for (int64_t i = queries.first; i < queries.last; i += kQueryBlock) {
    const Tile tile = {i, lesser(queries.last - i, kQueryBlock)};
    const int64_t row = i - queries.first;
    const Sums here = sums ? Sums{sums->top + row, sums->total + row, sums->values + row * D} : Sums{};
    (tile.rows > 16 ? attend_tile<D, 2> : attend_tile<D, 1>)(w, block, tile, sums ? &here : nullptr);
  }
}

// A chunk of an item of several blocks.
template <int D>
void attend_chunk(const Work &w, Range queries) {
  const Sums sums = {w.floats(w.at.top), w.floats(w.at.total), w.floats(w.at.values)};
  const int64_t rows = queries.last - queries.first;
  memset(sums.values, 0, (size_t)(rows * D * 4));
  memset(sums.total, 0, (size_t)(rows * 4));
  // The lowest of the finite numbers: a block of scores of −∞ must not give −∞ − −∞.
  for (int64_t r = 0; r < rows; r++) sums.top[r] = -FLT_MAX;
  for (int64_t key = 0; key < w.keys; key += kBlockKeys)
    attend_block<D>(w, pack_block<D>(w, key, lesser(w.keys - key, kBlockKeys)), queries, &sums);
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < D; c += 32)
      store_row(sums.values + r * D + c, 1.0f / sums.total[r], false, y_of(w, queries.first + r) + 2 * c);
  }
}

// Queries [queries.first, queries.last) of a pair.
template <int D>
void attend_queries(const Work &w, Range queries) {
  if (w.keys <= 0) {
    for (int64_t i = queries.first; i < queries.last; i++) memset(y_of(w, i), 0, 2 * D);
  } else if (w.keys <= kBlockKeys) {
    attend_block<D>(w, pack_block<D>(w, 0, w.keys), queries, nullptr);
  } else {
    for (int64_t i = queries.first; i < queries.last; i += kChunkRows)
      attend_chunk<D>(w, {i, lesser(i + kChunkRows, queries.last)});
  }
}

KeyRows rows_of_head(const sie_tensor &t, int64_t row, int64_t column) {
  return {nullptr, (const char *)t.p + 2 * (row * t.ld + column), 0, 2 * t.ld, 0};
}

// The pairs of a share. `longest` is what no item has more of, queries or keys.
template <int D>
void attend_items(Work w, Range items, int64_t splits, int64_t longest) {
  const sie_attention_args *const a = w.args;
  int64_t packed = -1;
  for (int64_t item = items.first; item < items.last; item++) {
    const int64_t seqs = *a->seqs.n, head = item / splits / seqs, b = item / splits % seqs, column = head * D;
    const int64_t queries = a->cu_q[b + 1] - a->cu_q[b], split = item % splits;
    const Range all = queries_of(a, queries);
    const int64_t tiles = (all.last - all.first + kQueryBlock - 1) / kQueryBlock;
    const Range own = {all.first + tiles * split / splits * kQueryBlock,
                       lesser(all.first + tiles * (split + 1) / splits * kQueryBlock, all.last)};
    if (own.first >= own.last) continue;
    if (packed != head) pack_tables<D>(w, packed = head, longest);
    w.keys = a->cu_kv[b + 1] - a->cu_kv[b];
    w.position = a->queries_first ? 0 : w.keys - queries;
    w.q_ld = 2 * a->q.ld;
    w.y_ld = 2 * a->y.ld;
    w.q = (const char *)a->q.p + a->cu_q[b] * w.q_ld + 2 * column;
    w.y = (char *)a->y.p + a->cu_q[b] * w.y_ld + 2 * column;
    w.k = rows_of_head(a->k, a->cu_kv[b], column);
    w.v = rows_of_head(a->v, a->cu_kv[b], column);
    attend_queries<D>(w, own);
  }
}

}  // namespace

int64_t attention_disentangled_amx_scratch(const sie_op_bounds *bounds) {
  if (!has_tiles(bounds->head_dim)) return 0;
  return layout_of(bounds->max_len, bounds->head_dim, bounds->position_rows, bounds->bucket_reach).end;
}

sie_status attention_disentangled_amx(const sie_attention_args *a, const sie_share *share) {
  if (a->q.dtype != SIE_BF16 || a->k.dtype != SIE_BF16 || a->v.dtype != SIE_BF16 || a->y.dtype != SIE_BF16)
    return SIE_UNSUPPORTED;
  if (!has_tiles(a->head_dim) || !(a->scale > 0)) return SIE_UNSUPPORTED;
  const sie_status status = SIE_ISA_NS::check_positions(a);
  if (status != SIE_OK) return status;
  const int64_t seqs = *a->seqs.n, pairs = seqs * a->heads, reach = a->bucket_reach, rows = a->position_rows;
  int64_t longest = 0, most_keys = 0;
  for (int64_t b = 0; b < seqs; b++) {
    const int64_t queries = a->cu_q[b + 1] - a->cu_q[b], keys = a->cu_kv[b + 1] - a->cu_kv[b];
    if (keys > most_keys) most_keys = keys;
    if (queries > longest) longest = queries;
  }
  if (most_keys > longest) longest = most_keys;
  Work w = {};
  w.args = a;
  w.at = layout_of(most_keys, a->head_dim, rows, reach);
  w.scratch = (char *)share->scratch;
  int32_t *const memory = (int32_t *)w.scratch;
  w.by_query = SIE_ISA_NS::list_rows(reach, memory, [&](int64_t x) { return a->buckets[x + reach]; });
  w.by_key = SIE_ISA_NS::list_rows(reach, memory + SIE_ISA_NS::distances(reach), [&](int64_t x) {
    return static_cast<int32_t>(rows) - 1 - a->buckets[reach - x];
  });
  if (w.by_query.steep) return SIE_UNSUPPORTED;
  if (pairs <= 0) return SIE_OK;

  AmxTileConfig config;
  amx_config(&config, 16, 16);
  amx_load_config(&config);
  const int64_t splits = pairs < share->parts ? (share->parts + pairs - 1) / pairs : 1;
  const Range items = share_of(pairs * splits, share);
  switch (a->head_dim) {
    case 32:
      attend_items<32>(w, items, splits, longest);
      break;
    case 64:
      attend_items<64>(w, items, splits, longest);
      break;
    case 128:
      attend_items<128>(w, items, splits, longest);
      break;
    default:
      attend_items<256>(w, items, splits, longest);
  }
  amx_release();
  return SIE_OK;
}

}  // namespace sie_cpu
