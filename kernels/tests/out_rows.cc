// out_rows.cc — items, elements and the comparison of outputs.
#include "tests/out_rows.h"

#include <math.h>

#include "common/dtype.h"
#include "common/tol.h"

namespace harness {

namespace {

int64_t item_bytes(int32_t dtype, int64_t dims) {
  if (dtype == SIE_BINARY) return (dims + 7) / 8;
  return dims * (dtype == SIE_F32 ? 4 : (dtype == SIE_F16 ? 2 : 1));
}

int64_t dims_of(int64_t columns, const OutType &type) { return type.dims != 0 ? type.dims : columns; }

}  // namespace

std::string out_type_text(const OutType &type) {
  return text("%s%s", dtype_text(type.dtype), type.normalize ? " normalize" : "");
}

// A row of bytes for each item, so that bytes between the items are watched, and a quarter of a
// line more, which keeps every element aligned.
OutRows::OutRows(Random *random, int64_t rows, int64_t columns, const OutType &type)
    : type_(type),
      dims_(dims_of(columns, type)),
      rows_(random, random != nullptr ? aligned : dense, rows, item_bytes(type.dtype, dims_), SIE_I8,
            {false, -1}, random != nullptr ? 4 : (4 - item_bytes(type.dtype, dims_) % 4) % 4) {}

const sie_out_item *OutRows::items(int64_t first, int64_t count) {
  if (items_.size() != static_cast<size_t>(count)) items_.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; i++) {
    const sie_out_item item = {type_.dtype, type_.dims, type_.normalize ? 1u : 0u, 0,
                               static_cast<char *>(rows_.at(first + i)) - static_cast<char *>(base())};
    write_changed(&items_[static_cast<size_t>(i)], item);
  }
  return items_.data();
}

double OutRows::element(int64_t r, int64_t i) const {
  switch (type_.dtype) {
    case SIE_F32:
      return static_cast<double>(static_cast<float *>(rows_.at(r))[i]);
    case SIE_F16:
      return static_cast<double>(sie_f32_from_f16(static_cast<uint16_t *>(rows_.at(r))[i]));
    case SIE_I8:
      return static_cast<int8_t *>(rows_.at(r))[i];
    case SIE_BINARY:
      return static_cast<uint8_t *>(rows_.at(r))[i / 8] >> (7 - i % 8) & 1;
    default:
      return static_cast<uint8_t *>(rows_.at(r))[i];
  }
}

void OutRows::verify(const char *what, int64_t r, const OutRows &want, bool exact, double tolerance,
                     const float *values) const {
  if (exact) {
    CHECK(rows_.bytes(r, r + 1) == want.rows_.bytes(r, r + 1), "%s: row %lld has other bits", what,
          static_cast<long long>(r));
    return;
  }
  for (int64_t i = 0; i < dims_; i++) {
    double got = element(r, i), expected = want.element(r, i), t = 1.01;
    if (type_.dtype == SIE_F32) t = tolerance + 16 * SIE_TOL_U * fabs(expected);
    if (type_.dtype == SIE_F16) t = tolerance + 2.1 * sie_tol_store(SIE_F16, expected);
    if (type_.dtype == SIE_BINARY) t = fabs(static_cast<double>(values[i])) <= tolerance ? 1 : 0;
    CHECK(fabs(got - expected) <= t, "%s: [%lld,%lld] = %.9g, %.9g expected, ±%.2g", what,
          static_cast<long long>(r), static_cast<long long>(i), got, expected, t);
  }
  // After the last bit of a binary row all bits are zero.
  if (type_.dtype == SIE_BINARY && dims_ % 8 != 0) {
    int last = static_cast<uint8_t *>(rows_.at(r))[dims_ / 8];
    CHECK((last & (0xff >> (dims_ % 8))) == 0, "%s: row %lld has bits behind its last column", what,
          static_cast<long long>(r));
  }
}

}  // namespace harness
