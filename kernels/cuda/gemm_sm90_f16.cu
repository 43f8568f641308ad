// gemm_sm90_f16.cu — instances of class F16.
#include "cuda/gemm_sm90_launch.cuh"

namespace sie_cuda {

sie_status gemm_sm90_f16(int32_t variant, const GemmCall &call) {
  return sm90_launch_class<Sm90Class<ptx::Operand::f16>>(variant, call);
}

}  // namespace sie_cuda
