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
#include "common/dtype.h"
#include "kernels_amx.h"
#include "linear_part.h"

namespace sie_cpu {
namespace {

enum { kStepK = 32 };

struct Bf16Product {
  template <int C, int A, int B>
  static void dp() {
    amx_dp_bf16<C, A, B>();
  }
};

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

struct Run {
  const sie_linear_args *args;
  AmxOperands operands;
  template <int Act, int Residual, int Out>
  void run() const {
    amx_linear<Bf16Product>(operands, Bf16Form<Act, Residual, Out>{args});
  }
};

int64_t round_up(int64_t v, int64_t to) { return (v + to - 1) / to * to; }

}  // namespace

int64_t amx_bf16_packed_bytes(int64_t n, int64_t k) {
  return round_up(n, kPanelColumns) * round_up(k, kStepK) * 2;
}

/* Panel p, step s, tile t: 16 rows of (16 columns × 2 consecutive k). */
void amx_bf16_pack(int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld, void *dst) {
  (void)n;
  const int64_t panel_elements = round_up(k, kStepK) * kPanelColumns;
  for (int64_t i = 0; i < rows; i++) {
    const int64_t column = n0 + i;
    uint16_t *const base = (uint16_t *)dst + column / 32 * panel_elements +
                           column % 32 / 16 * (kStepBytes / 4) + column % 16 * 2;
    const float *const w = src + i * ld;
    for (int64_t j = 0; j < k; j++)
      base[j / kStepK * (kStepBytes / 2) + j % kStepK / 2 * 32 + j % 2] = sie_bf16_from_f32(w[j]);
  }
}

int64_t linear_bf16_amx_scratch(const sie_op_bounds *bounds) {
  return bounds->k % kStepK ? bounds->rows * kStepRowBytes : 0;
}

sie_status linear_bf16_amx(const sie_linear_args *a, const sie_share *share) {
  if (a->w->compute != SIE_COMPUTE_BF16 || a->x.dtype != SIE_BF16) return SIE_UNSUPPORTED;
  if (a->y.dtype != SIE_F32 && a->y.dtype != SIE_BF16) return SIE_UNSUPPORTED;
  const int64_t panels = (a->n + kPanelColumns - 1) / kPanelColumns;
  const LinearPart part = part_of(*a->rows.n, panels, kBlockRows / 2, share);
  if (part.empty()) return SIE_OK;
  const int32_t rows = static_cast<int32_t>(part.rows.last - part.rows.first);
  const sie_linear_args own = rows_from(a, part.rows.first, &rows);
  Run run;
  run.args = &own;
  run.operands = {(const char *)own.x.p,        2 * own.x.ld, nullptr,           (const char *)a->w->data,
                  (a->k + kStepK - 1) / kStepK, rows,         part.panels.first, part.panels.last};
  if (a->k % kStepK) {
    amx_copy_tails(run.operands.a, run.operands.a_ld, 2 * a->k, rows, (char *)share->scratch);
    run.operands.a_tail = (const char *)share->scratch;
  }
  dispatch_epilogue(&own, own.y.dtype, run);
  return SIE_OK;
}

}  // namespace sie_cpu
