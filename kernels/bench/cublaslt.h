// cublaslt.h — NVIDIA's own GEMM as a peer, where its library is installed: opened by dlopen, never
// linked.
//
// On the same device memory as ours: gemm_pack.h's layout is an ordinary row-major matrix. Bias is
// zero, and its GELU is the tanh form. The first algorithm of its heuristic, 64 MiB of workspace.
#ifndef SIE_KERNELS_BENCH_CUBLASLT_H
#define SIE_KERNELS_BENCH_CUBLASLT_H

#include <string>

#include "ops.h"

namespace cublaslt {

// Opens `path`, or where it is empty the names a loader finds. Its version goes to *what, or why
// there is none.
bool open(const std::string &path, std::string *what);

// As sie_ops.linear, pointers to device memory. SIE_UNSUPPORTED: gates, FP8 with other outputs than
// bf16, activations besides exact GELU; what the library refuses.
sie_status linear(const sie_linear_args *a, const sie_share *share);

}  // namespace cublaslt

#endif  // SIE_KERNELS_BENCH_CUBLASLT_H
