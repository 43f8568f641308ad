// attention — y = softmax(scale·q·kᵀ − slope·distance + bias)·v per sequence and head, bf16, on AMX
// tiles.
//   t_j = scale·log₂e·(q·k_j) − slope·log₂e·|position − j| + log₂e·bias[j − position]
//   p_j = bf16(2^(t_j − max t)),  y = Σ p_j·v_j / Σ p_j   over the visible keys
// Shapes   q, y [Rq, H·D], k, v [Rkv, Hkv·D], prefix_k, prefix_v [Rp, Hkv·D], row strides ≥
//          columns; cu_q, cu_kv [B+1]; prefix_first, prefix_keys [B] or absent; D = 32, 64, 128 or
//          256. The Lkv keys of a sequence are its prefix's, then its own. Query i of Lq stands at
//          position i + Lkv − Lq, or at i with queries_first. Without visible keys y is zero.
// Types    q, k, v, prefix_k, prefix_v, y bf16.
// Mask     full, causal, window. A key behind the mask is never multiplied, not even by 0, where
//          its v is a NaN or an infinity.
// Alias    none.
// Align    any; 64 B rows of a head load fastest.
// Share    (sequence, key head) pairs in turn; where there are fewer than parts, the queries of
//          each pair are split as well.
// Scratch  kᵀ and v of kBlockKeys keys at most, one tile of scores, 32 queries; for longer items
//          also the sums of kChunkRows rows. At D = 128 and any length that is 0.94 MB.
// Cost     4·D flop on tiles and an exponential on the vector unit for each pair of a query and a
//          key, in steps of 32 keys that some query of 32 sees. Up to D = 64 the exponentials
//          dominate (about 10 instructions for 16): a head of 128 × 128 takes some 4 µs.
// Plan     an item of at most kBlockKeys keys is one block. A longer one is cut into blocks from
//          key 0 on, and its queries into chunks: kChunkRows rows of the query heads that share a
//          key head, each with its largest t, its sum of weights and its weighted values so far
//          (online softmax). Of a block what the chunk sees is packed, once for all its query
//          heads: k into tiles of key columns, v into tiles of key pairs. Per 32 queries of a head:
//          the scores of the steps that some of them see (f32) to scratch, softmax in place to
//          bf16, then p·v.
// Order    scores: one chain over D. In a block: p·v is one chain over steps of 32 keys; a step
//          that a row does not see adds +0. Blocks begin at multiples of kBlockKeys from key 0,
//          which is the prefix's first, and are joined in ascending order by one FMA. So a row's
//          bits depend on its query, its position and the item's keys alone, not on where they lie.
// Error    p has bf16's relative error 2⁻⁹. Dividing by the sum of the rounded p cancels the part
//          that all keys share. Exponential ≤ 4e-6. Then y is rounded to bf16.
// Source   Dao 2022, arXiv:2205.14135; the blocks: Milakov and Gimelshein 2018, arXiv:1805.02867;
//          the bias: Raffel 2020 §2.1, arXiv:1910.10683
#include <float.h>

#include "amx_softmax.h"
#include "kernels_amx.h"

namespace sie_cpu {
namespace {

// Where the intermediates of one key head lie in the scratch, in bytes. Packed keys come first.
struct Layout {
  int64_t scores_ld;  // elements
  int64_t v, q, scores, values, top, total, end;
};

Layout layout_of(int64_t keys, int64_t head_dim) {
  const int64_t block = whole_steps(lesser(keys, kBlockKeys)), rows = keys > kBlockKeys ? kChunkRows : 0;
  Layout at;
  // The extra line keeps rows of a power-of-two length from sharing one cache set.
  at.scores_ld = block + 16;
  at.v = block * head_dim * 2;
  at.q = 2 * at.v;
  at.scores = at.q + kQueryBlock * head_dim * 2;
  at.values = at.scores + kQueryBlock * at.scores_ld * 4;
  at.top = at.values + rows * head_dim * 4;
  at.total = at.top + rows * 4;
  at.end = at.total + rows * 4;
  return at;
}

// One (sequence, key head) pair.
struct Item {
  const sie_attention_args *args;
  const char *q;  // query 0 of the group's first head
  char *y;
  int64_t q_ld, y_ld;  // bytes
  KeyRows k, v;
  int64_t group, queries, keys;
  int64_t position;            // of query 0
  const float *slopes, *bias;  // of the group's first head, or null
};

KeyRows rows_of_head(const sie_attention_args *a, const sie_tensor &own, const sie_tensor &prefix, int64_t b,
                     int64_t head) {
  const int64_t column = head * a->head_dim;
  KeyRows rows = {nullptr, (const char *)own.p + 2 * (a->cu_kv[b] * own.ld + column), 0, 2 * own.ld, 0};
  if (a->prefix_keys && a->prefix_keys[b] > 0) {
    rows.prefix = (const char *)prefix.p + 2 * (a->prefix_first[b] * prefix.ld + column);
    rows.prefix_ld = 2 * prefix.ld;
    rows.split = a->prefix_keys[b];
  }
  return rows;
}

Item item_at(const sie_attention_args *a, int64_t unit) {
  const int64_t b = unit / a->kv_heads, head = unit % a->kv_heads, group = a->heads / a->kv_heads;
  const int64_t q0 = a->cu_q[b], column = head * group * a->head_dim;
  Item item;
  item.args = a;
  item.q = (const char *)a->q.p + 2 * (q0 * a->q.ld + column);
  item.y = (char *)a->y.p + 2 * (q0 * a->y.ld + column);
  item.q_ld = 2 * a->q.ld;
  item.y_ld = 2 * a->y.ld;
  item.k = rows_of_head(a, a->k, a->prefix_k, b, head);
  item.v = rows_of_head(a, a->v, a->prefix_v, b, head);
  item.group = group;
  item.queries = a->cu_q[b + 1] - q0;
  item.keys = item.k.split + a->cu_kv[b + 1] - a->cu_kv[b];
  item.position = a->queries_first ? 0 : item.keys - item.queries;
  item.slopes = a->alibi_slopes ? a->alibi_slopes + head * group : nullptr;
  item.bias = a->bias ? a->bias + head * group * (2 * (int64_t)a->bias_reach + 1) : nullptr;
  return item;
}

// The keys that query `i` sees. Both ends ascend with i.
Range visible(const Item &item, int64_t i) {
  const sie_attention_args *a = item.args;
  const int64_t position = item.position + i;
  Range keys = {0, item.keys};
  if (a->mask == SIE_MASK_WINDOW && position > a->window) keys.first = position - a->window;
  if (a->mask != SIE_MASK_FULL) {
    const int64_t last = position + (a->mask == SIE_MASK_WINDOW ? a->window : 0) + 1;
    keys.last = last < 0 ? 0 : lesser(last, item.keys);
  }
  if (keys.first > keys.last) keys.first = keys.last;
  return keys;
}

// The part of `keys` in the `count` keys from `first` on, counted from there.
Range within(Range keys, int64_t first, int64_t count) {
  Range part = {keys.first > first ? lesser(keys.first - first, count) : 0, lesser(keys.last - first, count)};
  if (part.last < part.first) part.last = part.first;
  return part;
}

// What distance adds to the scores of one query of one head.
struct Terms {
  float slope;        // ALiBi, times log₂e
  const float *bias;  // of distances −reach … reach, or null
  int64_t reach;
  int64_t position;  // counted from the block's first key

  bool any() const { return slope != 0.0f || bias; }
};

// t_j of the scores s_j of `keys`, in place; others of their steps get any value. A key's t is the
// same in any lane.
void add_terms(float *row, Range keys, float scale_log2, const Terms &terms) {
  const __m512i count = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i reach = _mm512_set1_epi32((int32_t)terms.reach),
                minus_reach = _mm512_set1_epi32(-(int32_t)terms.reach);
  const __m512 scale = _mm512_set1_ps(scale_log2), slope = _mm512_set1_ps(terms.slope),
               log2e = _mm512_set1_ps(kLog2e);
  for (int64_t j = keys.first / 16 * 16; j < keys.last; j += 16) {
    const int64_t first = j - terms.position;  // the distance in lane 0
    const __m512i distance = _mm512_add_epi32(_mm512_set1_epi32((int32_t)first), count);
    __m512 t = _mm512_mul_ps(_mm512_load_ps(row + j), scale);
    if (terms.slope != 0.0f) t = _mm512_fnmadd_ps(slope, _mm512_cvtepi32_ps(_mm512_abs_epi32(distance)), t);
    if (terms.bias) {
      __m512 bias;
      if (first >= -terms.reach && first + 15 <= terms.reach) {
        bias = _mm512_loadu_ps(terms.bias + terms.reach + first);
      } else {
        const __m512i near = _mm512_max_epi32(_mm512_min_epi32(distance, reach), minus_reach);
        bias = _mm512_i32gather_ps(_mm512_add_epi32(near, reach), terms.bias, 4);
      }
      t = _mm512_fmadd_ps(bias, log2e, t);
    }
    _mm512_store_ps(row + j, t);
  }
}

// `keys` keys of an item from key `first` on, packed in the scratch.
struct Block {
  int64_t first, keys;
  bool finite;  // every packed value
};

template <int D>
Block pack_block(const Item &item, const Layout &at, char *scratch, int64_t first, int64_t keys, Range seen) {
  const Range steps = steps_of(seen);
  pack_keys<D>(item.k, first, keys, steps, scratch);
  return {first, keys, pack_values<D>(item.v, first, keys, steps, scratch + at.v)};
}

// Up to 32 neighbouring queries of one head of the group.
struct Tile {
  int64_t head, query, rows;
};

char *y_of(const Item &item, int64_t head, int64_t query) {
  return item.y + query * item.y_ld + 2 * head * item.args->head_dim;
}

// Attention of one tile to one block; own[m] are the keys of the block that row m sees. With sums
// the block is joined to them; without, it is the whole item, and y is written.
template <int D, int RowTiles>
void attend_tile(const Item &item, const Layout &at, char *scratch, const Block &block, const Tile &tile,
                 const Range *own, const Sums *sums) {
  const Range steps = steps_of({own[0].first, own[tile.rows - 1].last});
  float *const scores = (float *)(scratch + at.scores);
  const int64_t ld = at.scores_ld;
  const char *q = item.q + tile.query * item.q_ld + 2 * tile.head * D;
  int64_t q_ld = item.q_ld;
  if (tile.rows < 16 * RowTiles) {  // a full tile load would run past the last row
    char *const copy = scratch + at.q;
    memset(copy, 0, (size_t)(2 * D * 16 * RowTiles));
    for (int64_t m = 0; m < tile.rows; m++) memcpy(copy + m * 2 * D, q + m * q_ld, 2 * D);
    q = copy;
    q_ld = 2 * D;
  }
  query_scores<D, RowTiles>(q, q_ld, scratch, steps, scores, ld);

  const float scale_log2 = item.args->scale * kLog2e, slope = item.slopes ? item.slopes[tile.head] : 0.0f;
  const int64_t reach = item.args->bias_reach;
  const float *const bias = item.bias ? item.bias + tile.head * (2 * reach + 1) : nullptr;
  float factor[kQueryBlock];  // of the row: 1/Σp in a whole item, else what the values so far shrink by
  for (int64_t m = 0; m < tile.rows; m++) {
    float *const row = scores + m * ld;
    const Terms terms = {slope * kLog2e, bias, reach, item.position + tile.query + m - block.first};
    const bool lifted = terms.any() && own[m].first < own[m].last;
    if (lifted) add_terms(row, own[m], scale_log2, terms);
    float alone = -__builtin_inff(), *const top = sums ? &sums->top[m] : &alone;
    const float before = *top;
    const float sum = softmax_row(row, own[m], steps, lifted ? 1.0f : scale_log2, top);
    if (sums) {
      factor[m] = shrink_of(before, *top);
      sums->total[m] = sums->total[m] * factor[m] + sum;
    } else {
      factor[m] = own[m].first < own[m].last ? 1.0f / sum : 0.0f;
    }
  }

  // 0·NaN is NaN: where a value is not finite, each row is multiplied with its own keys alone,
  // which gives the same bits.
  const bool together = block.finite || item.args->mask == SIE_MASK_FULL;
  const char *const v = scratch + at.v;
  alignas(64) float weighted[kQueryBlock * 32];
  for (int t = 0; t < D / 32; t++) {
    if (together) weighted_values<D, RowTiles>(scores, ld, v, steps, t, weighted);
    for (int64_t m = 0; m < tile.rows; m++) {
      if (!together) weighted_values_alone<D>(scores, ld, v, own[m], t, m, weighted);
      float *const x = weighted + 32 * m;
      if (!sums)
        store_row(x, factor[m], item.args->mask != SIE_MASK_FULL,
                  y_of(item, tile.head, tile.query + m) + 64 * t);
      else if (own[m].first < own[m].last)
        join_row(sums->values + m * D + 32 * t, factor[m], x);
    }
  }
}

// Neighbouring queries of some heads of a group. Its rows go head by head.
struct Chunk {
  Range heads, queries;

  int64_t count() const { return queries.last - queries.first; }
};

// Prefetches keys [first, last) and their values into L2. A head's rows lie far apart, so the
// hardware does not prefetch them.
void fetch_keys(const Item &item, int64_t first, int64_t last) {
  for (int64_t j = first; j < last; j++) {
    for (int64_t byte = 0; byte < 2 * item.args->head_dim; byte += 64) {
      _mm_prefetch(item.k.at(j) + byte, _MM_HINT_T1);
      _mm_prefetch(item.v.at(j) + byte, _MM_HINT_T1);
    }
  }
}

// Attention of a chunk to one block, with sums or without as in attend_tile. Meanwhile the keys
// `next` are fetched.
template <int D>
void attend_block(const Item &item, const Layout &at, char *scratch, const Block &block, const Chunk &chunk,
                  const Sums *sums, Range next) {
  const int64_t tiles = (chunk.count() + kQueryBlock - 1) / kQueryBlock,
                all = tiles * (chunk.heads.last - chunk.heads.first), ahead = next.last - next.first;
  for (int64_t i = 0; i < all; i++) {
    fetch_keys(item, next.first + ahead * i / all, next.first + ahead * (i + 1) / all);
    const int64_t row = i / tiles * chunk.count() + i % tiles * kQueryBlock;  // of the chunk
    Tile tile = {chunk.heads.first + i / tiles, chunk.queries.first + i % tiles * kQueryBlock, 0};
    tile.rows = lesser(chunk.queries.last - tile.query, kQueryBlock);
    Range own[kQueryBlock];
    bool any = false;
    for (int64_t m = 0; m < tile.rows; m++) {
      own[m] = within(visible(item, tile.query + m), block.first, block.keys);
      any = any || own[m].first < own[m].last;
    }
    if (sums && !any) continue;
    const Sums here = sums ? Sums{sums->top + row, sums->total + row, sums->values + row * D} : Sums{};
    (tile.rows > 16 ? attend_tile<D, 2> : attend_tile<D, 1>)(item, at, scratch, block, tile, own,
                                                             sums ? &here : nullptr);
  }
}

// A chunk of an item of several blocks.
template <int D>
void attend_chunk(const Item &item, const Layout &at, char *scratch, const Chunk &chunk, Range sight) {
  const Sums sums = {(float *)(scratch + at.top), (float *)(scratch + at.total),
                     (float *)(scratch + at.values)};
  const int64_t count = chunk.count(), rows = (chunk.heads.last - chunk.heads.first) * count;
  memset(sums.values, 0, (size_t)(rows * D * 4));
  memset(sums.total, 0, (size_t)(rows * 4));
  // The lowest of the finite numbers: a block of scores of −∞ must not give −∞ − −∞.
  for (int64_t r = 0; r < rows; r++) sums.top[r] = -FLT_MAX;
  for (int64_t key = sight.first / kBlockKeys * kBlockKeys; key < sight.last; key += kBlockKeys) {
    const int64_t keys = lesser(item.keys - key, kBlockKeys), next = lesser(key + kBlockKeys, sight.last);
    const Block block = pack_block<D>(item, at, scratch, key, keys, within(sight, key, keys));
    attend_block<D>(item, at, scratch, block, chunk, &sums, {next, lesser(next + kBlockKeys, sight.last)});
  }
  for (int64_t r = 0; r < rows; r++) {
    const int64_t query = chunk.queries.first + r % count, head = chunk.heads.first + r / count;
    const Range keys = visible(item, query);
    const float factor = keys.first < keys.last ? 1.0f / sums.total[r] : 0.0f;
    for (int64_t c = 0; c < D; c += 32)
      store_row(sums.values + r * D + c, factor, item.args->mask != SIE_MASK_FULL,
                y_of(item, head, query) + 2 * c);
  }
}

// Queries [queries.first, queries.last) of an item.
template <int D>
void attend_queries(const Item &item, Range queries, char *scratch) {
  const Layout at = layout_of(item.keys, D);
  const bool whole = item.keys <= kBlockKeys;
  // Many heads over one key head fill a chunk with few queries.
  const int64_t heads = whole ? item.group : lesser(item.group, kChunkRows / kQueryBlock);
  const int64_t step = whole ? queries.last : kChunkRows / heads / kQueryBlock * kQueryBlock;
  for (int64_t i = queries.first; i < queries.last; i += step) {
    Chunk chunk = {{0, heads}, {i, lesser(i + step, queries.last)}};
    const Range sight = {visible(item, i).first, visible(item, chunk.queries.last - 1).last};
    if (whole) {
      const Block block = pack_block<D>(item, at, scratch, 0, item.keys, sight);
      attend_block<D>(item, at, scratch, block, chunk, nullptr, {0, 0});
      continue;
    }
    for (; chunk.heads.first < item.group; chunk.heads.first += heads) {
      chunk.heads.last = lesser(chunk.heads.first + heads, item.group);
      attend_chunk<D>(item, at, scratch, chunk, sight);
    }
  }
}

// Split i of n of an item's queries, in whole tiles.
template <int D>
void attend_item(const sie_attention_args *a, int64_t unit, int64_t i, int64_t n, char *scratch) {
  const Item item = item_at(a, unit);
  const Range range = queries_of(a, item.queries);
  const int64_t tiles = (range.last - range.first + kQueryBlock - 1) / kQueryBlock;
  const Range queries = {range.first + tiles * i / n * kQueryBlock,
                         lesser(range.first + tiles * (i + 1) / n * kQueryBlock, range.last)};
  if (queries.first < queries.last) attend_queries<D>(item, queries, scratch);
}

}  // namespace

int64_t attention_bf16_amx_scratch(const sie_op_bounds *bounds) {
  return has_tiles(bounds->head_dim) ? layout_of(bounds->max_len, bounds->head_dim).end : 0;
}

sie_status attention_bf16_amx(const sie_attention_args *a, const sie_share *share) {
  if (a->q.dtype != SIE_BF16 || a->k.dtype != SIE_BF16 || a->v.dtype != SIE_BF16 || a->y.dtype != SIE_BF16)
    return SIE_UNSUPPORTED;
  if (!has_tiles(a->head_dim) || !(a->scale > 0) || a->buckets) return SIE_UNSUPPORTED;
  if (a->mask < SIE_MASK_FULL || a->mask > SIE_MASK_WINDOW) return SIE_UNSUPPORTED;
  if (a->kv_heads < 1 || a->heads % a->kv_heads != 0) return SIE_UNSUPPORTED;
  if (a->prefix_keys && (a->prefix_k.dtype != SIE_BF16 || a->prefix_v.dtype != SIE_BF16))
    return SIE_UNSUPPORTED;
  if (a->bias_reach < 0 || a->bias_reach > SIE_MAX_BIAS_REACH) return SIE_UNSUPPORTED;
  const int64_t units = (int64_t)*a->seqs.n * a->kv_heads;
  if (units <= 0) return SIE_OK;

  AmxTileConfig config;
  amx_config(&config, 16, 16);
  amx_load_config(&config);
  const int64_t splits = units < share->parts ? (share->parts + units - 1) / units : 1;
  for (int64_t i = share->part; i < units * splits; i += share->parts) {
    char *const scratch = (char *)share->scratch;
    const int64_t unit = i / splits, split = i % splits;
    switch (a->head_dim) {
      case 32:
        attend_item<32>(a, unit, split, splits, scratch);
        break;
      case 64:
        attend_item<64>(a, unit, split, splits, scratch);
        break;
      case 128:
        attend_item<128>(a, unit, split, splits, scratch);
        break;
      default:
        attend_item<256>(a, unit, split, splits, scratch);
    }
  }
  amx_release();
  return SIE_OK;
}

}  // namespace sie_cpu
