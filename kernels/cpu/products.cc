// product, dots — y[r, c] = a[r, c]·b[r, c], and y[r] = Σ_c a[r, c]·b[r, c].
//   dots: one FMA chain a row, c ascending.
// Shapes   a, b [R, C], y [R, C] or [R, 1], row strides ≥ the columns. R ≥ 0, C ≥ 1.
// Types    a, b f32 | bf16, each its own; y of product one of these, of dots f32.
// Alias    product: y may be a or b when the types agree.
// Align    element.
// Share    rows.
// Cost     2·C elements read a row → memory bound.
// Plan     product: by vectors. dots: kLanes rows at once, a lane each, by blocks of kLanes columns
//          that are transposed; lanes without a row read row 0 again and are not stored.
// Error    product: one rounding, and that of y's type. dots: sie_tol_dot.
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

SIE_INLINE Vec load_at(const sie_tensor &t, int64_t r, int64_t i, int64_t c) {
  return t.dtype == SIE_F32 ? vload_row(row_of<const float>(t, r), i, c)
                            : vload_row(row_of<const Bf16>(t, r), i, c);
}

// Lane j of block[i]: element i of row r + j, from column `from` on; 0 beyond c.
SIE_INLINE void load_block(const sie_tensor &t, int64_t r, int64_t rows, int64_t from, int64_t c,
                           Vec (&block)[kLanes]) {
  for (int64_t j = 0; j < kLanes; j++) block[j] = load_at(t, r + (j < rows ? j : 0), from, c);
  vtranspose(block);
}

}  // namespace

sie_status product(const sie_product_args *a, const sie_share *share) {
  if (!is_float(a->a.dtype) || !is_float(a->b.dtype) || !is_float(a->y.dtype)) return SIE_UNSUPPORTED;
  const Range rows = share_of(*a->rows.n, share);
  for (int64_t r = rows.first; r < rows.last; r++) {
    for (int64_t i = 0; i < a->c; i += kLanes) {
      const Vec y = load_at(a->a, r, i, a->c) * load_at(a->b, r, i, a->c);
      if (a->y.dtype == SIE_F32) {
        vstore_row(row_of<float>(a->y, r), i, a->c, y);
      } else {
        vstore_row(row_of<Bf16>(a->y, r), i, a->c, y);
      }
    }
  }
  return SIE_OK;
}

sie_status dots(const sie_dots_args *a, const sie_share *share) {
  if (!is_float(a->a.dtype) || !is_float(a->b.dtype) || a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  const Range rows = share_of(*a->rows.n, share);
  for (int64_t r = rows.first; r < rows.last; r += kLanes) {
    const int64_t count = rows.last - r < kLanes ? rows.last - r : kLanes;
    Vec sum = vset(0.0f);
    for (int64_t i = 0; i < a->c; i += kLanes) {
      Vec x[kLanes], y[kLanes];
      load_block(a->a, r, count, i, a->c, x);
      load_block(a->b, r, count, i, a->c, y);
      for (int64_t k = 0; k < kLanes && i + k < a->c; k++) sum = vfma(x[k], y[k], sum);
    }
    float each[kLanes];
    vstore(each, sum);
    for (int64_t j = 0; j < count; j++) *row_of<float>(a->y, r + j) = each[j];
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
