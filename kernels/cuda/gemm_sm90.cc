// gemm_sm90.cc — the host side of gemm_sm90.h: checks, and the way to the variant that is chosen.
#include "cuda/gemm_sm90.h"

#include "cuda/gemm_sm90_launch.h"

namespace sie_cuda {

namespace {

sie_status check(const sie_linear_args *a, const sie_stream *on, GemmCall *call) {
  sie_status status = gemm_call(a, on, call);
  if (status != SIE_OK) return status;
  return on->sm / 10 == 9 ? SIE_OK : SIE_UNSUPPORTED;
}

sie_status run(int32_t variant, const GemmCall &call) {
  if (!gemm_sm90_takes(variant, call.args)) return SIE_UNSUPPORTED;
  if (call.args->rows.cap == 0) return SIE_OK;
  if (variant == GEMM_SM90_SKINNY) return gemm_sm90_skinny(call);
  switch (call.args->w->compute) {
    case SIE_COMPUTE_BF16:
      return gemm_sm90_bf16(variant, call);
    case SIE_COMPUTE_F16:
      return gemm_sm90_f16(variant, call);
    default:
      return gemm_sm90_e4m3(variant, call);
  }
}

}  // namespace

int32_t gemm_sm90_choose(const sie_linear_args *a, const sie_stream *on) {
  GemmCall call;
  if (check(a, on, &call) != SIE_OK) return -1;
  return gemm_sm90_pick(*call.args, *call.on);
}

sie_status gemm_sm90_run(int32_t variant, const sie_linear_args *a, const sie_stream *on) {
  GemmCall call;
  sie_status status = check(a, on, &call);
  return status == SIE_OK ? run(variant, call) : status;
}

}  // namespace sie_cuda
