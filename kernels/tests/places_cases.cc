// places_cases.cc — take_rows: rows of words, markers and spans, by their places in each sequence.
#include <math.h>

#include "tests/model_cases.h"
#include "tests/row_input.h"

namespace harness {

namespace {

struct TakeConfig {
  std::vector<int32_t> lengths, taken;  // rows of x and of y of each sequence
  int64_t c;
  int32_t dtype;
  int32_t which;   // 0: x has one row a sequence
  int32_t widest;  // rows of a range
  Input input;
  bool bench;
};

class TakeCase : public Case {
 public:
  TakeCase(const TakeConfig &config, Layout layout, int seed)
      : c_(config), x_of_(config.lengths), y_of_(config.taken) {
    form = text("take_rows%s%s x=%s", c_.which != 0 ? " " : " sequence", pooling_text(c_.which),
                dtype_text(c_.dtype));
    units = y_of_.count();
    bench = c_.bench;
    shape = text("B=%lld R=%lld of %lld C=%lld widest=%d input=%s", static_cast<long long>(units),
                 static_cast<long long>(y_of_.tokens()), static_cast<long long>(x_of_.tokens()),
                 static_cast<long long>(c_.c), c_.widest, input_names[c_.input]);
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    for (int64_t b = 0; b < units; b++) {
      for (int64_t r = 0; r < y_of_.length(b); r++) {
        const int32_t length = static_cast<int32_t>(x_of_.length(b));
        const int32_t at = c_.which != 0 ? random.below(length) : 0, end = at + random.below(c_.widest);
        const bool nothing = c_.which != 0 && random.below(8) == 0;
        first_.push_back(nothing ? -1 : at);
        last_.push_back(nothing ? -1 : (end < length ? end : length - 1));
      }
    }
    const int64_t rows = c_.which != 0 ? x_of_.tokens() : units;
    x_.reset(new Rows(&random, operand(layout), rows, c_.c, c_.dtype));
    y_.reset(new Rows(&random, layout, y_of_.tokens(), c_.c, c_.dtype));
    fill(x_.get(), &random, c_.input);
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override { return ops->take_rows != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_TAKE_ROWS;
    b.rows = y_of_.tokens();
    b.seqs = units;
    b.c = c_.c;
    b.max_len = x_of_.longest();
    return b;
  }
  void rows_of(int64_t u, int64_t *first, int64_t *last) const override {
    *first = y_of_.first(u);
    *last = y_of_.first(u + 1);
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    const int64_t row = y_of_.first(first);
    sie_take_rows_args a = {};
    a.rows = row_count(0, y_of_.tokens() - row, y_of_.first(first + count) - row);
    a.seqs = row_count(1, units - first, count);
    a.cu_seqlens = y_of_.cu(first, count);
    a.c = c_.c;
    a.y = y_->tensor(row);
    a.x = x_->tensor(c_.which != 0 ? x_of_.first(first) : first);
    if (c_.which != 0) {
      a.cu_x = x_of_.cu(first, count);
      a.which = c_.which;
      a.first = c_.which != SIE_POOL_LAST ? first_.data() + row : nullptr;
      a.last = c_.which != SIE_POOL_CLS ? last_.data() + row : nullptr;
    }
    return ops->take_rows(&a, share);
  }
  void expect() override {}
  void verify(const char *backend) override {
    for (int64_t b = 0; b < units; b++) {
      for (int64_t r = y_of_.first(b); r < y_of_.first(b + 1); r++) verify_row(backend, b, r);
    }
  }
  void poison(int64_t u) override {
    const int64_t first = c_.which != 0 ? x_of_.first(u) : u,
                  end = c_.which != 0 ? x_of_.first(u + 1) : u + 1;
    for (int64_t r = first; r < end; r++) x_->poison(r);
  }
  double flops() const override { return static_cast<double>(y_of_.tokens() * c_.c); }
  double bytes() const override { return 2.0 * flops() * (c_.dtype == SIE_F32 ? 4 : 2); }

 private:
  void verify_row(const char *backend, int64_t b, int64_t r) {
    int64_t first = b, last = b;
    if (c_.which != 0 && first_[static_cast<size_t>(r)] < 0) {
      for (int64_t c = 0; c < c_.c; c++) {
        CHECK(y_->get(r, c) == 0, "%s %s %s: y[%lld, %lld] = %.9g of no row", backend, form.c_str(),
              shape.c_str(), static_cast<long long>(r), static_cast<long long>(c), y_->get(r, c));
      }
      return;
    }
    if (c_.which != 0) {
      first = x_of_.first(b) + (c_.which == SIE_POOL_LAST ? last_ : first_)[static_cast<size_t>(r)];
      last = x_of_.first(b) + (c_.which == SIE_POOL_CLS ? first_ : last_)[static_cast<size_t>(r)];
    }
    if (first == last) {
      CHECK(y_->bytes(r, r + 1) == x_->bytes(first, first + 1), "%s %s %s: row %lld is not row %lld of x",
            backend, form.c_str(), shape.c_str(), static_cast<long long>(r), static_cast<long long>(first));
      return;
    }
    for (int64_t c = 0; c < c_.c; c++) {
      double sum = 0, size = 0;
      for (int64_t i = first; i <= last; i++) {
        sum += x_->get(i, c);
        size += fabs(x_->get(i, c));
      }
      const double n = static_cast<double>(last - first + 1), want = sum / n, got = y_->get(r, c);
      const double step = c_.dtype == SIE_F32 ? 0 : (c_.dtype == SIE_BF16 ? 0x1p-8 : 0x1p-11);
      const double least = c_.dtype == SIE_F32 ? 2e-45 : (c_.dtype == SIE_BF16 ? 1e-40 : 6e-8);
      const double tolerance = 0x1p-24 * size + (step + 0x1p-24) * fabs(want) + least;
      const bool fine =
          isfinite(want) ? fabs(got - want) <= tolerance : (isnan(want) ? isnan(got) : got == want);
      CHECK(fine, "%s %s %s: y[%lld, %lld] = %.9g, %.9g expected, ±%.2g", backend, form.c_str(),
            shape.c_str(), static_cast<long long>(r), static_cast<long long>(c), got, want, tolerance);
    }
  }

  TakeConfig c_;
  Sequences x_of_, y_of_;
  Array<int32_t> first_, last_;
  std::unique_ptr<Rows> x_, y_;
};

std::vector<TakeConfig> configs() {
  std::vector<TakeConfig> all;
  // Sequences without rows of y, and one without rows of x.
  const std::vector<int32_t> lengths = {7, 1, 33, 0, 130, 2, 65, 1}, taken = {3, 1, 0, 0, 64, 9, 33, 0};
  const int64_t columns[] = {1, 7, 8, 31, 33, 64, 384};
  for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) {
    for (int32_t which : {0, static_cast<int>(SIE_POOL_CLS), static_cast<int>(SIE_POOL_LAST),
                          static_cast<int>(SIE_POOL_MEAN)}) {
      for (int64_t c : columns) all.push_back({lengths, taken, c, dtype, which, 5, plain, false});
      all.push_back({{}, {}, 8, dtype, which, 1, plain, false});
      all.push_back({{3, 4}, {0, 0}, 8, dtype, which, 1, plain, false});
      all.push_back({{513}, {512}, 40, dtype, which, 500, plain, false});
      for (Input input : {holes, denormals, equal_rows})
        all.push_back({lengths, taken, 40, dtype, which, 3, input, false});
      if (dtype != SIE_F16 && which == SIE_POOL_MEAN)
        all.push_back(
            {std::vector<int32_t>(4, 128), std::vector<int32_t>(4, 100), 768, dtype, which, 3, plain, true});
    }
  }
  return all;
}

}  // namespace

std::unique_ptr<Case> make_take(int index) {
  static const std::vector<std::pair<TakeConfig, Layout>> list = in_layouts(configs(), true);
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<TakeCase>(config, layout, 4500 + index);
}

std::unique_ptr<Case> model_take(const ModelShape &m, const Lengths &lengths) {
  const TakeConfig words = {lengths, lengths, m.width, SIE_BF16, SIE_POOL_MEAN, 3, plain, true};
  return in_layout<TakeCase>(words, dense, 1);
}

}  // namespace harness
