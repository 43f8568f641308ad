// linear_bf16_avx512bf16 — y = act(x·Wᵀ + bias + addend) + residual, bf16 operands, f32 sums, with
// 512-bit vdpbf16ps.
//   or, with a gate, g(even columns)·(odd columns) + residual in N/2 columns
// Shapes   x [R, K], W packed [N, K], addend, residual, y [R, N], row-major, strides ≥ columns.
//          R ≥ 0 any; N, K ≥ 1 any.
// Types    x bf16; bias, addend f32; residual f32 | bf16; y f32 | bf16 (nearest even).
// Alias    residual may be y.
// Align    packed data 64 B; rows any.
// Cost     2·R·N·K flop at 64 flop an instruction, twice those of an FMA of f32. W is read once per
//          slab of rows.
// Plan     dot_linear_avx512.h: panels of 32 columns outside, blocks of 12 rows inside, rows in slabs
//          that stay in the second-level cache.
// Numeric  one chain over K per output element, two products a step in the unit's order: rows,
//          blocks, panels and shares do not change it. The unit treats denormals as zero.
// Error    one f32 chain of K products, exact products; then as fast_math_avx512.h; then rounding
//          to y's type.
// Source   Intel 64 and IA-32 developer's manual, volume 2, VDPBF16PS.
#include "bf16_epilogue_avx512.h"
#include "bf16_linear.h"
#include "dot_linear_avx512.h"
#include "kernels_bf16.h"

namespace sie_cpu {
namespace {

struct Bf16DotProduct {
  typedef __m512 Vector;
  typedef float Sum;
  static inline Vector zero() { return _mm512_setzero_ps(); }
  static inline Vector dp(Vector c, __m512i x, __m512i b) {
    return _mm512_dpbf16_ps(c, (__m512bh)x, (__m512bh)b);
  }
};

template <int Act, int Residual, int Out>
struct DotForm {
  Bf16Form<Act, Residual, Out> form;

  struct Panel {};

  Panel panel(int64_t) const { return {}; }

  void finish(Panel *, const float *sums, int64_t row, int rows, int64_t panel) const {
    typename Bf16Form<Act, Residual, Out>::Pending pending;
    form.start(&pending, sums, row, rows, panel);
    form.finish(&pending, rows);
  }
};

struct Run {
  LinearOperands operands;
  const sie_linear_args *args;
  template <int Act, int Residual, int Out>
  void run() const {
    dot_linear<Bf16DotProduct>(operands, DotForm<Act, Residual, Out>{{args}});
  }
};

void product(const sie_linear_args *a, const char *tails, int64_t panel_begin, int64_t panel_end) {
  const LinearOperands operands = {(const char *)a->x.p, 2 * a->x.ld, tails,       (const char *)a->w->data,
                                   bf16_steps(a->k),     *a->rows.n,  panel_begin, panel_end};
  dispatch_epilogue(a, a->y.dtype, Run{operands, a});
}

}  // namespace

sie_status linear_bf16_avx512bf16(const sie_linear_args *a, const sie_share *share) {
  return bf16_linear(a, share, product, kDotRows);
}

}  // namespace sie_cpu
