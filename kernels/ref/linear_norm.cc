// linear_norm — y = norm(round(act(x·Wᵀ + bias + addend) + residual)): linear, then layernorm in place.
// Shapes   those of linear; γ, β [columns of y]. R ≥ 0.
// Types    x, W bf16 | f16, as the class; residual f32 | bf16 | f16; y bf16 | f16, to which the rows are
//          rounded before the norm, too.
// Alias    residual may be y when the types agree.
// Share    rows.
// Scratch  K doubles, 2·N floats.
#include "rows.h"

namespace sie_ref {

namespace {

bool is_16_bit(int32_t dtype) { return dtype == SIE_BF16 || dtype == SIE_F16; }

bool same_tensor(const sie_tensor &a, const sie_tensor &b) {
  return a.p == b.p && a.ld == b.ld && a.dtype == b.dtype;
}

bool in_place(const sie_linear_args &l, const sie_layernorm_args &n) {
  if (n.rows.n != l.rows.n || n.c != (l.gate != SIE_GATE_NONE ? l.n / 2 : l.n)) return false;
  if (n.yq.p != nullptr || n.bias != nullptr || n.residual.p != nullptr || n.sum.p != nullptr) return false;
  return same_tensor(n.x, l.y) && same_tensor(n.y, l.y);
}

}  // namespace

sie_status linear_norm(const sie_linear_norm_args *a, const sie_share *share) {
  const bool classes = a->linear.w->compute == SIE_COMPUTE_BF16 || a->linear.w->compute == SIE_COMPUTE_F16;
  if (!classes || !is_16_bit(a->linear.y.dtype)) return SIE_UNSUPPORTED;
  if (!in_place(a->linear, a->norm)) return SIE_INVALID_ARGUMENT;
  if (a->norm.norm != SIE_NORM_LAYER && a->norm.norm != SIE_NORM_RMS) return SIE_INVALID_ARGUMENT;
  const sie_status status = linear(&a->linear, share);
  return status == SIE_OK ? layernorm(&a->norm, share) : status;
}

}  // namespace sie_ref
