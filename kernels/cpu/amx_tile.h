/* amx_tile.h — AMX tiles: configuration, and load, store and multiply as inline assembly.
 *
 * gcc 12's own intrinsics are volatile assembly without a memory clobber, so stores to a buffer may
 * move past the tile load that reads it. These wrappers order them.
 *
 * Register use everywhere in this folder (rows × 64 bytes each):
 *   0 1 2 3   accumulators, 2 × 2 (or 1 × 4) tiles of 16 × 16 four-byte elements
 *   4 5       left operand,  rows of up to 64 bytes
 *   6 7       right operand, 16 rows of 16 packed column groups */
#ifndef SIE_KERNELS_CPU_AMX_TILE_H
#define SIE_KERNELS_CPU_AMX_TILE_H

#include <stdint.h>
#include <string.h>

namespace sie_cpu {

/* The 64-byte operand of ldtilecfg. */
struct alignas(64) AmxTileConfig {
  uint8_t palette, start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(AmxTileConfig) == 64, "ldtilecfg reads 64 bytes");

/* Fills cfg for left operands of rows0 rows (tile 4; accumulators 0, 1) and rows1 rows (tile 5;
 * accumulators 2, 3); 1 <= rows <= 16. The values of a row do not depend on the number of rows. */
static inline void amx_config(AmxTileConfig *cfg, int rows0, int rows1) {
  memset(cfg, 0, sizeof *cfg);
  cfg->palette = 1;
  const int rows[8] = {rows0, rows0, rows1, rows1, rows0, rows1, 16, 16};
  for (int t = 0; t < 8; t++) {
    cfg->row_bytes[t] = 64;
    cfg->rows[t] = (uint8_t)rows[t];
  }
}

#ifdef SIE_EMULATED_TILES
}  // namespace sie_cpu
#include "tests/emulated_tiles.h"
namespace sie_cpu {
#else
static inline void amx_load_config(const AmxTileConfig *cfg) {
  __asm__ volatile("ldtilecfg %0" ::"m"(*cfg) : "memory");
}
static inline void amx_release() { __asm__ volatile("tilerelease" ::: "memory"); }

template <int T>
static inline void amx_zero() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(T));
}
template <int T>
static inline void amx_load(const void *p, int64_t stride_bytes) {
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(T), "r"(p), "r"(stride_bytes) : "memory");
}
template <int T>
static inline void amx_store(void *p, int64_t stride_bytes) {
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(T), "r"(p), "r"(stride_bytes) : "memory");
}
/* C += A·B over 32 bf16 pairs-packed k: sums in f32, one chain per element. */
template <int C, int A, int B>
static inline void amx_dp_bf16() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
/* C += A·B over 64 k, A unsigned, B signed: exact in s32. */
template <int C, int A, int B>
static inline void amx_dp_u8s8() {
  __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
#endif

/* Prefetches the lines of [p, p + bytes) of `rows` rows for writing, so that later stores own
 * them. */
static inline void prefetch_for_write(const char *p, int64_t ld_bytes, int rows, int bytes) {
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < bytes; i += 64) __asm__ volatile("prefetchw (%0)" ::"r"(p + r * ld_bytes + i));
}

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_AMX_TILE_H */
