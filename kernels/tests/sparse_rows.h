// sparse_rows.h — sparse output rows (sie_output_sparse_args): each item's bytes, guarded, and
// their comparison.
#ifndef SIE_KERNELS_TESTS_SPARSE_ROWS_H
#define SIE_KERNELS_TESTS_SPARSE_ROWS_H

#include "harness.h"

namespace harness {

struct SparseEntry {
  int64_t column;
  double value;
};

class SparseRows {
 public:
  // `room`: columns of an item; dtype of the values.
  SparseRows(Random *random, int64_t rows, int32_t room, int32_t dtype);
  // Items of rows [first, first + count), relative to base(). Valid until the next call.
  const sie_out_item *items(int64_t first, int64_t count);
  void *base() const { return rows_.at(0); }
  Rows *rows() { return &rows_; }
  int32_t count(int64_t r) const;
  SparseEntry entry(int64_t r, int64_t i) const;

  // Checks that row r is `want`, as far as there is room, and that nothing behind it was written.
  // Values must be within `relative`, `absolute` and the rounding of their type.
  void verify(const char *what, int64_t r, const std::vector<SparseEntry> &want, double relative,
              double absolute = 0) const;

 private:
  const uint8_t *value_at(int64_t r, int64_t i) const;

  int32_t room_, dtype_;
  int64_t element_;
  Rows rows_;
  Array<sie_out_item> items_;
};

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_SPARSE_ROWS_H
