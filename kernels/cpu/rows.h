// rows.h — the code that row kernels share: normalising a row, and quantising it.
//
// Both read a row several times, from L1. Sums run over four accumulators, vector i into number i
// mod 4, and join in a fixed order: the bits depend on the row and its length alone.
#ifndef SIE_KERNELS_CPU_ROWS_H
#define SIE_KERNELS_CPU_ROWS_H

#include "isa.h"
#include "vec.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

// Row r of a tensor as elements of type T.
template <typename T>
SIE_INLINE T *row_of(const sie_tensor &t, int64_t r) {
  return static_cast<T *>(t.p) + r * t.ld;
}

// Σ f(i) over i = 0, kLanes, … below c; f gives the vector at element i, 0 in lanes beyond the row.
template <typename F>
SIE_INLINE float sum_row(int64_t c, F f) {
  Vec sum[4] = {vset(0.0f), vset(0.0f), vset(0.0f), vset(0.0f)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= c; i += 4 * kLanes) {
    for (int j = 0; j < 4; j++) sum[j] = sum[j] + f(i + j * kLanes);
  }
  for (int j = 0; i < c; i += kLanes, j++) sum[j] = sum[j] + f(i);
  return vsum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// A norm and its parameters, named as in sie_layernorm_args.
struct Norm {
  const float *gamma, *beta;  // [c]; beta may be null
  float eps, weight_offset;
  bool centred;  // LayerNorm; else RMSNorm
};

// y[c] = (x − μ)/√(σ² + ε)·(offset + γ) + β with two-pass variance, or the same without μ. y may be
// x when the types agree.
template <typename X, typename Y>
SIE_INLINE void normalise_row(const Norm &norm, const X *x, int64_t c, Y *y) {
  float mean = 0.0f;
  if (norm.centred) {
    mean = sum_row(c, [=](int64_t i) __attribute__((always_inline)) { return vload_row(x, i, c); }) /
           static_cast<float>(c);
  }
  const Vec m = vset(mean);
  const float squares = sum_row(c, [=](int64_t i) __attribute__((always_inline)) {
    Vec d = vload_row(x, i, c) - m;
    // Lanes beyond the row would each add μ².
    if (i + kLanes > c) d = vkeep(d, c - i);
    return d * d;
  });
  const float variance = squares / static_cast<float>(c) + norm.eps;
  const Vec f = vset(1.0f / square_root(variance)), offset = vset(norm.weight_offset);
  for (int64_t i = 0; i < c; i += kLanes) {
    const Vec b = norm.beta != nullptr ? vload_row(norm.beta, i, c) : vset(0.0f);
    vstore_row(y, i, c, vfma((vload_row(x, i, c) - m) * f, vload_row(norm.gamma, i, c) + offset, b));
  }
}

// The second largest element, given the largest and the two largest of each lane.
SIE_INLINE float second_largest(Vec first, Vec second, float most) {
  const Vec m = vset(most);
  const uint32_t equal = equal_lanes(first, m);
  if ((equal & (equal - 1)) != 0) return most;
  return vlargest(vreplace(first, m, second));
}

template <typename X>
SIE_INLINE int64_t column_of(const X *x, int64_t c, float value) {
  const Vec v = vset(value);
  for (int64_t i = 0; i < c; i += kLanes) {
    const uint32_t equal = equal_lanes(vload_row(x, i, c), v);
    if (equal != 0) return i + __builtin_ctz(equal);
  }
  return 0;
}

// The range of a row, as its quantisation needs it; column is the outlier's.
struct RowRange {
  float lo, hi, scale;
  int64_t column;
  uint32_t nans;  // not 0: the row holds a NaN
};

template <typename X>
SIE_INLINE RowRange range_of(const X *x, int64_t c) {
  Vec lo = vset(0.0f), hi = vset(0.0f);
  uint32_t nans = 0;
  for (int64_t i = 0; i < c; i += kLanes) {
    Vec v = vload_row(x, i, c);
    nans |= nan_lanes(v);
    lo = vmin(v, lo);
    hi = vmax(v, hi);
  }
  const float least = vsmallest(lo), most = vlargest(hi);
  return {least, most, (most - least) / 255.0f, 0, nans};
}

// The same without the element of largest |x|; the two largest and the two smallest of each lane
// suffice for it.
template <typename X>
SIE_INLINE RowRange range_without_outlier(const X *x, int64_t c) {
  Vec lo = vset(0.0f), hi = vset(0.0f), lo2 = lo, hi2 = hi;
  uint32_t nans = 0;
  for (int64_t i = 0; i < c; i += kLanes) {
    Vec v = vload_row(x, i, c);
    nans |= nan_lanes(v);
    // A NaN v reaches no accumulator: min and max return their second operand for it.
    lo2 = vmin(vmax(lo, v), lo2);
    hi2 = vmax(vmin(hi, v), hi2);
    lo = vmin(v, lo);
    hi = vmax(v, hi);
  }
  const float least = vsmallest(lo), most = vlargest(hi);
  RowRange range = {least, most, 0.0f, 0, nans};
  if (most >= -least) {
    if (most > 0.0f) range.column = column_of(x, c, most);
    range.hi = second_largest(hi, hi2, most);
  } else {
    range.column = column_of(x, c, least);
    range.lo = -second_largest(vset(0.0f) - lo, vset(0.0f) - lo2, -least);
  }
  const float fine = (range.hi - range.lo) / 255.0f, bound = (most - least) / 8160.0f;
  range.scale = fine > bound ? fine : bound;
  return range;
}

// Quantises x[c] into e4m3 row r of t as sie_tensor's comment says. The code is plain, since no CPU
// operation reads e4m3 rows.
template <typename X>
void quantise_f8_row(const X *x, int64_t c, const sie_tensor &t, int64_t r) {
  const int64_t group = t.scale_group == 128 ? 128 : c, groups = (c + group - 1) / group;
  for (int64_t g = 0; g < groups; g++) {
    const int64_t first = g * group, end = first + group < c ? first + group : c;
    Vec most = vset(0.0f);
    for (int64_t i = first; i < end; i += kLanes) most = vmax(vabs(vload_row(x, i, end)), most);
    const float scale = sie_f8_scale(vlargest(most));
    const Vec inverse = vset(1.0f / scale);
    uint8_t *const q = row_of<uint8_t>(t, r);
    for (int64_t i = first; i < end; i += kLanes) {
      float ratio[kLanes];
      vstore(ratio, vload_row(x, i, end) * inverse);
      for (int64_t j = i; j < i + kLanes && j < end; j++) q[j] = sie_f8e4m3_from_f32(ratio[j - i]);
    }
    t.scale[r * groups + g] = scale;
  }
}

// The same for u8. A NaN does not count in the range, gives q = 0, and makes the row's scale NaN.
// Everything computed from the row is then NaN, as it would be in f32.
template <typename X>
SIE_INLINE void quantise_u8_row(const X *x, int64_t c, const sie_tensor &t, int64_t r) {
  const RowRange range = t.outlier != nullptr ? range_without_outlier(x, c) : range_of(x, c);
  const float s = range.scale > 0.0f ? range.scale : 1.0f;
  const Vec z = vmin(vset(255.0f), vmax(vrint(vset(-range.lo / s)), vset(0.0f)));
  const Vec divisor = vset(s), inverse = vset(1.0f / s);
  // A corrected product with the reciprocal gives the quotient's bits and is much cheaper than a
  // divide, as long as every step stays in the normal range.
  const bool ordinary = s > 0x1p-90f && s < 0x1p90f;
  uint8_t *const q = row_of<uint8_t>(t, r);
  for (int64_t i = 0; i < c; i += kLanes) {
    Vec v = vload_row(x, i, c), ratio;
    if (ordinary) {
      ratio = v * inverse;
      ratio = vfma(vfnma(ratio, divisor, v), inverse, ratio);
    } else {
      ratio = v / divisor;
    }
    Vec level = vmin(vmax(vrint(ratio) + z, vset(0.0f)), vset(255.0f));
    if (i + kLanes <= c) {
      vstore_bytes(q + i, level);
    } else {
      vstore_bytes_part(q + i, level, c - i);
    }
  }
  t.scale[r] = range.nans != 0 ? __builtin_nanf("") : s;
  t.zero[r] = static_cast<int32_t>(vfirst(z));
  if (t.outlier != nullptr) {
    const Vec level = vrint(vload_part(x + range.column, 1) / divisor) + z;
    const float excess = vfirst(level) - static_cast<float>(q[range.column]);
    const bool finite = excess > -32768.0f && excess < 32768.0f;  // an infinity is not
    t.outlier[r] = {static_cast<int32_t>(range.column), finite ? static_cast<int32_t>(excess) : 0};
  }
}

template <typename X>
SIE_INLINE void quantise_row(const X *x, int64_t c, const sie_tensor &t, int64_t r) {
  if (t.dtype == SIE_F8E4M3) return quantise_f8_row(x, c, t, r);
  quantise_u8_row(x, c, t, r);
}

// s[c] += row r of t, which is f32 or bf16.
SIE_INLINE void add_row(float *s, int64_t c, const sie_tensor &t, int64_t r) {
  for (int64_t i = 0; i < c; i += kLanes) {
    const Vec x = t.dtype == SIE_F32 ? vload_row(row_of<const float>(t, r), i, c)
                                     : vload_row(row_of<const Bf16>(t, r), i, c);
    vstore_row(s, i, c, vload_row(s, i, c) + x);
  }
}

// y[c] = x[c], converted.
template <typename X, typename Y>
SIE_INLINE void copy_row(const X *x, int64_t c, Y *y) {
  for (int64_t i = 0; i < c; i += kLanes) vstore_row(y, i, c, vload_row(x, i, c));
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_ROWS_H
