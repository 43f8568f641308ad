// gemm_tiles.h — the tile variant that a GEMM runs with: the line for its shape where a sweep on a
// device has found one, else an estimate (gemm_sm80.cc, gemm_sm90.cc).
//
// All variants of a class give the same bits, so a line changes speed and nothing else. The first
// line that fits counts; a variant that cannot do the call (e4m3 from too narrow a tile) is
// skipped.
#ifndef SIE_KERNELS_CUDA_GEMM_TILES_H
#define SIE_KERNELS_CUDA_GEMM_TILES_H

#include <stdint.h>
#include <string.h>

#include "ops.h"

namespace sie_cuda {

struct GemmTile {
  int32_t sm;                  // of the device measured; 90 stands for 90 … 99
  uint32_t compute;            // sie_compute
  int64_t n, k;                // of the weight
  int64_t rows_from, rows_to;  // capacity: rows_from < cap ≤ rows_to
  const char *variant;         // name, of gemm_sm90_variant or gemm_sm80_variant
};

// The list ends with sm = 0.
constexpr GemmTile gemm_tiles[] = {
    {0, 0, 0, 0, 0, 0, nullptr},
};

inline bool gemm_tile_fits(const GemmTile &t, const sie_linear_args &a, const sie_stream &on) {
  const bool device = t.sm == 90 ? on.sm / 10 == 9 : on.sm == t.sm;
  return device && t.compute == a.w->compute && t.n == a.n && t.k == a.k && a.rows.cap > t.rows_from &&
         a.rows.cap <= t.rows_to;
}

// The variant that runs, −1 where none takes the call. Family has, for variants 0 … count − 1:
//   int32_t count
//   const char *name(i)
//   bool takes(i)       whether it can do the call
//   clocks(i)           its estimate, a number; only the order counts
template <class Family>
int32_t gemm_choose(const Family &family, const GemmTile *tiles, const sie_linear_args &a,
                    const sie_stream &on) {
  for (const GemmTile *t = tiles; t->sm != 0; t++) {
    if (!gemm_tile_fits(*t, a, on)) continue;
    for (int32_t i = 0; i < family.count; i++) {
      if (strcmp(family.name(i), t->variant) == 0 && family.takes(i)) return i;
    }
  }
  int32_t best = -1;
  double least = 0;
  for (int32_t i = 0; i < family.count; i++) {
    if (!family.takes(i)) continue;
    const double clocks = static_cast<double>(family.clocks(i));
    if (best >= 0 && clocks >= least) continue;
    best = i;
    least = clocks;
  }
  return best;
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_TILES_H
