// sparse_rows.cc — items, entries and the comparison of sparse output rows.
#include "tests/sparse_rows.h"

#include <math.h>
#include <string.h>

#include "common/dtype.h"
#include "common/tol.h"

namespace harness {

namespace {

constexpr int64_t header_bytes = 16;

int64_t value_bytes(int32_t dtype) { return dtype == SIE_F16 ? 2 : 4; }
// To whole 16 bytes: items start at multiples of them.
int64_t item_bytes(int32_t room, int32_t dtype) {
  return (header_bytes + room * (4 + value_bytes(dtype)) + 15) / 16 * 16;
}

}  // namespace

SparseRows::SparseRows(Random *random, int64_t rows, int32_t room, int32_t dtype)
    : room_(room),
      dtype_(dtype),
      element_(value_bytes(dtype)),
      rows_(random, random != nullptr ? aligned : dense, rows, item_bytes(room, dtype), SIE_I8) {}

const sie_out_item *SparseRows::items(int64_t first, int64_t count) {
  if (items_.size() != static_cast<size_t>(count)) items_.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; i++) {
    const sie_out_item item = {dtype_, room_, 0, 0,
                               static_cast<uint8_t *>(rows_.at(first + i)) - static_cast<uint8_t *>(base())};
    write_changed(&items_[static_cast<size_t>(i)], item);
  }
  return items_.data();
}

int32_t SparseRows::count(int64_t r) const { return *static_cast<const int32_t *>(rows_.at(r)); }

const uint8_t *SparseRows::value_at(int64_t r, int64_t i) const {
  return static_cast<const uint8_t *>(rows_.at(r)) + header_bytes + 4 * room_ + i * element_;
}

SparseEntry SparseRows::entry(int64_t r, int64_t i) const {
  const int32_t column = static_cast<const int32_t *>(rows_.at(r))[4 + i];
  if (dtype_ == SIE_F16) {
    uint16_t half;
    memcpy(&half, value_at(r, i), sizeof half);
    return {column, static_cast<double>(sie_f32_from_f16(half))};
  }
  float value;
  memcpy(&value, value_at(r, i), sizeof value);
  return {column, static_cast<double>(value)};
}

void SparseRows::verify(const char *what, int64_t r, const std::vector<SparseEntry> &want, double relative,
                        double absolute) const {
  const int32_t *header = static_cast<const int32_t *>(rows_.at(r));
  CHECK(header[0] == static_cast<int32_t>(want.size()), "%s: row %lld has %d columns, %zu expected", what,
        static_cast<long long>(r), header[0], want.size());
  CHECK(header[1] == 0 && header[2] == 0 && header[3] == 0, "%s: row %lld: words behind the count", what,
        static_cast<long long>(r));
  const int64_t written =
      want.size() < static_cast<size_t>(room_) ? static_cast<int64_t>(want.size()) : room_;
  for (int64_t i = 0; i < written; i++) {
    const SparseEntry got = entry(r, i), &expected = want[static_cast<size_t>(i)];
    const double tolerance =
        relative * fabs(expected.value) + absolute + 2.1 * sie_tol_store(dtype_, expected.value);
    CHECK(got.column == expected.column &&
              (got.value == expected.value || fabs(got.value - expected.value) <= tolerance),
          "%s: row %lld entry %lld is column %lld, %.9g; expected %lld, %.9g ±%.2g", what,
          static_cast<long long>(r), static_cast<long long>(i), static_cast<long long>(got.column), got.value,
          static_cast<long long>(expected.column), expected.value, tolerance);
  }
  for (int64_t i = written; i < room_; i++) {
    bool untouched = header[4 + i] == -1;
    for (int64_t byte = 0; byte < element_; byte++) untouched = untouched && value_at(r, i)[byte] == 0xff;
    CHECK(untouched, "%s: row %lld: wrote entry %lld, which it does not have", what,
          static_cast<long long>(r), static_cast<long long>(i));
  }
}

}  // namespace harness
