// gemm_sm80_f16.cu — the f16 instances (gemm_sm80.cuh), largest tile first.
#include "cuda/gemm_sm80_launch.cuh"

namespace sie_cuda {

const GemmSm80Instance gemm_sm80_f16[gemm_sm80_16bit_count] = SIE_GEMM_SM80_16BIT(f16);

}  // namespace sie_cuda
