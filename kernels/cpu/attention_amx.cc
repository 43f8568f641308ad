// attention — y = softmax(scale·q·kᵀ)·v per sequence and head, bf16, on AMX tiles.
//   s_j = q·k_j,  p_j = bf16(2^((s_j − max s)·scale·log2 e)),  y = Σ p_j·v_j / Σ p_j
//   over the visible keys
// Shapes   q, y [Rq, H·D], k, v [Rkv, Hkv·D], row strides ≥ columns; cu_q, cu_kv [B+1]; D = 32 or
//          64. Query i of Lq stands at position i + Lkv − Lq, or at i with queries_first. Without
//          visible keys y is zero.
// Types    q, k, v, y bf16.
// Alias    none.
// Align    any; 64 B rows of a head load fastest.
// Cost     4·Lq·Lkv·D flop on tiles, Lq·Lkv exponentials on the vector unit. The exponentials
//          dominate (about 10 instructions for 16), so a head of 128 × 128 takes some 4 µs.
// Plan     per key head: k is transposed into tiles of key columns, v into tiles of key pairs, both
//          with zero rows to a multiple of 32. Per 32 queries: all scores (f32) to scratch, softmax
//          in place to bf16, then p·v. Scratch grows with the longest sequence only:
//          4·D + 128 bytes a key.
// Numeric  keys are never split; the chain over keys runs in steps of 32 from key 0. So the form
//          depends on the item's own length alone. Only this sequence's rows of k and v are read.
// Error    p has bf16's relative error 2⁻⁹. Dividing by the sum of the rounded p cancels the part
//          that all keys share. Exponential ≤ 4e-6. Then y is rounded to bf16.
// Source   Dao 2022, arXiv:2205.14135. Its blocks of keys are not needed here: a row of scores fits
//          the cache.
#include "amx_tile.h"
#include "epilogue_avx512.h"
#include "kernels_amx.h"

namespace sie_cpu {
namespace {

enum { kKeyStep = 32, kTileBytes = 1024, kQueryBlock = 32 };

int64_t padded_keys(int64_t keys) { return (keys + kKeyStep - 1) / kKeyStep * kKeyStep; }

/* Other head dimensions are the generic kernel's. */
bool has_tiles(int64_t head_dim) { return head_dim == 32 || head_dim == 64; }

/* Elements between score rows. The extra line keeps rows of a power-of-two length from sharing one
 * cache set. */
int64_t score_ld(int64_t padded) { return padded + 16; }

/* 16 rows of 16 four-byte elements, transposed. Rows from `rows` on count as zero and are not read.
 * */
void transpose_tile(const char *src, int64_t ld, int64_t rows, char *dst) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; i++) r[i] = i < rows ? _mm512_loadu_si512(src + i * ld) : _mm512_setzero_si512();
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  /* r[4g + c] holds, in 128-bit lane l, column 4l + c of rows 4g … 4g + 3. */
  for (int c = 0; c < 4; c++) {
    const __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88),
                  b = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
    const __m512i d = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    _mm512_store_si512(dst + 64 * c, _mm512_shuffle_i32x4(a, d, 0x88));
    _mm512_store_si512(dst + 64 * (8 + c), _mm512_shuffle_i32x4(a, d, 0xdd));
    _mm512_store_si512(dst + 64 * (4 + c), _mm512_shuffle_i32x4(b, e, 0x88));
    _mm512_store_si512(dst + 64 * (12 + c), _mm512_shuffle_i32x4(b, e, 0xdd));
  }
}

/* Tile (keys 16·b …, dimensions 32·s …) of k at index b·(D/32) + s. */
template <int D>
void pack_keys(const char *k, int64_t ld, int64_t keys, char *dst) {
  for (int64_t j = 0; j < padded_keys(keys); j += 16)
    for (int s = 0; s < D / 32; s++, dst += kTileBytes) {
      if (j < keys)
        transpose_tile(k + j * ld + 64 * s, ld, keys - j, dst);
      else
        memset(dst, 0, kTileBytes);
    }
}

/* Tile (keys 32·b …, dimensions 16·t …) of v at index b·(D/16) + t: row i holds keys 2i, 2i + 1
 * interleaved. */
template <int D>
void pack_values(const char *v, int64_t ld, int64_t keys, char *dst) {
  alignas(64) static const uint16_t kLow[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  const __m512i zero = _mm512_setzero_si512();
  for (int64_t j = 0; j < padded_keys(keys); j += 2) {
    char *const tile = dst + j / kKeyStep * (D / 16) * kTileBytes + j % kKeyStep / 2 * 64;
    for (int s = 0; s < D / 32; s++) {
      const __m512i even = j < keys ? _mm512_loadu_si512(v + j * ld + 64 * s) : zero;
      const __m512i odd = j + 1 < keys ? _mm512_loadu_si512(v + (j + 1) * ld + 64 * s) : zero;
      _mm512_store_si512(tile + (2 * s) * kTileBytes, _mm512_permutex2var_epi16(even, low, odd));
      _mm512_store_si512(tile + (2 * s + 1) * kTileBytes, _mm512_permutex2var_epi16(even, high, odd));
    }
  }
}

/* The scores of 16·RowTiles queries with all padded keys. */
template <int D, int RowTiles>
void query_scores(const char *q, int64_t q_ld, const char *packed_k, int64_t padded, float *scores) {
  const int64_t ld = 4 * score_ld(padded);
  amx_load<4>(q, q_ld);
  if (RowTiles == 2) amx_load<5>(q + 16 * q_ld, q_ld);
  for (int64_t j = 0; j < padded; j += 32) {
    const char *const k = packed_k + j / 16 * (D / 32) * kTileBytes;
    amx_zero<0>();
    amx_zero<1>();
    if (RowTiles == 2) {
      amx_zero<2>();
      amx_zero<3>();
    }
    for (int s = 0; s < D / 32; s++) {
      if (D > 32) {
        amx_load<4>(q + 64 * s, q_ld);
        if (RowTiles == 2) amx_load<5>(q + 16 * q_ld + 64 * s, q_ld);
      }
      amx_load<6>(k + s * kTileBytes, 64);
      amx_dp_bf16<0, 4, 6>();
      amx_load<7>(k + (D / 32 + s) * kTileBytes, 64);
      amx_dp_bf16<1, 4, 7>();
      if (RowTiles == 2) {
        amx_dp_bf16<2, 5, 6>();
        amx_dp_bf16<3, 5, 7>();
      }
    }
    amx_store<0>(scores + j, ld);
    amx_store<1>(scores + j + 16, ld);
    if (RowTiles == 2) {
      amx_store<2>(scores + 4 * ld + j, ld);
      amx_store<3>(scores + 4 * ld + j + 16, ld);
    }
  }
}

/* One row: scores [padded] become p, bf16, in the same place, zero outside [first, last). Returns
 * 1/Σp. */
float softmax_row(float *row, int64_t first, int64_t last, int64_t padded, float scale_log2) {
  if (first >= last) {
    memset(row, 0, (size_t)(2 * padded));
    return 0.0f;
  }
  const __m512 low = _mm512_set1_ps(-__builtin_inff());
  __m512 m0 = low, m1 = low;
  int64_t j = first / 32 * 32;
  for (int64_t c = j; c < last; c += 32) {
    if (c >= first && c + 32 <= last) {
      m0 = _mm512_max_ps(m0, _mm512_load_ps(row + c));
      m1 = _mm512_max_ps(m1, _mm512_load_ps(row + c + 16));
    } else {
      const uint32_t above = c >= first ? ~0u : ~0u << (first - c);
      const ColumnMask mask = column_mask(c, last);
      m0 = _mm512_mask_max_ps(m0, mask.lo & (__mmask16)above, m0, _mm512_load_ps(row + c));
      m1 = _mm512_mask_max_ps(m1, mask.hi & (__mmask16)(above >> 16), m1, _mm512_load_ps(row + c + 16));
    }
  }
  const __m512 scale = _mm512_set1_ps(scale_log2);
  const __m512 top = _mm512_mul_ps(_mm512_set1_ps(_mm512_reduce_max_ps(_mm512_max_ps(m0, m1))), scale);
  const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
  __m512 sum = _mm512_setzero_ps();
  if (j > 0)
    memset(row, 0, (size_t)(2 * j)); /* p of [0, j) covers scores of [0, j/2): already used or unseen */
  for (; j < last; j += 32) {
    __m512 p0 = fast_exp2(_mm512_fmsub_ps(_mm512_load_ps(row + j), scale, top));
    __m512 p1 = fast_exp2(_mm512_fmsub_ps(_mm512_load_ps(row + j + 16), scale, top));
    if (j < first || j + 32 > last) {
      const uint32_t above = j >= first ? ~0u : ~0u << (first - j);
      const ColumnMask mask = column_mask(j, last);
      p0 = _mm512_maskz_mov_ps(mask.lo & (__mmask16)above, p0);
      p1 = _mm512_maskz_mov_ps(mask.hi & (__mmask16)(above >> 16), p1);
    }
    const __m512bh p = _mm512_cvtne2ps_pbh(p1, p0);
    sum = _mm512_dpbf16_ps(sum, p, ones);
    _mm512_store_si512((char *)row + 2 * j, (__m512i)p);
  }
  if (j < padded) memset((char *)row + 2 * j, 0, (size_t)(2 * (padded - j)));
  return 1.0f / _mm512_reduce_add_ps(sum);
}

/* Dimensions [32·t, 32·t + 32) of 16·RowTiles outputs, unnormalised. */
template <int D, int RowTiles>
void weighted_values(const float *p, const char *packed_v, int64_t padded, int t, float *sums) {
  const int64_t ld = 4 * score_ld(padded);
  amx_zero<0>();
  amx_zero<1>();
  if (RowTiles == 2) {
    amx_zero<2>();
    amx_zero<3>();
  }
  const char *v = packed_v + 2 * t * kTileBytes, *row = (const char *)p;
  for (int64_t j = 0; j < padded; j += kKeyStep) {
    amx_load<4>(row, ld);
    amx_load<6>(v, 64);
    amx_dp_bf16<0, 4, 6>();
    amx_load<7>(v + kTileBytes, 64);
    amx_dp_bf16<1, 4, 7>();
    if (RowTiles == 2) {
      amx_load<5>(row + 16 * ld, ld);
      amx_dp_bf16<2, 5, 6>();
      amx_dp_bf16<3, 5, 7>();
    }
    row += 2 * kKeyStep;
    v += D / 16 * kTileBytes;
  }
  amx_store<0>(sums, 128);
  amx_store<1>(sums + 16, 128);
  if (RowTiles == 2) {
    amx_store<2>(sums + 16 * 32, 128);
    amx_store<3>(sums + 16 * 32 + 16, 128);
  }
}

struct Scratch {
  char *k, *v, *q; /* packed keys, packed values, a padded block of queries */
  float *scores;
};

/* Values that the queries of one head share. */
struct Head {
  const char *q; /* query 0, this head's columns */
  char *y;
  int64_t q_ld, y_ld; /* bytes */
  int64_t queries, keys;
};

template <int D, int RowTiles>
void query_block(const sie_attention_args *a, const Head &h, int64_t first, int64_t rows, const Scratch &s) {
  const int64_t padded = padded_keys(h.keys);
  const char *q = h.q + first * h.q_ld;
  int64_t q_ld = h.q_ld;
  if (rows < 16 * RowTiles) { /* a full tile load would run past the last row */
    memset(s.q, 0, (size_t)(2 * D * 16 * RowTiles));
    for (int64_t i = 0; i < rows; i++) memcpy(s.q + i * 2 * D, q + i * q_ld, 2 * D);
    q = s.q;
    q_ld = 2 * D;
  }
  query_scores<D, RowTiles>(q, q_ld, s.k, padded, s.scores);
  float inverse[kQueryBlock];
  const float scale_log2 = a->scale * 1.44269504f;
  for (int64_t i = 0; i < rows; i++) {
    const int64_t position = first + i + (a->queries_first ? 0 : h.keys - h.queries);
    int64_t begin = 0, end = h.keys;
    if (a->mask == SIE_MASK_CAUSAL && position + 1 < end) end = position + 1;
    if (a->mask == SIE_MASK_WINDOW) {
      begin = position - a->window > 0 ? position - a->window : 0;
      end = position + a->window + 1 < h.keys ? position + a->window + 1 : h.keys;
    }
    inverse[i] = softmax_row(s.scores + i * score_ld(padded), begin, end, padded, scale_log2);
  }
  alignas(64) float sums[kQueryBlock * 32];
  for (int t = 0; t < D / 32; t++) {
    weighted_values<D, RowTiles>(s.scores, s.v, padded, t, sums);
    for (int64_t i = 0; i < rows; i++) {
      const __m512 inv = _mm512_set1_ps(inverse[i]);
      const __m512 y0 = _mm512_mul_ps(_mm512_load_ps(sums + 32 * i), inv);
      const __m512 y1 = _mm512_mul_ps(_mm512_load_ps(sums + 32 * i + 16), inv);
      _mm512_storeu_si512(h.y + (first + i) * h.y_ld + 64 * t, (__m512i)_mm512_cvtne2ps_pbh(y1, y0));
    }
  }
}

template <int D>
void key_head(const sie_attention_args *a, int64_t seq, int64_t kv_head, const Scratch &s) {
  const int64_t q0 = a->cu_q[seq], k0 = a->cu_kv[seq], group = a->heads / a->kv_heads;
  Head h = {nullptr, nullptr, 2 * a->q.ld, 2 * a->y.ld, a->cu_q[seq + 1] - q0, a->cu_kv[seq + 1] - k0};
  if (h.queries == 0) return;
  const Range range = queries_of(a, h.queries);
  if (!a->resumed) {
    pack_keys<D>((const char *)a->k.p + 2 * (k0 * a->k.ld + kv_head * D), 2 * a->k.ld, h.keys, s.k);
    pack_values<D>((const char *)a->v.p + 2 * (k0 * a->v.ld + kv_head * D), 2 * a->v.ld, h.keys, s.v);
  }
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
    h.q = (const char *)a->q.p + 2 * (q0 * a->q.ld + head * D);
    h.y = (char *)a->y.p + 2 * (q0 * a->y.ld + head * D);
    for (int64_t i = range.first; i < range.last; i += kQueryBlock) {
      const int64_t rows = range.last - i < kQueryBlock ? range.last - i : (int64_t)kQueryBlock;
      if (rows > 16)
        query_block<D, 2>(a, h, i, rows, s);
      else
        query_block<D, 1>(a, h, i, rows, s);
    }
  }
}

}  // namespace

int64_t attention_bf16_amx_scratch(const sie_op_bounds *bounds) {
  if (!has_tiles(bounds->head_dim)) return 0;
  const int64_t padded = padded_keys(bounds->max_len), d = bounds->head_dim;
  return 2 * padded * d * 2 + kQueryBlock * d * 2 + kQueryBlock * score_ld(padded) * 4;
}

sie_status attention_bf16_amx(const sie_attention_args *a, const sie_share *share) {
  if (a->q.dtype != SIE_BF16 || a->k.dtype != SIE_BF16 || a->v.dtype != SIE_BF16 || a->y.dtype != SIE_BF16)
    return SIE_UNSUPPORTED;
  if (!has_tiles(a->head_dim) || !(a->scale > 0)) return SIE_UNSUPPORTED;
  const int64_t d = a->head_dim, padded = padded_keys(a->max_kv);
  Scratch s;
  s.k = (char *)share->scratch;
  s.v = s.k + padded * d * 2;
  s.q = s.v + padded * d * 2;
  s.scores = (float *)(s.q + kQueryBlock * d * 2);

  AmxTileConfig config;
  amx_config(&config, 16, 16);
  amx_load_config(&config);
  const int64_t units = (int64_t)*a->seqs.n * a->kv_heads;
  for (int64_t u = share->part; u < units; u += share->parts) {
    if (d == 32)
      key_head<32>(a, u / a->kv_heads, u % a->kv_heads, s);
    else
      key_head<64>(a, u / a->kv_heads, u % a->kv_heads, s);
  }
  amx_release();
  return SIE_OK;
}

}  // namespace sie_cpu
