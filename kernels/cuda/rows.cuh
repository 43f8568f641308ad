// rows.cuh — the code that row kernels share: a row spread over the registers of one or several
// warps.
//
// Thread t of the 32·W threads of a row (row_threads.cuh) holds its octets t, t + 32·W, …
// (octets.cuh), at most V of them, as f32. So every sum has one order, whatever the storage type
// and the row's alignment: the forms of a kernel differ in speed and in nothing else. V and W
// follow from the columns alone (row_launch.cuh).
#ifndef SIE_KERNELS_CUDA_ROWS_CUH
#define SIE_KERNELS_CUDA_ROWS_CUH

#include "cuda/octets.cuh"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/row_launch.cuh"
#include "cuda/row_threads.cuh"
#include "cuda/sequence_of.cuh"

#endif  // SIE_KERNELS_CUDA_ROWS_CUH
