/* int8_epilogue_avx512.h — turns the s32 sums of one row and 32 columns into finished values,
 * sixteen lanes at a time. */
#ifndef SIE_KERNELS_CPU_INT8_EPILOGUE_AVX512_H
#define SIE_KERNELS_CPU_INT8_EPILOGUE_AVX512_H

#include "epilogue_avx512.h"
#include "int8_linear.h"

namespace sie_cpu {

/* Values that the rows of a panel share. */
struct Int8Columns {
  const char *panel;
  ColumnMask mask;
  __m512 scale0, scale1, bias0, bias1;
  __m512i sum0, sum1;
};

static inline Int8Columns int8_columns(const sie_linear_args *a, const Int8Weight &w, int64_t panel) {
  const int64_t column = panel * kInt8Panel;
  Int8Columns c;
  c.panel = w.panels + panel * w.steps * kInt8StepBytes;
  c.mask = column_mask(column, a->n);
  c.scale0 = _mm512_loadu_ps(w.scale + column);
  c.scale1 = _mm512_loadu_ps(w.scale + column + 16);
  c.sum0 = _mm512_loadu_si512(w.sum + column);
  c.sum1 = _mm512_loadu_si512(w.sum + column + 16);
  c.bias0 = a->bias ? _mm512_maskz_loadu_ps(c.mask.lo, a->bias + column) : _mm512_setzero_ps();
  c.bias1 = a->bias ? _mm512_maskz_loadu_ps(c.mask.hi, a->bias + column + 16) : _mm512_setzero_ps();
  return c;
}

/* The weights of the column that was the last row's outlier; neighbouring rows often share the
 * column. */
struct Int8OutlierWeights {
  int32_t column; /* −1: none yet */
  __m512i w0, w1;
};

static inline void int8_load_outlier(const char *panel, int32_t column, Int8OutlierWeights *o) {
  const Int8OutlierPlace place = int8_outlier_place(column);
  const __m128i shift = _mm_cvtsi32_si128(place.shift);
  o->column = column;
  o->w0 = _mm512_srai_epi32(_mm512_sll_epi32(_mm512_load_si512(panel + place.offset), shift), 24);
  o->w1 = _mm512_srai_epi32(
      _mm512_sll_epi32(_mm512_load_si512(panel + place.offset + kInt8StepBytes / 2), shift), 24);
}

/* Finishes row r of a in the panel columns c. sums [32]: Σ x_q·w_q. The difference is exact, then
 * rounded once to f32. */
template <int Act, int Residual, int Out>
static inline void int8_row(const sie_linear_args *a, const Int8Columns &c, const int32_t *sums, int64_t r,
                            int64_t column, Int8OutlierWeights *o) {
  const __m512i zero = _mm512_set1_epi32(a->x.zero[r]);
  const __m512 scale = _mm512_set1_ps(a->x.scale[r]);
  __m512i d0 = _mm512_sub_epi32(_mm512_load_si512(sums), _mm512_mullo_epi32(zero, c.sum0));
  __m512i d1 = _mm512_sub_epi32(_mm512_load_si512(sums + 16), _mm512_mullo_epi32(zero, c.sum1));
  if (a->x.outlier) {
    const sie_outlier x = a->x.outlier[r];
    if (x.column != o->column) int8_load_outlier(c.panel, x.column, o);
    /* A product of 16-bit halves: the upper product is 0. */
    const __m512i excess = _mm512_set1_epi32(x.excess & 0xffff);
    d0 = _mm512_dpwssd_epi32(d0, excess, o->w0);
    d1 = _mm512_dpwssd_epi32(d1, excess, o->w1);
  }
  __m512 x0 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(d0), _mm512_mul_ps(scale, c.scale0), c.bias0);
  __m512 x1 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(d1), _mm512_mul_ps(scale, c.scale1), c.bias1);
  if (const float *addend = addend_row(a, r, column)) add_addend(addend, c.mask, &x0, &x1);
  const int64_t residual_size = Residual == kResidualF32 ? 4 : 2, out_size = Out == kOutF32 ? 4 : 2;
  const int64_t first = column_of_y<Act>(column);
  epilogue_row<Act, Residual, Out>(x0, x1, act_of<Act>(a), c.mask,
                                   (const char *)a->residual.p + (r * a->residual.ld + first) * residual_size,
                                   (char *)a->y.p + (r * a->y.ld + first) * out_size);
}

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_INT8_EPILOGUE_AVX512_H */
