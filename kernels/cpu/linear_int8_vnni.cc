// linear_int8_vnni — y = act(s_x·s_w·(x_q·W_qᵀ − zero·sum) + bias + addend) + residual with 512-bit
// vpdpbusd.
//   or, with a gate, g(even columns)·(odd columns) + residual in N/2 columns
// Shapes   x [R, K], W packed [N, K], addend, residual, y [R, N], strides ≥ columns. R ≥ 0 any;
//          N ≥ 1; 1 ≤ K ≤ 65,536.
// Types    x u8 with scale and zero per row, outliers or none (their excess joins the sum);
//          residual f32 | bf16; y f32 | bf16 | u8.
// Alias    residual may be y (float).
// Align    packed data 64 B; rows any.
// Cost     2·R·N·K op at 256 op a cycle with two multiply ports.
// Plan     dot_linear_avx512.h: panels of 32 columns outside, blocks of 12 rows inside, rows in slabs
//          that stay in the second-level cache.
// Numeric  sums are exact (vpdpbusd without saturation), so blocks, panels and shares cannot change
//          a result.
// Error    quantisation; then one rounding of the sum, one FMA, the activation
//          (fast_math_avx512.h).
#include "dot_linear_avx512.h"
#include "int8_epilogue_avx512.h"
#include "kernels_int8.h"

namespace sie_cpu {
namespace {

struct Int8DotProduct {
  typedef __m512i Vector;
  typedef int32_t Sum;
  static inline Vector zero() { return _mm512_setzero_si512(); }
  static inline Vector dp(Vector c, __m512i x, __m512i b) { return _mm512_dpbusd_epi32(c, x, b); }
};

template <int Act, int Residual, int Out>
struct Int8Form {
  const sie_linear_args *args;
  Int8Weight weight;

  struct Panel {
    Int8Columns columns;
    Int8OutlierWeights outlier;
  };

  Panel panel(int64_t panel) const {
    Panel p = {int8_columns(args, weight, panel), {}};
    p.outlier.column = -1;
    return p;
  }

  void finish(Panel *p, const int32_t *sums, int64_t row, int rows, int64_t panel) const {
    for (int r = 0; r < rows; r++)
      int8_row<Act, Residual, Out>(args, p->columns, sums + 32 * r, row + r, panel * kInt8Panel, &p->outlier);
  }
};

struct Run {
  const sie_linear_args *args;
  Int8Weight weight;
  LinearOperands operands;
  template <int Act, int Residual, int Out>
  void run() const {
    dot_linear<Int8DotProduct>(operands, Int8Form<Act, Residual, Out>{args, weight});
  }
};

void product(const sie_linear_args *a, const char *tails, int64_t panel_begin, int64_t panel_end) {
  const Int8Weight w = int8_weight(a->w);
  const LinearOperands operands = {(const char *)a->x.p, a->x.ld,     tails,    w.panels, w.steps,
                                   *a->rows.n,           panel_begin, panel_end};
  dispatch_epilogue(a, a->y.dtype, Run{a, w, operands});
}

}  // namespace

sie_status linear_int8_vnni(const sie_linear_args *a, const sie_share *share) {
  return int8_linear(a, share, product, kDotRows);
}

}  // namespace sie_cpu
