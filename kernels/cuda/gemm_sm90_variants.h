// gemm_sm90_variants.h — the list of the ways in which gemm_sm90 divides its work (gemm_sm90.h).
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_VARIANTS_H
#define SIE_KERNELS_CUDA_GEMM_SM90_VARIANTS_H

#include "cuda/gemm_sm90.h"
#include "cuda/gemm_sm90_launch.h"

namespace sie_cuda {

namespace sm90_classes {
constexpr uint32_t all = 1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_F16 | 1u << SIE_COMPUTE_FP8;
constexpr uint32_t of_16_bits = 1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_F16;
}  // namespace sm90_classes

constexpr GemmSm90Variant gemm_sm90_variants[GEMM_SM90_COUNT] = {
    {"skinny", 64, 0, 0, 1, sm90_classes::all},
    {"pingpong-64x128", 64, 128, 64, 1, sm90_classes::all},
    {"pingpong-128x128", 128, 128, 128, 1, sm90_classes::all},
    {"pingpong-128x128-pair", 128, 128, 128, 2, sm90_classes::all},
    {"pingpong-128x192", 128, 192, 128, 1, sm90_classes::of_16_bits},
    {"cooperative-128x256", 128, 256, 64, 1, sm90_classes::all},
    {"cooperative-128x256-pair", 128, 256, 64, 2, sm90_classes::all},
};

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_VARIANTS_H
