/* amx_softmax.h — what the forms of attention on AMX tiles share beside their products: the sizes
 * of blocks and chunks, softmax of a row of scores in place, and the joining of blocks. */
#ifndef SIE_KERNELS_CPU_AMX_SOFTMAX_H
#define SIE_KERNELS_CPU_AMX_SOFTMAX_H

#include "amx_attention.h"
#include "epilogue_avx512.h"

namespace sie_cpu {

/* kᵀ and v of a block, a chunk's sums and a tile's scores stay in an L2 of 2 MB up to D = 256. */
constexpr int64_t kBlockKeys = 512;
/* Packing a block costs some 3 % of what it takes to multiply it with so many rows. */
constexpr int64_t kChunkRows = 1152;
constexpr float kLog2e = 1.44269504f;

/* Other head dimensions are the generic kernel's. */
static inline bool has_tiles(int64_t head_dim) {
  return head_dim == 32 || head_dim == 64 || head_dim == 128 || head_dim == 256;
}

static inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

/* The steps that hold these keys. */
static inline Range steps_of(Range keys) {
  return {keys.first / kKeyStep * kKeyStep, whole_steps(keys.last)};
}

static inline bool holds_step(Range keys, int64_t step) {
  return step >= keys.first && step + kKeyStep <= keys.last;
}

/* Lanes [0, 32) of the step from key `step` on that hold keys of `keys`. */
static inline uint32_t lanes_of(Range keys, int64_t step) {
  return column_mask(step, keys.last).all & (step >= keys.first ? ~0u : ~0u << (keys.first - step));
}

/* One row of a block: s_j of `keys` becomes p_j, bf16, in the same place, and 0 in what else there
 * is of `steps`. *top has the largest scale·s_j before and takes the largest so far. Returns Σ
 * p_j. */
static inline float softmax_row(float *row, Range keys, Range steps, float scale_log2, float *top) {
  if (keys.first >= keys.last) {
    memset((char *)row + 2 * steps.first, 0, (size_t)(2 * (steps.last - steps.first)));
    return 0.0f;
  }
  const Range own = steps_of(keys);
  __m512 m0 = _mm512_set1_ps(-__builtin_inff()), m1 = m0;
  for (int64_t j = own.first; j < own.last; j += kKeyStep) {
    if (holds_step(keys, j)) {
      m0 = _mm512_max_ps(m0, _mm512_load_ps(row + j));
      m1 = _mm512_max_ps(m1, _mm512_load_ps(row + j + 16));
    } else {
      const uint32_t lanes = lanes_of(keys, j);
      m0 = _mm512_mask_max_ps(m0, (__mmask16)lanes, m0, _mm512_load_ps(row + j));
      m1 = _mm512_mask_max_ps(m1, (__mmask16)(lanes >> 16), m1, _mm512_load_ps(row + j + 16));
    }
  }
  const float here = _mm512_reduce_max_ps(_mm512_max_ps(m0, m1)) * scale_log2;
  if (here > *top) *top = here;
  const __m512 scale = _mm512_set1_ps(scale_log2), most = _mm512_set1_ps(*top);
  const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
  __m512 sum = _mm512_setzero_ps();
  /* Weights take half of the scores' bytes, so those before the first key cover scores that are
   * not read any more, or that nobody sees. */
  memset((char *)row + 2 * steps.first, 0, (size_t)(2 * (own.first - steps.first)));
  for (int64_t j = own.first; j < own.last; j += kKeyStep) {
    __m512 p0 = fast_exp2(_mm512_fmsub_ps(_mm512_load_ps(row + j), scale, most));
    __m512 p1 = fast_exp2(_mm512_fmsub_ps(_mm512_load_ps(row + j + 16), scale, most));
    if (!holds_step(keys, j)) {
      const uint32_t lanes = lanes_of(keys, j);
      p0 = _mm512_maskz_mov_ps((__mmask16)lanes, p0);
      p1 = _mm512_maskz_mov_ps((__mmask16)(lanes >> 16), p1);
    }
    const __m512bh p = _mm512_cvtne2ps_pbh(p1, p0);
    sum = _mm512_dpbf16_ps(sum, p, ones);
    _mm512_store_si512((char *)row + 2 * j, (__m512i)p);
  }
  memset((char *)row + 2 * own.last, 0, (size_t)(2 * (steps.last - own.last)));
  return _mm512_reduce_add_ps(sum);
}

/* What a chunk knows of its rows: the largest t, the sum of the weights, and the weighted values
 * [D]. */
struct Sums {
  float *top, *total, *values;
};

/* 32 dimensions of a row of y: x·factor. Under a mask a sum that has come to −0 would depend on
 * the zeros that the tile added to it: there it is made +0. */
static inline void store_row(const float *x, float factor, bool masked, char *y) {
  const __m512 by = _mm512_set1_ps(factor), zero = _mm512_set1_ps(masked ? 0.0f : -0.0f);
  const __m512 y0 = _mm512_fmadd_ps(_mm512_load_ps(x), by, zero);
  const __m512 y1 = _mm512_fmadd_ps(_mm512_load_ps(x + 16), by, zero);
  _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh(y1, y0));
}

/* x = x·shrink + sum, 32 dimensions. */
static inline void join_row(float *x, float shrink, const float *sum) {
  const __m512 by = _mm512_set1_ps(shrink);
  for (int i = 0; i < 32; i += 16)
    _mm512_store_ps(x + i, _mm512_fmadd_ps(_mm512_load_ps(x + i), by, _mm512_load_ps(sum + i)));
}

static inline float shrink_of(float before, float now) {
  return before == now ? 1.0f : _mm512_cvtss_f32(fast_exp2(_mm512_set1_ps(before - now)));
}

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_AMX_SOFTMAX_H */
