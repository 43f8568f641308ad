// golden_file.cc — reading golden files (testdata/golden_file.py writes them), and comparing.
#include "tests/golden_file.h"

#include <math.h>

#include "common/dtype.h"

namespace harness {

namespace {

constexpr int32_t integers_code = 100;  // beside the sie_dtypes

// What is left of a file.
class Reader {
 public:
  explicit Reader(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}
  bool whole() const { return whole_ && at_ == bytes_.size(); }

  void take(void *to, size_t bytes) {
    whole_ = whole_ && bytes <= bytes_.size() - at_;
    if (!whole_) return;
    memcpy(to, bytes_.data() + at_, bytes);
    at_ += bytes;
  }
  int32_t integer() {
    int32_t n = 0;
    take(&n, sizeof n);
    whole_ = whole_ && n >= 0;
    return whole_ ? n : 0;
  }
  std::string string() {
    std::string s(checked(static_cast<size_t>(integer()), 1), ' ');
    take(&s[0], s.size());
    return s;
  }
  // count, or 0 where the file is not that long.
  size_t checked(size_t count, size_t each) {
    whole_ = whole_ && count * each <= bytes_.size() - at_;
    return whole_ ? count : 0;
  }

 private:
  std::vector<uint8_t> bytes_;
  size_t at_ = 0;
  bool whole_ = true;
};

GoldenArray read_array(Reader *file) {
  GoldenArray array = {};
  const int32_t dtype = file->integer();
  array.rows = file->integer();
  array.columns = file->integer();
  const size_t count = static_cast<size_t>(array.rows * array.columns);
  if (dtype == integers_code) {
    array.integers.resize(file->checked(count, sizeof(int32_t)));
    file->take(array.integers.data(), array.integers.size() * sizeof(int32_t));
  } else if (dtype == SIE_U8) {
    array.bytes.resize(file->checked(count, 1));
    file->take(array.bytes.data(), array.bytes.size());
  } else if (dtype == SIE_BF16) {
    std::vector<uint16_t> bits(file->checked(count, sizeof(uint16_t)));
    file->take(bits.data(), bits.size() * sizeof(uint16_t));
    for (uint16_t b : bits) array.floats.push_back(sie_f32_from_bf16(b));
  } else {
    array.floats.resize(file->checked(count, sizeof(float)));
    file->take(array.floats.data(), array.floats.size() * sizeof(float));
  }
  return array;
}

std::vector<uint8_t> read_file(const std::string &path) {
  std::vector<uint8_t> bytes;
  FILE *file = fopen(path.c_str(), "rb");
  if (file == nullptr) return bytes;
  uint8_t block[4096];
  for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) bytes.insert(bytes.end(), block, block + n);
  fclose(file);
  return bytes;
}

}  // namespace

std::vector<GoldenCase> read_golden(const char *name, size_t least) {
  Reader file(read_file(std::string(SIE_TESTDATA "/") + name));
  std::vector<GoldenCase> cases(file.checked(static_cast<size_t>(file.integer()), 16));
  for (GoldenCase &c : cases) {
    c.operation = file.string();
    c.name = file.string();
    for (int32_t n = file.integer(); n > 0; n--) {
      const std::string key = file.string();
      file.take(&c.numbers[key], sizeof(double));
    }
    for (int32_t n = file.integer(); n > 0; n--) {
      const std::string key = file.string();
      c.arrays[key] = read_array(&file);
    }
  }
  CHECK(file.whole() && cases.size() >= least, "%s: %zu cases, or not as long as it says", name,
        cases.size());
  if (!file.whole()) cases.clear();
  return cases;
}

std::unique_ptr<Rows> GoldenCase::rows(const char *key, int32_t dtype) const {
  if (!has(key)) return nullptr;
  const GoldenArray &from = array(key);
  std::unique_ptr<Rows> to(new Rows(from.rows, from.columns, dtype));
  for (int64_t i = 0; i < from.rows * from.columns; i++)
    to->set(i / from.columns, i % from.columns, from.floats[static_cast<size_t>(i)]);
  return to;
}

std::unique_ptr<Rows> GoldenCase::quantised(const char *codes, int32_t dtype, int32_t group) const {
  const GoldenArray &from = array(codes), &scale = array("scale");
  std::unique_ptr<Rows> to(new Rows(from.rows, from.columns, dtype, {false, group}));
  const sie_tensor tensor = to->tensor();
  for (int64_t r = 0; r < from.rows; r++) {
    memcpy(to->at(r), from.bytes.data() + r * from.columns, static_cast<size_t>(from.columns));
    if (dtype == SIE_U8) tensor.zero[r] = array("zero").integers[static_cast<size_t>(r)];
  }
  for (size_t i = 0; i < scale.floats.size(); i++) tensor.scale[i] = scale.floats[i];
  return to;
}

std::vector<float> GoldenCase::values(const char *key) const {
  return std::vector<float>(array(key).floats.begin(), array(key).floats.end());
}

Sequences GoldenCase::sequences() const {
  const GoldenArray &lengths = array("lengths");
  return Sequences(std::vector<int32_t>(lengths.integers.begin(), lengths.integers.end()));
}

bool GoldenRuns::note(const GoldenCase &c, const sie_ops *ops, sie_status status, bool intact) {
  CHECK(status == SIE_OK || status == SIE_UNSUPPORTED, "%s: %s %s: status %d", ops->name, c.operation.c_str(),
        c.name.c_str(), status);
  CHECK(intact, "%s: %s %s: wrote behind its scratch", ops->name, c.operation.c_str(), c.name.c_str());
  if (status == SIE_OK) ran_.insert(std::string(ops->name) + " " + c.operation);
  return status == SIE_OK;
}

void GoldenRuns::check(const sie_ops *ops, const std::map<std::string, bool> &entries) const {
  for (const auto &entry : entries) {
    const bool ran = ran_.count(std::string(ops->name) + " " + entry.first) != 0;
    CHECK(ran || !entry.second, "%s ran no golden case of %s", ops->name, entry.first.c_str());
  }
}

void check_near(const std::string &what, const Rows &got, const GoldenArray &want, double tolerance) {
  double error = 0, largest = 0, product = 0, got_squares = 0, want_squares = 0;
  for (int64_t i = 0; i < want.rows * want.columns; i++) {
    const double x = got.get(i / want.columns, i % want.columns);
    const double y = static_cast<double>(want.floats[static_cast<size_t>(i)]);
    if (!(fabs(x - y) <= error)) error = fabs(x - y);  // a NaN stays
    largest = fmax(largest, fabs(y));
    product += x * y;
    got_squares += x * x;
    want_squares += y * y;
  }
  const double cosine = product / sqrt(got_squares * want_squares), norm = sqrt(got_squares / want_squares);
  CHECK(error <= tolerance * largest, "%s: off by %.3g, largest %.3g, %.2g allowed", what.c_str(), error,
        largest, tolerance * largest);
  CHECK(1 - cosine <= tolerance * tolerance + 1e-12, "%s: cosine 1 − %.3g", what.c_str(), 1 - cosine);
  CHECK(fabs(norm - 1) <= tolerance, "%s: norm is off by a factor of %.9g", what.c_str(), norm);
}

double golden_tolerance(int32_t dtype) {
  if (dtype == SIE_BF16) return 0.00390625 * 1.05;
  return dtype == SIE_F16 ? 0.00048828125 * 1.05 : 4e-6;
}

}  // namespace harness
