// gemm_sm90_variants.h — the list of the ways in which gemm_sm90 divides its work (gemm_sm90.h).
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_VARIANTS_H
#define SIE_KERNELS_CUDA_GEMM_SM90_VARIANTS_H

#include "cuda/cost.h"
#include "cuda/gemm_sm90.h"
#include "cuda/gemm_sm90_launch.h"
#include "cuda/gemm_sm90_tiles.h"

namespace sie_cuda {

namespace sm90_classes {
constexpr uint32_t all = 1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_F16 | 1u << SIE_COMPUTE_FP8;
constexpr uint32_t of_16_bits = 1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_F16;
}  // namespace sm90_classes

// The line of a tile.
template <class Shape>
constexpr GemmSm90Variant gemm_sm90_line(const char *name, uint32_t classes) {
  return {name, Shape::rows, Shape::columns, sm90_warpgroup_rows<Shape>, Shape::cluster, classes};
}

constexpr GemmSm90Variant gemm_sm90_variants[GEMM_SM90_COUNT] = {
    {"skinny", 64, 0, 0, 1, sm90_classes::all},
    gemm_sm90_line<Sm90Pingpong64x128>("pingpong-64x128", sm90_classes::all),
    gemm_sm90_line<Sm90Pingpong128x128>("pingpong-128x128", sm90_classes::all),
    gemm_sm90_line<Sm90Pingpong128x128Pair>("pingpong-128x128-pair", sm90_classes::all),
    gemm_sm90_line<Sm90Pingpong128x192>("pingpong-128x192", sm90_classes::of_16_bits),
    gemm_sm90_line<Sm90Pingpong128x192Pair>("pingpong-128x192-pair", sm90_classes::of_16_bits),
    gemm_sm90_line<Sm90Cooperative128x256>("cooperative-128x256", sm90_classes::all),
    gemm_sm90_line<Sm90Cooperative128x256Pair>("cooperative-128x256-pair", sm90_classes::all),
};

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_VARIANTS_H
