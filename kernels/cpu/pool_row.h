// pool_row.h — pools one sequence's rows into one row of floats, for pool and pool_output.
//
// Columns are folded in the order of the rows, one chain each: bits depend on the sequence alone.
#ifndef SIE_KERNELS_CPU_POOL_ROW_H
#define SIE_KERNELS_CPU_POOL_ROW_H

#include "math.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

// How a column's rows become one value: Σ x, Σ weight·x, max x, Σ x², max |x| or Σ |x|.
enum class Fold { sum, weighted, largest, squares, largest_size, sizes };

// What of a row is folded.
template <Fold F>
SIE_INLINE Vec folded(Vec x) {
  return F == Fold::largest_size || F == Fold::sizes ? vmax(x, vset(0.0f) - x) : x;
}

// y[c] = the fold of rows [first, last) of x in columns [i, i + V vectors), divided by total. V and
// F are template parameters so that the loop is a load and an add.
template <int V, Fold F, typename X>
SIE_INLINE void pool_columns(const sie_tensor &x, int64_t first, int64_t last, int64_t i, int64_t c,
                             const float *weights, Vec total, float *y) {
  Vec sum[V];
  for (int v = 0; v < V; v++) sum[v] = vset(F == Fold::largest ? -__builtin_inff() : 0.0f);
  for (int64_t r = first; r < last; r++) {
    const X *row = row_of<const X>(x, r);
    if (F == Fold::sum || F == Fold::sizes) {
      for (int v = 0; v < V; v++) sum[v] = sum[v] + folded<F>(vload_row(row, i + v * kLanes, c));
    } else if (F == Fold::largest || F == Fold::largest_size) {
      for (int v = 0; v < V; v++) sum[v] = vmax(sum[v], folded<F>(vload_row(row, i + v * kLanes, c)));
    } else if (F == Fold::squares) {
      for (int v = 0; v < V; v++) {
        const Vec x = vload_row(row, i + v * kLanes, c);
        sum[v] = vfma(x, x, sum[v]);
      }
    } else {
      const Vec weight = vset(weights[r - first]);
      for (int v = 0; v < V; v++) sum[v] = vfma(weight, vload_row(row, i + v * kLanes, c), sum[v]);
    }
  }
  for (int v = 0; v < V; v++) vstore_row(y, i + v * kLanes, c, sum[v] / total);
}

template <Fold F, typename X>
SIE_INLINE void pool_rows(const sie_tensor &x, int64_t first, int64_t last, int64_t c, const float *weights,
                          float total, float *y) {
  const Vec all = vset(total);
  int64_t i = 0;
  for (; i + 4 * kLanes <= c; i += 4 * kLanes) pool_columns<4, F, X>(x, first, last, i, c, weights, all, y);
  for (; i < c; i += kLanes) pool_columns<1, F, X>(x, first, last, i, c, weights, all, y);
}

// Weighs `rows` rows of sequence b from `first` on by their places, from 1; returns the sum, which
// is exact until it is rounded once.
static inline float weigh_by_place(const sie_pool_args *a, int64_t b, int64_t first, int64_t rows,
                                   float *weights) {
  int64_t sum = 0;
  for (int64_t i = 0; i < rows; i++) {
    const int64_t place = a->index != nullptr ? a->index[first + i] - a->cu_whole[b] : i;
    weights[i] = static_cast<float>(place + 1);
    sum += place + 1;
  }
  return static_cast<float>(sum);
}

// e^(x·w − max x·w) of each row; returns the sum.
template <typename X>
SIE_INLINE float weigh_by_score(const sie_tensor &x, int64_t first, int64_t rows, int64_t c, const float *w,
                                float *weights) {
  Vec top = vset(-__builtin_inff());
  for (int64_t r = 0; r < rows; r++) {
    const X *row = row_of<const X>(x, first + r);
    weights[r] = sum_row(c, [=](int64_t i) __attribute__((always_inline)) {
      return vload_row(row, i, c) * vload_row(w, i, c);
    });
    top = vmax(vset(weights[r]), top);
  }
  Vec sum = vset(0.0f);
  for (int64_t r = 0; r < rows; r += kLanes) {
    Vec p = vexp(vload_row(weights, r, rows) - top);
    if (r + kLanes > rows) p = vkeep(p, rows - r);
    vstore_row(weights, r, rows, p);
    sum = sum + p;
  }
  return vsum(sum);
}

static inline bool pool_supported(const sie_tensor &x, int32_t mode) {
  return is_float(x.dtype) && mode >= SIE_POOL_CLS && mode <= SIE_POOL_ABS_MEAN;
}

// Pools sequence b of `a` into y[c]; a->y is not read. X is the storage type of a->x.
template <typename X>
SIE_INLINE void pool_row(const sie_pool_args *a, int64_t b, float *scratch, float *y) {
  const int64_t c = a->c;
  int64_t first = b, last = b + 1;
  if (a->cu_seqlens != nullptr) {
    first = a->cu_seqlens[b];
    last = a->cu_seqlens[b + 1];
    if (a->mode == SIE_POOL_CLS && last > first) last = first + 1;
    if (a->mode == SIE_POOL_LAST && last > first) first = last - 1;
  }
  const int64_t rows = last - first;
  if (rows <= 0) {
    memset(y, 0, static_cast<size_t>(c) * sizeof *y);
    return;
  }
  if (rows == 1 && a->mode < SIE_POOL_RMS) {
    copy_row(row_of<const X>(a->x, first), c, y);
    return;
  }
  switch (a->mode) {
    case SIE_POOL_MAX:
      return pool_rows<Fold::largest, X>(a->x, first, last, c, nullptr, 1.0f, y);
    case SIE_POOL_WEIGHTED_MEAN: {
      const float total = weigh_by_place(a, b, first, rows, scratch);
      return pool_rows<Fold::weighted, X>(a->x, first, last, c, scratch, total, y);
    }
    case SIE_POOL_ATTENTION: {
      const float total = weigh_by_score<X>(a->x, first, rows, c, a->w, scratch);
      return pool_rows<Fold::weighted, X>(a->x, first, last, c, scratch, total, y);
    }
    case SIE_POOL_SUM:
      return pool_rows<Fold::sum, X>(a->x, first, last, c, nullptr, 1.0f, y);
    case SIE_POOL_ABS_MAX:
      return pool_rows<Fold::largest_size, X>(a->x, first, last, c, nullptr, 1.0f, y);
    case SIE_POOL_ABS_MEAN:
      return pool_rows<Fold::sizes, X>(a->x, first, last, c, nullptr, static_cast<float>(rows), y);
    case SIE_POOL_RMS:
      pool_rows<Fold::squares, X>(a->x, first, last, c, nullptr, static_cast<float>(rows), y);
      for (int64_t i = 0; i < c; i++) y[i] = __builtin_sqrtf(y[i]);
      return;
    default: {
      const float n = static_cast<float>(rows);
      return pool_rows<Fold::sum, X>(a->x, first, last, c, nullptr,
                                     a->mode == SIE_POOL_MEAN_SQRT ? __builtin_sqrtf(n) : n, y);
    }
  }
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_POOL_ROW_H
