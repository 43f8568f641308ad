// linear — y = act(x·Wᵀ + bias) + residual.
//   F32, BF16  z = Σ x[r,k]·W[n,k]                                 W rounded to bf16 when packed for BF16
//   INT8       z = s_x[r]·s_w[n]·Σ (q[r,k] − zero[r])·w_q[n,k]     s_w = max|W[n,:]|/127 (0 counts as 1),
//              with x's outlier's excess added to its q            w_q = rint(W/s_w)
//   y = act(z + bias[n]) + residual[r,n], sums and activations in double, rounded once to f32
// Shapes   x [R, K], W [N, K], bias [N], residual, y [R, N]; row strides ≥ columns.   R ≥ 0.
// Types    x of the class: f32, bf16, u8; residual f32 | bf16; y f32 | bf16 | u8 (quantised from the f32
// row). Alias    residual may be y when the types agree. Share    rows. Packed   F32: f32 [N, K]. BF16: bf16
// [N, K]. INT8: f32 s_w [N], then s8 [N, K]. Scratch  N floats.
#include "rows.h"

namespace sie_ref {

namespace {

double activate(double x, int32_t act) {
  constexpr double sqrt_half = 0.70710678118654752440, sqrt_2_over_pi = 0.79788456080286535588;
  switch (act) {
    case SIE_ACT_GELU_ERF:
      return 0.5 * x * (1 + erf(x * sqrt_half));
    case SIE_ACT_TANH:
      return tanh(x);
    case SIE_ACT_GELU_TANH:
      return 0.5 * x * (1 + tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x)));
    case SIE_ACT_RELU:
      return x > 0 ? x : (x <= 0 ? 0 : x);  // a NaN stays one
    case SIE_ACT_SILU:
      return x / (1 + exp(-x));
    default:
      return x;
  }
}

double dot(const sie_linear_args *a, int64_t r, int64_t n) {
  double sum = 0;
  const int64_t k_end = a->k;
  switch (a->w->compute) {
    case SIE_COMPUTE_F32: {
      const float *w = static_cast<const float *>(a->w->data) + n * k_end;
      for (int64_t k = 0; k < k_end; k++) sum += load(a->x, r, k) * static_cast<double>(w[k]);
      return sum;
    }
    case SIE_COMPUTE_BF16: {
      const uint16_t *w = static_cast<const uint16_t *>(a->w->data) + n * k_end;
      for (int64_t k = 0; k < k_end; k++)
        sum += load(a->x, r, k) * static_cast<double>(sie_f32_from_bf16(w[k]));
      return sum;
    }
    default: {
      const float *scale = static_cast<const float *>(a->w->data);
      const int8_t *w = reinterpret_cast<const int8_t *>(scale + a->n) + n * k_end;
      const uint8_t *q = static_cast<const uint8_t *>(a->x.p) + r * a->x.ld;
      for (int64_t k = 0; k < k_end; k++) sum += static_cast<double>((q[k] - a->x.zero[r]) * w[k]);
      if (a->x.outlier != nullptr) {
        sum += static_cast<double>(a->x.outlier[r].excess * w[a->x.outlier[r].column]);
      }
      return static_cast<double>(a->x.scale[r]) * static_cast<double>(scale[n]) * sum;
    }
  }
}

bool supported(const sie_linear_args *a) {
  bool y_ok = is_float(a->y.dtype) || a->y.dtype == SIE_U8;
  switch (a->w->compute) {
    case SIE_COMPUTE_F32:
      return y_ok && a->x.dtype == SIE_F32;
    case SIE_COMPUTE_BF16:
      return y_ok && a->x.dtype == SIE_BF16;
    case SIE_COMPUTE_INT8:
      return y_ok && a->x.dtype == SIE_U8;
    default:
      return false;
  }
}

}  // namespace

sie_status linear(const sie_linear_args *a, const sie_share *share) {
  if (!supported(a)) return SIE_UNSUPPORTED;
  float *out = static_cast<float *>(share->scratch);
  Range rows = share_of(*a->rows.n, share);
  for (int64_t r = rows.first; r < rows.last; r++) {
    for (int64_t n = 0; n < a->n; n++) {
      double z = dot(a, r, n);
      if (a->bias != nullptr) z += static_cast<double>(a->bias[n]);
      z = activate(z, a->act);
      if (a->residual.p != nullptr) z += load(a->residual, r, n);
      out[n] = static_cast<float>(z);
    }
    if (a->y.dtype == SIE_U8) {
      quantise_row(out, a->n, a->y, r);
    } else {
      for (int64_t n = 0; n < a->n; n++) store(a->y, r, n, out[n]);
    }
  }
  return SIE_OK;
}

int64_t packed_bytes(uint32_t compute, int64_t n, int64_t k) {
  switch (compute) {
    case SIE_COMPUTE_F32:
      return n * k * 4;
    case SIE_COMPUTE_BF16:
      return n * k * 2;
    case SIE_COMPUTE_INT8:
      return n * 4 + n * k;
    default:
      return -1;
  }
}

void pack(uint32_t compute, int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld,
          void *dst) {
  for (int64_t i = 0; i < rows; i++) {
    const float *row = src + i * ld;
    int64_t at = (n0 + i) * k;
    if (compute == SIE_COMPUTE_F32) {
      memcpy(static_cast<float *>(dst) + at, row, static_cast<size_t>(k) * sizeof(float));
    } else if (compute == SIE_COMPUTE_BF16) {
      for (int64_t j = 0; j < k; j++) static_cast<uint16_t *>(dst)[at + j] = sie_bf16_from_f32(row[j]);
    } else {
      float largest = 0;
      for (int64_t j = 0; j < k; j++) largest = fabsf(row[j]) > largest ? fabsf(row[j]) : largest;
      float scale = largest / 127.0f;
      if (!(scale > 0)) scale = 1;
      static_cast<float *>(dst)[n0 + i] = scale;
      int8_t *q = reinterpret_cast<int8_t *>(static_cast<float *>(dst) + n) + at;
      for (int64_t j = 0; j < k; j++) {
        float v = rintf(row[j] / scale);
        q[j] = static_cast<int8_t>(v > 127 ? 127 : (v < -127 ? -127 : v));
      }
    }
  }
}

}  // namespace sie_ref
