// harness.h — guarded rows, operation cases, and the checks every case goes through on every backend.
//
// A case is one operation with one shape and one choice of types. It knows how to call a table's entry for a
// range of units (rows or sequences), what its outputs are, and how far they may be from the reference. The
// harness does the rest (harness.cc): the comparison, intact sentinels, every split into shares, each unit
// alone against all units together, and a poisoned unit that must not reach its neighbours. The same list is
// timed with --bench and listed with --support.
#ifndef SIE_KERNELS_TESTS_HARNESS_H
#define SIE_KERNELS_TESTS_HARNESS_H

#include <stdint.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "ops.h"
#include "tests/check.h"

namespace harness {

// Numbers in −1 … 1, the same on every machine.
class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed * 2654435761u + 1) {}
  uint32_t next() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }
  int32_t below(int32_t n) { return static_cast<int32_t>(next() % static_cast<uint32_t>(n)); }
  float real() { return static_cast<float>(next()) * (2.0f / 16777216.0f) - 1.0f; }

 private:
  uint32_t state_;
};

// Rows in memory of their own. Every byte that is no element is 0xff, which is NaN in every float type:
// before the first row, between the rows, and (without AddressSanitizer, which sees such accesses itself)
// behind the last. Quantised rows (SIE_U8) have a scale and a zero point each, and if asked an outlier,
// guarded likewise.
class Rows {
 public:
  // Row r starts `shift` elements off a 64-byte boundary plus r·(columns + gap).
  Rows(int64_t rows, int64_t columns, int32_t dtype, int64_t gap, int64_t shift, bool outliers = false);
  Rows(const Rows &) = delete;
  Rows &operator=(const Rows &) = delete;
  ~Rows();

  // The tensor from `first` on.
  sie_tensor tensor(int64_t first = 0) const;
  void set(int64_t r, int64_t c, float x);  // float types
  // The value; a quantised one through its row's scale, zero point and outlier.
  double get(int64_t r, int64_t c) const;
  void *at(int64_t r) const;
  float scale(int64_t r) const { return scale_[guard_elements + r]; }
  int32_t zero(int64_t r) const { return zero_[guard_elements + r]; }
  // Column of the outlier, or -1.
  int64_t outlier(int64_t r) const { return outlier_.empty() ? -1 : outlier_[guard_elements + r].column; }

  // Everything back to 0xff.
  void clear();
  // All elements NaN (or the scale, when quantised).
  void poison(int64_t r);
  bool guards_intact() const;
  // The bytes of rows [first, last), with scales and zero points.
  std::vector<uint8_t> bytes(int64_t first, int64_t last) const;
  bool untouched(int64_t first, int64_t last) const;

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int32_t dtype() const { return dtype_; }

 private:
  static constexpr int64_t guard_elements = 16;

  int64_t rows_, columns_, ld_, element_, front_, size_;
  int32_t dtype_;
  uint8_t *memory_;
  std::vector<float> scale_;
  std::vector<int32_t> zero_;
  std::vector<sie_outlier> outlier_;  // empty: none
};

// A weight packed by each table that is asked for it.
class Weight {
 public:
  Weight(uint32_t compute, int64_t n, int64_t k, std::vector<float> values);
  Weight(const Weight &) = delete;
  Weight &operator=(const Weight &) = delete;
  ~Weight();
  const sie_packed *packed(const sie_ops *ops);
  double norm(int64_t n) const;  // of row n, as the class keeps it

 private:
  struct Form {
    const sie_ops *ops;
    void *memory;
    sie_packed packed;
  };
  uint32_t compute_;
  int64_t n_, k_;
  std::vector<float> values_;
  std::vector<std::unique_ptr<Form>> forms_;
};

class Case {
 public:
  virtual ~Case() = default;

  std::string form;   // operation and types: a line of the support table
  std::string shape;  // sizes
  int64_t units = 0;  // rows or sequences that may be computed alone
  bool bench = false;
  bool alone_is_same = true;  // units may be called by themselves

  // Calls the entry for units [first, first + count), writing their outputs in place.
  virtual sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) = 0;
  virtual sie_op_bounds bounds() const = 0;
  virtual bool present(const sie_ops *ops) const = 0;
  // Output rows that belong to unit u: [first, last).
  virtual void rows_of(int64_t u, int64_t *first, int64_t *last) const {
    *first = u;
    *last = u + 1;
  }
  // Fills what verify compares with; the reference is at hand.
  virtual void expect() = 0;
  virtual void verify(const char *backend) = 0;
  // Makes the inputs of unit u NaN. The case is not used for values after that.
  virtual void poison(int64_t u) = 0;
  virtual double flops() const { return 0; }
  virtual double bytes() const { return 0; }

  std::vector<Rows *> outputs;
};

using CaseList = std::vector<std::unique_ptr<Case>>;

// The list, by operation. A case is built when its turn comes: all at once would not fit.
using Make = std::unique_ptr<Case> (*)(int index);
struct Group {
  const char *name;
  Make make;  // null when the index is past the end
};
const std::vector<Group> &groups();

std::unique_ptr<Case> make_embed(int index);
std::unique_ptr<Case> make_layernorm(int index);
std::unique_ptr<Case> make_linear(int index);
std::unique_ptr<Case> make_quantise(int index);
std::unique_ptr<Case> make_attention(int index);
std::unique_ptr<Case> make_gather(int index);
std::unique_ptr<Case> make_pool(int index);
std::unique_ptr<Case> make_output(int index);

// ref, and every CPU table of this build that the machine can run.
const std::vector<const sie_ops *> &backends();

// Scratch of the bound the table states, no byte more.
class Scratch {
 public:
  Scratch(const sie_ops *ops, const sie_op_bounds &bounds);
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  ~Scratch() { free(memory_); }
  sie_share share(int32_t part, int32_t parts);
  bool intact() const;

 private:
  uint8_t *memory_;
  int64_t bytes_;
};

void run_group(const Group &group);
void bench_all(const char *filter);
int list_support(FILE *out);

[[gnu::format(printf, 1, 2)]] std::string text(const char *format, ...);
const char *dtype_text(int32_t dtype);

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_HARNESS_H
