// splade_sm90_bf16.cu — instances of class BF16.
#include "cuda/splade_sm90.cuh"

namespace sie_cuda {

sie_status splade_sm90_bf16(const GemmCall &call, const SpladeTarget &to) {
  return splade_sm90_class<Sm90Class<ptx::Operand::bf16>>(call, to);
}

}  // namespace sie_cuda
