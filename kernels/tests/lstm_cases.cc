// lstm_cases.cc — the recurrence of an LSTM over each sequence's rows.
#include <math.h>

#include "tests/model_cases.h"
#include "tests/row_input.h"

namespace harness {

namespace {

struct LstmConfig {
  std::vector<int32_t> lengths;
  int64_t h;
  int32_t gates, y;
  bool ahead, back;
  bool bench;
};

class LstmCase : public Case {
 public:
  LstmCase(const LstmConfig &config, Layout layout, int seed) : c_(config), sequences_(config.lengths) {
    form = text("lstm%s%s x=%s y=%s", c_.ahead ? " forward" : "", c_.back ? " reverse" : "",
                dtype_text(c_.gates), dtype_text(c_.y));
    units = sequences_.count();
    bench = c_.bench;
    shape = text("R=%lld B=%lld H=%lld", static_cast<long long>(sequences_.tokens()),
                 static_cast<long long>(units), static_cast<long long>(c_.h));
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    gates_.reset(new Rows(&random, operand(layout), sequences_.tokens(), 4 * c_.h * directions(), c_.gates));
    y_.reset(new Rows(&random, layout, sequences_.tokens(), c_.h * directions(), c_.y));
    fill(gates_.get(), &random, plain);
    for (std::unique_ptr<Weight> *w : {&w_, &w_reverse_}) {
      if (w == &w_ ? !c_.ahead : !c_.back) continue;
      // As PyTorch draws them, so that states neither vanish nor saturate.
      const float scale = 1.0f / sqrtf(static_cast<float>(c_.h));
      std::vector<float> values(static_cast<size_t>(4 * c_.h * c_.h));
      for (float &v : values) v = random.real() * scale;
      w->reset(new Weight(SIE_COMPUTE_F32, 4 * c_.h, c_.h, std::move(values)));
    }
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override { return ops->lstm != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_LSTM;
    b.rows = sequences_.tokens();
    b.seqs = units;
    b.c = gates_->columns();
    b.k = c_.h;
    b.max_len = sequences_.longest();
    return b;
  }
  void rows_of(int64_t u, int64_t *first, int64_t *last) const override {
    *first = sequences_.first(u);
    *last = sequences_.first(u + 1);
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    return call_into(ops, share, first, count, *y_);
  }
  void expect() override {
    expected_.reset(new Rows(sequences_.tokens(), y_->columns(), SIE_F32));
    Scratch scratch(sie_ref_ops(), bounds());
    const sie_share share = scratch.share(0, 1);
    call_into(sie_ref_ops(), &share, 0, units, *expected_);
  }
  void verify(const char *backend) override {
    const double step = c_.y == SIE_F32 ? 0 : (c_.y == SIE_BF16 ? 0x1p-8 : 0x1p-11);
    for (int64_t r = 0; r < y_->rows(); r++) {
      for (int64_t c = 0; c < y_->columns(); c++) {
        const double want = expected_->get(r, c), got = y_->get(r, c);
        const double tolerance = 1e-6 + step * fabs(want);
        CHECK(fabs(got - want) <= tolerance, "%s %s %s: y[%lld, %lld] = %.9g, %.9g expected, ±%.2g", backend,
              form.c_str(), shape.c_str(), static_cast<long long>(r), static_cast<long long>(c), got, want,
              tolerance);
      }
    }
  }
  void poison(int64_t u) override {
    for (int64_t r = sequences_.first(u); r < sequences_.first(u + 1); r++) gates_->poison(r);
  }
  double flops() const override {
    return 2.0 * static_cast<double>(sequences_.tokens() * 4 * directions() * c_.h * c_.h);
  }
  double bytes() const override {
    const int64_t columns = directions() * c_.h,
                  row = columns * (4 * (c_.gates == SIE_F32 ? 4 : 2) + (c_.y == SIE_F32 ? 4 : 2));
    return static_cast<double>(sequences_.tokens() * row + 16 * columns * c_.h);
  }

 private:
  int64_t directions() const { return (c_.ahead ? 1 : 0) + (c_.back ? 1 : 0); }

  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count,
                       const Rows &y) {
    const int64_t row = sequences_.first(first);
    sie_lstm_args a = {};
    a.rows = row_count(0, sequences_.tokens() - row, sequences_.first(first + count) - row);
    a.seqs = row_count(1, units - first, count);
    a.cu_seqlens = sequences_.cu(first, count);
    a.h = c_.h;
    a.w = w_ != nullptr ? w_->packed(ops) : nullptr;
    a.w_reverse = w_reverse_ != nullptr ? w_reverse_->packed(ops) : nullptr;
    a.gates = gates_->tensor(row);
    a.y = y.tensor(row);
    return ops->lstm(&a, share);
  }

  LstmConfig c_;
  Sequences sequences_;
  std::unique_ptr<Rows> gates_, y_, expected_;
  std::unique_ptr<Weight> w_, w_reverse_;
};

std::vector<LstmConfig> configs() {
  std::vector<LstmConfig> all;
  // More sequences than a tile has rows and a group has places, with ends in every order.
  std::vector<int32_t> many;
  for (int32_t i = 0; i < 150; i++) many.push_back(i * 7 % 11);
  const std::vector<int32_t> ragged = {7, 1, 0, 33, 2, 31, 0, 9}, one = {17}, none = {}, empty = {0, 0};
  const struct {
    int32_t gates, y;
  } types[] = {{SIE_F32, SIE_F32}, {SIE_BF16, SIE_BF16}, {SIE_F16, SIE_F16}, {SIE_F32, SIE_BF16}};
  for (const auto &type : types) {
    for (int directions = 1; directions <= 3; directions++) {
      const bool ahead = (directions & 1) != 0, back = (directions & 2) != 0;
      // Types differ in loads and stores alone.
      if (type.y != SIE_F32) {
        all.push_back({ahead && back ? ragged : one, 33, type.gates, type.y, ahead, back, false});
        continue;
      }
      for (int64_t h : {1, 3, 8, 16, 31, 33, 64})
        all.push_back({ragged, h, type.gates, type.y, ahead, back, false});
      for (const std::vector<int32_t> &lengths : {one, none, empty})
        all.push_back({lengths, 24, type.gates, type.y, ahead, back, false});
    }
  }
  all.push_back({many, 20, SIE_F32, SIE_F32, true, true, false});
  all.push_back({{130, 3}, 96, SIE_F32, SIE_F32, true, true, false});
  // The widest that a cluster of a GPU holds, and one more.
  for (int64_t h : {320, 321}) all.push_back({{1, 2}, h, SIE_F32, SIE_F32, false, true, false});
  all.push_back({{384}, 256, SIE_F32, SIE_F32, true, true, true});
  all.push_back({std::vector<int32_t>(8, 48), 256, SIE_F32, SIE_F32, true, true, true});
  all.push_back({{384}, 384, SIE_F32, SIE_F32, true, true, true});
  return all;
}

}  // namespace

std::unique_ptr<Case> make_lstm(int index) {
  static const std::vector<std::pair<LstmConfig, Layout>> list = in_layouts(configs());
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<LstmCase>(config, layout, 4800 + index);
}

std::unique_ptr<Case> model_lstm(const ModelShape &m, const Lengths &lengths) {
  const LstmConfig both = {lengths, word_columns(m) / 2, SIE_BF16, SIE_BF16, true, true, true};
  return in_layout<LstmCase>(both, dense, 1);
}

}  // namespace harness
