// gemm_tile.h — c[mr, nv·kLanes] = a[mr, K]·b[K, nv·kLanes]: the register-blocked product under linear and
// attention, for any mr ≤ kRows and nv ≤ kVecs.
//
// One FMA chain per element of c, k ascending from 0: an element's bits depend on its row of a and its column
// of b alone, never on the tile it was computed in. a is read element by element, b in whole vectors; neither
// beyond its end. c is overwritten.
#ifndef SIE_KERNELS_CPU_GEMM_TILE_H
#define SIE_KERNELS_CPU_GEMM_TILE_H

#include "vec.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

// kRows·kVecs accumulators, kVecs vectors of b and a broadcast fill the registers, 32 or 16; enough chains to
// cover the FMA's latency on both ports, and more FMAs than loads.
#if defined(__AVX512F__)
constexpr int kRows = 9, kVecs = 3;
#else
constexpr int kRows = 6, kVecs = 2;
#endif
constexpr int kPanel = kVecs * kLanes;

// While it works the tile fetches memory for later: b's elements `near` further on into L1, and, where step
// is not 0, two lines from `far` on into L2 for each row of b, far moving on by `step` elements. A fetch of
// memory that is not there does nothing.
struct Fetch {
  int64_t near;
  const float *far;
  int64_t step;
};

typedef void (*TileFn)(const float *a, int64_t lda, const float *b, int64_t ldb, Fetch fetch, int64_t k,
                       float *c, int64_t ldc);

template <int MR, int NV, bool Far>
static void tile(const float *a, int64_t lda, const float *b, int64_t ldb, Fetch fetch, int64_t k, float *c,
                 int64_t ldc) {
  Vec sum[MR][NV];
#pragma GCC unroll 16
  for (int m = 0; m < MR; m++) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) sum[m][v] = vset(0.0f);
  }
#pragma GCC unroll 1
  for (int64_t i = 0; i < k; i++, b += ldb) {
    Vec row[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) {
      row[v] = vload(b + v * kLanes);
      if (v * kLanes % 16 != 0) continue;  // a line is 16 floats
      _mm_prefetch(reinterpret_cast<const char *>(b + fetch.near + v * kLanes), _MM_HINT_T0);
    }
    if (Far) {
      _mm_prefetch(reinterpret_cast<const char *>(fetch.far), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char *>(fetch.far + 16), _MM_HINT_T1);
      fetch.far += fetch.step;
    }
#pragma GCC unroll 16
    for (int m = 0; m < MR; m++) {
      const Vec x = vset(a[m * lda + i]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; v++) sum[m][v] = vfma(x, row[v], sum[m][v]);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < MR; m++) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) vstore(c + m * ldc + v * kLanes, sum[m][v]);
  }
}

// kTiles[rows - 1][vectors - 1], without and with the far fetch.
#if defined(__AVX512F__)
#define SIE_TILE(m, far) {tile<m, 1, far>, tile<m, 2, far>, tile<m, 3, far>}
#define SIE_TILES(far)                                                                       \
  {SIE_TILE(1, far), SIE_TILE(2, far), SIE_TILE(3, far), SIE_TILE(4, far), SIE_TILE(5, far), \
   SIE_TILE(6, far), SIE_TILE(7, far), SIE_TILE(8, far), SIE_TILE(9, far)}
#else
#define SIE_TILE(m, far) {tile<m, 1, far>, tile<m, 2, far>}
#define SIE_TILES(far) \
  {SIE_TILE(1, far), SIE_TILE(2, far), SIE_TILE(3, far), SIE_TILE(4, far), SIE_TILE(5, far), SIE_TILE(6, far)}
#endif
constexpr TileFn kTiles[kRows][kVecs] = SIE_TILES(false);
constexpr TileFn kTilesFar[kRows][kVecs] = SIE_TILES(true);
#undef SIE_TILES
#undef SIE_TILE

// Rows of tile i of `tiles` that cover `rows` evenly: 17 rows are 6 + 6 + 5, not 8 + 8 + 1.
SIE_INLINE int64_t tile_start(int64_t rows, int64_t tiles, int64_t i) { return rows * i / tiles; }
SIE_INLINE int64_t tile_count(int64_t rows) { return (rows + kRows - 1) / kRows; }

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_GEMM_TILE_H
