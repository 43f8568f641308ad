// gemm_tile.h — c[mr, nv·kLanes] = a[mr, K]·b[K, nv·kLanes] + bias + residual: the register-blocked
// product under linear and attention, for any mr ≤ kRows and nv ≤ kVecs.
//
// One FMA chain per element of c, k ascending from 0, then bias, then residual: an element's bits
// depend on its row of a and its column of b alone, never on the tile it was computed in. a is read
// element by element, b, bias and residual in whole vectors; none beyond its end. c is overwritten.
#ifndef SIE_KERNELS_CPU_GEMM_TILE_H
#define SIE_KERNELS_CPU_GEMM_TILE_H

#include <stddef.h>

#include "vec.h"

namespace sie_cpu {

// What a tile fetches while it works. Each load or fetch besides the FMAs draws current, and where
// power limits the clock of wide vectors it costs clock. So a tile fetches no more than the place
// of the panel needs.
enum Reach {
  kHere,    // b is near: nothing
  kStream,  // b comes from far away, this once: its element `ahead` of the one at work, into L1
  kShare,   // b is in L2: a line for every two rows of it, `next` moving on by `step` elements, into L2
};
constexpr int kReaches = 3;

// Strides in elements. Fetching memory that does not exist does nothing.
struct TileArgs {
  const float *a;
  int64_t lda;
  const float *b;
  int64_t ldb;
  int64_t k;
  float *c;
  int64_t ldc;
  const float *bias;      // [nv·kLanes], or null
  const float *residual;  // [mr, nv·kLanes], may be c; or null
  int64_t ldr;
  int64_t ahead;      // kStream
  const float *next;  // kShare
  int64_t step;
};

typedef void (*TileFn)(const TileArgs *args);

#if defined(__AVX512F__)
constexpr int kTileRows = 9, kTileVecs = 3;
// gemm_tile_avx512.S, which knows the places of the arguments: [reach][rows − 1][vecs − 1].
extern "C" __attribute__((visibility("hidden")))
const TileFn sie_tiles_avx512[kReaches][kTileRows][kTileVecs];
static_assert(offsetof(TileArgs, lda) == 8 && offsetof(TileArgs, k) == 32 && offsetof(TileArgs, ldc) == 48 &&
                  offsetof(TileArgs, ldr) == 72 && offsetof(TileArgs, ahead) == 80 &&
                  offsetof(TileArgs, step) == 96,
              "gemm_tile_avx512.S reads TileArgs at these places");
#else
constexpr int kTileRows = 6, kTileVecs = 2;
#endif

namespace SIE_ISA_NS {

// kRows·kVecs accumulators, kVecs vectors of b and a broadcast fill the 32 or 16 registers. That is
// enough chains to cover the FMA's latency on both ports, and more FMAs than loads.
constexpr int kRows = kTileRows, kVecs = kTileVecs;
constexpr int kPanel = kVecs * kLanes;

#if !defined(__AVX512F__)

template <int MR, int NV, Reach Far>
static void tile(const TileArgs *args) {
  const float *a = args->a, *b = args->b, *next = args->next;
  const int64_t lda = args->lda, ldb = args->ldb, ahead = args->ahead, step = args->step;
  Vec sum[MR][NV];
#pragma GCC unroll 16
  for (int m = 0; m < MR; m++) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) sum[m][v] = vset(0.0f);
  }
  const int64_t k = args->k;
#pragma GCC unroll 1
  for (int64_t i = 0; i < k; i++, b += ldb) {
    if (Far == kStream) fetch_near(b + ahead);  // 16 floats: a line
    if (Far == kShare && i % 2 == 0) {
      fetch_far(next);
      next += step;
    }
    Vec row[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) row[v] = vload(b + v * kLanes);
#pragma GCC unroll 16
    for (int m = 0; m < MR; m++) {
      const Vec x = vset(a[m * lda + i]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; v++) sum[m][v] = vfma(x, row[v], sum[m][v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < NV; v++) {
    const Vec bias = args->bias != nullptr ? vload(args->bias + v * kLanes) : vset(0.0f);
#pragma GCC unroll 16
    for (int m = 0; m < MR; m++) {
      Vec y = sum[m][v] + bias;
      if (args->residual != nullptr) y = y + vload(args->residual + m * args->ldr + v * kLanes);
      vstore(args->c + m * args->ldc + v * kLanes, y);
    }
  }
}

#define SIE_TILE(m, reach) {tile<m, 1, reach>, tile<m, 2, reach>}
#define SIE_TILES(r) \
  {SIE_TILE(1, r), SIE_TILE(2, r), SIE_TILE(3, r), SIE_TILE(4, r), SIE_TILE(5, r), SIE_TILE(6, r)}
constexpr TileFn kTiles[kReaches][kRows][kVecs] = {SIE_TILES(kHere), SIE_TILES(kStream), SIE_TILES(kShare)};
#undef SIE_TILES
#undef SIE_TILE

#endif  // AVX2

// A tile of 1 to kRows rows and 1 to kVecs vectors.
SIE_INLINE void multiply_tile(Reach reach, int64_t rows, int64_t vecs, const TileArgs &args) {
#if defined(__AVX512F__)
  sie_tiles_avx512[reach][rows - 1][vecs - 1](&args);
#else
  kTiles[reach][rows - 1][vecs - 1](&args);
#endif
}

// The same where b is near and c is the product alone.
SIE_INLINE void multiply_tile(int64_t rows, int64_t vecs, const float *a, int64_t lda, const float *b,
                              int64_t ldb, int64_t k, float *c, int64_t ldc) {
  multiply_tile(kHere, rows, vecs, {a, lda, b, ldb, k, c, ldc, nullptr, nullptr, 0, 0, nullptr, 0});
}

// Rows of tile i of `tiles` that cover `rows` evenly: 17 rows are 6 + 6 + 5, not 8 + 8 + 1.
SIE_INLINE int64_t tile_start(int64_t rows, int64_t tiles, int64_t i) { return rows * i / tiles; }
SIE_INLINE int64_t tile_count(int64_t rows) { return (rows + kRows - 1) / kRows; }

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_GEMM_TILE_H
