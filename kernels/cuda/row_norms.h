// row_norms.h — the L2 norms of token rows, for kernels that divide by them: muvera, smve.
#ifndef SIE_KERNELS_CUDA_ROW_NORMS_H
#define SIE_KERNELS_CUDA_ROW_NORMS_H

#include "ops.h"

namespace sie_cuda {

// norms[r] = max(√Σ x², 1e-12) for each of the first *rows.n rows of x, c columns of fX; the sum in
// double, rounded once to f32. Arguments must be checked, rows.cap > 0. Host function,
// asynchronous.
sie_status launch_row_norms(const sie_rows &rows, const sie_tensor &x, int32_t c, float *norms,
                            const sie_stream *on);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ROW_NORMS_H
