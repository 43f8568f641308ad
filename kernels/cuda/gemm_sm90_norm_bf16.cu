// gemm_sm90_norm_bf16.cu — instances of class BF16.
#include "cuda/gemm_sm90_norm_launch.cuh"

namespace sie_cuda {

sie_status gemm_sm90_norm_bf16(int32_t form, const GemmCall &call, const sie_layernorm_args &norm) {
  return sm90_norm_launch_class<Sm90Class<ptx::Operand::bf16>>(form, call, norm);
}

}  // namespace sie_cuda
