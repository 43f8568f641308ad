// lora — y = (x·Aᵀ)·Bᵀ with the adapter of each row's sequence; zeros without one or with rank 0.
//   Both sums are in double; nothing is rounded between them.
// Shapes   x [R, K], y [R, N], row strides ≥ columns; A [rank, K], B [N, rank] dense; adapter [B];
//          cu_seqlens [B+1], or NULL where x has one row a sequence.
// Types    x, A, B f32 | bf16 | f16; y f32.
// Alias    none.
// Share    rows.
// Scratch  max_rank doubles.
// Source   Hu 2021 §4.1, arXiv:2106.09685
#include "rows.h"

namespace sie_ref {

namespace {

// The adapter of the row's sequence, or NULL.
const sie_lora_pair *pair_of(const sie_lora_args *a, int64_t row) {
  int64_t b = row;
  if (a->cu_seqlens != nullptr) {
    for (b = 0; a->cu_seqlens[b + 1] <= row; b++) {
    }
  }
  const int32_t adapter = a->adapter[b];
  return adapter >= 0 ? &a->adapters[adapter] : nullptr;
}

sie_tensor matrix(const void *p, int64_t columns, int32_t dtype) {
  return {const_cast<void *>(p), columns, dtype, 0, nullptr, nullptr, nullptr};
}

}  // namespace

sie_status lora(const sie_lora_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype) || a->y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  for (int32_t i = 0; i < a->n_adapters; i++) {
    if (a->adapters[i].rank < 0 || a->adapters[i].rank > a->max_rank) return SIE_INVALID_ARGUMENT;
    if (!is_float(a->adapters[i].dtype)) return SIE_UNSUPPORTED;
  }
  double *const t = static_cast<double *>(share->scratch);
  const Range rows = share_of(*a->rows.n, share);
  for (int64_t row = rows.first; row < rows.last; row++) {
    const sie_lora_pair *pair = pair_of(a, row);
    const int64_t rank = pair != nullptr ? pair->rank : 0;
    for (int64_t r = 0; r < rank; r++) {
      t[r] = 0;
      for (int64_t k = 0; k < a->k; k++)
        t[r] += load(a->x, row, k) * load(matrix(pair->a, a->k, pair->dtype), r, k);
    }
    for (int64_t n = 0; n < a->n; n++) {
      double sum = 0;
      for (int64_t r = 0; r < rank; r++) sum += t[r] * load(matrix(pair->b, rank, pair->dtype), n, r);
      store(a->y, row, n, static_cast<float>(sum));
    }
  }
  return SIE_OK;
}

}  // namespace sie_ref
