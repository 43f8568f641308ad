// muvera.h — the launcher of encodings, for the tables (kernels/ops.h says what it computes).
//
// It refuses before it launches. SIE_INVALID_ARGUMENT: a missing pointer, a stride below the
// columns, a share that is not the whole or has no stream or too little scratch. SIE_UNSUPPORTED:
// shapes and types outside the limits in muvera.cuh. No sequences launch nothing. A sketch is read
// in rounds (sketch_output, sketch_source): sketch may be NULL.
#ifndef SIE_KERNELS_CUDA_MUVERA_H
#define SIE_KERNELS_CUDA_MUVERA_H

#include "ops.h"

namespace sie_cuda {

sie_status muvera(const sie_muvera_args *, const sie_share *);

// The bytes of scratch: partitions [R, T], means [B, C], norms [T], what pool needs, and slots for intermediates
// that do not fit in shared memory.
int64_t muvera_scratch(const sie_op_bounds *bounds);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_MUVERA_H
