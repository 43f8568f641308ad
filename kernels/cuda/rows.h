// rows.h — the launchers of the row operations, for the tables (kernels/ops.h says what each
// computes).
//
// All refuse before they launch. SIE_INVALID_ARGUMENT: a missing pointer, a stride below the
// columns, a share that is not the whole or has no stream. SIE_UNSUPPORTED: the limits in the
// operation's header comment, more than 2³¹−1 rows, and devices below sm_80 (arch.h has the
// messages). No rows and no sequences launch nothing.
#ifndef SIE_KERNELS_CUDA_ROWS_H
#define SIE_KERNELS_CUDA_ROWS_H

#include "ops.h"

namespace sie_cuda {

sie_status embed_layernorm(const sie_embed_layernorm_args *, const sie_share *);
sie_status layernorm(const sie_layernorm_args *, const sie_share *);
sie_status quantise_rows(const sie_quantise_rows_args *, const sie_share *);
sie_status qk_norm_rope(const sie_qk_norm_rope_args *, const sie_share *);
sie_status gather_rows(const sie_gather_rows_args *, const sie_share *);
sie_status pool(const sie_pool_args *, const sie_share *);
sie_status output_rows(const sie_output_rows_args *, const sie_share *);
sie_status pool_output(const sie_pool_output_args *, const sie_share *);
sie_status keep_rows(const sie_keep_rows_args *, const sie_share *);
sie_status output_sparse(const sie_output_sparse_args *, const sie_share *);
sie_status mark_nonfinite(const sie_mark_nonfinite_args *, const sie_share *);
sie_status join_columns(const sie_join_columns_args *, const sie_share *);

// Bytes of device memory that pool and pool_output need at share->scratch.
int64_t pool_scratch(const sie_op_bounds *bounds);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ROWS_H
