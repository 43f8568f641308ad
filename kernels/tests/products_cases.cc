// products_cases.cc — product and dots: two values' rows, element by element and as inner products.
#include <math.h>

#include "common/tol.h"
#include "tests/model_cases.h"
#include "tests/row_input.h"

namespace harness {

namespace {

struct PairConfig {
  int64_t rows, c;
  int32_t a, b, y;  // types; y of product
  bool dots;
  Input input;
  bool bench;
};

class PairCase : public Case {
 public:
  PairCase(const PairConfig &config, Layout layout, int seed) : c_(config) {
    form = text("%s x=%s*%s y=%s", c_.dots ? "dots" : "product", dtype_text(c_.a), dtype_text(c_.b),
                dtype_text(c_.y));
    shape = text("R=%lld C=%lld input=%s", static_cast<long long>(c_.rows), static_cast<long long>(c_.c),
                 input_names[c_.input]);
    units = c_.rows;
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    a_.reset(new Rows(&random, operand(layout), c_.rows, c_.c, c_.a));
    b_.reset(new Rows(&random, layout, c_.rows, c_.c, c_.b));
    y_.reset(new Rows(&random, layout, c_.rows, c_.dots ? 1 : c_.c, c_.y));
    fill(a_.get(), &random, c_.input);
    fill(b_.get(), &random, plain);
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override {
    return c_.dots ? ops->dots != nullptr : ops->product != nullptr;
  }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = c_.dots ? SIE_OP_DOTS : SIE_OP_PRODUCT;
    b.rows = c_.rows;
    b.c = c_.c;
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    const sie_rows rows = row_count(0, units - first, count);
    if (c_.dots) {
      sie_dots_args d = {rows, c_.c, a_->tensor(first), b_->tensor(first), y_->tensor(first)};
      return ops->dots(&d, share);
    }
    sie_product_args p = {rows, c_.c, a_->tensor(first), b_->tensor(first), y_->tensor(first)};
    return ops->product(&p, share);
  }
  void expect() override {}
  void verify(const char *backend) override {
    for (int64_t r = 0; r < units; r++) {
      double sum = 0, of_a = 0, of_b = 0;
      for (int64_t c = 0; c < c_.c; c++) {
        const double a = a_->get(r, c), b = b_->get(r, c);
        sum += a * b;
        of_a += a * a;
        of_b += b * b;
        if (!c_.dots) check(backend, r, c, a * b, step() * fabs(a * b));
      }
      const double tolerance = sie_tol_dot(c_.c, sqrt(of_a), sqrt(of_b)) + 0x1p-24 * fabs(sum);
      if (c_.dots) check(backend, r, 0, sum, tolerance);
    }
  }
  void poison(int64_t u) override { (u % 2 == 0 ? a_ : b_)->poison(u); }
  double flops() const override { return static_cast<double>(c_.rows * c_.c) * (c_.dots ? 2 : 1); }
  double bytes() const override {
    return static_cast<double>(c_.rows * c_.c) * ((c_.a == SIE_F32 ? 4 : 2) + (c_.b == SIE_F32 ? 4 : 2));
  }

 private:
  // Two roundings: to f32, and to y's type.
  double step() const { return 0x1p-24 + (c_.y == SIE_F32 ? 0 : (c_.y == SIE_BF16 ? 0x1p-8 : 0x1p-11)); }
  // 2e-45 and 6e-8: the least steps of f32 and of f16.
  void check(const char *backend, int64_t r, int64_t c, double want, double tolerance) {
    const double got = y_->get(r, c);
    tolerance +=
        static_cast<double>(c_.c) * 2e-45 + (c_.y == SIE_F16 ? 6e-8 : 0) + (c_.y == SIE_BF16 ? 1e-40 : 0);
    const bool fine = isnan(want) ? isnan(got) : fabs(got - want) <= tolerance;
    CHECK(fine, "%s %s %s: y[%lld, %lld] = %.9g, %.9g expected, ±%.2g", backend, form.c_str(), shape.c_str(),
          static_cast<long long>(r), static_cast<long long>(c), got, want, tolerance);
  }

  PairConfig c_;
  std::unique_ptr<Rows> a_, b_, y_;
};

std::vector<PairConfig> configs(bool dots) {
  std::vector<PairConfig> all;
  const int32_t f32 = SIE_F32, bf16 = SIE_BF16, f16 = SIE_F16;
  const int32_t types[][3] = {{f32, f32, f32},   {bf16, bf16, bf16}, {f16, f16, f16},
                              {f32, bf16, bf16}, {bf16, f32, f32},   {f16, f32, f32}};
  const int64_t rows[] = {0, 1, 7, 8, 9, 33, 65, 130}, columns[] = {1, 7, 8, 31, 33, 64, 384, 17};
  for (const auto &type : types) {
    const int32_t y = dots ? f32 : type[2];
    for (size_t i = 0; i < 8; i++) {
      all.push_back({rows[i], columns[i], type[0], type[1], y, dots, plain, false});
      all.push_back({rows[i], columns[(i + 3) % 8], type[0], type[1], y, dots, plain, false});
    }
    all.push_back({5, 3080, type[0], type[1], y, dots, plain, false});
    for (Input input : {denormals, outliers})
      all.push_back({12, 33, type[0], type[1], y, dots, input, false});
    if (type[0] != f16 && type[0] == type[1])
      all.push_back({512, 768, type[0], type[1], y, dots, plain, true});
  }
  return all;
}

std::unique_ptr<Case> at(const std::vector<std::pair<PairConfig, Layout>> &list, int index, int seed) {
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<PairCase>(config, layout, seed + index);
}

}  // namespace

std::unique_ptr<Case> make_product(int index) {
  static const std::vector<std::pair<PairConfig, Layout>> list = in_layouts(configs(false), true);
  return at(list, index, 4600);
}

std::unique_ptr<Case> make_dots(int index) {
  static const std::vector<std::pair<PairConfig, Layout>> list = in_layouts(configs(true), true);
  return at(list, index, 4700);
}

std::unique_ptr<Case> model_product(const ModelShape &m, const Lengths &lengths) {
  const PairConfig words = {tokens_of(lengths), word_columns(m), SIE_BF16, SIE_BF16,
                            SIE_BF16,           false,           plain,    true};
  return in_layout<PairCase>(words, dense, 1);
}

std::unique_ptr<Case> model_dots(const ModelShape &m, const Lengths &lengths) {
  const PairConfig words = {
      tokens_of(lengths), word_columns(m), SIE_BF16, SIE_BF16, SIE_F32, true, plain, true};
  return in_layout<PairCase>(words, dense, 1);
}

}  // namespace harness
