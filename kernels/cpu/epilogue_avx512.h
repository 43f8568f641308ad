/* epilogue_avx512.h — finishes a block product: bias, addend, activation, residual, conversion,
 * store. A block is up to 32 rows × 32 columns of sums in a small buffer. The linear kernels spread
 * its rows over the product of the next block, so that the vector units work while the tile unit
 * does. */
#ifndef SIE_KERNELS_CPU_EPILOGUE_AVX512_H
#define SIE_KERNELS_CPU_EPILOGUE_AVX512_H

#include <immintrin.h>

#include "fast_math_avx512.h"
#include "isa.h"

namespace sie_cpu {

enum { kBlockRows = 32, kPanelColumns = 32 };

/* kActOther and kActGate read a run-time value. With a gate a pair of columns gives one result. */
enum EpilogueAct { kActNone, kActGeluErf, kActOther, kActGate };
enum EpilogueResidual { kResidualNone, kResidualF32, kResidualBF16 };
enum EpilogueOut { kOutF32, kOutBF16 };

/* Columns [column, column + 32) of one linear, cut at n. */
struct ColumnMask {
  __mmask16 lo, hi;
  __mmask32 all;
};
static inline ColumnMask column_mask(int64_t column, int64_t n) {
  const int64_t left = n - column;
  const uint32_t m = left >= 32 ? 0xffffffffu : left <= 0 ? 0 : (uint32_t)((1ull << left) - 1);
  return {(__mmask16)m, (__mmask16)(m >> 16), m};
}

static inline __m512 widen_bf16(__m256i h) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* Rounds to nearest even as vcvtne2ps2bf16 does, but keeps denormals; for builds without
 * AVX512_BF16. */
static inline __m256i narrow_bf16(__m512 x) {
  const __m512i u = _mm512_castps_si512(x);
  const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i r =
      _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff))), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(r, nan, _mm512_set1_epi32(0x7fc0)));
}

template <int Act>
static inline __m512 epilogue_act(__m512 x, int32_t act) {
  if (Act == kActNone) return x;
  if (Act == kActGeluErf) return fast_act<SIE_ACT_GELU_ERF>(x);
  switch (act) {
    case SIE_ACT_TANH:
      return fast_act<SIE_ACT_TANH>(x);
    case SIE_ACT_GELU_TANH:
      return fast_act<SIE_ACT_GELU_TANH>(x);
    case SIE_ACT_RELU:
      return fast_act<SIE_ACT_RELU>(x);
    case SIE_ACT_SILU:
      return fast_act<SIE_ACT_SILU>(x);
    default:
      return x;
  }
}

/* The column of y that column `column` of the linear becomes; `column` is a panel's first. */
template <int Act>
static inline int64_t column_of_y(int64_t column) {
  return Act == kActGate ? column / 2 : column;
}

/* The act argument of epilogue_row. */
template <int Act>
static inline int32_t act_of(const sie_linear_args *a) {
  return Act == kActGate ? act_of_gate(a->gate) : a->act;
}

template <int Residual, int Out>
static inline void gated_row(__m512 x0, __m512 x1, int32_t act, ColumnMask mask, const void *residual,
                             void *y) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const __mmask16 pairs = (__mmask16)((1u << __builtin_popcount(mask.all) / 2) - 1);
  const __m512 gate = _mm512_permutex2var_ps(x0, even, x1);
  const __m512 open =
      act == SIE_ACT_GELU_ERF ? epilogue_act<kActGeluErf>(gate, act) : epilogue_act<kActOther>(gate, act);
  __m512 x = _mm512_mul_ps(open, _mm512_permutex2var_ps(x0, odd, x1));
  if (Residual == kResidualF32) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(pairs, residual));
  if (Residual == kResidualBF16) x = _mm512_add_ps(x, widen_bf16(_mm256_maskz_loadu_epi16(pairs, residual)));
  if (Out == kOutF32)
    _mm512_mask_storeu_ps(y, pairs, x);
  else
#ifdef __AVX512BF16__
    _mm256_mask_storeu_epi16(y, pairs, (__m256i)_mm512_cvtneps_pbh(x));
#else
    _mm256_mask_storeu_epi16(y, pairs, narrow_bf16(x));
#endif
}

/* Columns `column` … + 31 of row r of the addend, or NULL. */
static inline const float *addend_row(const sie_linear_args *a, int64_t r, int64_t column) {
  return a->addend.p ? (const float *)a->addend.p + r * a->addend.ld + column : nullptr;
}
static inline void add_addend(const float *addend, ColumnMask mask, __m512 *x0, __m512 *x1) {
  *x0 = _mm512_add_ps(*x0, _mm512_maskz_loadu_ps(mask.lo, addend));
  *x1 = _mm512_add_ps(*x1, _mm512_maskz_loadu_ps(mask.hi, addend + 16));
}

/* Finishes columns [0, 32) of one row: x0, x1 hold the sums with bias and addend. residual and y
 * point at the row's first column of the panel; residual may be y. */
template <int Act, int Residual, int Out>
static inline void epilogue_row(__m512 x0, __m512 x1, int32_t act, ColumnMask mask, const void *residual,
                                void *y) {
  if (Act == kActGate) return gated_row<Residual, Out>(x0, x1, act, mask, residual, y);
  x0 = epilogue_act<Act>(x0, act);
  x1 = epilogue_act<Act>(x1, act);
  if (Residual == kResidualF32) {
    const float *r = (const float *)residual;
    x0 = _mm512_add_ps(x0, _mm512_maskz_loadu_ps(mask.lo, r));
    x1 = _mm512_add_ps(x1, _mm512_maskz_loadu_ps(mask.hi, r + 16));
  } else if (Residual == kResidualBF16) {
    const __m512i r = _mm512_maskz_loadu_epi16(mask.all, residual);
    x0 = _mm512_add_ps(x0, widen_bf16(_mm512_castsi512_si256(r)));
    x1 = _mm512_add_ps(x1, widen_bf16(_mm512_extracti64x4_epi64(r, 1)));
  }
  if (Out == kOutF32) {
    _mm512_mask_storeu_ps((float *)y, mask.lo, x0);
    _mm512_mask_storeu_ps((float *)y + 16, mask.hi, x1);
  } else {
#ifdef __AVX512BF16__
    const __m512i h = (__m512i)_mm512_cvtne2ps_pbh(x1, x0);
#else
    const __m512i h = _mm512_inserti64x4(_mm512_castsi256_si512(narrow_bf16(x0)), narrow_bf16(x1), 1);
#endif
    _mm512_mask_storeu_epi16(y, mask.all, h);
  }
}

/* Calls go.run<Act, Residual, Out>() for the run-time combination. This is the one list of the
 * compiled forms. */
template <int Act, int Residual, class Go>
static inline void dispatch_out(int32_t y, const Go &go) {
  if (y == SIE_F32)
    go.template run<Act, Residual, kOutF32>();
  else
    go.template run<Act, Residual, kOutBF16>();
}
template <int Act, class Go>
static inline void dispatch_residual(bool has, int32_t residual, int32_t y, const Go &go) {
  if (!has)
    dispatch_out<Act, kResidualNone>(y, go);
  else if (residual == SIE_F32)
    dispatch_out<Act, kResidualF32>(y, go);
  else
    dispatch_out<Act, kResidualBF16>(y, go);
}
template <class Go>
static inline void dispatch_epilogue(const sie_linear_args *a, int32_t y, const Go &go) {
  const bool has = a->residual.p != nullptr;
  if (a->gate != SIE_GATE_NONE)
    dispatch_residual<kActGate>(has, a->residual.dtype, y, go);
  else if (a->act == SIE_ACT_NONE)
    dispatch_residual<kActNone>(has, a->residual.dtype, y, go);
  else if (a->act == SIE_ACT_GELU_ERF)
    dispatch_residual<kActGeluErf>(has, a->residual.dtype, y, go);
  else
    dispatch_residual<kActOther>(has, a->residual.dtype, y, go);
}

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_EPILOGUE_AVX512_H */
