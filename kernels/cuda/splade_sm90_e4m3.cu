// splade_sm90_e4m3.cu — instances of class FP8.
#include "cuda/splade_sm90.cuh"

namespace sie_cuda {

sie_status splade_sm90_e4m3(const GemmCall &call, const SpladeTarget &to) {
  return splade_sm90_class<Sm90Class<ptx::Operand::e4m3>>(call, to);
}

}  // namespace sie_cuda
