// linear.h — the table entry of linear, for all families of devices.
#ifndef SIE_KERNELS_CUDA_LINEAR_H
#define SIE_KERNELS_CUDA_LINEAR_H

#include "ops.h"

namespace sie_cuda {

// ops.h's linear. gemm_sm80.h, gemm_sm90.h and linear_f32.h say what each family takes and with
// which status it refuses. Also refuses with SIE_INVALID_ARGUMENT a share that is not part 0 of 1
// or has no stream.
sie_status linear(const sie_linear_args *args, const sie_share *share);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_LINEAR_H
