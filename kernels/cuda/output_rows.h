// output_rows.h — the launcher of rows that are one row of a tensor; output_rows.cu.
#ifndef SIE_KERNELS_CUDA_OUTPUT_ROWS_H
#define SIE_KERNELS_CUDA_OUTPUT_ROWS_H

#include "cuda/output_rows.cuh"

namespace sie_cuda {

// job is checked and has seqs.cap > 0.
sie_status launch_output_rows(const OutputJob &job, const sie_stream *on);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_OUTPUT_ROWS_H
