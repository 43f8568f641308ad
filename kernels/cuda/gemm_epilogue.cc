#include "cuda/gemm_epilogue.h"

namespace sie_cuda {

namespace {

int64_t element_bytes(int32_t dtype) {
  return dtype == SIE_F32 ? 4 : (dtype == SIE_BF16 || dtype == SIE_F16 ? 2 : 1);
}

bool is_float(int32_t dtype) { return dtype == SIE_F32 || dtype == SIE_BF16 || dtype == SIE_F16; }

bool aligned(const void *p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uint64_t>(bytes) == 0;
}

// Whether every eighth column of every row may be accessed as a whole.
bool wide_rows(const sie_tensor &t) {
  int64_t run = 8 * element_bytes(t.dtype);
  if (run > 16) run = 16;
  return aligned(t.p, run) && t.ld * element_bytes(t.dtype) % run == 0;
}

}  // namespace

sie_status gemm_epilogue(const sie_linear_args *a, GemmEpilogue *e) {
  const sie_tensor &y = a->y, &residual = a->residual;
  if (!is_float(y.dtype) && !(y.dtype == SIE_F8E4M3 && y.scale_group == 128)) return SIE_UNSUPPORTED;
  if (residual.p != nullptr && !is_float(residual.dtype)) return SIE_UNSUPPORTED;
  if (a->addend.p != nullptr && a->addend.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (a->act < SIE_ACT_NONE || a->act > SIE_ACT_SILU) return SIE_INVALID_ARGUMENT;
  if (a->gate < SIE_GATE_NONE || a->gate > SIE_GATE_GEGLU_TANH) return SIE_INVALID_ARGUMENT;
  bool gate = a->gate != SIE_GATE_NONE;
  if (gate && (a->act != SIE_ACT_NONE || a->n % 2 != 0)) return SIE_INVALID_ARGUMENT;
  if (a->n < 1 || a->n > int64_t{1} << 30) return SIE_INVALID_ARGUMENT;
  int64_t columns = gate ? a->n / 2 : a->n;
  if (y.ld < columns || !aligned(y.p, element_bytes(y.dtype))) return SIE_INVALID_ARGUMENT;
  if (y.dtype == SIE_F8E4M3 && (y.scale == nullptr || !aligned(y.scale, 4))) return SIE_INVALID_ARGUMENT;
  if (a->bias != nullptr && !aligned(a->bias, 4)) return SIE_INVALID_ARGUMENT;
  if (residual.p != nullptr &&
      (residual.ld < columns || !aligned(residual.p, element_bytes(residual.dtype)))) {
    return SIE_INVALID_ARGUMENT;
  }
  if (a->addend.p != nullptr && (a->addend.ld < a->n || !aligned(a->addend.p, 4)))
    return SIE_INVALID_ARGUMENT;
  *e = {};
  e->bias = a->bias;
  e->addend = static_cast<const float *>(a->addend.p);
  e->residual = residual.p;
  e->y = y.p;
  e->y_scale = y.scale;
  e->addend_ld = a->addend.ld;
  e->residual_ld = residual.ld;
  e->y_ld = y.ld;
  e->y_scale_ld = (columns + 127) / 128;
  e->n = static_cast<int32_t>(a->n);
  e->columns = static_cast<int32_t>(columns);
  e->act = a->act;
  e->gate = a->gate;
  e->residual_type = residual.p != nullptr ? residual.dtype : 0;
  e->y_type = y.dtype;
  e->wide = (aligned(a->bias, 16) ? GEMM_WIDE_BIAS : 0) | (wide_rows(y) ? GEMM_WIDE_Y : 0) |
            (residual.p != nullptr && wide_rows(residual) ? GEMM_WIDE_RESIDUAL : 0) |
            (a->addend.p != nullptr && wide_rows(a->addend) ? GEMM_WIDE_ADDEND : 0);
  return SIE_OK;
}

}  // namespace sie_cuda
