// out_rows.h — rows of an output: each item's bytes, guarded, and their comparison.
#ifndef SIE_KERNELS_TESTS_OUT_ROWS_H
#define SIE_KERNELS_TESTS_OUT_ROWS_H

#include "harness.h"

namespace harness {

// The type and size that one output's items share.
struct OutType {
  int32_t dtype, dims;  // dims 0: all
  bool normalize;
};
std::string out_type_text(const OutType &type);

class OutRows {
 public:
  // `columns` of the values before the cut.
  OutRows(Random *random, int64_t rows, int64_t columns, const OutType &type);
  // Items of rows [first, first + count), relative to base(). Valid until the next call.
  const sie_out_item *items(int64_t first, int64_t count);
  void *base() const { return rows_.at(0); }
  Rows *rows() { return &rows_; }
  int64_t dims() const { return dims_; }
  double element(int64_t r, int64_t i) const;

  // Compares row r with `want`, the same row from the reference. exact: to the bit. Else values may
  // be off by `tolerance`, levels by one, and bits where |value| is within it; values: want's
  // before the conversion, or NULL for types other than SIE_BINARY.
  void verify(const char *what, int64_t r, const OutRows &want, bool exact, double tolerance,
              const float *values) const;

 private:
  OutType type_;
  int64_t dims_;
  Rows rows_;
  Array<sie_out_item> items_;
};

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_OUT_ROWS_H
