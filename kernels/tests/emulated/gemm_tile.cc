// gemm_tile.cc — what cpu/gemm_tile_avx512.S computes, for emulated AVX-512: the same tiles in the same
// order of operations, without what they fetch ahead. The assembly itself runs on machines that have
// the instructions alone.
#include "cpu/gemm_tile.h"

namespace sie_cpu {
namespace {

template <int Rows, int Vecs>
void tile(const TileArgs *args) {
  for (int m = 0; m < Rows; m++) {
    for (int h = 0; h < 2 * Vecs; h++) {  // halves of vectors
      __m256 sum = _mm256_setzero_ps();
      for (int64_t i = 0; i < args->k; i++) {
        sum = _mm256_fmadd_ps(_mm256_set1_ps(args->a[m * args->lda + i]),
                              _mm256_loadu_ps(args->b + i * args->ldb + 8 * h), sum);
      }
      if (args->bias != nullptr) sum = _mm256_add_ps(sum, _mm256_loadu_ps(args->bias + 8 * h));
      if (args->residual != nullptr)
        sum = _mm256_add_ps(sum, _mm256_loadu_ps(args->residual + m * args->ldr + 8 * h));
      _mm256_storeu_ps(args->c + m * args->ldc + 8 * h, sum);
    }
  }
}

}  // namespace

#define SIE_TILE(rows) {tile<rows, 1>, tile<rows, 2>, tile<rows, 3>}
#define SIE_TILES                                                   \
  {SIE_TILE(1), SIE_TILE(2), SIE_TILE(3), SIE_TILE(4), SIE_TILE(5), \
   SIE_TILE(6), SIE_TILE(7), SIE_TILE(8), SIE_TILE(9)}
const TileFn sie_tiles_avx512[kReaches][kTileRows][kTileVecs] = {SIE_TILES, SIE_TILES, SIE_TILES};
#undef SIE_TILES
#undef SIE_TILE

}  // namespace sie_cpu
