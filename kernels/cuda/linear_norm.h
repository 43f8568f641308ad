// linear_norm.h — the table entry of linear_norm, and what the one kernel for it has to offer.
#ifndef SIE_KERNELS_CUDA_LINEAR_NORM_H
#define SIE_KERNELS_CUDA_LINEAR_NORM_H

#include "ops.h"

namespace sie_cuda {

// ops.h's linear_norm: one kernel where fused_linear_norm has one, else the launches of linear and
// layernorm. Refuses, before any launch, what linear refuses; with SIE_UNSUPPORTED a class other than
// BF16 and F16 and y of another type than bf16 and f16; with SIE_INVALID_ARGUMENT a norm that is not
// of linear's rows and columns in place, has quantised rows, bias, residual or sum, or lacks gamma.
sie_status linear_norm(const sie_linear_norm_args *, const sie_share *);

// Launches one kernel for a call that linear_norm has checked and that has room for a row. False:
// there is none for these arguments, or two are faster; nothing was launched. True: *status says how
// the launch went.
bool fused_linear_norm(const sie_linear_norm_args &args, const sie_stream *on, sie_status *status);

// ops.h's linear_norm_pays: whether fused_linear_norm has a kernel for this weight on this card that is
// faster than two for a batch of some size.
int32_t linear_norm_pays(const sie_packed *w, const sie_stream *on);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_LINEAR_NORM_H
