// rows.h — how the reference reads and writes rows: one element at a time, whatever the storage type.
#ifndef SIE_KERNELS_REF_ROWS_H
#define SIE_KERNELS_REF_ROWS_H

#include <math.h>

#include "common/dtype.h"
#include "ops.h"

namespace sie_ref {

// The rows [first, last) of this caller's share of `rows`.
struct Range {
  int64_t first, last;
};

inline Range share_of(int64_t rows, const sie_share *share) {
  return {rows * share->part / share->parts, rows * (share->part + 1) / share->parts};
}

inline bool is_float(int32_t dtype) { return dtype == SIE_F32 || dtype == SIE_BF16; }

// Element (r, c) of a tensor or table; a quantised one is dequantised by its row's scale, zero point and
// outlier.
inline double load(const sie_tensor &t, int64_t r, int64_t c) {
  int64_t at = r * t.ld + c;
  switch (t.dtype) {
    case SIE_BF16:
      return sie_f32_from_bf16(static_cast<const uint16_t *>(t.p)[at]);
    case SIE_U8: {
      int32_t level = static_cast<const uint8_t *>(t.p)[at] - t.zero[r];
      if (t.outlier != nullptr && t.outlier[r].column == c) level += t.outlier[r].excess;
      return static_cast<double>(t.scale[r]) * level;
    }
    default:
      return static_cast<const float *>(t.p)[at];
  }
}

inline void store(const sie_tensor &t, int64_t r, int64_t c, float x) {
  int64_t at = r * t.ld + c;
  if (t.dtype == SIE_BF16) {
    static_cast<uint16_t *>(t.p)[at] = sie_bf16_from_f32(x);
  } else {
    static_cast<float *>(t.p)[at] = x;
  }
}

// x clamped to 0 … 255; a NaN gives 0.
inline uint8_t clamp_u8(float x) {
  return x > 0 ? (x < 255 ? static_cast<uint8_t>(x) : uint8_t{255}) : uint8_t{0};
}

// Writes row r of the u8 tensor t from x[c], as sie_tensor's comment says.
inline void quantise_row(const float *x, int64_t c, const sie_tensor &t, int64_t r) {
  int64_t outlier = -1;
  if (t.outlier != nullptr) {
    outlier = 0;
    for (int64_t i = 0; i < c; i++) {
      float a = fabsf(x[i]), b = isnan(x[outlier]) ? 0 : fabsf(x[outlier]);
      if (a > b || (a == b && a > 0 && x[outlier] < 0 && x[i] > 0)) outlier = i;
    }
  }
  float lo = 0, hi = 0, least = 0, most = 0;
  for (int64_t i = 0; i < c; i++) {
    if (x[i] < least) least = x[i];
    if (x[i] > most) most = x[i];
    if (i == outlier) continue;
    if (x[i] < lo) lo = x[i];
    if (x[i] > hi) hi = x[i];
  }
  float scale = (hi - lo) / 255.0f;
  if (outlier >= 0) scale = fmaxf(scale, (most - least) / 8160.0f);
  if (!(scale > 0)) scale = 1;
  float zero = clamp_u8(rintf(-lo / scale));
  uint8_t *q = static_cast<uint8_t *>(t.p) + r * t.ld;
  for (int64_t i = 0; i < c; i++) q[i] = clamp_u8(rintf(x[i] / scale) + zero);
  if (outlier >= 0) {
    float excess = rintf(x[outlier] / scale) + zero - static_cast<float>(q[outlier]);
    if (!(fabsf(excess) < 32768)) excess = 0;  // an infinity
    t.outlier[r] = {static_cast<int32_t>(outlier), static_cast<int32_t>(excess)};
  }
  t.scale[r] = scale;
  t.zero[r] = static_cast<int32_t>(zero);
}

// Writes row r of y, and of yq when present, from x[c].
inline void store_row(const float *x, int64_t c, const sie_tensor &y, const sie_tensor &yq, int64_t r) {
  for (int64_t i = 0; i < c; i++) store(y, r, i, x[i]);
  if (yq.p != nullptr) quantise_row(x, c, yq, r);
}

// y[c] = (x − μ)/√(σ² + ε)·γ + β, sums in double. beta may be null.
inline void normalise_row(const double *x, int64_t c, const float *gamma, const float *beta, float eps,
                          float *y) {
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < c; i++) mean += x[i];
  mean /= static_cast<double>(c);
  for (int64_t i = 0; i < c; i++) variance += (x[i] - mean) * (x[i] - mean);
  double factor = 1 / sqrt(variance / static_cast<double>(c) + static_cast<double>(eps));
  for (int64_t i = 0; i < c; i++) {
    double b = beta != nullptr ? static_cast<double>(beta[i]) : 0;
    y[i] = static_cast<float>((x[i] - mean) * factor * static_cast<double>(gamma[i]) + b);
  }
}

sie_status embed_layernorm(const sie_embed_layernorm_args *, const sie_share *);
sie_status layernorm(const sie_layernorm_args *, const sie_share *);
sie_status linear(const sie_linear_args *, const sie_share *);
sie_status quantise_rows(const sie_quantise_rows_args *, const sie_share *);
sie_status attention(const sie_attention_args *, const sie_share *);
sie_status gather_rows(const sie_gather_rows_args *, const sie_share *);
sie_status pool(const sie_pool_args *, const sie_share *);
sie_status output_rows(const sie_output_rows_args *, const sie_share *);

int64_t packed_bytes(uint32_t compute, int64_t n, int64_t k);
void pack(uint32_t compute, int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld,
          void *dst);

}  // namespace sie_ref

#endif  // SIE_KERNELS_REF_ROWS_H
