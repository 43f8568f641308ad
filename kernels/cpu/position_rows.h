// position_rows.h — the rows of attention's tables by distance: whether the tables are what the kernels
// take, which row each distance has, vectors of neighbouring distances, the packing of a head's rows.
#ifndef SIE_KERNELS_CPU_POSITION_ROWS_H
#define SIE_KERNELS_CPU_POSITION_ROWS_H

#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

// What disentangled attention refuses whatever its rows and its head dimension.
static inline sie_status check_positions(const sie_attention_args *a) {
  if (a->mask != SIE_MASK_FULL || a->kv_heads != a->heads || a->alibi_slopes != nullptr ||
      a->bias != nullptr || a->prefix_keys != nullptr) {
    return SIE_UNSUPPORTED;
  }
  if (a->pos_key.p != nullptr && a->pos_key.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (a->pos_query.p != nullptr && a->pos_query.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (a->pos_key.p == nullptr && a->pos_query.p == nullptr) return SIE_INVALID_ARGUMENT;
  if (a->bucket_reach < 0 || a->bucket_reach > SIE_MAX_BIAS_REACH) return SIE_INVALID_ARGUMENT;
  if (a->position_rows < 1 || a->position_rows > SIE_MAX_POSITION_ROWS) return SIE_INVALID_ARGUMENT;
  for (int64_t i = 0, least = 0; i <= 2 * int64_t{a->bucket_reach}; i++) {
    if (a->buckets[i] < least || a->buckets[i] >= a->position_rows) return SIE_INVALID_ARGUMENT;
    least = a->buckets[i];
  }
  return SIE_OK;
}

// The entries of DistanceRows: beyond the reach on both sides as many as a vector has.
SIE_INLINE int64_t distances(int64_t reach) { return 2 * (reach + kLanes) + 1; }

// A row for each distance, never falling; those beyond the reach have the row of its end.
struct DistanceRows {
  const int32_t *zero;  // of distance 0
  int64_t reach;
  int64_t first, last, shift;  // the distances around 0 that have row distance + shift
  bool steep;                  // a row is skipped somewhere

  int64_t row(int64_t distance) const {
    return zero[distance < -reach ? -reach : (distance > reach ? reach : distance)];
  }
  bool is_linear(int64_t distance, int64_t count) const {
    return distance >= first && distance + count - 1 <= last;
  }
  // What kLanes distances from `distance` on find in p, which has a value for each of the rows base …
  // most, and memory for a vector behind them. Lanes beyond `most` get any value.
  Vec take(const float *p, int64_t base, int64_t most, int64_t distance) const {
    if (is_linear(distance, kLanes)) return vload(p + (distance + shift - base));
    const int64_t far = reach + kLanes;
    const int32_t *rows = zero + (distance < -far ? -far : (distance > reach ? reach : distance));
    if (!steep) return vpick(vload(p + (rows[0] - base)), rows, rows[0]);
    alignas(64) float values[kLanes];
    for (int i = 0; i < kLanes; i++) values[i] = p[(rows[i] < most ? rows[i] : most) - base];
    return vload(values);
  }
};

// Lists row(x) for −reach ≤ x ≤ reach in memory of `distances(reach)` entries.
template <typename F>
SIE_INLINE DistanceRows list_rows(int64_t reach, int32_t *memory, F row) {
  int32_t *const zero = memory + reach + kLanes;
  DistanceRows rows = {zero, reach, 0, 0, 0, false};
  for (int64_t x = -reach - kLanes; x <= reach + kLanes; x++) {
    zero[x] = row(x < -reach ? -reach : (x > reach ? reach : x));
    if (x > -reach && x <= reach && zero[x] - zero[x - 1] > 1) rows.steep = true;
  }
  rows.shift = zero[0];
  while (rows.first > -reach && zero[rows.first - 1] == rows.first - 1 + rows.shift) rows.first--;
  while (rows.last < reach && zero[rows.last + 1] == rows.last + 1 + rows.shift) rows.last++;
  return rows;
}

// Packs one head of a table of `rows` rows in panels [D, panel]: column c is row c, or in reverse row
// rows − 1 − c, times factor, in panel c/panel. Of all columns those from `first` to `last`, to the
// ends of their vectors; beyond the table they are 0.
static inline void pack_rows(const sie_tensor &table, int64_t column, int64_t d, int64_t rows, bool reverse,
                             float factor, int64_t first, int64_t last, float *out, int64_t panel) {
  const Vec by = vset(factor);
  for (int64_t c = first / kLanes * kLanes; c <= last; c += kLanes) {
    float *const to = out + c / panel * panel * d + c % panel;
    for (int64_t i = 0; i < d; i += kLanes) {
      Vec block[kLanes];
      for (int j = 0; j < kLanes; j++) {
        const int64_t row = reverse ? rows - 1 - c - j : c + j;
        const bool there = row >= 0 && row < rows;
        block[j] = there ? vload_row(row_of<const float>(table, row) + column, i, d) * by : vset(0.0f);
      }
      vtranspose(block);
      for (int j = 0; j < kLanes && i + j < d; j++) vstore(to + (i + j) * panel, block[j]);
    }
  }
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_POSITION_ROWS_H
