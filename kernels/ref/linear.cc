// linear — y = act(x·Wᵀ + bias + addend) + residual, or g(gate)·up + residual.
//   F32, BF16, F16  z = Σ x[r,k]·W[n,k], W in the class's type, rounded by pack
//   INT8            z = s_x[r]·s_w[n]·Σ (q[r,k] − zero[r])·w_q[n,k], the excess of x's outlier
//                   added to its q; s_w = max|W[n,:]|/127 (0 counts as 1), w_q = rint(W/s_w)
//   FP8             z = s_w[n]·Σ_g s_x[r,g]·Σ_k∈g x[r,k]·w_q[n,k], s_w and w_q as sie_tensor's
//                   e4m3, one scale a row
//   y = act(z + bias[n] + addend[r,n]) + residual[r,n]; with a gate, z' = z + bias + addend:
//   y[j] = g(z'[2j])·z'[2j+1] + residual[r,j]; sums and activations in double, rounded once to f32
// Shapes   x [R, K], W [N, K], bias [N], addend [R, N], residual, y [R, N or N/2]; row
//          strides ≥ columns. R ≥ 0. addend and residual may be absent.
// Types    x of the class: f32, bf16, f16, u8, e4m3; addend f32; residual f32 | bf16 | f16; y f32 |
//          bf16 | f16 | u8 | e4m3 in blocks of 128 (quantised from the f32 row).
// Alias    residual may be y when the types agree.
// Share    rows.
// Scratch  K doubles, N floats.
// Packed   F32, BF16, F16: [N, K] of that type. INT8, FP8: f32 s_w [N], then [N, K], a byte an
//          element.
// Source   gates: Shazeer 2020 §2, arXiv:2002.05202
#include "rows.h"

namespace sie_ref {

namespace {

// Row r of x as it enters the sums: for INT8 whole levels, for FP8 without scales.
void x_row(const sie_linear_args *a, int64_t r, double *out) {
  if (a->w->compute != SIE_COMPUTE_INT8) return load_row(a->x, r, 0, a->k, out);
  const uint8_t *q = static_cast<const uint8_t *>(a->x.p) + r * a->x.ld;
  for (int64_t k = 0; k < a->k; k++) out[k] = q[k] - a->x.zero[r];
  if (a->x.outlier != nullptr) out[a->x.outlier[r].column] += a->x.outlier[r].excess;
}

constexpr int64_t columns_at_once = 4;

// Σ x[k]·w[i, k] over k of [first, last) for each i, every sum in the order of k. Four sums at once,
// because an addition waits for the one before it in its sum alone.
template <class Element, class Value>
void sums(const double *x, const Element *const *w, int64_t first, int64_t last, Value value, double *sum) {
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  for (int64_t k = first; k < last; k++) {
    s0 += x[k] * value(w[0][k]);
    s1 += x[k] * value(w[1][k]);
    s2 += x[k] * value(w[2][k]);
    s3 += x[k] * value(w[3][k]);
  }
  sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
}

// The same for columns [n, n + 4) of the weight as it is stored, without its scale; in place of a
// column that it has not, its last one. data: the first element.
template <class Element, class Value>
void sums_of(const sie_linear_args *a, const void *data, int64_t n, const double *x, int64_t first,
             int64_t last, Value value, double *sum) {
  const Element *w[columns_at_once];
  for (int64_t i = 0; i < columns_at_once; i++) {
    w[i] = static_cast<const Element *>(data) + (n + i < a->n ? n + i : a->n - 1) * a->k;
  }
  sums(x, w, first, last, value, sum);
}

void stored_sums(const sie_linear_args *a, int64_t n, const double *x, int64_t first, int64_t last,
                 double *sum) {
  const void *data = a->w->data, *bytes = static_cast<const uint8_t *>(data) + a->w->n * 4;
  switch (a->w->compute) {
    case SIE_COMPUTE_BF16:
      return sums_of<uint16_t>(
          a, data, n, x, first, last, [](uint16_t w) { return static_cast<double>(sie_f32_from_bf16(w)); },
          sum);
    case SIE_COMPUTE_F16:
      return sums_of<uint16_t>(
          a, data, n, x, first, last, [](uint16_t w) { return static_cast<double>(sie_f32_from_f16(w)); },
          sum);
    case SIE_COMPUTE_FP8:
      return sums_of<uint8_t>(
          a, bytes, n, x, first, last, [](uint8_t w) { return static_cast<double>(sie_f32_from_f8e4m3(w)); },
          sum);
    case SIE_COMPUTE_INT8:
      return sums_of<int8_t>(
          a, bytes, n, x, first, last, [](int8_t w) { return static_cast<double>(w); }, sum);
    default:
      return sums_of<float>(a, data, n, x, first, last, [](float w) { return static_cast<double>(w); }, sum);
  }
}

// x·Wᵀ + bias + addend for row r and columns [n, n + 4); x is the row as x_row gives it. What is said
// of columns that there are not has no meaning.
void four(const sie_linear_args *a, int64_t r, int64_t n, const double *x, double *z) {
  const bool scaled = a->w->compute == SIE_COMPUTE_FP8 || a->w->compute == SIE_COMPUTE_INT8;
  const int64_t group = scale_columns(a->x, a->k), scales = scales_of_row(a->x, a->k);
  double sum[columns_at_once] = {}, part[columns_at_once];
  for (int64_t g = 0; g < scales; g++) {
    stored_sums(a, n, x, g * group, (g + 1) * group < a->k ? (g + 1) * group : a->k, part);
    for (int64_t i = 0; i < columns_at_once; i++) {
      sum[i] += scaled ? part[i] * static_cast<double>(a->x.scale[r * scales + g]) : part[i];
    }
  }
  for (int64_t i = 0; i < columns_at_once && n + i < a->n; i++) {
    z[i] = scaled ? sum[i] * static_cast<double>(static_cast<const float *>(a->w->data)[n + i]) : sum[i];
    z[i] += a->bias != nullptr ? static_cast<double>(a->bias[n + i]) : 0;
    z[i] += a->addend.p != nullptr ? load(a->addend, r, n + i) : 0;
  }
}

int32_t x_dtype(uint32_t compute) {
  switch (compute) {
    case SIE_COMPUTE_F32:
      return SIE_F32;
    case SIE_COMPUTE_BF16:
      return SIE_BF16;
    case SIE_COMPUTE_F16:
      return SIE_F16;
    case SIE_COMPUTE_INT8:
      return SIE_U8;
    case SIE_COMPUTE_FP8:
      return SIE_F8E4M3;
    default:
      return 0;
  }
}

bool supported(const sie_linear_args *a) {
  if (a->x.dtype != x_dtype(a->w->compute) || !is_float_or_absent(a->residual)) return false;
  if (a->addend.p != nullptr && a->addend.dtype != SIE_F32) return false;
  if (a->x.dtype == SIE_F8E4M3 && !is_quantised(a->x)) return false;
  if (a->gate < SIE_GATE_NONE || a->gate > SIE_GATE_GEGLU_TANH) return false;
  if (a->y.dtype == SIE_F8E4M3) return a->y.scale_group == 128;
  return is_float(a->y.dtype) || a->y.dtype == SIE_U8;
}

}  // namespace

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

int32_t act_of_gate(int32_t gate) {
  switch (gate) {
    case SIE_GATE_SWIGLU:
      return SIE_ACT_SILU;
    case SIE_GATE_GEGLU:
      return SIE_ACT_GELU_ERF;
    case SIE_GATE_GEGLU_TANH:
      return SIE_ACT_GELU_TANH;
    default:
      return SIE_ACT_NONE;
  }
}

sie_status linear(const sie_linear_args *a, const sie_share *share) {
  if (!supported(a)) return SIE_UNSUPPORTED;
  const bool gated = a->gate != SIE_GATE_NONE;
  if (gated && (a->act != SIE_ACT_NONE || a->n % 2 != 0)) return SIE_INVALID_ARGUMENT;
  const int64_t columns = gated ? a->n / 2 : a->n;
  double *x = static_cast<double *>(share->scratch);
  float *out = reinterpret_cast<float *>(x + a->k);
  Range rows = share_of(*a->rows.n, share);
  for (int64_t r = rows.first; r < rows.last; r++) {
    x_row(a, r, x);
    for (int64_t n = 0; n < a->n; n += columns_at_once) {
      double z[columns_at_once] = {};
      four(a, r, n, x, z);
      for (int64_t i = 0; i < columns_at_once && n + i < a->n; i += gated ? 2 : 1) {
        const int64_t j = gated ? (n + i) / 2 : n + i;
        double y = gated ? activate(z[i], act_of_gate(a->gate)) * z[i + 1] : activate(z[i], a->act);
        if (a->residual.p != nullptr) y += load(a->residual, r, j);
        out[j] = static_cast<float>(y);
      }
    }
    if (is_float(a->y.dtype)) {
      for (int64_t j = 0; j < columns; j++) store(a->y, r, j, out[j]);
    } else {
      quantise_row(out, columns, a->y, r);
    }
  }
  return SIE_OK;
}

int64_t packed_bytes(uint32_t compute, int64_t n, int64_t k) {
  switch (compute) {
    case SIE_COMPUTE_F32:
      return n * k * 4;
    case SIE_COMPUTE_BF16:
    case SIE_COMPUTE_F16:
      return n * k * 2;
    case SIE_COMPUTE_INT8:
    case SIE_COMPUTE_FP8:
      return n * 4 + n * k;
    default:
      return -1;
  }
}

namespace {

// One row to s8; returns its scale.
float quantise_s8(const float *row, int64_t k, int8_t *q) {
  float largest = 0;
  for (int64_t j = 0; j < k; j++) largest = fabsf(row[j]) > largest ? fabsf(row[j]) : largest;
  float scale = largest / 127.0f;
  if (!(scale > 0)) scale = 1;
  for (int64_t j = 0; j < k; j++) {
    float v = rintf(row[j] / scale);
    q[j] = static_cast<int8_t>(v > 127 ? 127 : (v < -127 ? -127 : v));
  }
  return scale;
}

}  // namespace

void pack(uint32_t compute, int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld,
          void *dst) {
  float *scale = static_cast<float *>(dst);
  uint8_t *bytes = reinterpret_cast<uint8_t *>(scale + n);
  for (int64_t i = 0; i < rows; i++) {
    const float *row = src + i * ld;
    int64_t at = (n0 + i) * k;
    for (int64_t j = 0; j < k && compute == SIE_COMPUTE_F32; j++) static_cast<float *>(dst)[at + j] = row[j];
    for (int64_t j = 0; j < k && compute == SIE_COMPUTE_BF16; j++)
      static_cast<uint16_t *>(dst)[at + j] = sie_bf16_from_f32(row[j]);
    for (int64_t j = 0; j < k && compute == SIE_COMPUTE_F16; j++)
      static_cast<uint16_t *>(dst)[at + j] = sie_f16_from_f32(row[j]);
    if (compute == SIE_COMPUTE_INT8)
      scale[n0 + i] = quantise_s8(row, k, reinterpret_cast<int8_t *>(bytes + at));
    if (compute == SIE_COMPUTE_FP8) scale[n0 + i] = quantise_f8(row, k, bytes + at);
  }
}

}  // namespace sie_ref
