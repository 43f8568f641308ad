// smve.h — the launcher of sparse multi-vector encodings, for the tables (kernels/ops.h says what
// it computes).
//
// It refuses before it launches. SIE_INVALID_ARGUMENT: a missing pointer, a stride below the
// columns, top outside 1 … width, a share that is not the whole or has no stream or too little
// scratch. SIE_UNSUPPORTED: x that is not a float type, top above 256, repetitions·width above
// 2³¹−1, more than 2²⁰ columns, and devices below sm_80. No sequences launch nothing.
#ifndef SIE_KERNELS_CUDA_SMVE_H
#define SIE_KERNELS_CUDA_SMVE_H

#include "ops.h"

namespace sie_cuda {

sie_status smve(const sie_smve_args *, const sie_share *);

// The bytes of scratch: norms [R], and for each row and repetition `top` projections, kept and
// pooled, 16 bytes each.
int64_t smve_scratch(const sie_op_bounds *bounds);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_SMVE_H
