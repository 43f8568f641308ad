// attention — y = softmax(scale·q·kᵀ − slope·distance + bias)·v, per sequence and head, over the
// visible keys.
//   s_j = (scale·log₂e·q)·k_j − (slope·log₂e)·|position − j| + log₂e·bias[j − position]
//   p_j = 2^(s_j − max s),  y = (Σ p_j·v_j)/Σ p_j
// Shapes   q, y [Rq, H·D], k, v [Rkv, Hkv·D], prefix_k, prefix_v [Rp, Hkv·D], row strides ≥ columns;
//          cu_q, cu_kv [B+1]; prefix_first, prefix_keys [B] or absent; head h reads key head
//          h·Hkv/H. The Lkv keys of a sequence are its prefix's, then its own. Query i of Lq stands
//          at position i + Lkv − Lq, or at i with queries_first. Without visible keys, y is zero.
//          1 ≤ D ≤ 256.
// Types    q, k, v, prefix_k, prefix_v, y f32 | bf16, all one type; computed in f32.
// Mask     full, causal, window. A key behind the mask is never multiplied, not even by 0, where
//          its v is a NaN or an infinity.
// Alias    none.
// Align    element.
// Share    (sequence, key head) pairs in turn; where there are fewer than parts, the queries of
//          each pair are split as well.
// Scratch  kᵀ and v of kBlockKeys keys at most, one tile of scores; for longer items also the sums
//          of kChunkRows rows. At D = 128 and any length that is 1.2 MB.
// Cost     4·D flop and an exponential for each visible pair of a query and a key, rounded up to
//          the vectors of keys that some query of a tile sees.
// Plan     a row is one query of one head. The rows of a key head's group go query by query, so
//          that a tile of kRows rows has neighbouring positions. An item of at most kBlockKeys keys
//          is one block: kᵀ and v are packed into scratch once (f32, dense, padded to vectors) for
//          all its rows. gemm_tile computes the scores of a tile, softmax runs in place, gemm_tile
//          computes the output. A longer item is cut into blocks of kBlockKeys keys. Rows go
//          through them in chunks of at most kChunkRows, each with its largest score, its sum of
//          weights and its sum of weighted values so far (online softmax). Of a block only what the
//          chunk sees is packed.
// Order    scores: one FMA chain over D. In a block: sums over keys lane by lane from the first
//          visible one, then a fixed tree; the output one FMA chain over the keys. Blocks begin at
//          multiples of kBlockKeys from key 0, which is the prefix's first, and are joined in
//          ascending order; one that holds keys of both segments is packed from both. So a row's
//          bits depend on its query, its position and the item's keys alone, not on where they lie.
// Error    |y − ref| ≤ (D + Lk)·2⁻²⁴·max|v| at worst, then bf16 rounding.
// Source   Vaswani 2017 §3.2.1; the blocks: Milakov and Gimelshein 2018, arXiv:1805.02867; the bias:
//          Raffel 2020 §2.1, arXiv:1910.10683
#include <float.h>

#include "attention_tile.h"
#include "key_rows.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

constexpr int64_t kMaxHeadDim = 256;
// kᵀ and v of a block stay in L2 up to D = 128.
constexpr int64_t kBlockKeys = 512;
// Packing a block costs some 2 % of what it takes to multiply it with so many rows.
constexpr int64_t kChunkRows = 1152;

// Where the intermediates of one key head lie in the scratch, in floats.
struct Layout {
  int64_t d;                                   // padded to vectors
  int64_t scores_ld;                           // a vector more than the keys, against sets of L1
  int64_t v, scores, values, top, total, end;  // kᵀ comes first
};

Layout layout_of(int64_t keys, int64_t head_dim) {
  const int64_t block = padded(lesser(keys, kBlockKeys)), rows = keys > kBlockKeys ? kChunkRows : 0;
  Layout at;
  at.d = padded(head_dim);
  at.scores_ld = block + kLanes;
  at.v = block * head_dim;
  at.scores = at.v + block * at.d;
  at.values = at.scores + kRows * at.scores_ld;
  at.top = at.values + rows * at.d;
  at.total = at.top + rows;
  at.end = at.total + rows;
  return at;
}

// Which keys the queries see, and how far away they are.
struct Sight {
  int32_t mask, window;
  int64_t position;     // of query 0
  int64_t keys;         // of the item
  const float *slopes;  // ALiBi: of each head of the group; or null
  // Relative bias: of each head of the group a row of 2·reach + 1, by distance from −reach on; or
  // null.
  const float *bias;
  int64_t reach;
};

// The keys of the item that the query at `position` sees.
SIE_INLINE Range visible(const Sight &sight, int64_t position) {
  Range range = {0, sight.keys};
  if (sight.mask == SIE_MASK_WINDOW && position > sight.window) range.first = position - sight.window;
  if (sight.mask != SIE_MASK_FULL) {
    const int64_t last = position + (sight.mask == SIE_MASK_WINDOW ? sight.window : 0) + 1;
    range.last = last < 0 ? 0 : lesser(last, sight.keys);
  }
  if (range.first > range.last) range.first = range.last;
  return range;
}

// The part of `range` in the `count` keys from `first` on, counted from there.
SIE_INLINE Range within(Range range, int64_t first, int64_t count) {
  Range part = {range.first > first ? lesser(range.first - first, count) : 0,
                lesser(range.last - first, count)};
  if (part.last < part.first) part.last = part.first;
  return part;
}

// ALiBi.
SIE_INLINE void subtract_distance(float *s, Range keys, int64_t position, float slope) {
  alignas(64) static const float kCount[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Vec count = vload(kCount), by = vset(slope);
  for (int64_t j = keys.first; j < keys.last; j += kLanes) {
    const Vec distance = vabs(count + vset(static_cast<float>(j - position)));
    vstore_row(s, j, keys.last, vfnma(by, distance, vload_row(s, j, keys.last)));
  }
}

// Adds log₂e·bias(j), a vector of the biases from key j on, to the keys [first, last).
template <typename F>
SIE_INLINE void add_biases(float *s, int64_t first, int64_t last, F bias) {
  const Vec log2e = vset(1.44269504f);
  for (int64_t j = first; j < last; j += kLanes)
    vstore_row(s, j, last, vfma(bias(j), log2e, vload_row(s, j, last)));
}

// The relative bias of one head. Keys up to `left` and those from `right` on are out of the table's
// reach and have the values at its ends. A key's sum is the same whichever vector it is in.
SIE_INLINE void add_relative_bias(float *s, Range keys, int64_t position, const float *row, int64_t reach) {
  auto inside = [&](int64_t j) { return j < keys.first ? keys.first : lesser(j, keys.last); };
  const int64_t left = inside(position - reach), right = inside(position + reach + 1);
  const int64_t shift = reach - position;  // row[j + shift] is the bias of key j
  const Vec before = vset(row[0]), behind = vset(row[2 * reach]);
  add_biases(s, keys.first, left, [&](int64_t) { return before; });
  add_biases(s, left, right, [&](int64_t j) { return vload_row(row, j + shift, right + shift); });
  add_biases(s, right, keys.last, [&](int64_t) { return behind; });
}

SIE_INLINE void clear(float *s, int64_t first, int64_t last) {
  if (first < last) memset(s + first, 0, static_cast<size_t>(last - first) * sizeof *s);
}

// One (sequence, key head) pair: the starts of its rows in q and y, its keys and its values.
template <typename T>
struct Pair {
  const T *q;
  T *y;
  KeyRows<T> k, v;
  int64_t queries, keys;
  const float *slopes, *bias;  // of the group's first head, or null
};

template <typename T>
Pair<T> pair_at(const sie_attention_args *a, int64_t unit) {
  const int64_t b = unit / a->kv_heads, head = unit % a->kv_heads, group = a->heads / a->kv_heads;
  const int64_t column = head * group * a->head_dim, kv_column = head * a->head_dim;
  Pair<T> pair = {};
  if (a->prefix_keys != nullptr && a->prefix_keys[b] > 0) {
    pair.k.prefix = {row_of<const T>(a->prefix_k, a->prefix_first[b]) + kv_column, a->prefix_k.ld};
    pair.v.prefix = {row_of<const T>(a->prefix_v, a->prefix_first[b]) + kv_column, a->prefix_v.ld};
    pair.k.split = pair.v.split = a->prefix_keys[b];
  }
  pair.q = row_of<const T>(a->q, a->cu_q[b]) + column;
  pair.k.own = {row_of<const T>(a->k, a->cu_kv[b]) + kv_column, a->k.ld};
  pair.v.own = {row_of<const T>(a->v, a->cu_kv[b]) + kv_column, a->v.ld};
  pair.y = row_of<T>(a->y, a->cu_q[b]) + column;
  pair.queries = a->cu_q[b + 1] - a->cu_q[b];
  pair.keys = pair.k.split + a->cu_kv[b + 1] - a->cu_kv[b];
  if (a->alibi_slopes != nullptr) pair.slopes = a->alibi_slopes + head * group;
  if (a->bias != nullptr) pair.bias = a->bias + head * group * (2 * int64_t{a->bias_reach} + 1);
  return pair;
}

// A pair at work.
template <typename T>
struct Work {
  const sie_attention_args *a;
  Pair<T> pair;
  int64_t group, d;
  Sight sight;
  Layout at;
  float *scratch;
};

// `keys` keys from key `first` of the item on.
struct Block {
  int64_t first, keys;
  bool finite;  // every packed value; a full mask does not ask
};

// Neighbouring rows, of the query and head of the first on: query by query, head by head.
struct Tile {
  int64_t query, head, rows;
};

SIE_INLINE Tile tile_at(int64_t row, int64_t rows, int64_t group) {
  if (group == 1) return {row, 0, rows};
  return {row / group, row % group, rows};
}

// Calls f(m, query, head) for each row m of a tile.
template <typename F>
SIE_INLINE void each_row(const Tile &tile, int64_t group, F f) {
  if (group == 1) {
    for (int64_t m = 0; m < tile.rows; m++) f(m, tile.query + m, 0);
    return;
  }
  for (int64_t m = 0, query = tile.query, head = tile.head; m < tile.rows; m++) {
    f(m, query, head);
    if (++head == group) query++, head = 0;
  }
}

// Packs the part of a block that is seen, from the keys and values of the block on.
template <typename T, typename Keys>
Block pack_rows(const Work<T> &w, const Keys &k, const Keys &v, int64_t first, int64_t keys, Range seen) {
  float *const values = w.scratch + w.at.v;
  pack_keys(k, seen, keys, w.d, w.scratch);
  const bool finite = w.sight.mask == SIE_MASK_FULL ? pack_values<false>(v, seen, w.d, w.at.d, values)
                                                    : pack_values<true>(v, seen, w.d, w.at.d, values);
  return {first, keys, finite};
}

template <typename T>
Block pack_block(const Work<T> &w, int64_t first, int64_t keys, Range seen) {
  const KeyRows<T> &k = w.pair.k, &v = w.pair.v;
  if (k.together(first, keys)) return pack_rows(w, k.segment(first), v.segment(first), first, keys, seen);
  return pack_rows(w, k.both(first), v.both(first), first, keys, seen);
}

// The scores of a tile with the keys of `span`, at s[key]; up to a vector of others beside them.
SIE_INLINE void score_tile(int64_t rows, const float *query, const Layout &at, const float *keys, int64_t d,
                           int64_t count, Range span, float *s) {
  if (span.first >= span.last) return;  // no row sees a key
  for (int64_t n0 = span.first / kPanel * kPanel; n0 < span.last; n0 += kPanel) {
    const int64_t width = padded(lesser(count - n0, kPanel)), begin = span.first / kLanes * kLanes;
    const int64_t from = begin > n0 ? begin : n0, to = lesser(n0 + width, padded(span.last));
    multiply_tile(rows, (to - from) / kLanes, query, at.d, keys + n0 * d + (from - n0), width, d, s + from,
                  at.scores_ld);
  }
}

// Scores, softmax and weighted values of one tile against one block. `most` has each row's largest
// score so far and takes the new one; sums takes the rows' sums in this block. In a whole item
// (Whole) out is overwritten; else each row of out is first multiplied by 2^(old − new largest), as
// is its total, and then added to. All: every row sees every key, without distance or bias, and own
// is not read.
template <bool Whole, bool All, typename T>
SIE_INLINE void attend_block(const Work<T> &w, const Block &block, const Tile &tile, const Range *own,
                             float *most, float *total, float *out) {
  alignas(64) float query[kRows * kMaxHeadDim];
  const Layout &at = w.at;
  const int64_t rows = tile.rows;
  float *s = w.scratch + at.scores;
  const Vec factor = vset(w.a->scale * 1.44269504f);
  each_row(tile, w.group, [&](int64_t m, int64_t i, int64_t head) __attribute__((always_inline)) {
    const T *q = w.pair.q + i * w.a->q.ld + head * w.d;
    for (int64_t c = 0; c < w.d; c += kLanes) vstore(query + m * at.d + c, vload_row(q, c, w.d) * factor);
  });
  // The keys that some row sees: both ends ascend with the position.
  const Range span = All ? Range{0, block.keys} : Range{own[0].first, own[rows - 1].last};
  score_tile(rows, query, at, w.scratch, w.d, block.keys, span, s);
  float before[kRows], sum[kRows];
  for (int64_t m = 0; m < rows; m++) before[m] = most[m];
  if (!All && w.sight.bias != nullptr) {
    const int64_t reach = w.sight.reach;
    each_row(tile, w.group, [&](int64_t m, int64_t i, int64_t head) __attribute__((always_inline)) {
      add_relative_bias(s + m * at.scores_ld, own[m], w.sight.position + i - block.first,
                        w.sight.bias + head * (2 * reach + 1), reach);
    });
  }
  if (All || (own[0].last == span.last && own[rows - 1].first == span.first && w.sight.slopes == nullptr)) {
    const int64_t keys = span.last - span.first;
    float *p = s + span.first;
    int64_t m = 0;
    const int64_t ld = at.scores_ld;
    for (; m + 3 <= rows; m += 3) softmax_rows<3>(p + m * ld, ld, keys, most + m, sum + m);
    for (; m < rows; m++) softmax_rows<1>(p + m * ld, 0, keys, most + m, sum + m);
  } else {
    each_row(tile, w.group, [&](int64_t m, int64_t i, int64_t head) __attribute__((always_inline)) {
      float *p = s + m * at.scores_ld;
      const Range keys = own[m];
      if (w.sight.slopes != nullptr && w.sight.slopes[head] != 0.0f)
        subtract_distance(p, keys, w.sight.position + i - block.first, w.sight.slopes[head] * 1.44269504f);
      if (keys.first < keys.last) {
        softmax_rows<1>(p + keys.first, 0, keys.last - keys.first, most + m, sum + m);
      } else {
        sum[m] = 0.0f;
      }
      clear(p, span.first, keys.first);
      clear(p, keys.last, span.last);
    });
  }
  for (int64_t m = 0; m < rows; m++) {
    if (Whole) {
      total[m] = sum[m];
      continue;
    }
    if (most[m] == before[m]) {
      total[m] = total[m] + sum[m];
      continue;
    }
    const Vec shrink = vpow2_weight(vset(before[m] - most[m]));
    total[m] = total[m] * vfirst(shrink) + sum[m];
    for (int64_t c = 0; c < at.d; c += kLanes) vstore(out + m * at.d + c, vload(out + m * at.d + c) * shrink);
  }
  const float *residual = Whole ? nullptr : out, *v = w.scratch + at.v;
  if (All || block.finite || w.sight.mask == SIE_MASK_FULL) {
    value_tile(rows, s, at.scores_ld, v, at.d, span, residual, out);
    return;
  }
  // 0·NaN is NaN: each row is multiplied with its own keys alone, which gives the same bits.
  for (int64_t m = 0; m < rows; m++)
    value_tile(1, s + m * at.scores_ld, at.scores_ld, v, at.d, own[m], Whole ? nullptr : out + m * at.d,
               out + m * at.d);
}

// y = out/total. Under a mask a sum that has come to −0 would depend on the zeros that the tile
// added to it: there it is made +0.
template <typename T>
SIE_INLINE void store_rows(const Work<T> &w, const Tile &tile, const float *out, const float *factor) {
  const Vec zero = vset(w.sight.mask == SIE_MASK_FULL ? -0.0f : 0.0f);
  each_row(tile, w.group, [&](int64_t m, int64_t i, int64_t head) __attribute__((always_inline)) {
    T *y = w.pair.y + i * w.a->y.ld + head * w.d;
    const Vec by = vset(factor[m]);
    for (int64_t c = 0; c < w.d; c += kLanes)
      vstore_row(y, c, w.d, vfma(vload(out + m * w.at.d + c), by, zero));
  });
}

// The keys of the block that each row of a tile sees, counted from the block's first. Returns
// whether some row sees any.
template <typename T>
SIE_INLINE bool own_keys(const Work<T> &w, const Tile &tile, int64_t first, int64_t keys, Range *own) {
  if (w.sight.mask == SIE_MASK_FULL) {
    for (int64_t m = 0; m < tile.rows; m++) own[m] = {0, keys};
    return true;
  }
  bool any = false;
  each_row(tile, w.group, [&](int64_t m, int64_t i, int64_t) __attribute__((always_inline)) {
    own[m] = within(visible(w.sight, w.sight.position + i), first, keys);
    any = any || own[m].first < own[m].last;
  });
  return any;
}

// Prefetches part i of n of a matrix's rows into L2. A head's rows lie far apart, so the hardware
// does not prefetch them.
template <typename T>
SIE_INLINE void fetch_rows(const T *p, int64_t ld, int64_t rows, int64_t d, int64_t i, int64_t n) {
  for (int64_t r = rows * i / n; r < rows * (i + 1) / n; r++) {
    const char *row = reinterpret_cast<const char *>(p + r * ld);
    for (int64_t byte = 0; byte < d * static_cast<int64_t>(sizeof(T)); byte += 64) fetch_far(row + byte);
  }
}

// The same for the keys [keys.first, keys.last), or values, of both segments.
template <typename T>
SIE_INLINE void fetch_keys(const KeyRows<T> &k, Range keys, int64_t d, int64_t i, int64_t n) {
  if (keys.first < k.split) {
    fetch_rows(k.prefix.row(keys.first), k.prefix.stride, lesser(keys.last, k.split) - keys.first, d, i, n);
    keys.first = k.split;
  }
  if (keys.first < keys.last)
    fetch_rows(k.own.row(keys.first - k.split), k.own.stride, keys.last - keys.first, d, i, n);
}

// Rows [rows.first, rows.last) of a pair of one block of keys. Meanwhile the pair that comes next
// is fetched.
template <bool All, typename T>
void attend_whole(const Work<T> &w, Range rows, const Pair<T> &next) {
  alignas(64) float out[kRows * kMaxHeadDim];
  const int64_t count = rows.last - rows.first, tiles = tile_count(count);
  const sie_attention_args *a = w.a;
  const Block block = pack_block(w, 0, w.pair.keys, {0, w.pair.keys});
  for (int64_t i = 0; i < tiles; i++) {
    const Range near = {0, lesser(next.keys, kBlockKeys)};
    fetch_keys(next.k, near, w.d, i, tiles);
    fetch_keys(next.v, near, w.d, i, tiles);
    fetch_rows(next.q, a->q.ld, lesser(next.queries, kBlockKeys), w.d * w.group, i, tiles);
    const int64_t from = tile_start(count, tiles, i), to = tile_start(count, tiles, i + 1);
    const Tile tile = tile_at(rows.first + from, to - from, w.group);
    Range own[kRows];
    float most[kRows], factor[kRows];
    if (!All) own_keys(w, tile, 0, w.pair.keys, own);
    for (int64_t m = 0; m < tile.rows; m++) most[m] = -__builtin_inff();
    attend_block<true, All>(w, block, tile, own, most, factor, out);
    for (int64_t m = 0; m < tile.rows; m++)
      factor[m] = All || own[m].first < own[m].last ? 1.0f / factor[m] : 0.0f;
    store_rows(w, tile, out, factor);
  }
}

// The same for a chunk of at most kChunkRows rows of a longer pair, block by block.
template <typename T>
void attend_chunk(const Work<T> &w, Range rows) {
  const int64_t count = rows.last - rows.first, tiles = tile_count(count), group = w.group;
  float *values = w.scratch + w.at.values, *top = w.scratch + w.at.top, *total = w.scratch + w.at.total;
  clear(values, 0, count * w.at.d);
  clear(total, 0, count);
  // The lowest of the finite numbers: a block of scores of −∞ must not give −∞ − −∞.
  for (int64_t r = 0; r < count; r++) top[r] = -FLT_MAX;
  const int64_t first = visible(w.sight, w.sight.position + rows.first / group).first,
                last = visible(w.sight, w.sight.position + (rows.last - 1) / group).last;
  for (int64_t key = first / kBlockKeys * kBlockKeys; key < last; key += kBlockKeys) {
    const int64_t keys = lesser(w.pair.keys - key, kBlockKeys), next = key + kBlockKeys;
    const Block block = pack_block(w, key, keys, within({first, last}, key, keys));
    const Range ahead = {next, next < last ? lesser(next + kBlockKeys, last) : next};
    for (int64_t i = 0; i < tiles; i++) {
      fetch_keys(w.pair.k, ahead, w.d, i, tiles);
      fetch_keys(w.pair.v, ahead, w.d, i, tiles);
      const int64_t from = tile_start(count, tiles, i), to = tile_start(count, tiles, i + 1);
      const Tile tile = tile_at(rows.first + from, to - from, group);
      Range own[kRows];
      if (own_keys(w, tile, key, keys, own))
        attend_block<false, false>(w, block, tile, own, top + from, total + from, values + from * w.at.d);
    }
  }
  for (int64_t r = 0; r < count; r += kRows) {
    const Tile tile = tile_at(rows.first + r, lesser(count - r, kRows), group);
    float factor[kRows];
    for (int64_t m = 0; m < tile.rows; m++) {
      factor[m] = total[r + m] == 0.0f ? 0.0f : 1.0f / total[r + m];  // 0: it has seen no key
      if (factor[m] != 0.0f && top[r + m] == -FLT_MAX) factor[m] = __builtin_nanf("");  // all were −∞
    }
    store_rows(w, tile, values + r * w.at.d, factor);
  }
}

// Split i of n of a pair's rows.
template <typename T>
void attend_pair(const sie_attention_args *a, const Pair<T> &pair, const Pair<T> &next, int64_t i, int64_t n,
                 float *scratch) {
  const Range range = queries_of(a, pair.queries);
  const int64_t group = a->heads / a->kv_heads, d = a->head_dim, all = (range.last - range.first) * group;
  const Range rows = {range.first * group + all * i / n, range.first * group + all * (i + 1) / n};
  if (rows.first >= rows.last) return;
  Work<T> w = {a, pair, group, d, {}, {}, scratch};
  if (pair.keys <= 0) {
    for (int64_t r = rows.first; r < rows.last; r++)
      memset(pair.y + r / group * a->y.ld + r % group * d, 0, static_cast<size_t>(d) * sizeof(T));
    return;
  }
  const int64_t position = a->queries_first ? 0 : pair.keys - pair.queries;
  w.sight = {a->mask, a->window, position, pair.keys, pair.slopes, pair.bias, a->bias_reach};
  w.at = layout_of(pair.keys, d);
  if (pair.keys <= kBlockKeys) {
    const bool all = a->mask == SIE_MASK_FULL && pair.slopes == nullptr && pair.bias == nullptr;
    return (all ? attend_whole<true, T> : attend_whole<false, T>)(w, rows, next);
  }
  const int64_t count = rows.last - rows.first, chunks = (count + kChunkRows - 1) / kChunkRows;
  for (int64_t c = 0; c < chunks; c++)
    attend_chunk(w, {rows.first + count * c / chunks, rows.first + count * (c + 1) / chunks});
}

template <typename T>
void attend_items(const sie_attention_args *a, const sie_share *share) {
  const int64_t pairs = *a->seqs.n * a->kv_heads;
  if (pairs <= 0) return;
  const int64_t splits = pairs < share->parts ? (share->parts + pairs - 1) / pairs : 1;
  const int64_t items = pairs * splits;
  if (share->part >= items) return;
  Pair<T> pair = pair_at<T>(a, share->part / splits);
  for (int64_t item = share->part; item < items; item += share->parts) {
    Pair<T> next = {};
    if (item + share->parts < items) next = pair_at<T>(a, (item + share->parts) / splits);
    attend_pair(a, pair, next, item % splits, splits, static_cast<float *>(share->scratch));
    pair = next;
  }
}

}  // namespace

sie_status attention(const sie_attention_args *a, const sie_share *share) {
  if (a->buckets != nullptr) return attention_disentangled(a, share);
  if (!is_float(a->q.dtype) || a->k.dtype != a->q.dtype || a->v.dtype != a->q.dtype ||
      a->y.dtype != a->q.dtype) {
    return SIE_UNSUPPORTED;
  }
  if (a->mask < SIE_MASK_FULL || a->mask > SIE_MASK_WINDOW) return SIE_UNSUPPORTED;
  if (a->head_dim < 1 || a->head_dim > kMaxHeadDim) return SIE_UNSUPPORTED;
  if (a->kv_heads < 1 || a->heads % a->kv_heads != 0) return SIE_UNSUPPORTED;
  if (a->prefix_keys != nullptr && (a->prefix_k.dtype != a->q.dtype || a->prefix_v.dtype != a->q.dtype))
    return SIE_UNSUPPORTED;
  if (a->bias_reach < 0 || a->bias_reach > SIE_MAX_BIAS_REACH) return SIE_INVALID_ARGUMENT;
  if (a->q.dtype == SIE_F32) {
    attend_items<float>(a, share);
  } else {
    attend_items<Bf16>(a, share);
  }
  return SIE_OK;
}

int64_t attention_scratch(const sie_op_bounds *bounds) {
  if (bounds->position_rows > 0) return attention_disentangled_scratch(bounds);
  if (bounds->head_dim < 1 || bounds->head_dim > kMaxHeadDim) return 0;
  return layout_of(bounds->max_len, bounds->head_dim).end * static_cast<int64_t>(sizeof(float));
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
