// output_cases.cc — output_rows: every type, cut and normalised or not. NumPy's own bits: golden_test.cc.
#include <math.h>

#include "common/dtype.h"
#include "common/tol.h"
#include "harness.h"

namespace harness {

namespace {

enum Input { plain, outliers, equal_rows, zeros, denormals };
const char *const input_names[] = {"plain", "outliers", "equal", "zeros", "denormals"};

struct Config {
  int64_t b, c;
  int32_t dtype, dims;
  bool normalize;
  Input input;
  bool bench;
};

int64_t item_bytes(int32_t dtype, int64_t dims) {
  if (dtype == SIE_BINARY) return (dims + 7) / 8;
  return dims * (dtype == SIE_F32 ? 4 : (dtype == SIE_F16 ? 2 : 1));
}

class OutputCase : public Case {
 public:
  OutputCase(const Config &config, int seed) : c_(config) {
    form = text("output_rows %s%s", dtype_text(c_.dtype), c_.normalize ? " normalize" : "");
    shape = text("B=%lld C=%lld dims=%d input=%s", static_cast<long long>(c_.b), static_cast<long long>(c_.c),
                 c_.dims, input_names[c_.input]);
    units = c_.b;
    bench = c_.bench;
    dims_ = c_.dims != 0 ? c_.dims : c_.c;
    Random random(static_cast<uint32_t>(seed));
    int64_t gap = bench ? 0 : 1 + random.below(7);
    x_.reset(new Rows(c_.b, c_.c, SIE_F32, gap, random.below(9)));
    // A row of bytes for each item, so that bytes between the items are watched; 4-byte strides keep
    // alignment.
    int64_t bytes = item_bytes(c_.dtype, dims_);
    out_.reset(
        new Rows(c_.b, bytes, SIE_I8, 4 * (1 + random.below(3)) + (4 - bytes % 4) % 4, 4 * random.below(5)));
    expected_.reset(new Rows(c_.b, bytes, SIE_I8, (4 - bytes % 4) % 4, 0));
    for (int64_t r = 0; r < c_.b; r++) {
      for (int64_t i = 0; i < c_.c; i++) x_->set(r, i, value(&random, r));
    }
    outputs = {out_.get()};
  }

  bool present(const sie_ops *ops) const override { return ops->output_rows != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_OUTPUT_ROWS;
    b.rows = c_.b;
    b.c = c_.c;
    return b;
  }

  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    return call_into(ops, share, first, count, *out_);
  }
  void expect() override {
    Scratch scratch(sie_ref_ops(), bounds());
    sie_share share = scratch.share(0, 1);
    call_into(sie_ref_ops(), &share, 0, c_.b, *expected_);
  }

  // Without a norm the formula is exact. With one, its sum may be off by rounding: one step of a level, and a
  // rounding of a float.
  void verify(const char *backend) override {
    for (int64_t r = 0; r < c_.b; r++) {
      if (!c_.normalize || c_.dtype == SIE_BINARY) {
        CHECK(out_->bytes(r, r + 1) == expected_->bytes(r, r + 1), "%s %s %s: row %lld has other bits",
              backend, form.c_str(), shape.c_str(), static_cast<long long>(r));
        continue;
      }
      for (int64_t i = 0; i < dims_; i++) {
        double got = element(*out_, r, i), want = element(*expected_, r, i);
        double tolerance = 1.01;
        if (c_.dtype == SIE_F32) tolerance = 16 * SIE_TOL_U * fabs(want);
        if (c_.dtype == SIE_F16) tolerance = 2.1 * sie_tol_store(SIE_F16, want);
        CHECK(fabs(got - want) <= tolerance, "%s %s %s: [%lld,%lld] = %.9g, %.9g expected, ±%.2g", backend,
              form.c_str(), shape.c_str(), static_cast<long long>(r), static_cast<long long>(i), got, want,
              tolerance);
      }
    }
  }

  void poison(int64_t u) override { x_->poison(u); }
  double flops() const override { return 4.0 * static_cast<double>(c_.b * dims_); }
  double bytes() const override { return 4.0 * static_cast<double>(c_.b * dims_); }

 private:
  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count,
                       const Rows &out) {
    std::vector<sie_out_item> items;
    char *base = static_cast<char *>(out.at(0));
    for (int64_t r = first; r < first + count; r++) {
      items.push_back({c_.dtype, c_.dims, c_.normalize ? 1u : 0u, 0, static_cast<char *>(out.at(r)) - base});
    }
    int32_t seqs = static_cast<int32_t>(count);
    sie_output_rows_args a = {};
    a.seqs = {c_.b, &seqs};
    a.c = c_.c;
    a.x = x_->tensor(first);
    a.items = items.data();
    a.out = base;
    return ops->output_rows(&a, share);
  }

  float value(Random *random, int64_t r) const {
    switch (c_.input) {
      case outliers:
        return random->below(40) == 0 ? random->real() * 1e5f : random->real();
      case equal_rows:
        return 0.75f * static_cast<float>(r % 3 - 1);
      case zeros:
        return 0;
      case denormals:
        return random->real() * 1e-39f;
      default:
        return random->real();
    }
  }

  double element(const Rows &rows, int64_t r, int64_t i) const {
    switch (c_.dtype) {
      case SIE_F32:
        return static_cast<double>(static_cast<float *>(rows.at(r))[i]);
      case SIE_F16:
        return static_cast<double>(sie_f32_from_f16(static_cast<uint16_t *>(rows.at(r))[i]));
      case SIE_I8:
        return static_cast<int8_t *>(rows.at(r))[i];
      default:
        return static_cast<uint8_t *>(rows.at(r))[i];
    }
  }

  Config c_;
  int64_t dims_;
  std::unique_ptr<Rows> x_, out_, expected_;
};

}  // namespace

std::unique_ptr<Case> make_output(int index) {
  static const std::vector<Config> list = [] {
    std::vector<Config> all;
    const int64_t columns[] = {1, 7, 31, 32, 33, 64, 65, 130, 384, 513};
    for (int32_t dtype : {SIE_F32, SIE_F16, SIE_I8, SIE_U8, SIE_BINARY}) {
      for (bool normalize : {false, true}) {
        for (size_t i = 0; i < 10; i++) {
          int32_t cut = i % 2 == 0 ? 0 : static_cast<int32_t>((columns[i] + 1) / 2);
          all.push_back({static_cast<int64_t>(i % 4), columns[i], dtype, cut, normalize, plain, false});
          all.push_back({9, columns[i], dtype, static_cast<int32_t>(columns[i]), normalize, plain, false});
        }
        for (Input input : {outliers, equal_rows, zeros})
          all.push_back({12, 100, dtype, 0, normalize, input, false});
        if (!normalize) all.push_back({12, 100, dtype, 0, normalize, denormals, false});
        all.push_back({64, 384, dtype, 0, normalize, plain, true});
      }
    }
    return all;
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  return std::unique_ptr<Case>(new OutputCase(list[static_cast<size_t>(index)], 1600 + index));
}

}  // namespace harness
