// smve_heap.h — keeps the largest projections of one row (smve.cc).
#ifndef SIE_KERNELS_CPU_SMVE_HEAP_H
#define SIE_KERNELS_CPU_SMVE_HEAP_H

#include "vec.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

// The largest projections of a row: a heap with the least at its root, of equals the highest
// column.
struct Heap {
  float *values;
  int32_t *columns;
  int64_t count, top;
};

static inline bool is_less(const Heap &h, int64_t i, int64_t j) {
  return h.values[i] < h.values[j] || (h.values[i] == h.values[j] && h.columns[i] > h.columns[j]);
}

static inline void exchange(const Heap &h, int64_t i, int64_t j) {
  const float value = h.values[i];
  const int32_t column = h.columns[i];
  h.values[i] = h.values[j];
  h.columns[i] = h.columns[j];
  h.values[j] = value;
  h.columns[j] = column;
}

// Columns come in ascending order, so an equal projection never displaces another.
static inline void offer(Heap *h, float value, int32_t column) {
  if (value != value) return;
  if (h->count < h->top) {
    int64_t i = h->count++;
    h->values[i] = value;
    h->columns[i] = column;
    for (; i > 0 && is_less(*h, i, (i - 1) / 2); i = (i - 1) / 2) exchange(*h, i, (i - 1) / 2);
    return;
  }
  if (!(value > h->values[0])) return;
  h->values[0] = value;
  h->columns[0] = column;
  for (int64_t i = 0;;) {
    int64_t least = i;
    for (int64_t child = 2 * i + 1; child <= 2 * i + 2 && child < h->count; child++) {
      if (is_less(*h, child, least)) least = child;
    }
    if (least == i) return;
    exchange(*h, i, least);
    i = least;
  }
}

// z[count] are a row's projections on the anchors of columns from `column` on.
static inline void offer_panel(Heap *h, const float *z, int64_t count, int64_t column) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t here = count - i < kLanes ? count - i : kLanes;
    uint32_t candidates = (1u << here) - 1u;
    if (h->count == h->top) candidates &= vpositive(vload(z + i) - vset(h->values[0]));
    for (; candidates != 0; candidates &= candidates - 1) {
      const int lane = __builtin_ctz(candidates);
      offer(h, z[i + lane], static_cast<int32_t>(column + i + lane));
    }
  }
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_SMVE_HEAP_H
