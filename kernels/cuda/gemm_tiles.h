// gemm_tiles.h — which tile variant a GEMM runs with, where a sweep on a device has found out: `gpu-check`
// writes it.
//
// All variants of a class give the same bits, so a line changes speed and nothing else. The first line that
// fits counts; a variant that cannot do what is asked (e4m3 out of too narrow a tile) is passed over. What
// has no line is chosen by an estimate (gemm_sm80.cc, gemm_sm90.cc).
#ifndef SIE_KERNELS_CUDA_GEMM_TILES_H
#define SIE_KERNELS_CUDA_GEMM_TILES_H

#include <stdint.h>

#include "ops.h"

namespace sie_cuda {

struct GemmTile {
  int32_t sm;                  // of the device measured; its family runs it (90 stands for 90 … 99)
  uint32_t compute;            // sie_compute
  int64_t n, k;                // of the weight
  int64_t rows_from, rows_to;  // capacity: rows_from < cap ≤ rows_to
  const char *variant;         // name, of gemm_sm90_variant or gemm_sm80_variant
};

// Ends with sm = 0.
constexpr GemmTile gemm_tiles[] = {
    {0, 0, 0, 0, 0, 0, nullptr},
};

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_TILES_H
