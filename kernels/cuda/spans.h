// spans.h — spans and pairs on every GPU, for the tables (kernels/ops.h).
//
// Each takes two calls: pass 0 fills found, pass 1 writes the items. Both refuse before they
// launch. SIE_INVALID_ARGUMENT: a missing pointer, a stride below the columns, widths or logits out
// of range, a share that is not the whole or has no stream. SIE_UNSUPPORTED: other types, a weight
// of another class, more than 2³¹−1 rows, devices below sm_80. No words launch nothing but the
// headers of pass 1. Items lie on the device: one that is not f32, has no room, has normalize or a
// NaN as threshold is not written.
#ifndef SIE_KERNELS_CUDA_SPANS_H
#define SIE_KERNELS_CUDA_SPANS_H

#include "ops.h"

namespace sie_cuda {

sie_status spans(const sie_spans_args *, const sie_share *);
sie_status pairs(const sie_pairs_args *, const sie_share *);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_SPANS_H
