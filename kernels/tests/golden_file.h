// golden_file.h — cases that other software computed (testdata/make_*.py), and how close a result
// must be.
#ifndef SIE_KERNELS_TESTS_GOLDEN_FILE_H
#define SIE_KERNELS_TESTS_GOLDEN_FILE_H

#include <map>
#include <set>

#include "harness.h"

namespace harness {

// One array of a case; rows and columns as written. One of the three holds it.
struct GoldenArray {
  int64_t rows, columns;
  Array<float> floats;
  Array<int32_t> integers;
  Array<uint8_t> bytes;
};

struct GoldenCase {
  std::string operation, name;
  std::map<std::string, double> numbers;
  std::map<std::string, GoldenArray> arrays;

  bool has(const char *key) const { return arrays.count(key) != 0; }
  double real(const char *key) const { return numbers.at(key); }
  int32_t integer(const char *key) const { return static_cast<int32_t>(numbers.at(key)); }
  const GoldenArray &array(const char *key) const { return arrays.at(key); }
  // NULL where the case has no such array.
  const float *floats(const char *key) const { return has(key) ? array(key).floats.data() : nullptr; }
  const int32_t *integers(const char *key) const { return has(key) ? array(key).integers.data() : nullptr; }
  // The array as rows of a float type; null where there is none.
  std::unique_ptr<Rows> rows(const char *key, int32_t dtype) const;
  // u8 or e4m3 rows from codes, scale and, for u8, zero.
  std::unique_ptr<Rows> quantised(const char *codes, int32_t dtype, int32_t group) const;
  std::vector<float> values(const char *key) const;
  Sequences sequences() const;  // of "lengths"
};

// Reads at least `least` cases. Ends the test where the file is malformed.
std::vector<GoldenCase> read_golden(const char *name, size_t least);

inline sie_tensor tensor_of(const std::unique_ptr<Rows> &rows) {
  return rows != nullptr ? rows->tensor() : sie_tensor{};
}

// Records which backends ran which operations.
class GoldenRuns {
 public:
  // Calls the entry; returns whether it ran. A table refuses what it lacks with SIE_UNSUPPORTED.
  template <typename Call>
  bool run(const GoldenCase &c, const sie_ops *ops, const sie_op_bounds &bounds, const Call &call) {
    Scratch scratch(ops, bounds);
    sie_share share = scratch.share(0, 1);
    sie_status status = call(&share);
    if (status == SIE_OK) status = memory.finish(share.on);
    return note(c, ops, status, scratch.intact());
  }
  // Every backend here must have run some case of each of the operations it has an entry for:
  // `entries` lists, in order, operation and present or not.
  void check(const sie_ops *ops, const std::map<std::string, bool> &entries) const;

 private:
  bool note(const GoldenCase &c, const sie_ops *ops, sie_status status, bool intact);
  std::set<std::string> ran_;  // "backend operation"
};

// The largest error relative to the largest |want|, the cosine and the norm of all elements
// together must all be within `tolerance` of perfect (the cosine within its square).
void check_near(const std::string &what, const Rows &got, const GoldenArray &want, double tolerance);

// Half a step of the type that stores a result, relative, and the loss of sums in f32.
double golden_tolerance(int32_t dtype);

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_GOLDEN_FILE_H
