// gemm_sm80_bf16.cu — the bf16 instances (gemm_sm80.cuh), largest tile first.
#include "cuda/gemm_sm80_launch.cuh"

namespace sie_cuda {

const GemmSm80Instance gemm_sm80_bf16[gemm_sm80_16bit_count] = SIE_GEMM_SM80_16BIT(bf16);

}  // namespace sie_cuda
