// quantise_cases.cc — quantise_rows: u8 with and without outliers, e4m3 by rows and by blocks.
// Exact to the bit.
#include "tests/model_cases.h"
#include "tests/row_input.h"

namespace harness {

namespace {

struct QuantiseConfig {
  int64_t r, c;
  int32_t x;
  Input input;
  bool bench;
  bool outliers = false;
  int32_t f8_group = 0;  // 0: u8; -1, 128: e4m3 with a scale a row or a block
};

class QuantiseCase : public Case {
 public:
  QuantiseCase(const QuantiseConfig &config, Layout layout, int seed) : c_(config) {
    const char *kind = c_.f8_group == 128 ? " f8 blocks" : (c_.f8_group == -1 ? " f8" : "");
    form = text("quantise_rows x=%s%s%s", dtype_text(c_.x), kind, c_.outliers ? " outlier" : "");
    shape = text("R=%lld C=%lld input=%s", static_cast<long long>(c_.r), static_cast<long long>(c_.c),
                 input_names[c_.input]);
    units = c_.r;
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    const int32_t type = c_.f8_group != 0 ? SIE_F8E4M3 : SIE_U8;
    const Rows::Quantised quantised = {c_.outliers, c_.f8_group != 0 ? c_.f8_group : -1};
    x_.reset(new Rows(&random, operand(layout), c_.r, c_.c, c_.x));
    y_.reset(new Rows(&random, layout, c_.r, c_.c, type, quantised));
    expected_.reset(new Rows(c_.r, c_.c, type, quantised));
    fill(x_.get(), &random, c_.input);
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override { return ops->quantise_rows != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_QUANTISE_ROWS;
    b.rows = c_.r;
    b.c = c_.c;
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    return call_into(ops, share, first, count, *y_);
  }
  void expect() override {
    Scratch scratch(sie_ref_ops(), bounds());
    sie_share share = scratch.share(0, 1);
    call_into(sie_ref_ops(), &share, 0, c_.r, *expected_);
  }
  // The formula is exact: scale, zero point and every level must be the same bits.
  void verify(const char *backend) override {
    for (int64_t r = 0; r < c_.r; r++) {
      CHECK(y_->bytes(r, r + 1) == expected_->bytes(r, r + 1), "%s %s %s: row %lld (scale %g, %g expected)",
            backend, form.c_str(), shape.c_str(), static_cast<long long>(r),
            static_cast<double>(y_->scale(r)), static_cast<double>(expected_->scale(r)));
    }
  }
  void poison(int64_t u) override { x_->poison(u); }
  double flops() const override { return 4.0 * static_cast<double>(c_.r * c_.c); }
  double bytes() const override { return static_cast<double>(c_.r * c_.c) * (c_.x == SIE_F32 ? 5 : 3); }

 private:
  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count,
                       const Rows &y) {
    sie_quantise_rows_args a = {};
    a.rows = row_count(0, c_.r - first, count);
    a.c = c_.c;
    a.x = x_->tensor(first);
    a.y = y.tensor(first);
    return ops->quantise_rows(&a, share);
  }

  QuantiseConfig c_;
  std::unique_ptr<Rows> x_, y_, expected_;
};

}  // namespace

std::unique_ptr<Case> make_quantise(int index) {
  static const std::vector<std::pair<QuantiseConfig, Layout>> list = [] {
    std::vector<QuantiseConfig> all;
    const int64_t rows[] = {0, 1, 7, 31, 32, 33, 64, 65, 130, 513},
                  columns[] = {1, 7, 31, 32, 33, 64, 65, 130, 384, 513};
    for (size_t i = 0; i < 10; i++) {
      for (int32_t x : {SIE_F32, SIE_BF16}) {
        all.push_back({rows[i], columns[(7 * i + 3) % 10], x, plain, false});
        all.push_back({rows[i], columns[(7 * i + 5) % 10], x, plain, false, false, -1});
      }
      all.push_back(
          {rows[i], columns[(3 * i + 1) % 10], i % 2 == 0 ? SIE_F32 : SIE_BF16, plain, false, true});
      all.push_back(
          {rows[i], columns[(7 * i + 3) % 10], SIE_F16, plain, false, false, i % 2 == 0 ? -1 : 128});
    }
    // Blocks that are whole, short, and the only one.
    for (int64_t c : {1, 127, 128, 129, 256, 300}) {
      for (int32_t x : {SIE_F32, SIE_BF16, SIE_F16}) all.push_back({19, c, x, plain, false, false, 128});
    }
    // One to eight warps of a GPU a row, a CTA full of rows and one more; blocks beyond what one of
    // its CTAs takes.
    for (int64_t c : {256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192}) {
      for (int32_t x : {SIE_BF16, SIE_F16}) all.push_back({5, c, x, plain, false, false, -1});
    }
    for (int64_t c : {1024, 1025, 1032, 1300, 3072})
      all.push_back({5, c, SIE_BF16, plain, false, false, 128});
    // Scales around the least one.
    for (int32_t group : {-1, 128}) all.push_back({4, 140, SIE_F32, least_scale, false, false, group});
    // One column: only an outlier. Two columns: one more element.
    for (int64_t c : {1, 2, 17}) {
      for (Input input : {outliers, ties, holes}) all.push_back({33, c, SIE_F32, input, false, true});
    }
    for (Input input : {outliers, equal_rows, denormals, positive, ties, holes}) {
      for (int32_t x : {SIE_F32, SIE_BF16}) {
        for (bool outlier : {false, true}) all.push_back({40, 385, x, input, false, outlier});
        for (int32_t group : {-1, 128}) all.push_back({40, 384, x, input, false, false, group});
      }
      all.push_back({40, 384, SIE_F16, input == outliers ? plain : input, false, false, 128});
    }
    for (bool outlier : {false, true}) all.push_back({512, 384, SIE_F32, plain, true, outlier});
    return in_layouts(all, true);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<QuantiseCase>(config, layout, 700 + index);
}

std::unique_ptr<Case> model_quantise(const ModelShape &m, const Lengths &lengths) {
  return in_layout<QuantiseCase>(
      QuantiseConfig{tokens_of(lengths), m.inner, SIE_BF16, plain, true, false, 128}, dense, 1);
}

}  // namespace harness
