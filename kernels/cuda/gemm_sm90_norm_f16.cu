// gemm_sm90_norm_f16.cu — instances of class F16.
#include "cuda/gemm_sm90_norm_launch.cuh"

namespace sie_cuda {

sie_status gemm_sm90_norm_f16(int32_t form, const GemmCall &call, const sie_layernorm_args &norm) {
  return sm90_norm_launch_class<Sm90Class<ptx::Operand::f16>>(form, call, norm);
}

}  // namespace sie_cuda
