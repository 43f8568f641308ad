// rows_cases.cc — quantise_rows, gather_rows and pool.
#include <math.h>

#include "common/tol.h"
#include "harness.h"

namespace harness {

namespace {

enum Input { plain, outliers, equal_rows, denormals, positive, ties, holes };
const char *const input_names[] = {"plain", "outliers", "equal", "denormals", "positive", "ties", "holes"};

float value(Random *random, Input input, int64_t r) {
  switch (input) {
    case outliers:
      return random->below(40) == 0 ? random->real() * 1e4f : random->real();
    case equal_rows:
      return 0.75f * static_cast<float>(r % 3 - 1);
    case denormals:
      return random->real() * 1e-39f;
    case positive:
      return 2 + random->real();
    case ties:
      return static_cast<float>(random->below(5) - 2) * (random->below(8) == 0 ? 3.0f : 1.0f);
    case holes:  // NaN, and in some rows an infinity
      if (random->below(9) == 0) return NAN;
      return r % 3 != 0 && random->below(90) == 0 ? (r % 3 == 1 ? INFINITY : -INFINITY) : random->real();
    default:
      return random->real();
  }
}

void fill(Rows *x, Random *random, Input input) {
  for (int64_t r = 0; r < x->rows(); r++) {
    for (int64_t c = 0; c < x->columns(); c++) x->set(r, c, value(random, input, r));
  }
}

struct QuantiseConfig {
  int64_t r, c;
  int32_t x;
  Input input;
  bool bench;
  bool outliers = false;
};

class QuantiseCase : public Case {
 public:
  QuantiseCase(const QuantiseConfig &config, int seed) : c_(config) {
    form = text("quantise_rows x=%s%s", dtype_text(c_.x), c_.outliers ? " outlier" : "");
    shape = text("R=%lld C=%lld input=%s", static_cast<long long>(c_.r), static_cast<long long>(c_.c),
                 input_names[c_.input]);
    units = c_.r;
    bench = c_.bench;
    Random random(static_cast<uint32_t>(seed));
    int64_t gap = bench ? 0 : 1 + random.below(7), shift = bench ? 0 : random.below(9);
    x_.reset(new Rows(c_.r, c_.c, c_.x, gap, shift));
    y_.reset(new Rows(c_.r, c_.c, SIE_U8, gap, shift, c_.outliers));
    expected_.reset(new Rows(c_.r, c_.c, SIE_U8, 0, 0, c_.outliers));
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
      CHECK(y_->bytes(r, r + 1) == expected_->bytes(r, r + 1),
            "%s %s %s: row %lld (scale %g zero %d, %g %d expected)", backend, form.c_str(), shape.c_str(),
            static_cast<long long>(r), static_cast<double>(y_->scale(r)), y_->zero(r),
            static_cast<double>(expected_->scale(r)), expected_->zero(r));
    }
  }
  void poison(int64_t u) override { x_->poison(u); }
  double flops() const override { return 4.0 * static_cast<double>(c_.r * c_.c); }
  double bytes() const override { return static_cast<double>(c_.r * c_.c) * (c_.x == SIE_F32 ? 5 : 3); }

 private:
  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count,
                       const Rows &y) {
    int32_t rows = static_cast<int32_t>(count);
    sie_quantise_rows_args a = {};
    a.rows = {c_.r, &rows};
    a.c = c_.c;
    a.x = x_->tensor(first);
    a.y = y.tensor(first);
    return ops->quantise_rows(&a, share);
  }

  QuantiseConfig c_;
  std::unique_ptr<Rows> x_, y_, expected_;
};

// Token rows in, one row a sequence out: gather (exact) and pool.
struct SequenceConfig {
  std::vector<int32_t> lengths;
  int64_t c;
  int32_t x;
  int32_t pooling;
  bool by_sequence;  // pool: x has sequence rows already
  Input input;
  bool bench;
};

const char *const pooling_names[] = {"", "cls", "mean", "last"};

class SequenceCase : public Case {
 public:
  SequenceCase(const SequenceConfig &config, int seed, const char *op, int32_t y) : c_(config) {
    form = text("%s x=%s%s %s", op, dtype_text(c_.x), c_.by_sequence ? " by sequence" : "",
                pooling_names[c_.pooling]);
    units = static_cast<int64_t>(c_.lengths.size());
    cu_.push_back(0);
    for (int32_t length : c_.lengths) cu_.push_back(cu_.back() + length);
    int64_t rows = c_.by_sequence ? units : cu_.back();
    shape = text("rows=%lld B=%lld C=%lld input=%s", static_cast<long long>(rows),
                 static_cast<long long>(units), static_cast<long long>(c_.c), input_names[c_.input]);
    bench = c_.bench;
    Random random(static_cast<uint32_t>(seed));
    int64_t gap = bench ? 0 : 1 + random.below(7), shift = bench ? 0 : random.below(9);
    x_.reset(new Rows(rows, c_.c, c_.x, gap, shift));
    y_.reset(new Rows(units, c_.c, y, gap, shift));
    fill(x_.get(), &random, c_.input);
    outputs = {y_.get()};
  }

  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.rows = x_->rows();
    b.c = c_.c;
    b.max_len = x_->rows();
    return b;
  }
  void expect() override {}
  void poison(int64_t u) override {
    if (c_.by_sequence) return x_->poison(u);
    for (int32_t t = cu_[static_cast<size_t>(u)]; t < cu_[static_cast<size_t>(u) + 1]; t++) x_->poison(t);
  }
  double flops() const override { return static_cast<double>(x_->rows() * c_.c); }
  double bytes() const override { return static_cast<double>(x_->rows() * c_.c) * (c_.x == SIE_F32 ? 4 : 2); }

  void verify(const char *backend) override {
    for (int64_t b = 0; b < units; b++) {
      int64_t first = b, last = b + 1;
      if (!c_.by_sequence) {
        first = cu_[static_cast<size_t>(b)];
        last = cu_[static_cast<size_t>(b) + 1];
        if (c_.pooling == SIE_POOL_CLS && last > first) last = first + 1;
        if (c_.pooling == SIE_POOL_LAST && last > first) first = last - 1;
      }
      for (int64_t i = 0; i < c_.c; i++) {
        double sum = 0, largest = 0, n = static_cast<double>(last - first);
        for (int64_t r = first; r < last; r++) {
          sum += x_->get(r, i);
          largest = fmax(largest, fabs(x_->get(r, i)));
        }
        double want = n > 0 ? sum / n : 0, got = y_->get(b, i);
        double tolerance = last - first > 1 ? sie_tol_mean(last - first, largest) + 1e-45 : 0;
        CHECK(fabs(got - want) <= tolerance, "%s %s %s: y[%lld,%lld] = %.9g, %.9g expected, ±%.2g", backend,
              form.c_str(), shape.c_str(), static_cast<long long>(b), static_cast<long long>(i), got, want,
              tolerance);
      }
    }
  }

 protected:
  // The call's cu_seqlens and first row of x.
  const int32_t *lengths_from(int64_t first, int64_t count, int64_t *row) {
    sub_cu_.clear();
    for (int64_t b = first; b <= first + count; b++) {
      sub_cu_.push_back(cu_[static_cast<size_t>(b)] - cu_[static_cast<size_t>(first)]);
    }
    *row = c_.by_sequence ? first : cu_[static_cast<size_t>(first)];
    return sub_cu_.data();
  }

  SequenceConfig c_;
  std::vector<int32_t> cu_, sub_cu_;
  std::unique_ptr<Rows> x_, y_;
};

class GatherCase : public SequenceCase {
 public:
  GatherCase(const SequenceConfig &config, int seed) : SequenceCase(config, seed, "gather_rows", config.x) {}
  bool present(const sie_ops *ops) const override { return ops->gather_rows != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = SequenceCase::bounds();
    b.kind = SIE_OP_GATHER_ROWS;
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    int64_t row;
    int32_t seqs = static_cast<int32_t>(count);
    sie_gather_rows_args a = {};
    a.seqs = {units, &seqs};
    a.cu_seqlens = lengths_from(first, count, &row);
    a.which = c_.pooling;
    a.c = c_.c;
    a.x = x_->tensor(row);
    a.y = y_->tensor(first);
    return ops->gather_rows(&a, share);
  }
};

class PoolCase : public SequenceCase {
 public:
  PoolCase(const SequenceConfig &config, int seed) : SequenceCase(config, seed, "pool", SIE_F32) {}
  bool present(const sie_ops *ops) const override { return ops->pool != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = SequenceCase::bounds();
    b.kind = SIE_OP_POOL;
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    int64_t row;
    int32_t seqs = static_cast<int32_t>(count);
    sie_pool_args a = {};
    a.seqs = {units, &seqs};
    a.cu_seqlens = lengths_from(first, count, &row);
    if (c_.by_sequence) a.cu_seqlens = nullptr;
    a.mode = c_.pooling;
    a.c = c_.c;
    a.x = x_->tensor(row);
    a.y = y_->tensor(first);
    return ops->pool(&a, share);
  }
};

std::vector<SequenceConfig> sequence_configs(bool pool) {
  std::vector<SequenceConfig> all;
  const std::vector<int32_t> none = {}, one = {1}, empty = {0},
                             ragged = {7, 1, 0, 33, 513, 2, 0, 130, 31, 32, 64, 65};
  for (int32_t x : {SIE_F32, SIE_BF16}) {
    for (int32_t pooling : {SIE_POOL_CLS, SIE_POOL_LAST, SIE_POOL_MEAN}) {
      if (!pool && pooling == SIE_POOL_MEAN) continue;
      for (const std::vector<int32_t> &lengths : {none, one, empty, ragged}) {
        all.push_back({lengths, 65, x, pooling, false, plain, false});
      }
      for (int64_t c : {1, 7, 31, 33, 64, 384}) all.push_back({ragged, c, x, pooling, false, plain, false});
      for (Input input : {outliers, equal_rows, denormals})
        all.push_back({ragged, 33, x, pooling, false, input, false});
    }
    if (pool) {
      all.push_back({ragged, 65, x, SIE_POOL_CLS, true, plain, false});
      all.push_back({{128, 128, 128, 128}, 384, x, SIE_POOL_MEAN, false, plain, true});
    }
  }
  return all;
}

}  // namespace

std::unique_ptr<Case> make_quantise(int index) {
  static const std::vector<QuantiseConfig> list = [] {
    std::vector<QuantiseConfig> all;
    const int64_t rows[] = {0, 1, 7, 31, 32, 33, 64, 65, 130, 513},
                  columns[] = {1, 7, 31, 32, 33, 64, 65, 130, 384, 513};
    for (size_t i = 0; i < 10; i++) {
      for (int32_t x : {SIE_F32, SIE_BF16})
        all.push_back({rows[i], columns[(7 * i + 3) % 10], x, plain, false});
      all.push_back(
          {rows[i], columns[(3 * i + 1) % 10], i % 2 == 0 ? SIE_F32 : SIE_BF16, plain, false, true});
    }
    // One column: all is outlier. Two: a rest of one.
    for (int64_t c : {1, 2, 17}) {
      for (Input input : {outliers, ties, holes}) all.push_back({33, c, SIE_F32, input, false, true});
    }
    for (Input input : {outliers, equal_rows, denormals, positive, ties, holes}) {
      for (int32_t x : {SIE_F32, SIE_BF16}) {
        for (bool outlier : {false, true}) all.push_back({40, 385, x, input, false, outlier});
      }
    }
    for (bool outlier : {false, true}) all.push_back({512, 384, SIE_F32, plain, true, outlier});
    return all;
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  return std::unique_ptr<Case>(new QuantiseCase(list[static_cast<size_t>(index)], 700 + index));
}

std::unique_ptr<Case> make_gather(int index) {
  static const std::vector<SequenceConfig> list = sequence_configs(false);
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  return std::unique_ptr<Case>(new GatherCase(list[static_cast<size_t>(index)], 900 + index));
}

std::unique_ptr<Case> make_pool(int index) {
  static const std::vector<SequenceConfig> list = sequence_configs(true);
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  return std::unique_ptr<Case>(new PoolCase(list[static_cast<size_t>(index)], 1100 + index));
}

}  // namespace harness
