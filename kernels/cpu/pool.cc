// pool — y[b] = the rows x_0 … x_(L−1) of sequence b pooled to one row, as f32.
//   cls x_0   last x_(L−1)   mean Σ x_i/L   mean sqrt Σ x_i/√L   sum Σ x_i   max max x_i
//   rms √(Σ x_i²/L)   abs max max |x_i|   abs mean Σ |x_i|/L
//   weighted mean Σ (p_i+1)·x_i / Σ (p_i+1), p_i the row's place: i, or index − cu_whole
//   attention Σ p_i·x_i, p = softmax over i of x_i·w
//   Rows are taken in order, one f32 accumulator a column. An empty sequence gives zeros.
// Shapes   x [T, C], or [B, C] without cu_seqlens; y [B, C]; row strides ≥ C; w [C]; index [T] and
//          cu_whole [B], or both null. B ≥ 0, C ≥ 1.
// Types    x f32 | bf16; y f32.
// Alias    none.
// Align    element.
// Share    sequences.
// Scratch  a float for each row of the longest sequence.
// Cost     reads x once, for attention twice → memory bound.
// Plan     weights of the rows first; then four vectors of columns at a time, all rows of the
//          sequence: four independent chains of adds, or of maxima.
// Error    |y − ref| ≤ L·2⁻²⁴·max|x|, of mean sqrt √L times that, of sum L times, of max and abs max
//          none, of rms L·2⁻²⁴·y; attention adds a relative 4e-6 + 2·|error of x·w| of each weight.
//          A NaN is lost to max and abs max unless the last row has it.
// Source   weighted mean: Muennighoff 2022 §3, arXiv:2202.08904; attention: Lin 2017 §2,
//          arXiv:1703.03130
#include "pool_row.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

template <typename X>
void pool_sequences(const sie_pool_args *a, Range seqs, float *scratch) {
  for (int64_t b = seqs.first; b < seqs.last; b++) pool_row<X>(a, b, scratch, row_of<float>(a->y, b));
}

}  // namespace

sie_status pool(const sie_pool_args *a, const sie_share *share) {
  if (!pool_supported(a->x, a->mode) || a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  const Range seqs = share_of(*a->seqs.n, share);
  float *scratch = static_cast<float *>(share->scratch);
  if (a->x.dtype == SIE_F32) {
    pool_sequences<float>(a, seqs, scratch);
  } else {
    pool_sequences<Bf16>(a, seqs, scratch);
  }
  return SIE_OK;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
