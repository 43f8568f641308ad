/* amx_attention.h — attention's products on AMX tiles: keys and values packed into tiles, the
 * scores of up to 32 queries, and their weighted values.
 *
 * A block is some keys in a row, numbered from its first. The products take them in steps of
 * kKeyStep. What is packed of a block, and what is multiplied, is a range of whole steps; keys from
 * the block's end on read as zeros. */
#ifndef SIE_KERNELS_CPU_AMX_ATTENTION_H
#define SIE_KERNELS_CPU_AMX_ATTENTION_H

#include <immintrin.h>

#include "amx_tile.h"
#include "isa.h"

namespace sie_cpu {

enum { kKeyStep = 32, kTileBytes = 1024, kQueryBlock = 32 };

static inline int64_t whole_steps(int64_t keys) { return (keys + kKeyStep - 1) / kKeyStep * kKeyStep; }

/* The keys of an item in one head, or its values: rows of the prefix, then the item's own. */
struct KeyRows {
  const char *prefix, *own;
  int64_t prefix_ld, own_ld; /* bytes */
  int64_t split;             /* the first own key: the number of the prefix's */
  const char *at(int64_t j) const { return j < split ? prefix + j * prefix_ld : own + (j - split) * own_ld; }
};

/* 64 bytes at `offset` of `count` rows, 16 four-byte elements each, transposed. The other rows of
 * 16 count as zero and are not read. */
static inline void transpose_tile(const char *const *rows, int64_t offset, int64_t count, char *dst) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; i++)
    r[i] = i < count ? _mm512_loadu_si512(rows[i] + offset) : _mm512_setzero_si512();
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

/* The steps `steps` of the block of `keys` keys from key `first` on: tile (keys 16·b …, dimensions
 * 32·s …) of the block at index b·(D/32) + s of dst. */
template <int D>
static inline void pack_keys(const KeyRows &k, int64_t first, int64_t keys, Range steps, char *dst) {
  for (int64_t j = steps.first; j < steps.last; j += 16) {
    const int64_t count = keys - j < 16 ? keys - j : 16;
    const char *rows[16];
    for (int64_t i = 0; i < count; i++) rows[i] = k.at(first + j + i);
    char *const tiles = dst + j / 16 * (D / 32) * kTileBytes;
    if (count <= 0)
      memset(tiles, 0, D / 32 * kTileBytes);
    else
      for (int s = 0; s < D / 32; s++) transpose_tile(rows, 64 * s, count, tiles + s * kTileBytes);
  }
}

/* The same of v: tile (keys 32·b …, dimensions 16·t …) at index b·(D/16) + t; its row i holds keys
 * 2i and 2i + 1 interleaved. Returns whether all packed values are finite. */
template <int D>
static inline bool pack_values(const KeyRows &v, int64_t first, int64_t keys, Range steps, char *dst) {
  alignas(64) static const uint16_t kLow[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  const __m512i zero = _mm512_setzero_si512(), exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 infinite = 0;
  for (int64_t j = steps.first; j < steps.last; j += 2) {
    char *const tile = dst + j / kKeyStep * (D / 16) * kTileBytes + j % kKeyStep / 2 * 64;
    for (int s = 0; s < D / 32; s++) {
      const __m512i even = j < keys ? _mm512_loadu_si512(v.at(first + j) + 64 * s) : zero;
      const __m512i odd = j + 1 < keys ? _mm512_loadu_si512(v.at(first + j + 1) + 64 * s) : zero;
      infinite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(even, exponent), exponent) |
                  _mm512_cmpeq_epi16_mask(_mm512_and_si512(odd, exponent), exponent);
      _mm512_store_si512(tile + (2 * s) * kTileBytes, _mm512_permutex2var_epi16(even, low, odd));
      _mm512_store_si512(tile + (2 * s + 1) * kTileBytes, _mm512_permutex2var_epi16(even, high, odd));
    }
  }
  return infinite == 0;
}

/* The scores of 16·RowTiles queries with the keys of `steps`: row i at scores + i·ld, key j at
 * [j]. */
template <int D, int RowTiles>
static inline void query_scores(const char *q, int64_t q_ld, const char *packed_k, Range steps, float *scores,
                                int64_t ld) {
  ld *= 4;
  amx_load<4>(q, q_ld);
  if (RowTiles == 2) amx_load<5>(q + 16 * q_ld, q_ld);
  for (int64_t j = steps.first; j < steps.last; j += kKeyStep) {
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

/* Dimensions [32·t, 32·t + 32) of Σ p·v over the keys of `steps`, for 16·RowTiles rows. Row i of p,
 * bf16, begins at p + i·ld floats, and key j is its element j. sums [16·RowTiles][32]. */
template <int D, int RowTiles>
static inline void weighted_values(const float *p, int64_t ld, const char *packed_v, Range steps, int t,
                                   float *sums) {
  ld *= 4;
  amx_zero<0>();
  amx_zero<1>();
  if (RowTiles == 2) {
    amx_zero<2>();
    amx_zero<3>();
  }
  const char *v = packed_v + (steps.first / kKeyStep * (D / 16) + 2 * t) * kTileBytes;
  const char *row = (const char *)p + 2 * steps.first;
  for (int64_t j = steps.first; j < steps.last; j += kKeyStep) {
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

/* The bits of weighted_values for row m alone and keys [keys.first, keys.last), in sums[32·m …]:
 * for values that are not all finite, where 0·v of a key outside would be a NaN. It multiplies 16
 * rows for one, with copies of the steps that hold other keys. p has whole groups of 16 rows. */
template <int D>
static inline void weighted_values_alone(const float *p, int64_t ld, const char *packed_v, Range keys, int t,
                                         int64_t m, float *sums) {
  alignas(64) uint32_t own[2][16][16];
  alignas(64) float all[16 * 32];
  amx_zero<0>();
  amx_zero<1>();
  for (int64_t j = keys.first / kKeyStep * kKeyStep; j < keys.last; j += kKeyStep) {
    memcpy(own, packed_v + (j / kKeyStep * (D / 16) + 2 * t) * kTileBytes, sizeof own);
    for (int i = 0; i < kKeyStep; i++) {
      if (j + i >= keys.first && j + i < keys.last) continue;
      const uint32_t other = i % 2 == 0 ? 0xffff0000u : 0xffffu;
      for (int c = 0; c < 16; c++) {
        own[0][i / 2][c] &= other;
        own[1][i / 2][c] &= other;
      }
    }
    amx_load<4>((const char *)(p + m / 16 * 16 * ld) + 2 * j, 4 * ld);
    amx_load<6>(own[0], 64);
    amx_dp_bf16<0, 4, 6>();
    amx_load<7>(own[1], 64);
    amx_dp_bf16<1, 4, 7>();
  }
  amx_store<0>(all, 128);
  amx_store<1>(all + 16, 128);
  memcpy(sums + 32 * m, all + 32 * (m % 16), 128);
}

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_AMX_ATTENTION_H */
