#include "cuda/gemm_call.h"

namespace sie_cuda {

namespace {

bool aligned(const void *p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uint64_t>(bytes) == 0;
}

// The type of x in a class; 0 where GPUs lack the class.
int32_t operand_type(uint32_t compute) {
  switch (compute) {
    case SIE_COMPUTE_F32:
      return SIE_F32;
    case SIE_COMPUTE_BF16:
      return SIE_BF16;
    case SIE_COMPUTE_F16:
      return SIE_F16;
    case SIE_COMPUTE_FP8:
      return SIE_F8E4M3;
    default:
      return 0;
  }
}

}  // namespace

sie_status gemm_call(const sie_linear_args *a, const sie_stream *on, GemmCall *call) {
  *call = {};
  if (on == nullptr || a->w == nullptr) return SIE_INVALID_ARGUMENT;
  const int32_t type = operand_type(a->w->compute);
  const bool fp8 = type == SIE_F8E4M3;
  if (type == 0 || a->x.dtype != type) return SIE_UNSUPPORTED;
  if (fp8 && a->x.scale_group != -1 && a->x.scale_group != 128) return SIE_UNSUPPORTED;
  if (a->w->n != a->n || a->w->k != a->k || a->k < 1 || a->k > int64_t{1} << 28) return SIE_INVALID_ARGUMENT;
  if (a->rows.cap < 0 || a->rows.cap > int64_t{1} << 30 || a->x.ld < a->k) return SIE_INVALID_ARGUMENT;
  if (a->w->data == nullptr || !aligned(a->w->data, 16)) return SIE_INVALID_ARGUMENT;
  if (fp8 && (a->x.scale == nullptr || !aligned(a->x.scale, 4))) return SIE_INVALID_ARGUMENT;
  if (a->rows.cap > 0 && (a->rows.n == nullptr || a->x.p == nullptr || a->y.p == nullptr))
    return SIE_INVALID_ARGUMENT;
  sie_status status = gemm_epilogue(a, &call->epilogue);
  if (status != SIE_OK) return status;
  if (!gemm_layout(a->w->compute, a->n, a->k, &call->layout)) return SIE_UNSUPPORTED;
  if (a->x.ld * call->layout.element % 16 != 0 || !aligned(a->x.p, 16)) return SIE_UNSUPPORTED;
  call->args = a;
  call->on = on;
  if (fp8) {
    const uint8_t *scales = static_cast<const uint8_t *>(a->w->data) + call->layout.scale_offset;
    call->w_scale = reinterpret_cast<const float *>(scales);
    call->block_scales = a->x.scale_group == 128;
  }
  return SIE_OK;
}

}  // namespace sie_cuda
