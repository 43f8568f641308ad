// gemm_sm90_norm.cc — the way to the instance of gemm_sm90_norm.h that is chosen.
#include "cuda/gemm_sm90_norm.h"

#include "cuda/linear_norm.h"

namespace sie_cuda {

sie_status gemm_sm90_norm_run(int32_t form, const sie_linear_norm_args *args, const sie_stream *on) {
  GemmCall call;
  const sie_status status = gemm_call(&args->linear, on, &call);
  if (status != SIE_OK) return status;
  if (!gemm_sm90_norm_takes(form, args, on)) return SIE_UNSUPPORTED;
  if (args->linear.rows.cap == 0) return SIE_OK;
  return args->linear.w->compute == SIE_COMPUTE_BF16 ? gemm_sm90_norm_bf16(form, call, args->norm)
                                                     : gemm_sm90_norm_f16(form, call, args->norm);
}

bool fused_linear_norm(const sie_linear_norm_args &args, const sie_stream *on, sie_status *status) {
  const sie_linear_args &a = args.linear;
  const int32_t form = gemm_sm90_norm_pick(a.w->compute, a.rows.cap, a.n, a.k, *on);
  if (form < 0 || !gemm_sm90_norm_takes(form, &args, on)) return false;
  *status = gemm_sm90_norm_run(form, &args, on);
  return true;
}

}  // namespace sie_cuda
