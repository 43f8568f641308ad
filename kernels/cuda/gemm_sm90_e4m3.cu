// gemm_sm90_e4m3.cu — instances of class FP8.
#include "cuda/gemm_sm90_launch.cuh"

namespace sie_cuda {

sie_status gemm_sm90_e4m3(int32_t variant, const GemmCall &call) {
  return sm90_launch_class<Sm90Class<ptx::Operand::e4m3>>(variant, call);
}

}  // namespace sie_cuda
