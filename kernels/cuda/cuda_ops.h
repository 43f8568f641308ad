/* cuda_ops.h — the operation tables of the CUDA backend, and the launchers they hold.
 *
 * A launcher takes the arguments of its operation with pointers to device memory, enqueues its
 * kernels on share->on (part 0 of 1) and returns; it allocates nothing and waits for nothing. It
 * returns SIE_UNSUPPORTED and SIE_INVALID_ARGUMENT before any launch. Built by g++ with
 * kernels/simt, the same tables run on the host, on host memory. */
#ifndef SIE_KERNELS_CUDA_CUDA_OPS_H
#define SIE_KERNELS_CUDA_CUDA_OPS_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The table for devices of compute capability sm (80 for 8.0), NULL below 80.
 *   cuda-sm80  80 … 88; 100 … 119: mma.sync of bf16 and f16, cp.async
 *   cuda-sm89  89; 120 and above: also mma.sync of e4m3
 *   cuda-sm90  90 … 99: wgmma, TMA, programmatic launch */
const sie_ops *sie_cuda_ops(int sm);

/* The bytes of scratch that each operation needs; this is the tables' scratch_bytes. */
int64_t sie_cuda_scratch_bytes(const sie_op_bounds *bounds);

#ifdef __cplusplus
}
#endif
#endif /* SIE_KERNELS_CUDA_CUDA_OPS_H */
