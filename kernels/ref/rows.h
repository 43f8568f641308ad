// rows.h — reads and writes rows for the reference, one element at a time, for every storage type.
#ifndef SIE_KERNELS_REF_ROWS_H
#define SIE_KERNELS_REF_ROWS_H

#include <math.h>

#include "common/dtype.h"
#include "ops.h"

namespace sie_ref {

// The rows [first, last) of `rows` that belong to this caller's share.
struct Range {
  int64_t first, last;
};

inline Range share_of(int64_t rows, const sie_share *share) {
  return {rows * share->part / share->parts, rows * (share->part + 1) / share->parts};
}

inline bool is_float(int32_t dtype) { return dtype == SIE_F32 || dtype == SIE_BF16 || dtype == SIE_F16; }
inline bool is_float_or_absent(const sie_tensor &t) { return t.p == nullptr || is_float(t.dtype); }

// u8 with scale and zero point a row, or e4m3 with one scale a row or block of 128.
inline bool is_quantised(const sie_tensor &t) {
  return t.dtype == SIE_U8 || (t.dtype == SIE_F8E4M3 && (t.scale_group == -1 || t.scale_group == 128));
}

// The number of columns that share a scale, and the number of scales in a row of c columns.
inline int64_t scale_columns(const sie_tensor &t, int64_t c) { return t.scale_group == 128 ? 128 : c; }
inline int64_t scales_of_row(const sie_tensor &t, int64_t c) {
  return t.scale_group == 128 ? (c + 127) / 128 : 1;
}

// Element (r, c) of a tensor or table, of any type but u8; an e4m3 element without its scale.
inline double load(const sie_tensor &t, int64_t r, int64_t c) {
  int64_t at = r * t.ld + c;
  switch (t.dtype) {
    case SIE_BF16:
      return sie_f32_from_bf16(static_cast<const uint16_t *>(t.p)[at]);
    case SIE_F16:
      return sie_f32_from_f16(static_cast<const uint16_t *>(t.p)[at]);
    case SIE_F8E4M3:
      return sie_f32_from_f8e4m3(static_cast<const uint8_t *>(t.p)[at]);
    default:
      return static_cast<const float *>(t.p)[at];
  }
}

// Elements [c, c + count) of row r.
inline void load_row(const sie_tensor &t, int64_t r, int64_t c, int64_t count, double *out) {
  for (int64_t i = 0; i < count; i++) out[i] = load(t, r, c + i);
}

inline void store(const sie_tensor &t, int64_t r, int64_t c, float x) {
  int64_t at = r * t.ld + c;
  if (t.dtype == SIE_BF16) {
    static_cast<uint16_t *>(t.p)[at] = sie_bf16_from_f32(x);
  } else if (t.dtype == SIE_F16) {
    static_cast<uint16_t *>(t.p)[at] = sie_f16_from_f32(x);
  } else {
    static_cast<float *>(t.p)[at] = x;
  }
}

// x clamped to 0 … 255; a NaN gives 0.
inline uint8_t clamp_u8(float x) {
  return x > 0 ? (x < 255 ? static_cast<uint8_t>(x) : uint8_t{255}) : uint8_t{0};
}

// Writes e4m3 q[c] from x[c]; returns the scale.
inline float quantise_f8(const float *x, int64_t c, uint8_t *q) {
  float most = 0;
  for (int64_t i = 0; i < c; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
  float scale = sie_f8_scale(most), inverse = 1.0f / scale;
  for (int64_t i = 0; i < c; i++) q[i] = sie_f8e4m3_from_f32(x[i] * inverse);
  return scale;
}

// Writes row r of the u8 tensor t from x[c], as sie_tensor's comment says.
inline void quantise_u8_row(const float *x, int64_t c, const sie_tensor &t, int64_t r) {
  int64_t outlier = -1;
  if (t.outlier != nullptr) {
    outlier = 0;
    for (int64_t i = 0; i < c; i++) {
      float a = fabsf(x[i]), b = isnan(x[outlier]) ? 0 : fabsf(x[outlier]);
      if (a > b || (a == b && x[outlier] < 0 && x[i] > 0)) outlier = i;
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
  bool nans = false;
  for (int64_t i = 0; i < c; i++) nans = nans || isnan(x[i]);
  t.scale[r] = nans ? __builtin_nanf("") : scale;
  t.zero[r] = static_cast<int32_t>(zero);
}

// Writes row r of the quantised tensor t from x[c].
inline void quantise_row(const float *x, int64_t c, const sie_tensor &t, int64_t r) {
  if (t.dtype == SIE_U8) return quantise_u8_row(x, c, t, r);
  int64_t group = scale_columns(t, c), scales = scales_of_row(t, c);
  for (int64_t g = 0; g < scales; g++) {
    int64_t first = g * group, count = c - first < group ? c - first : group;
    t.scale[r * scales + g] = quantise_f8(x + first, count, static_cast<uint8_t *>(t.p) + r * t.ld + first);
  }
}

// Writes row r of y, and of yq when present, from x[c].
inline void store_row(const float *x, int64_t c, const sie_tensor &y, const sie_tensor &yq, int64_t r) {
  for (int64_t i = 0; i < c; i++) store(y, r, i, x[i]);
  if (yq.p != nullptr) quantise_row(x, c, yq, r);
}

// A norm and its parameters, named as in sie_layernorm_args.
struct Norm {
  int32_t kind;               // sie_norm
  const float *gamma, *beta;  // [c]; beta may be null
  float eps, weight_offset;
};

// y[c] = (x − μ)/√(σ² + ε)·(offset + γ) + β, the same without μ, or x; sums in double.
inline void normalise_row(const Norm &norm, const float *x, int64_t c, float *y) {
  if (norm.kind == SIE_NORM_NONE) {
    memcpy(y, x, static_cast<size_t>(c) * sizeof *y);
    return;
  }
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < c && norm.kind == SIE_NORM_LAYER; i++) mean += static_cast<double>(x[i]);
  mean /= static_cast<double>(c);
  for (int64_t i = 0; i < c; i++) {
    double d = static_cast<double>(x[i]) - mean;
    variance += d * d;
  }
  double factor = 1 / sqrt(variance / static_cast<double>(c) + static_cast<double>(norm.eps));
  for (int64_t i = 0; i < c; i++) {
    double weight = static_cast<double>(norm.weight_offset) + static_cast<double>(norm.gamma[i]);
    double b = norm.beta != nullptr ? static_cast<double>(norm.beta[i]) : 0;
    y[i] = static_cast<float>((static_cast<double>(x[i]) - mean) * factor * weight + b);
  }
}

// act(x), and the activation that a gate applies.
double activate(double x, int32_t act);
int32_t act_of_gate(int32_t gate);

// Cuts, normalises and converts row x[c], which it changes, and writes it where `item` says.
// Returns SIE_UNSUPPORTED for an unknown type.
sie_status write_item(const sie_out_item &item, int64_t c, float *x, void *out);

// Pools sequence b into y[c]; weights has room for one double a token of the sequence.
void pool_sequence(const sie_pool_args *a, int64_t b, double *weights, float *y);
bool pool_supported(const sie_pool_args *a);

sie_status embed_layernorm(const sie_embed_layernorm_args *, const sie_share *);
sie_status layernorm(const sie_layernorm_args *, const sie_share *);
sie_status linear(const sie_linear_args *, const sie_share *);
sie_status quantise_rows(const sie_quantise_rows_args *, const sie_share *);
sie_status attention(const sie_attention_args *, const sie_share *);
sie_status gather_rows(const sie_gather_rows_args *, const sie_share *);
sie_status pool(const sie_pool_args *, const sie_share *);
sie_status output_rows(const sie_output_rows_args *, const sie_share *);
sie_status qk_norm_rope(const sie_qk_norm_rope_args *, const sie_share *);
sie_status pool_output(const sie_pool_output_args *, const sie_share *);
sie_status muvera(const sie_muvera_args *, const sie_share *);
sie_status keep_rows(const sie_keep_rows_args *, const sie_share *);
sie_status output_sparse(const sie_output_sparse_args *, const sie_share *);
sie_status splade(const sie_splade_args *, const sie_share *);
int64_t splade_scratch(const sie_op_bounds *bounds);
sie_status smve(const sie_smve_args *, const sie_share *);
sie_status mark_nonfinite(const sie_mark_nonfinite_args *, const sie_share *);
sie_status join_columns(const sie_join_columns_args *, const sie_share *);
sie_status take_rows(const sie_take_rows_args *, const sie_share *);
sie_status product(const sie_product_args *, const sie_share *);
sie_status dots(const sie_dots_args *, const sie_share *);
sie_status softmax(const sie_softmax_args *, const sie_share *);
sie_status linear_norm(const sie_linear_norm_args *, const sie_share *);
sie_status lstm(const sie_lstm_args *, const sie_share *);
int64_t lstm_scratch(const sie_op_bounds *bounds);
sie_status spans(const sie_spans_args *, const sie_share *);
sie_status pairs(const sie_pairs_args *, const sie_share *);
int64_t pairs_scratch(const sie_op_bounds *bounds);
int64_t smve_scratch(const sie_op_bounds *bounds);
sie_status maxsim(const sie_maxsim_args *, const sie_share *);
sie_status lora(const sie_lora_args *, const sie_share *);
int64_t muvera_scratch(const sie_op_bounds *bounds);

int64_t packed_bytes(uint32_t compute, int64_t n, int64_t k);
void pack(uint32_t compute, int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld,
          void *dst);

}  // namespace sie_ref

#endif  // SIE_KERNELS_REF_ROWS_H
