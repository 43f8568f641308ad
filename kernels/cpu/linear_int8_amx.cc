// linear_int8_amx — y = act(s_x·s_w·(x_q·W_qᵀ − zero·sum) + bias + addend) + residual on AMX tiles.
//   or, with a gate, g(even columns)·(odd columns) + residual in N/2 columns
// Shapes   x [R, K], W packed [N, K], addend, residual, y [R, N], strides ≥ columns. R ≥ 0 any;
//          N ≥ 1; 1 ≤ K ≤ 65,536.
// Types    x u8 with scale and zero per row, outliers or none (their excess joins the sum);
//          residual f32 | bf16; y f32 | bf16 | u8.
// Alias    residual may be y (float).
// Align    packed data 64 B; rows any.
// Cost     2·R·N·K op; a tile product is 32,768 op in 16 cycles, so the epilogue (10 to 20
//          instructions for 16 values) weighs more than in bf16 and hides behind the product only
//          from K ≈ 768 up.
// Plan     the loops of amx_linear.h in steps of 64; u8 results as int8_linear.h says.
// Numeric  sums are exact, so nothing about blocks, panels or shares can change a result.
// Error    quantisation; then one rounding of the sum, one FMA, the activation
//          (fast_math_avx512.h).
#include "amx_linear.h"
#include "int8_epilogue_avx512.h"
#include "kernels_int8.h"

namespace sie_cpu {
namespace {

struct Int8TileProduct {
  template <int C, int A, int B>
  static void dp() {
    amx_dp_u8s8<C, A, B>();
  }
};

template <int Act, int Residual, int Out>
struct Int8Form {
  static constexpr int kOutSize = Out == kOutF32 ? 4 : 2;

  const sie_linear_args *args;
  Int8Weight weight;
  bool far; /* y outgrows the second-level cache: stores then wait for ownership, unless it was asked for */

  struct Pending {
    const int32_t *sums; /* [32][32] */
    int rows, next;
    int64_t row, column;
    Int8Columns columns;
    Int8OutlierWeights outlier;
  };

  void start(Pending *p, const void *sums, int64_t row, int rows, int64_t panel) const {
    p->sums = (const int32_t *)sums;
    p->rows = rows;
    p->next = 0;
    p->row = row;
    p->column = panel * kInt8Panel;
    p->columns = int8_columns(args, weight, panel);
    p->outlier.column = -1;
    const int64_t first = column_of_y<Act>(p->column);
    const char *const y = (const char *)args->y.p + (row * args->y.ld + first) * kOutSize;
    if (far) prefetch_for_write(y, args->y.ld * kOutSize, rows, (Act == kActGate ? 16 : 32) * kOutSize);
  }

  void finish(Pending *p, int to) const {
    for (int r = p->next; r < to; r++)
      int8_row<Act, Residual, Out>(args, p->columns, p->sums + 32 * r, p->row + r, p->column, &p->outlier);
    p->next = to;
  }
};

struct Run {
  const sie_linear_args *args;
  Int8Weight weight;
  LinearOperands operands;
  template <int Act, int Residual, int Out>
  void run() const {
    const bool far = operands.rows * args->y.ld * (Out == kOutF32 ? 4 : 2) > (2 << 20);
    amx_linear<Int8TileProduct>(operands, Int8Form<Act, Residual, Out>{args, weight, far});
  }
};

void product(const sie_linear_args *a, const char *tails, int64_t panel_begin, int64_t panel_end) {
  const Int8Weight w = int8_weight(a->w);
  const LinearOperands operands = {(const char *)a->x.p, a->x.ld,     tails,    w.panels, w.steps,
                                   *a->rows.n,           panel_begin, panel_end};
  dispatch_epilogue(a, a->y.dtype, Run{a, w, operands});
}

}  // namespace

sie_status linear_int8_amx(const sie_linear_args *a, const sie_share *share) {
  return int8_linear(a, share, product, kBlockRows / 2);
}

}  // namespace sie_cpu
