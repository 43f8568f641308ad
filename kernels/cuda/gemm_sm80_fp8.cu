// gemm_sm80_fp8.cu — the e4m3 instances (gemm_sm80.cuh). Warps are half as wide as in the 16-bit
// instances: the sums within a block of 128 need registers of their own. 64×256 is for a gate with
// y in e4m3, where 128 columns of y take 256 of W.
#include "cuda/gemm_sm80_launch.cuh"

namespace sie_cuda {

const GemmSm80Instance gemm_sm80_fp8[gemm_sm80_fp8_count] = {
    SIE_GEMM_SM80_INSTANCE(e4m3, 128, 128, 2, 4, 128, 3, 1),
    SIE_GEMM_SM80_INSTANCE(e4m3, 64, 256, 2, 4, 128, 2, 1),
    SIE_GEMM_SM80_INSTANCE(e4m3, 32, 128, 1, 4, 128, 4, 1),
    SIE_GEMM_SM80_INSTANCE(e4m3, 16, 32, 1, 2, 128, 8, 2),
};

}  // namespace sie_cuda
