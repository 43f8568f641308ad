// cublaslt.h — NVIDIA's own GEMM as a peer, where its library is installed: opened by dlopen, never
// linked.
//
// It uses the same device memory as ours: gemm_pack.h's layout is an ordinary row-major matrix.
// Bias is zero, and its GELU is the tanh form. It runs the first algorithm of its heuristic, with
// 64 MiB of workspace.
#ifndef SIE_KERNELS_BENCH_CUBLASLT_H
#define SIE_KERNELS_BENCH_CUBLASLT_H

#include <string>

#include "ops.h"

namespace cublaslt {

// Opens `path`, or, where that is empty, the names that a loader finds. *what receives its version,
// or the reason for a failure.
bool open(const std::string &path, std::string *what);

// Like sie_ops.linear, with pointers to device memory. SIE_UNSUPPORTED: gates, FP8 with outputs
// other than bf16, activations other than exact GELU, and what the library refuses.
sie_status linear(const sie_linear_args *a, const sie_share *share);

}  // namespace cublaslt

#endif  // SIE_KERNELS_BENCH_CUBLASLT_H
