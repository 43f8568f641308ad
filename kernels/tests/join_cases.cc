// join_cases.cc — join_columns: the columns of several tensors next to each other.
#include <math.h>

#include "tests/model_cases.h"
#include "tests/row_input.h"

namespace harness {

namespace {

struct JoinConfig {
  int64_t rows;
  std::vector<int64_t> c;
  std::vector<int32_t> dtypes;
  int32_t y_dtype;
  Input input;
  bool bench;
};

class JoinCase : public Case {
 public:
  JoinCase(const JoinConfig &config, Layout layout, int seed) : c_(config) {
    Random random(static_cast<uint32_t>(seed));
    form = "join_columns x=";
    shape = text("R=%lld C=", static_cast<long long>(c_.rows));
    int64_t columns = 0;
    for (size_t i = 0; i < c_.c.size(); i++) {
      if (c_.c[i] > 0) form += text("%s%s", i > 0 ? "+" : "", dtype_text(c_.dtypes[i]));
      shape += text("%s%lld", i > 0 ? "+" : "", static_cast<long long>(c_.c[i]));
      columns += c_.c[i];
      if (c_.c[i] == 0 || names_only) {
        x_.emplace_back();
        continue;
      }
      x_.emplace_back(new Rows(&random, operand(layout), c_.rows, c_.c[i], c_.dtypes[i]));
      fill(x_.back().get(), &random, c_.input);
    }
    form += text(" y=%s", dtype_text(c_.y_dtype));
    shape += text(" input=%s", input_names[c_.input]);
    units = c_.rows;
    bench = c_.bench;
    if (names_only) return;
    y_.reset(new Rows(&random, layout, c_.rows, columns, c_.y_dtype));
    want_.reset(new Rows(c_.rows, columns, c_.y_dtype));
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override { return ops->join_columns != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_JOIN_COLUMNS;
    b.rows = c_.rows;
    b.c = c_.c[0];
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    sie_join_columns_args a = {};
    a.rows = row_count(0, units - first, count);
    for (size_t i = 0; i < c_.c.size(); i++) {
      a.c[i] = c_.c[i];
      if (x_[i] != nullptr) a.x[i] = x_[i]->tensor(first);
    }
    a.y = y_->tensor(first);
    return ops->join_columns(&a, share);
  }
  void expect() override {
    for (int64_t r = 0; r < c_.rows; r++) {
      int64_t column = 0;
      for (const std::unique_ptr<Rows> &x : x_) {
        for (int64_t c = 0; x != nullptr && c < x->columns(); c++) {
          want_->set(r, column++, static_cast<float>(x->get(r, c)));
        }
      }
    }
  }
  void verify(const char *backend) override {
    for (int64_t r = 0; r < units; r++) {
      bool same = true;  // a NaN stays a NaN, of any bits
      for (int64_t c = 0; c < y_->columns(); c++) {
        const double got = y_->get(r, c), want = want_->get(r, c);
        same = same && (isnan(want) ? isnan(got) : got == want && signbit(got) == signbit(want));
      }
      CHECK(same, "%s %s %s: row %lld", backend, form.c_str(), shape.c_str(), static_cast<long long>(r));
    }
  }
  void poison(int64_t u) override {
    for (const std::unique_ptr<Rows> &x : x_) {
      if (x != nullptr) x->poison(u);
    }
  }
  double flops() const override {
    int64_t columns = 0;
    for (int64_t c : c_.c) columns += c;
    return static_cast<double>(c_.rows * columns);
  }
  double bytes() const override {
    double read = 0;
    for (size_t i = 0; i < c_.c.size(); i++)
      read += static_cast<double>(c_.c[i] * (c_.dtypes[i] == SIE_F32 ? 4 : 2));
    return static_cast<double>(c_.rows) * read + flops() * (c_.y_dtype == SIE_F32 ? 4 : 2);
  }

 private:
  JoinConfig c_;
  std::vector<std::unique_ptr<Rows>> x_;  // null: absent
  std::unique_ptr<Rows> y_, want_;
};

}  // namespace

std::unique_ptr<Case> make_join(int index) {
  static const std::vector<std::pair<JoinConfig, Layout>> list = [] {
    std::vector<JoinConfig> all;
    const int32_t f32 = SIE_F32, bf16 = SIE_BF16, f16 = SIE_F16;
    const struct {
      std::vector<int32_t> x;
      int32_t y;
    } types[] = {{{f32, f32, f32}, f32},   {{bf16, bf16, bf16}, bf16}, {{f16, f16, f16}, f16},
                 {{f32, bf16, f32}, bf16}, {{bf16, f32, bf16}, f32},   {{f32, f16, f32}, f16},
                 {{f16, bf16, f32}, bf16}};
    const int64_t rows[] = {0, 1, 7, 8, 9, 33, 65, 130}, columns[] = {1, 7, 8, 31, 33, 64, 384, 17};
    for (const auto &type : types) {
      for (size_t i = 0; i < 8; i++) {
        all.push_back({rows[i],
                       {columns[i], columns[(i + 3) % 8], columns[(i + 5) % 8]},
                       type.x,
                       type.y,
                       plain,
                       false});
        all.push_back(
            {rows[i], {columns[(i + 2) % 8], columns[(i + 7) % 8], 0}, type.x, type.y, plain, false});
      }
      all.push_back({5, {3080, 264, 520}, type.x, type.y, plain, false});
      all.push_back({3, {64, 0, 40}, type.x, type.y, plain, false});
      all.push_back({3, {40, 0, 0}, type.x, type.y, plain, false});
      for (Input input : {holes, denormals, ties})
        all.push_back({12, {33, 40, 8}, type.x, type.y, input, false});
    }
    for (int32_t dtype : {f32, bf16})
      all.push_back({512, {384, 384, 0}, {dtype, dtype, dtype}, dtype, plain, true});
    return in_layouts(all, true);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<JoinCase>(config, layout, 4300 + index);
}

std::unique_ptr<Case> model_join(const ModelShape &m, const Lengths &lengths) {
  const JoinConfig two = {
      tokens_of(lengths), {m.width, m.width, 0}, {SIE_BF16, SIE_BF16, SIE_BF16}, SIE_BF16, plain, true};
  return in_layout<JoinCase>(two, dense, 1);
}

}  // namespace harness
