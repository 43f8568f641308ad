// key_rows.h — the keys of one item in one head, which lie in one or two segments, and their packing
// for attention's tiles.
#ifndef SIE_KERNELS_CPU_KEY_ROWS_H
#define SIE_KERNELS_CPU_KEY_ROWS_H

#include "gemm_tile.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

SIE_INLINE int64_t padded(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }
SIE_INLINE int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

// Rows of keys or values in one head, `stride` elements apart.
template <typename T>
struct Segment {
  const T *first;
  int64_t stride;

  const T *row(int64_t j) const { return first + j * stride; }
  int64_t ld(int64_t) const { return stride; }
  bool together(int64_t, int64_t) const { return true; }
  Segment from(int64_t j) const { return {row(j), stride}; }
};

// The keys of an item in one head, or its values: rows of the prefix, then the item's own.
template <typename T>
struct KeyRows {
  Segment<T> prefix, own;
  int64_t split;  // the first own key: the number of the prefix's

  const T *row(int64_t j) const { return j < split ? prefix.row(j) : own.row(j - split); }
  int64_t ld(int64_t j) const { return j < split ? prefix.stride : own.stride; }
  // Whether `count` rows from j on lie in one segment.
  bool together(int64_t j, int64_t count) const { return j >= split || j + count <= split; }
  // The rows from j on: those of j's segment alone, or of both where j is a row of the prefix.
  Segment<T> segment(int64_t j) const { return {row(j), ld(j)}; }
  KeyRows both(int64_t j) const { return {{prefix.row(j), prefix.stride}, own, split - j}; }
};

// The panels of kᵀ that hold keys [seen.first, seen.last) of a block of `keys`; k is a Segment or
// KeyRows. A panel has kPanel keys, [D][width], as a packed weight; keys beyond the last read as 0.
template <typename Keys>
void pack_keys(const Keys &k, Range seen, int64_t keys, int64_t d, float *out) {
  for (int64_t n0 = seen.first / kPanel * kPanel; n0 < seen.last; n0 += kPanel) {
    const int64_t width = padded(lesser(keys - n0, kPanel));
    float *panel = out + n0 * d;
    for (int64_t n = n0; n < n0 + width; n += kLanes) {
      const bool whole = n + kLanes <= keys && k.together(n, kLanes);
      const auto *rows = k.row(n);
      const int64_t ld = k.ld(n);
      for (int64_t i = 0; i < d; i += kLanes) {
        float *to = panel + i * width + (n - n0);
        Vec block[kLanes];
        if (whole && i + kLanes <= d) {
#pragma GCC unroll 16
          for (int j = 0; j < kLanes; j++) block[j] = vload(rows + i + j * ld);
          vtranspose(block);
#pragma GCC unroll 16
          for (int j = 0; j < kLanes; j++) vstore(to + j * width, block[j]);
          continue;
        }
        for (int j = 0; j < kLanes; j++) block[j] = n + j < keys ? vload_row(k.row(n + j), i, d) : vset(0.0f);
        vtranspose(block);
        for (int j = 0; j < kLanes && i + j < d; j++) vstore(to + j * width, block[j]);
      }
    }
  }
}

// Values of keys [seen.first, seen.last). Returns whether all are finite, where Check asks.
template <bool Check, typename Keys>
bool pack_values(const Keys &v, Range seen, int64_t d, int64_t ldv, float *out) {
  uint32_t nans = 0;
  for (int64_t j = seen.first; j < seen.last; j++) {
    const auto *row = v.row(j);
    for (int64_t i = 0; i < d; i += kLanes) {
      const Vec x = vload_row(row, i, d);
      if (Check) nans |= nan_lanes(x - x);
      vstore(out + j * ldv + i, x);
    }
  }
  return nans == 0;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_KEY_ROWS_H
