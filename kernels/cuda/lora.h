// lora.h — the launcher of LoRA's products, for the tables (kernels/ops.h says what it computes).
//
// Refuses before it launches: SIE_INVALID_ARGUMENT for a missing pointer, no columns, a stride
// below them, fewer adapters or ranks than none, a share that is not the whole or has no stream;
// SIE_UNSUPPORTED for other types than lora.cuh has, a max_rank above 512, more than 2²⁰ columns of
// x or y, 2³¹−1 rows, sequences or CTAs, and devices below sm_80. No rows launch nothing. The
// adapters are in device memory and not looked at: their dtype must be x's, their ranks max_rank at
// most.
#ifndef SIE_KERNELS_CUDA_LORA_H
#define SIE_KERNELS_CUDA_LORA_H

#include "ops.h"

namespace sie_cuda {

sie_status lora(const sie_lora_args *, const sie_share *);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_LORA_H
