// keep_cases.cc — keep_rows: the rows that a batch keeps of its tokens.
#include "tests/model_cases.h"
#include "tests/row_input.h"

namespace harness {

namespace {

// The number of rows for each one that is kept: 1 keeps all.
struct KeepConfig {
  int64_t kept, c;
  int32_t dtype, of;
  Input input;
  bool bench;
};

class KeepCase : public Case {
 public:
  KeepCase(const KeepConfig &config, Layout layout, int seed) : c_(config) {
    form = text("keep_rows x=%s", dtype_text(c_.dtype));
    Random random(static_cast<uint32_t>(seed));
    int64_t rows = 0;
    for (int64_t i = 0; i < c_.kept; i++) {
      rows += c_.of > 1 ? random.below(c_.of) : 0;
      index_.push_back(static_cast<int32_t>(rows++));
    }
    rows += c_.of - 1;
    shape = text("K=%lld of %lld C=%lld input=%s", static_cast<long long>(c_.kept),
                 static_cast<long long>(rows), static_cast<long long>(c_.c), input_names[c_.input]);
    units = c_.kept;
    bench = c_.bench;
    if (names_only) return;
    x_.reset(new Rows(&random, operand(layout), rows, c_.c, c_.dtype));
    y_.reset(new Rows(&random, layout, c_.kept, c_.c, c_.dtype));
    fill(x_.get(), &random, c_.input);
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override { return ops->keep_rows != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_KEEP_ROWS;
    b.rows = x_->rows();
    b.c = c_.c;
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    sie_keep_rows_args a = {};
    a.kept = row_count(0, units - first, count);
    a.index = index_.data() + first;
    a.c = c_.c;
    a.x = x_->tensor();
    a.y = y_->tensor(first);
    return ops->keep_rows(&a, share);
  }
  void expect() override {}
  void verify(const char *backend) override {
    for (int64_t i = 0; i < units; i++) {
      const int64_t row = index_[static_cast<size_t>(i)];
      CHECK(y_->bytes(i, i + 1) == x_->bytes(row, row + 1), "%s %s %s: row %lld is not row %lld of x",
            backend, form.c_str(), shape.c_str(), static_cast<long long>(i), static_cast<long long>(row));
    }
  }
  void poison(int64_t u) override { x_->poison(index_[static_cast<size_t>(u)]); }
  double flops() const override { return static_cast<double>(c_.kept * c_.c); }
  double bytes() const override { return 2.0 * flops() * (c_.dtype == SIE_F32 ? 4 : 2); }

 private:
  KeepConfig c_;
  Array<int32_t> index_;
  std::unique_ptr<Rows> x_, y_;
};

}  // namespace

std::unique_ptr<Case> make_keep(int index) {
  static const std::vector<std::pair<KeepConfig, Layout>> list = [] {
    std::vector<KeepConfig> all;
    const int64_t kept[] = {0, 1, 7, 8, 9, 33, 65, 130}, columns[] = {1, 7, 8, 31, 33, 64, 384, 17};
    for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) {
      for (size_t i = 0; i < 8; i++) {
        all.push_back({kept[i], columns[i], dtype, 1, plain, false});
        all.push_back({kept[i], columns[(i + 3) % 8], dtype, 4, plain, false});
      }
      all.push_back({5, 3080, dtype, 2, plain, false});
      for (Input input : {holes, denormals}) all.push_back({12, 33, dtype, 3, input, false});
      if (dtype != SIE_F16) all.push_back({512, 128, dtype, 2, plain, true});
    }
    return in_layouts(all, true);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<KeepCase>(config, layout, 4100 + index);
}

std::unique_ptr<Case> model_keep(const ModelShape &m, const Lengths &lengths) {
  return in_layout<KeepCase>(KeepConfig{tokens_of(lengths), m.width, SIE_BF16, 2, plain, true}, dense, 1);
}

}  // namespace harness
