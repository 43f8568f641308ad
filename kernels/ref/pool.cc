// pool — y[b] = the rows x_0 … x_(L−1) of sequence b pooled to one row, as f32.
//   cls x_0   last x_(L−1)   mean Σ x_i/L   mean sqrt Σ x_i/√L   sum Σ x_i   max max x_i
//   rms √(Σ x_i²/L)   abs max max |x_i|   abs mean Σ |x_i|/L
//   weighted mean Σ (p_i+1)·x_i / Σ (p_i+1), p_i the row's place: i, or index − cu_whole
//   attention Σ p_i·x_i, p = softmax over i of x_i·w
//   All in double. An empty sequence gives zeros. Without cu_seqlens x has one row a sequence.
// Shapes   x [T, C] (or [B, C]), y [B, C], row strides ≥ C; w [C]; cu_seqlens [B+1] or null;
//          index [T] and cu_whole [B], or both null.
// Types    x f32 | bf16 | f16; y f32.
// Alias    none.
// Share    sequences.
// Scratch  one double for each token of the longest sequence.
// Source   weighted mean: Muennighoff 2022 §3, arXiv:2202.08904; attention: Lin 2017 §2,
//          arXiv:1703.03130
#include "rows.h"

namespace sie_ref {

bool pool_supported(const sie_pool_args *a) {
  if (!is_float(a->x.dtype) || a->y.dtype != SIE_F32) return false;
  return a->mode >= SIE_POOL_CLS && a->mode <= SIE_POOL_ABS_MEAN;
}

namespace {

// The weight of each of sequence b's rows; `first` is its first row.
void weigh_rows(const sie_pool_args *a, int64_t b, int64_t first, int64_t rows, double *weights) {
  double largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < rows; i++) {
    weights[i] = 0;
    if (a->mode == SIE_POOL_WEIGHTED_MEAN) {
      const int64_t place = a->index != nullptr ? a->index[first + i] - a->cu_whole[b] : i;
      weights[i] = static_cast<double>(place + 1);
    }
    if (a->mode == SIE_POOL_MEAN || a->mode == SIE_POOL_MEAN_SQRT || a->mode == SIE_POOL_SUM) weights[i] = 1;
    if (a->mode == SIE_POOL_ATTENTION) {
      for (int64_t c = 0; c < a->c; c++)
        weights[i] += load(a->x, first + i, c) * static_cast<double>(a->w[c]);
      if (weights[i] > largest) largest = weights[i];
    }
  }
  for (int64_t i = 0; i < rows; i++) {
    if (a->mode == SIE_POOL_ATTENTION) weights[i] = exp(weights[i] - largest);
    sum += weights[i];
  }
  if (a->mode == SIE_POOL_MEAN_SQRT) sum = sqrt(sum);
  if (a->mode == SIE_POOL_SUM) sum = 1;
  for (int64_t i = 0; i < rows; i++) weights[i] /= sum;
}

double largest_of(const sie_tensor &x, int64_t first, int64_t end, int64_t c) {
  double largest = load(x, first, c);
  for (int64_t r = first + 1; r < end; r++) largest = fmax(largest, load(x, r, c));
  return largest;
}

// Whether a row alone is not itself, because sizes or squares are pooled.
bool pools_sizes(int32_t mode) { return mode >= SIE_POOL_RMS; }

// Σ x², max |x| or Σ |x| of rows [first, end) of column c, as the mode pools them.
double pool_sizes(const sie_pool_args *a, int64_t first, int64_t end, int64_t c) {
  double all = 0;
  for (int64_t r = first; r < end; r++) {
    const double x = load(a->x, r, c);
    if (a->mode == SIE_POOL_RMS) all += x * x;
    if (a->mode == SIE_POOL_ABS_MAX) all = fmax(all, fabs(x));
    if (a->mode == SIE_POOL_ABS_MEAN) all += fabs(x);
  }
  if (a->mode == SIE_POOL_ABS_MAX || end == first) return all;
  all /= static_cast<double>(end - first);
  return a->mode == SIE_POOL_RMS ? sqrt(all) : all;
}

}  // namespace

void pool_sequence(const sie_pool_args *a, int64_t b, double *weights, float *y) {
  int64_t first = b, end = b + 1;
  if (a->cu_seqlens != nullptr) {
    first = a->cu_seqlens[b];
    end = a->cu_seqlens[b + 1];
    if (a->mode == SIE_POOL_CLS && end > first) end = first + 1;
    if (a->mode == SIE_POOL_LAST && end > first) first = end - 1;
  }
  if (pools_sizes(a->mode)) {
    for (int64_t c = 0; c < a->c; c++) y[c] = static_cast<float>(pool_sizes(a, first, end, c));
    return;
  }
  // A single row is itself in every other mode.
  if (a->mode == SIE_POOL_MAX || end == first + 1) {
    for (int64_t c = 0; c < a->c; c++)
      y[c] = end > first ? static_cast<float>(largest_of(a->x, first, end, c)) : 0;
    return;
  }
  weigh_rows(a, b, first, end - first, weights);
  for (int64_t c = 0; c < a->c; c++) {
    double sum = 0;
    for (int64_t r = first; r < end; r++) sum += weights[r - first] * load(a->x, r, c);
    y[c] = static_cast<float>(sum);
  }
}

sie_status pool(const sie_pool_args *a, const sie_share *share) {
  if (!pool_supported(a)) return SIE_UNSUPPORTED;
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    pool_sequence(a, b, static_cast<double *>(share->scratch), static_cast<float *>(a->y.p) + b * a->y.ld);
  }
  return SIE_OK;
}

}  // namespace sie_ref
