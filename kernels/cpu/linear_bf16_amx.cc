// linear_bf16_amx — y = act(x·Wᵀ + bias + addend) + residual, bf16 operands, f32 sums, on AMX
// tiles.
//   or, with a gate, g(even columns)·(odd columns) + residual in N/2 columns
// Shapes   x [R, K], W packed [N, K], addend, residual, y [R, N], row-major, strides ≥ columns.
//          R ≥ 0 any; N, K ≥ 1 any.
// Types    x bf16; bias, addend f32; residual f32 | bf16; y f32 | bf16 (nearest even).
// Alias    residual may be y.
// Align    packed data 64 B; rows any (64 B rows load fastest).
// Cost     2·R·N·K flop; a tile product is 16,384 flop in 16 cycles. W is read once per ⌊2¹⁹/K⌋
//          rows.
// Plan     panels of 32 columns (64·K bytes, kept in the cache) outside, blocks of 32 rows inside,
//          2 × 2 accumulator tiles, K innermost in steps of 32. A block's epilogue runs between the
//          tile instructions of the next block. Row tails use tiles of fewer rows; the K tail of x
//          is copied to scratch with zeros, so nothing beyond a row enters a sum.
// Numeric  one chain over K per output element, in steps of 32 and in the unit's order inside a
//          step: rows, blocks, panels and shares do not change it. The unit treats denormals as
//          zero.
// Error    one f32 chain of K products, exact products; then as fast_math_avx512.h; then rounding
//          to y's type.
// Source   Intel 64 and IA-32 optimisation reference manual, chapter on AMX.
#include "amx_linear.h"
#include "bf16_epilogue_avx512.h"
#include "bf16_linear.h"
#include "kernels_bf16.h"

namespace sie_cpu {
namespace {

struct Bf16TileProduct {
  template <int C, int A, int B>
  static void dp() {
    amx_dp_bf16<C, A, B>();
  }
};

struct Run {
  const sie_linear_args *args;
  LinearOperands operands;
  template <int Act, int Residual, int Out>
  void run() const {
    amx_linear<Bf16TileProduct>(operands, Bf16Form<Act, Residual, Out>{args});
  }
};

void product(const sie_linear_args *a, const char *tails, int64_t panel_begin, int64_t panel_end) {
  const LinearOperands operands = {(const char *)a->x.p, 2 * a->x.ld, tails,       (const char *)a->w->data,
                                   bf16_steps(a->k),     *a->rows.n,  panel_begin, panel_end};
  dispatch_epilogue(a, a->y.dtype, Run{a, operands});
}

}  // namespace

sie_status linear_bf16_amx(const sie_linear_args *a, const sie_share *share) {
  return bf16_linear(a, share, product, kBlockRows / 2);
}

}  // namespace sie_cpu
