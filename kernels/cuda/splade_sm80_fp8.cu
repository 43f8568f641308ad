// splade_sm80_fp8.cu — the e4m3 instances (splade_sm80.cuh), largest tile first.
#include "cuda/splade_sm80.cuh"

namespace sie_cuda {

const SpladeSm80Instance splade_sm80_fp8[splade_sm80_fp8_count] = {
    SIE_SPLADE_SM80_INSTANCE(e4m3, 128, 128, 2, 4, 128, 3, 1),
    SIE_SPLADE_SM80_INSTANCE(e4m3, 16, 32, 1, 2, 128, 8, 2),
};

}  // namespace sie_cuda
