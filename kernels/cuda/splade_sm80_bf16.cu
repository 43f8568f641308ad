// splade_sm80_bf16.cu — the bf16 instances (splade_sm80.cuh), largest tile first.
#include "cuda/splade_sm80.cuh"

namespace sie_cuda {

const SpladeSm80Instance splade_sm80_bf16[splade_sm80_16bit_count] = SIE_SPLADE_SM80_16BIT(bf16);

}  // namespace sie_cuda
