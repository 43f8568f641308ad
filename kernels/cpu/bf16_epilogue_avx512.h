/* bf16_epilogue_avx512.h — finishes the f32 sums of a block of up to 32 rows and a panel of class
 * BF16. */
#ifndef SIE_KERNELS_CPU_BF16_EPILOGUE_AVX512_H
#define SIE_KERNELS_CPU_BF16_EPILOGUE_AVX512_H

#include "epilogue_avx512.h"

namespace sie_cpu {
namespace {

/* start() says what a block's sums are; finish() finishes its rows up to `to`, so that a kernel may
 * do so in parts. */
template <int Act, int Residual, int Out>
struct Bf16Form {
  const sie_linear_args *args;

  struct Pending {
    const float *sums; /* [32][32] */
    int rows, next;    /* rows [next, rows) are to do */
    ColumnMask mask;
    __m512 bias0, bias1;
    const float *addend;  /* row 0 of the block, first column of the panel; or NULL */
    const char *residual; /* row 0 of the block, first column of the panel */
    char *y;
  };

  void start(Pending *p, const void *sums, int64_t row, int rows, int64_t panel) const {
    const int64_t column = panel * kPanelColumns;
    p->sums = (const float *)sums;
    p->rows = rows;
    p->next = 0;
    p->mask = column_mask(column, args->n);
    p->bias0 = args->bias ? _mm512_maskz_loadu_ps(p->mask.lo, args->bias + column) : _mm512_setzero_ps();
    p->bias1 = args->bias ? _mm512_maskz_loadu_ps(p->mask.hi, args->bias + column + 16) : _mm512_setzero_ps();
    p->addend = addend_row(args, row, column);
    const int64_t first = column_of_y<Act>(column);
    p->residual = (const char *)args->residual.p + (row * args->residual.ld + first) * kResidualSize;
    p->y = (char *)args->y.p + (row * args->y.ld + first) * kOutSize;
  }

  void finish(Pending *p, int to) const {
    const int64_t residual_ld = args->residual.ld * kResidualSize, y_ld = args->y.ld * kOutSize;
    for (int r = p->next; r < to; r++) {
      __m512 x0 = _mm512_add_ps(_mm512_load_ps(p->sums + 32 * r), p->bias0);
      __m512 x1 = _mm512_add_ps(_mm512_load_ps(p->sums + 32 * r + 16), p->bias1);
      if (p->addend) add_addend(p->addend + r * args->addend.ld, p->mask, &x0, &x1);
      epilogue_row<Act, Residual, Out>(x0, x1, act_of<Act>(args), p->mask, p->residual + r * residual_ld,
                                       p->y + r * y_ld);
    }
    p->next = to;
  }

  static constexpr int64_t kResidualSize = Residual == kResidualF32 ? 4 : 2,
                           kOutSize = Out == kOutF32 ? 4 : 2;
};

}  // namespace
}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_BF16_EPILOGUE_AVX512_H */
