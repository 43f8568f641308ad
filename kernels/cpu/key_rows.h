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

// The keys of an item in one head, or its values: rows of the prefix, then the item's own.
template <typename T>
struct KeyRows {
  const T *prefix, *own;
  int64_t prefix_ld, own_ld;
  int64_t split;  // the first own key: the number of the prefix's

  const T *row(int64_t j) const { return j < split ? prefix + j * prefix_ld : own + (j - split) * own_ld; }
  int64_t ld(int64_t j) const { return j < split ? prefix_ld : own_ld; }
  // Whether `count` rows from j on lie in one segment, ld(j) apart.
  bool together(int64_t j, int64_t count) const { return j >= split || j + count <= split; }
};

// The panels of kᵀ that hold keys [seen.first, seen.last) of the block of `keys` keys from key
// `first` of the item on. A panel has kPanel keys, [D][width], as a packed weight; keys beyond the
// last read as 0.
template <typename T>
void pack_keys(const KeyRows<T> &k, int64_t first, Range seen, int64_t keys, int64_t d, float *out) {
  for (int64_t n0 = seen.first / kPanel * kPanel; n0 < seen.last; n0 += kPanel) {
    const int64_t width = padded(lesser(keys - n0, kPanel));
    float *panel = out + n0 * d;
    for (int64_t n = n0; n < n0 + width; n += kLanes) {
      const bool whole = n + kLanes <= keys && k.together(first + n, kLanes);
      const T *rows = k.row(first + n);
      const int64_t ld = k.ld(first + n);
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
        for (int j = 0; j < kLanes; j++)
          block[j] = n + j < keys ? vload_row(k.row(first + n + j), i, d) : vset(0.0f);
        vtranspose(block);
        for (int j = 0; j < kLanes && i + j < d; j++) vstore(to + j * width, block[j]);
      }
    }
  }
}

// Values of keys [seen.first, seen.last) of the block from key `first` of the item on. Returns
// whether all are finite, where Check asks.
template <bool Check, typename T>
bool pack_values(const KeyRows<T> &v, int64_t first, Range seen, int64_t d, int64_t ldv, float *out) {
  uint32_t nans = 0;
  for (int64_t j = seen.first, end; j < seen.last; j = end) {  // a segment at a time
    const T *row = v.row(first + j);
    const int64_t ld = v.ld(first + j);
    end = first + j < v.split ? lesser(v.split - first, seen.last) : seen.last;
    for (int64_t n = j; n < end; n++, row += ld) {
      for (int64_t i = 0; i < d; i += kLanes) {
        const Vec x = vload_row(row, i, d);
        if (Check) nans |= nan_lanes(x - x);
        vstore(out + n * ldv + i, x);
      }
    }
  }
  return nans == 0;
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_KEY_ROWS_H
