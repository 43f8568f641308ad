/* emulated_tiles.h — the AMX instructions of cpu/amx_tile.h on plain arrays, as the software
 * developer's manual defines them (volume 2: LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBF16PS,
 * TDPBUSD).
 *
 * The same sources, compiled again with SIE_EMULATED_TILES, run wherever AVX-512 with VNNI and BF16
 * does, or where that is emulated, too (emulated_avx512.h). What would raise #GP or #UD on a processor ends the program. Each thread has its tiles, as
 * each has its registers. */
#ifndef SIE_KERNELS_TESTS_EMULATED_TILES_H
#define SIE_KERNELS_TESTS_EMULATED_TILES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace sie_cpu {

struct EmulatedTile {
  alignas(64) uint8_t row[16][64];
  int rows, row_bytes; /* 0: not configured */
};

struct EmulatedTiles {
  EmulatedTile tile[8];
  int64_t products; /* tiles multiplied by this thread */
};

/* This thread's tiles: one state for all sources. */
inline EmulatedTiles *emulated_tiles() {
  thread_local EmulatedTiles tiles = {};
  return &tiles;
}

[[noreturn]] static inline void tile_fault(const char *what) {
  fprintf(stderr, "emulated tiles: %s\n", what);
  abort();
}
static inline void tile_need(bool holds, const char *what) {
  if (!holds) tile_fault(what);
}
static inline EmulatedTile *configured_tile(int t) {
  EmulatedTile *const tile = &emulated_tiles()->tile[t];
  tile_need(tile->rows > 0, "#UD: a tile that is not configured");
  return tile;
}

static inline void amx_load_config(const AmxTileConfig *cfg) {
  tile_need(cfg->palette == 1 && cfg->start_row == 0, "#GP: a palette other than 1, or a start row");
  for (uint8_t byte : cfg->reserved) tile_need(byte == 0, "#GP: a reserved byte");
  for (int t = 0; t < 16; t++) {
    const int rows = cfg->rows[t], bytes = cfg->row_bytes[t];
    if (t >= 8) {
      tile_need(rows == 0 && bytes == 0, "#GP: more than eight tiles");
      continue;
    }
    tile_need(rows <= 16 && bytes <= 64 && (rows == 0) == (bytes == 0), "#GP: the size of a tile");
    EmulatedTile *const tile = &emulated_tiles()->tile[t];
    memset(tile->row, 0, sizeof tile->row);
    tile->rows = rows;
    tile->row_bytes = bytes;
  }
}
static inline void amx_release() { memset(emulated_tiles()->tile, 0, sizeof(EmulatedTiles::tile)); }

template <int T>
static inline void amx_zero() {
  EmulatedTile *const tile = configured_tile(T);
  memset(tile->row, 0, sizeof tile->row);
}
template <int T>
static inline void amx_load(const void *p, int64_t stride_bytes) {
  EmulatedTile *const tile = configured_tile(T);
  memset(tile->row, 0, sizeof tile->row);
  for (int r = 0; r < tile->rows; r++)
    memcpy(tile->row[r], (const char *)p + r * stride_bytes, (size_t)tile->row_bytes);
}
template <int T>
static inline void amx_store(void *p, int64_t stride_bytes) {
  const EmulatedTile *const tile = configured_tile(T);
  for (int r = 0; r < tile->rows; r++)
    memcpy((char *)p + r * stride_bytes, tile->row[r], (size_t)tile->row_bytes);
}

static inline void need_product(const EmulatedTile *c, const EmulatedTile *a, const EmulatedTile *b) {
  tile_need(a != b && b != c && a != c, "#UD: a tile twice");
  tile_need(c->rows == a->rows && c->row_bytes == b->row_bytes && a->row_bytes == 4 * b->rows &&
                c->row_bytes % 4 == 0,
            "#UD: tiles whose sizes do not fit");
}

/* For each element two chains from zero, of the even and of the odd k; their sum is added to the
 * old value. A call of its own, so that no operation leaves the time in which denormals are
 * zeros. */
[[gnu::noinline]] static void sum_products(EmulatedTile *c, const EmulatedTile *a, const EmulatedTile *b) {
  float right[2][16][16]; /* [half][pair][column] */
  for (int k = 0; k < b->rows; k++) {
    uint32_t pairs[16];
    memcpy(pairs, b->row[k], 64);
    for (int n = 0; n < 16; n++) {
      const uint32_t halves[2] = {pairs[n] << 16, pairs[n] & 0xffff0000u};
      memcpy(&right[0][k][n], &halves[0], 4);
      memcpy(&right[1][k][n], &halves[1], 4);
    }
  }
  for (int m = 0; m < c->rows; m++) {
    float even[16] = {}, odd[16] = {}, was[16];
    for (int k = 0; k < b->rows; k++) {
      uint32_t pair;
      memcpy(&pair, a->row[m] + 4 * k, 4);
      const uint32_t halves[2] = {pair << 16, pair & 0xffff0000u};
      float x[2];
      memcpy(x, halves, 8);
      for (int n = 0; n < 16; n++) even[n] = __builtin_fmaf(x[0], right[0][k][n], even[n]);
      for (int n = 0; n < 16; n++) odd[n] = __builtin_fmaf(x[1], right[1][k][n], odd[n]);
    }
    memcpy(was, c->row[m], 64);
    for (int n = 0; n < 16; n++) was[n] += even[n] + odd[n];
    memcpy(c->row[m], was, (size_t)c->row_bytes);
  }
}

/* Denormals of operands and of results are zeros. */
template <int C, int A, int B>
static inline void amx_dp_bf16() {
  EmulatedTile *const c = configured_tile(C);
  const EmulatedTile *const a = configured_tile(A), *const b = configured_tile(B);
  need_product(c, a, b);
  emulated_tiles()->products++;
  const uint32_t denormals_are_zeros = 0x0040, flush_to_zero = 0x8000, control = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(control | denormals_are_zeros | flush_to_zero);
  sum_products(c, a, b);
  __builtin_ia32_ldmxcsr(control);
}

/* Exact in 32 bits, modulo 2^32. */
template <int C, int A, int B>
static inline void amx_dp_u8s8() {
  EmulatedTile *const c = configured_tile(C);
  const EmulatedTile *const a = configured_tile(A), *const b = configured_tile(B);
  need_product(c, a, b);
  emulated_tiles()->products++;
  for (int m = 0; m < c->rows; m++) {
    int32_t sum[16];
    memcpy(sum, c->row[m], 64);
    for (int k = 0; k < b->rows; k++) {
      const uint8_t *const x = a->row[m] + 4 * k;
      const int8_t *const w = (const int8_t *)b->row[k];
      for (int n = 0; n < 16; n++) {
        const int32_t dot = x[0] * w[4 * n] + x[1] * w[4 * n + 1] + x[2] * w[4 * n + 2] + x[3] * w[4 * n + 3];
        sum[n] = (int32_t)((uint32_t)sum[n] + (uint32_t)dot);
      }
    }
    memcpy(c->row[m], sum, (size_t)c->row_bytes);
  }
}

}  // namespace sie_cpu

#endif /* SIE_KERNELS_TESTS_EMULATED_TILES_H */
