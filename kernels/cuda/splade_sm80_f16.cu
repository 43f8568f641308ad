// splade_sm80_f16.cu — the f16 instances (splade_sm80.cuh), largest tile first.
#include "cuda/splade_sm80.cuh"

namespace sie_cuda {

const SpladeSm80Instance splade_sm80_f16[splade_sm80_16bit_count] = SIE_SPLADE_SM80_16BIT(f16);

}  // namespace sie_cuda
