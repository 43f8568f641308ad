// output_rows.h — the launcher for output rows that come from one row of a tensor each;
// output_rows.cu.
#ifndef SIE_KERNELS_CUDA_OUTPUT_ROWS_H
#define SIE_KERNELS_CUDA_OUTPUT_ROWS_H

#include "cuda/output_rows.cuh"

namespace sie_cuda {

// Launches a job that is checked and has seqs.cap > 0.
sie_status launch_output_rows(const OutputJob &job, const sie_stream *on);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_OUTPUT_ROWS_H
