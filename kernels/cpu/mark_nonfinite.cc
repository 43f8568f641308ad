// mark_nonfinite — flags the sequences that have a row with an element that is NaN or infinite.
// Shapes   x [R, C], row stride ≥ C; cu_seqlens [B+1]; place [B]; flags holds every place. B ≥ 0,
//          C ≥ 1.
// Types    x f32 | bf16 | u8 | e4m3.
// Alias    none.
// Align    element.
// Share    sequences.
// Cost     C elements read a row → memory bound; u8: a scale a row.
// Plan     0·x is 0 for every finite x and NaN for all others, and a sum keeps a NaN: one FMA a
//          vector.
// Error    none.
#include <math.h>

#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

template <typename X>
bool finite_floats(const X *x, int64_t c) {
  const Vec zero = vset(0.0f);
  return sum_row(c, [=](int64_t i) __attribute__((always_inline)) { return vload_row(x, i, c) * zero; }) ==
         0.0f;
}

// 0x7f and 0xff are e4m3's NaN; it has no infinity.
bool finite_e4m3(const uint8_t *x, int64_t c) {
  uint32_t most = 0;
  for (int64_t i = 0; i < c; i++) {
    const uint32_t magnitude = x[i] & 0x7fu;
    most = magnitude > most ? magnitude : most;
  }
  return most < 0x7f;
}

bool finite_row(const sie_tensor &x, int64_t c, int64_t r) {
  if (x.dtype == SIE_F32) return finite_floats(row_of<const float>(x, r), c);
  if (x.dtype == SIE_BF16) return finite_floats(row_of<const Bf16>(x, r), c);
  const int64_t scales = x.scale_group == 128 ? (c + 127) / 128 : 1;
  if (!finite_floats(x.scale + r * scales, scales)) return false;
  return x.dtype == SIE_U8 || finite_e4m3(row_of<const uint8_t>(x, r), c);
}

}  // namespace

sie_status mark_nonfinite(const sie_mark_nonfinite_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) && !is_quantised(a->x)) return SIE_UNSUPPORTED;
  if (a->which != 0 && a->which != SIE_POOL_CLS && a->which != SIE_POOL_LAST) return SIE_INVALID_ARGUMENT;
  const Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    int64_t row = a->cu_seqlens != nullptr ? a->cu_seqlens[b] : b,
            end = a->cu_seqlens != nullptr ? a->cu_seqlens[b + 1] : b + 1;
    if (a->which == SIE_POOL_CLS && end > row) end = row + 1;
    if (a->which == SIE_POOL_LAST && end > row) row = end - 1;
    while (row < end && finite_row(a->x, a->c, row)) row++;
    if (row < end) a->flags[a->place != nullptr ? a->place[b] : b] = 1;
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
