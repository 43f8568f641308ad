// maxsim.h — the launcher of late interaction, for the tables (kernels/ops.h says what it
// computes).
//
// It refuses before it launches. SIE_INVALID_ARGUMENT: a missing pointer, no columns, a stride
// below them, a share that is not the whole or has no stream. SIE_UNSUPPORTED: types that
// maxsim.cuh lacks, more than 2²⁰ columns, 2³¹−1 sequences or rows, and devices below sm_80. No
// sequences launch nothing.
#ifndef SIE_KERNELS_CUDA_MAXSIM_H
#define SIE_KERNELS_CUDA_MAXSIM_H

#include "ops.h"

namespace sie_cuda {

sie_status maxsim(const sie_maxsim_args *, const sie_share *);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_MAXSIM_H
