// gemm_sm90_launch.h — what the host side passes to the files of instances.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_LAUNCH_H
#define SIE_KERNELS_CUDA_GEMM_SM90_LAUNCH_H

#include "cuda/gemm_call.h"

namespace sie_cuda {

// Variants in the order of gemm_sm90_variant.
enum GemmSm90Index : int32_t {
  GEMM_SM90_SKINNY = 0,
  GEMM_SM90_PINGPONG_64X128,
  GEMM_SM90_PINGPONG_128X128,
  GEMM_SM90_PINGPONG_128X128_PAIR,
  GEMM_SM90_PINGPONG_128X192,
  GEMM_SM90_PINGPONG_128X192_PAIR,
  GEMM_SM90_COOPERATIVE_128X256,
  GEMM_SM90_COOPERATIVE_128X256_PAIR,
  GEMM_SM90_COUNT
};

// One function a class; SIE_UNSUPPORTED where it lacks the variant.
sie_status gemm_sm90_bf16(int32_t variant, const GemmCall &call);
sie_status gemm_sm90_f16(int32_t variant, const GemmCall &call);
sie_status gemm_sm90_e4m3(int32_t variant, const GemmCall &call);
// All classes.
sie_status gemm_sm90_skinny(const GemmCall &call);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_LAUNCH_H
