// attention — y = softmax(scale·q·kᵀ − slope·distance)·v, per sequence and head, over the visible
// keys.
//   s_j = (scale·log₂e·q)·k_j − (slope·log₂e)·|position − j|
//   p_j = 2^(s_j − max s),  y = (Σ p_j·v_j)/Σ p_j
// Shapes   q, y [Rq, H·D], k, v [Rkv, Hkv·D], row strides ≥ columns; cu_q, cu_kv [B+1]; head h
//          reads key head h·Hkv/H. Query i of Lq stands at position i + Lkv − Lq, or at i with
//          queries_first. Without visible keys, y is zero. 1 ≤ D ≤ 256.
// Types    q, k, v, y f32 | bf16, all one type; computed in f32.
// Mask     full, causal, window.
// Alias    none.
// Align    element.
// Share    (sequence, head) pairs in turn.
// Scratch  kᵀ and v of one head, one tile of scores.
// Cost     4·Lq·Lk·D flop and Lq·Lk exponentials a head. A mask skips the tiles of keys that no
//          query of a tile sees.
// Plan     kᵀ and v of the head are packed into scratch once (f32, dense, padded to vectors); they
//          stay in L1 or L2 for all query tiles. For a tile of kRows queries gemm_tile computes
//          scores, softmax runs in place, and gemm_tile computes the output. A tile's scores stay
//          in L1 up to Lk ≈ 1,000.
// Order    scores: one FMA chain over D. Sums over keys: lane by lane, then a fixed tree. Output:
//          one FMA chain over the keys. All depend on the item's own length alone.
// Error    |y − ref| ≤ (D + Lk)·2⁻²⁴·max|v| at worst, then bf16 rounding.
// Source   Vaswani 2017 §3.2.1
#include "gemm_tile.h"
#include "math.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

constexpr int64_t kMaxHeadDim = 256;

int64_t padded(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Where one head's intermediates lie in the scratch, in floats.
struct Layout {
  int64_t keys, d;         // padded to vectors
  int64_t scores_ld;       // a vector more than the keys: rows must not fall into the same sets of L1
  int64_t v, scores, end;  // kᵀ comes first
};

Layout layout_of(int64_t keys, int64_t head_dim) {
  Layout at;
  at.keys = padded(keys);
  at.d = padded(head_dim);
  at.scores_ld = at.keys + kLanes;
  at.v = at.keys * head_dim;
  at.scores = at.v + at.keys * at.d;
  at.end = at.scores + kRows * at.scores_ld;
  return at;
}

// kᵀ in panels of kPanel keys, [D][width] each, as a packed weight; keys beyond the last read as 0.
template <typename T>
void pack_keys(const T *k, int64_t ld, int64_t keys, int64_t d, float *out) {
  for (int64_t n0 = 0; n0 < keys; n0 += kPanel) {
    const int64_t width = padded(keys - n0 < kPanel ? keys - n0 : kPanel);
    float *panel = out + n0 * d;
    for (int64_t n = n0; n < n0 + width; n += kLanes) {
      for (int64_t i = 0; i < d; i += kLanes) {
        const T *from = k + n * ld + i;
        float *to = panel + i * width + (n - n0);
        Vec block[kLanes];
        if (n + kLanes <= keys && i + kLanes <= d) {
#pragma GCC unroll 16
          for (int j = 0; j < kLanes; j++) block[j] = vload(from + j * ld);
          vtranspose(block);
#pragma GCC unroll 16
          for (int j = 0; j < kLanes; j++) vstore(to + j * width, block[j]);
          continue;
        }
        for (int j = 0; j < kLanes; j++)
          block[j] = n + j < keys ? vload_row(from + j * ld, 0, d - i) : vset(0.0f);
        vtranspose(block);
        for (int j = 0; j < kLanes && i + j < d; j++) vstore(to + j * width, block[j]);
      }
    }
  }
}

template <typename T>
void pack_values(const T *v, int64_t ld, int64_t keys, int64_t d, int64_t ldv, float *out) {
  for (int64_t j = 0; j < keys; j++) {
    for (int64_t i = 0; i < d; i += kLanes) vstore(out + j * ldv + i, vload_row(v + j * ld, i, d));
  }
}

// In each of R rows s[j] becomes 2^(s[j] − max) for j below keys; sums takes the rows' sums. A
// row's bits are the same for any R: further rows only fill the time in which each row waits for
// its own maximum and sum.
template <int R>
SIE_INLINE void softmax_rows(float *s, int64_t ld, int64_t keys, float *sums) {
  const Vec none = vset(-__builtin_inff());
  Vec top[R], largest[R], sum[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) {
    top[r] = none;
    sum[r] = vset(0.0f);
  }
  int64_t j = 0;
  for (; j + kLanes <= keys; j += kLanes) {
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) top[r] = vmax(vload(s + r * ld + j), top[r]);
  }
  if (j < keys) {
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) top[r] = vmax(vload_part_or(s + r * ld + j, keys - j, none), top[r]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) largest[r] = vset(vlargest(top[r]));
  for (j = 0; j + kLanes <= keys; j += kLanes) {
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      const Vec p = vpow2_weight(vload(s + r * ld + j) - largest[r]);
      vstore(s + r * ld + j, p);
      sum[r] = sum[r] + p;
    }
  }
  if (j < keys) {
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      const Vec p = vkeep(vpow2_weight(vload_part(s + r * ld + j, keys - j) - largest[r]), keys - j);
      vstore(s + r * ld + j, p);  // the row's padding takes the zeros
      sum[r] = sum[r] + p;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) sums[r] = vsum(sum[r]);
}

// Which keys the queries of a tile see, and how far away they are.
struct Sight {
  int32_t mask, window;
  int64_t position;  // of the tile's first query
  float slope;       // ALiBi, ·log₂e; 0: none
};

// The keys that query m of a tile sees.
SIE_INLINE Range visible(const Sight &sight, int64_t m, int64_t keys) {
  const int64_t position = sight.position + m;
  Range range = {0, keys};
  if (sight.mask == SIE_MASK_WINDOW && position > sight.window) range.first = position - sight.window;
  if (sight.mask != SIE_MASK_FULL)
    range.last = position + (sight.mask == SIE_MASK_WINDOW ? sight.window : 0) + 1;
  if (range.last > keys) range.last = keys;
  return range;
}

SIE_INLINE void subtract_distance(float *s, Range keys, int64_t position, float slope) {
  alignas(64) static const float kCount[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Vec count = vload(kCount), by = vset(slope);
  for (int64_t j = keys.first; j < keys.last; j += kLanes) {
    const Vec distance = vabs(count + vset(static_cast<float>(j - position)));
    vstore_row(s, j, keys.last, vfnma(by, distance, vload_row(s, j, keys.last)));
  }
}

SIE_INLINE void clear(float *s, int64_t first, int64_t last) {
  if (first < last) memset(s + first, 0, static_cast<size_t>(last - first) * sizeof *s);
}

// Turns the scores of query m's keys into weights, with zeros in the rest of `span`, which holds
// all keys of the tile. Returns 1/Σ.
SIE_INLINE float weigh_visible(float *s, const Sight &sight, int64_t m, int64_t keys, Range span) {
  const Range own = visible(sight, m, keys);
  if (own.first >= own.last) {
    clear(s, span.first, span.last);
    return 0.0f;
  }
  if (sight.slope != 0.0f) subtract_distance(s, own, sight.position + m, sight.slope);
  float sum;
  softmax_rows<1>(s + own.first, 0, own.last - own.first, &sum);
  clear(s, span.first, own.first);
  clear(s, own.last, span.last);
  return 1.0f / sum;
}

// Queries [0, rows) of one tile against a packed head. All: every query sees every key, without
// distance.
template <bool All, typename T>
void attend_tile(const T *q, int64_t ldq, int64_t rows, float scale, const Sight &sight, int64_t keys,
                 int64_t d, const Layout &at, float *scratch, T *y, int64_t ldy) {
  alignas(64) float query[kRows * kMaxHeadDim], out[kRows * kMaxHeadDim];
  float *s = scratch + at.scores;
  const Vec factor_q = vset(scale * 1.44269504f);
  for (int64_t m = 0; m < rows; m++) {
    for (int64_t i = 0; i < d; i += kLanes)
      vstore(query + m * at.d + i, vload_row(q + m * ldq, i, d) * factor_q);
  }
  // The keys that some query of the tile sees: both ends ascend with the position.
  Range span = {0, keys};
  if (!All) {
    span = {visible(sight, 0, keys).first, visible(sight, rows - 1, keys).last};
    if (span.last < span.first) span.last = span.first;
  }
  for (int64_t n = All ? 0 : span.first / kPanel * kPanel; n < (All ? at.keys : span.last); n += kPanel) {
    const int64_t width = at.keys - n < kPanel ? at.keys - n : kPanel;
    multiply_tile(rows, width / kLanes, query, at.d, scratch + n * d, width, d, s + n, at.scores_ld);
  }
  float factor[kRows];
  if (All) {
    int64_t m = 0;
    for (; m + 3 <= rows; m += 3) softmax_rows<3>(s + m * at.scores_ld, at.scores_ld, keys, factor + m);
    for (; m < rows; m++) softmax_rows<1>(s + m * at.scores_ld, 0, keys, factor + m);
    for (m = 0; m < rows; m++) factor[m] = 1.0f / factor[m];
  } else {
    for (int64_t m = 0; m < rows; m++) factor[m] = weigh_visible(s + m * at.scores_ld, sight, m, keys, span);
  }
  // Two vectors at a time where no single vector would be left over: D = 64 as 2 + 2, not 3 + 1.
  for (int64_t i = 0, vecs; i < at.d; i += vecs * kLanes) {
    const int64_t left = (at.d - i) / kLanes;
    vecs = left == 4 || left < kVecs ? (left < 2 ? left : 2) : kVecs;
    multiply_tile(rows, vecs, s + span.first, at.scores_ld, scratch + at.v + span.first * at.d + i, at.d,
                  span.last - span.first, out + i, at.d);
  }
  for (int64_t m = 0; m < rows; m++) {
    for (int64_t i = 0; i < d; i += kLanes)
      vstore_row(y + m * ldy, i, d, vload(out + m * at.d + i) * vset(factor[m]));
  }
}

// One (sequence, head) pair: the starts of its rows.
template <typename T>
struct Head {
  const T *q, *k, *v;
  T *y;
  int64_t queries, keys;
  float slope;
};

template <typename T>
Head<T> head_at(const sie_attention_args *a, int64_t item) {
  const int64_t b = item / a->heads, head = item % a->heads;
  const int64_t column = head * a->head_dim, kv_column = head * a->kv_heads / a->heads * a->head_dim;
  return {row_of<const T>(a->q, a->cu_q[b]) + column,
          row_of<const T>(a->k, a->cu_kv[b]) + kv_column,
          row_of<const T>(a->v, a->cu_kv[b]) + kv_column,
          row_of<T>(a->y, a->cu_q[b]) + column,
          static_cast<int64_t>(a->cu_q[b + 1]) - a->cu_q[b],
          static_cast<int64_t>(a->cu_kv[b + 1]) - a->cu_kv[b],
          a->alibi_slopes != nullptr ? a->alibi_slopes[head] * 1.44269504f : 0.0f};
}

// Prefetches part i of n of a matrix's rows into L2. A head's rows lie far apart, so the hardware
// does not prefetch them.
template <typename T>
SIE_INLINE void fetch_rows(const T *p, int64_t ld, int64_t rows, int64_t d, int64_t i, int64_t n) {
  for (int64_t r = rows * i / n; r < rows * (i + 1) / n; r++) {
    const char *row = reinterpret_cast<const char *>(p + r * ld);
    for (int64_t byte = 0; byte < d * static_cast<int64_t>(sizeof(T)); byte += 64)
      _mm_prefetch(row + byte, _MM_HINT_T1);
  }
}

template <typename T>
void attend_head(const sie_attention_args *a, const Head<T> &head, const Head<T> &next, float *scratch) {
  const int64_t d = a->head_dim;
  if (head.queries <= 0) return;
  if (head.keys <= 0) {
    const Range range = queries_of(a, head.queries);
    for (int64_t i = range.first; i < range.last; i++)
      memset(head.y + i * a->y.ld, 0, static_cast<size_t>(d) * sizeof(T));
    return;
  }
  const Layout at = layout_of(head.keys, d);
  if (a->resumed == 0) {
    pack_keys(head.k, a->k.ld, head.keys, d, scratch);
    pack_values(head.v, a->v.ld, head.keys, d, at.d, scratch + at.v);
  }
  const bool all = a->mask == SIE_MASK_FULL && a->alibi_slopes == nullptr;
  Sight sight = {a->mask, a->window, 0, head.slope};
  const Range range = queries_of(a, head.queries);
  const int64_t count = range.last - range.first, tiles = tile_count(count);
  for (int64_t i = 0; i < tiles; i++) {
    fetch_rows(next.k, a->k.ld, next.keys, d, i, tiles);
    fetch_rows(next.v, a->v.ld, next.keys, d, i, tiles);
    fetch_rows(next.q, a->q.ld, next.queries, d, i, tiles);
    const int64_t row = range.first + tile_start(count, tiles, i),
                  end = range.first + tile_start(count, tiles, i + 1);
    sight.position = a->queries_first ? row : row + head.keys - head.queries;
    (all ? attend_tile<true, T> : attend_tile<false, T>)(head.q + row * a->q.ld, a->q.ld, end - row, a->scale,
                                                         sight, head.keys, d, at, scratch,
                                                         head.y + row * a->y.ld, a->y.ld);
  }
}

template <typename T>
void attend_items(const sie_attention_args *a, const sie_share *share) {
  const int64_t items = *a->seqs.n * a->heads;
  if (share->part >= items) return;
  Head<T> head = head_at<T>(a, share->part);
  for (int64_t item = share->part; item < items; item += share->parts) {
    Head<T> next = {};
    if (item + share->parts < items) next = head_at<T>(a, item + share->parts);
    attend_head(a, head, next, static_cast<float *>(share->scratch));
    head = next;
  }
}

}  // namespace

sie_status attention(const sie_attention_args *a, const sie_share *share) {
  if (!is_float(a->q.dtype) || a->k.dtype != a->q.dtype || a->v.dtype != a->q.dtype ||
      a->y.dtype != a->q.dtype) {
    return SIE_UNSUPPORTED;
  }
  if (a->mask < SIE_MASK_FULL || a->mask > SIE_MASK_WINDOW) return SIE_UNSUPPORTED;
  if (a->head_dim < 1 || a->head_dim > kMaxHeadDim) return SIE_UNSUPPORTED;
  if (a->q.dtype == SIE_F32) {
    attend_items<float>(a, share);
  } else {
    attend_items<Bf16>(a, share);
  }
  return SIE_OK;
}

int64_t attention_scratch(const sie_op_bounds *bounds) {
  if (bounds->head_dim < 1 || bounds->head_dim > kMaxHeadDim) return 0;
  return layout_of(bounds->max_len, bounds->head_dim).end * static_cast<int64_t>(sizeof(float));
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
