// linear_norm.cu — the launcher of linear_norm (ops.h): one kernel, or those of linear and layernorm
// in place.
#include "cuda/linear_norm.h"

#include "cuda/linear.h"
#include "cuda/row_launch.cuh"
#include "cuda/rows.h"

namespace sie_cuda {

namespace {

bool same_rows(const sie_rows &a, const sie_rows &b) { return a.cap == b.cap && a.n == b.n; }

bool same_tensor(const sie_tensor &a, const sie_tensor &b) {
  return a.p == b.p && a.ld == b.ld && a.dtype == b.dtype;
}

// What layernorm would refuse is refused here, before linear's launch.
sie_status check(const sie_linear_norm_args &a) {
  const sie_linear_args &l = a.linear;
  const sie_layernorm_args &n = a.norm;
  if (l.w == nullptr) return SIE_INVALID_ARGUMENT;
  if (l.w->compute != SIE_COMPUTE_BF16 && l.w->compute != SIE_COMPUTE_F16) return SIE_UNSUPPORTED;
  if (l.y.dtype != SIE_BF16 && l.y.dtype != SIE_F16) return SIE_UNSUPPORTED;
  if (!same_rows(n.rows, l.rows) || !same_tensor(n.x, l.y) || !same_tensor(n.y, l.y))
    return SIE_INVALID_ARGUMENT;
  if (n.c != (l.gate != SIE_GATE_NONE ? l.n / 2 : l.n)) return SIE_INVALID_ARGUMENT;
  if (n.norm != SIE_NORM_LAYER && n.norm != SIE_NORM_RMS) return SIE_INVALID_ARGUMENT;
  if (n.gamma == nullptr && l.rows.cap > 0) return SIE_INVALID_ARGUMENT;
  const bool plain = n.yq.p == nullptr && n.bias == nullptr && n.residual.p == nullptr && n.sum.p == nullptr;
  if (!plain) return SIE_INVALID_ARGUMENT;
  return n.c <= row_columns_max ? SIE_OK : SIE_UNSUPPORTED;
}

}  // namespace

sie_status linear_norm(const sie_linear_norm_args *args, const sie_share *share) {
  if (args == nullptr || share == nullptr || share->on == nullptr) return SIE_INVALID_ARGUMENT;
  if (share->part != 0 || share->parts != 1) return SIE_INVALID_ARGUMENT;
  sie_status status = check(*args);
  if (status != SIE_OK) return status;
  if (args->linear.rows.cap > 0 && fused_linear_norm(*args, share->on, &status)) return status;
  status = linear(&args->linear, share);
  return status == SIE_OK ? layernorm(&args->norm, share) : status;
}

}  // namespace sie_cuda
