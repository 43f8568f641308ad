// softmax — y[r] = e^(s·x[r] − m) / Σ e^(s·x − m), m the largest s·x, over the rows of r's sequence.
//   The sum is of kLanes chains, rows in order, then of the lanes.
// Shapes   x, y [R, 1], row strides ≥ 1; cu_seqlens [B+1]. B ≥ 0.
// Types    f32.
// Alias    none.
// Align    element.
// Share    sequences.
// Cost     three numbers a row: a sequence has some labels, each of which cost a product of rows.
// Plan     the largest, then kLanes rows at once: the power, which is kept in y, and its sum; then y
//          is divided. A lane without a row counts nothing.
// Error    a relative 4e-6 + 2·s·|error of x| of each y.
#include "math.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

void softmax_sequence(const sie_softmax_args *a, int64_t first, int64_t last) {
  float largest = -__builtin_inff();
  for (int64_t r = first; r < last; r++) {
    const float x = a->scale * *row_of<const float>(a->x, r);
    if (x > largest) largest = x;
  }
  Vec sum = vset(0.0f);
  for (int64_t r = first; r < last; r += kLanes) {
    const int64_t count = last - r < kLanes ? last - r : kLanes;
    float some[kLanes] = {};
    for (int64_t j = 0; j < count; j++) some[j] = a->scale * *row_of<const float>(a->x, r + j) - largest;
    const Vec power = vkeep(vexp(vload(some)), count);
    sum = sum + power;
    vstore(some, power);
    for (int64_t j = 0; j < count; j++) *row_of<float>(a->y, r + j) = some[j];
  }
  const float total = vsum(sum);
  for (int64_t r = first; r < last; r++) *row_of<float>(a->y, r) /= total;
}

}  // namespace

sie_status softmax(const sie_softmax_args *a, const sie_share *share) {
  if (a->x.dtype != SIE_F32 || a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  const Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    softmax_sequence(a, a->cu_seqlens[b], a->cu_seqlens[b + 1]);
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
