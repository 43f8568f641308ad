// sequence_cases.cc — gather_rows and pool: token rows in, one row a sequence out.
#include <math.h>

#include <algorithm>

#include "common/tol.h"
#include "tests/model_cases.h"
#include "tests/row_input.h"

namespace harness {

namespace {

// Token rows in, one row a sequence out: gather (exact) and pool.
struct SequenceConfig {
  std::vector<int32_t> lengths;
  int64_t c;
  int32_t x;
  int32_t pooling;
  bool by_sequence;  // pool: x has sequence rows already
  Input input;
  bool bench;
  bool kept = false;  // pool: the rows were kept of another space
};

class SequenceCase : public Case {
 public:
  SequenceCase(const SequenceConfig &config, Layout layout, int seed, const char *op, int32_t y)
      : c_(config), sequences_(config.lengths) {
    form = text("%s x=%s%s %s%s", op, dtype_text(c_.x), c_.by_sequence ? " by sequence" : "",
                pooling_text(c_.pooling), c_.kept ? " of kept rows" : "");
    units = sequences_.count();
    shape = text("rows=%lld B=%lld C=%lld input=%s", static_cast<long long>(rows()),
                 static_cast<long long>(units), static_cast<long long>(c_.c), input_names[c_.input]);
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    x_.reset(new Rows(&random, operand(layout), rows(), c_.c, c_.x));
    y_.reset(new Rows(&random, layout, units, c_.c, y));
    fill(x_.get(), &random, c_.input);
    for (int64_t i = 0; i < c_.c; i++) w_.push_back(random.real() * (c_.c < 16 ? 4.0f : 1.0f));
    w_.push_back(NAN);  // behind the last weight: a score that reads it shows
    kept_.reset(new Kept(&random, sequences_));
    outputs = {y_.get()};
  }

  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.rows = x_->rows();
    b.seqs = units;
    b.c = c_.c;
    b.max_len = sequences_.longest();
    return b;
  }
  void expect() override {}
  void poison(int64_t u) override {
    if (c_.by_sequence) return x_->poison(u);
    for (int64_t t = sequences_.first(u); t < sequences_.first(u + 1); t++) x_->poison(t);
  }
  double flops() const override { return static_cast<double>(rows() * c_.c); }
  double bytes() const override { return flops() * (c_.x == SIE_F32 ? 4 : 2); }

  void verify(const char *backend) override {
    for (int64_t b = 0; b < units; b++) {
      int64_t first = b, last = b + 1;
      if (!c_.by_sequence) {
        first = sequences_.first(b);
        last = sequences_.first(b + 1);
        if (c_.pooling == SIE_POOL_CLS && last > first) last = first + 1;
        if (c_.pooling == SIE_POOL_LAST && last > first) first = last - 1;
      }
      double off = 0;  // relative, of a weight
      std::vector<double> weights = weights_of(b, first, last, &off);
      // What a mean is multiplied by.
      double scale = c_.pooling == SIE_POOL_MEAN_SQRT ? sqrt(static_cast<double>(last - first)) : 1;
      for (int64_t i = 0; i < c_.c; i++) {
        double want = 0, largest = 0, most = -INFINITY;
        for (int64_t r = first; r < last; r++) {
          want += scale * weights[static_cast<size_t>(r - first)] * x_->get(r, i);
          largest = fmax(largest, fabs(x_->get(r, i)));
          most = fmax(most, x_->get(r, i));
        }
        double got = y_->get(b, i);
        bool exact = last - first < 2 || c_.pooling == SIE_POOL_MAX;
        if (c_.pooling == SIE_POOL_MAX && last > first) want = most;
        double tolerance = exact ? 0 : scale * sie_tol_mean(last - first, largest) + off * largest + 1e-45;
        CHECK(fabs(got - want) <= tolerance, "%s %s %s: y[%lld,%lld] = %.9g, %.9g expected, ±%.2g", backend,
              form.c_str(), shape.c_str(), static_cast<long long>(b), static_cast<long long>(i), got, want,
              tolerance);
      }
    }
  }

 protected:
  // First row of x for a call from sequence `first` on.
  int64_t rows() const { return first_row(units); }
  int64_t first_row(int64_t first) const { return c_.by_sequence ? first : sequences_.first(first); }

  SequenceConfig c_;
  Sequences sequences_;
  Array<float> w_;
  std::unique_ptr<Kept> kept_;
  std::unique_ptr<Rows> x_, y_;

 private:
  // Weights of sequence b's rows [first, last), which add up to 1. A score's error is a relative
  // error of its weight.
  std::vector<double> weights_of(int64_t b, int64_t first, int64_t last, double *off) const {
    std::vector<double> weights;
    double sum = 0, top = -INFINITY;
    for (int64_t r = first; r < last; r++) {
      double score = 0, x_norm = 0, w_norm = 0;
      for (int64_t i = 0; i < c_.c && c_.pooling == SIE_POOL_ATTENTION; i++) {
        double w = static_cast<double>(w_[static_cast<size_t>(i)]), x = x_->get(r, i);
        score += w * x;
        w_norm += w * w;
        x_norm += x * x;
      }
      *off = fmax(*off, 2 * sie_tol_dot(c_.c, sqrt(x_norm), sqrt(w_norm)) + 4e-6);
      top = fmax(top, score);
      weights.push_back(score);
    }
    if (c_.pooling != SIE_POOL_ATTENTION) *off = 0;
    for (size_t i = 0; i < weights.size(); i++) {
      double &w = weights[i];
      int64_t at = static_cast<int64_t>(i), place = c_.kept ? kept_->place(b, first + at) : at;
      w = c_.pooling == SIE_POOL_WEIGHTED_MEAN ? static_cast<double>(place + 1) : exp(w - top);
      sum += w;
    }
    for (double &w : weights) w /= sum;
    return weights;
  }
};

class GatherCase : public SequenceCase {
 public:
  GatherCase(const SequenceConfig &config, Layout layout, int seed)
      : SequenceCase(config, layout, seed, "gather_rows", config.x) {}
  bool present(const sie_ops *ops) const override { return ops->gather_rows != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = SequenceCase::bounds();
    b.kind = SIE_OP_GATHER_ROWS;
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    sie_gather_rows_args a = {};
    a.seqs = row_count(0, units - first, count);
    a.cu_seqlens = sequences_.cu(first, count);
    a.which = c_.pooling;
    a.c = c_.c;
    a.x = x_->tensor(first_row(first));
    a.y = y_->tensor(first);
    return ops->gather_rows(&a, share);
  }
};

class PoolCase : public SequenceCase {
 public:
  PoolCase(const SequenceConfig &config, Layout layout, int seed)
      : SequenceCase(config, layout, seed, "pool", SIE_F32) {}
  bool present(const sie_ops *ops) const override { return ops->pool != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = SequenceCase::bounds();
    b.kind = SIE_OP_POOL;
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    sie_pool_args a = {};
    a.seqs = row_count(0, units - first, count);
    a.cu_seqlens = c_.by_sequence ? nullptr : sequences_.cu(first, count);
    a.mode = c_.pooling;
    a.longest = std::max(1, static_cast<int32_t>(sequences_.longest_of(first, count)));
    a.c = c_.c;
    a.x = x_->tensor(first_row(first));
    a.y = y_->tensor(first);
    if (c_.pooling == SIE_POOL_ATTENTION) a.w = w_.data();
    if (c_.kept) a.index = kept_->index(first_row(first)), a.cu_whole = kept_->cu_whole(first);
    return ops->pool(&a, share);
  }
};

std::vector<SequenceConfig> sequence_configs(bool pool) {
  std::vector<SequenceConfig> all;
  const std::vector<int32_t> none = {}, one = {1}, empty = {0},
                             ragged = {7, 1, 0, 33, 513, 2, 0, 130, 31, 32, 64, 65};
  for (int32_t x : {SIE_F32, SIE_BF16, SIE_F16}) {
    for (int32_t pooling : {SIE_POOL_CLS, SIE_POOL_LAST, SIE_POOL_MEAN, SIE_POOL_WEIGHTED_MEAN,
                            SIE_POOL_ATTENTION, SIE_POOL_MAX, SIE_POOL_MEAN_SQRT}) {
      if (!pool && pooling != SIE_POOL_CLS && pooling != SIE_POOL_LAST) continue;
      for (const std::vector<int32_t> &lengths : {none, one, empty, ragged}) {
        all.push_back({lengths, 65, x, pooling, false, plain, false});
      }
      for (int64_t c : {1, 7, 31, 33, 64, 384}) all.push_back({ragged, c, x, pooling, false, plain, false});
      // Bytes that 17 divides, and 16 does not.
      if (!pool) all.push_back({ragged, 17, x, pooling, false, plain, false});
      if (!pool) all.push_back({{2, 0, 1}, 3080, x, pooling, false, plain, false});
      for (Input input : {outliers, equal_rows, denormals}) {
        if (input == outliers && x == SIE_F16 && pooling == SIE_POOL_ATTENTION) continue;
        all.push_back({ragged, 33, x, pooling, false, input, false});
      }
    }
    if (pool) {
      all.push_back({ragged, 65, x, SIE_POOL_CLS, true, plain, false});
      for (const std::vector<int32_t> &lengths : {one, empty, ragged}) {
        for (int32_t pooling : {SIE_POOL_WEIGHTED_MEAN, SIE_POOL_MAX})
          all.push_back({lengths, 65, x, pooling, false, plain, false, true});
      }
      // Whoever takes more rows than there are, as zeros, finds a larger one.
      all.push_back({{16, 1, 33, 0, 145}, 20, x, SIE_POOL_MAX, false, negative, false});
      // What a GPU sums in parts: about 128 rows and multiples, and parts of more than that.
      for (int32_t pooling : {SIE_POOL_MEAN, SIE_POOL_WEIGHTED_MEAN, SIE_POOL_MAX, SIE_POOL_MEAN_SQRT}) {
        all.push_back({{127, 1, 128, 129, 0, 255, 0, 256, 257}, 20, x, pooling, false, plain, false});
        all.push_back({{129, 300, 0, 640}, 264, x, pooling, false, outliers, false});
        if (x == SIE_BF16)
          all.push_back(
              {{8193, 0, 129, 8192}, 8, x, pooling, false, plain, false, pooling == SIE_POOL_WEIGHTED_MEAN});
      }
      if (x == SIE_F16) continue;
      for (int32_t pooling : {SIE_POOL_MEAN, SIE_POOL_WEIGHTED_MEAN, SIE_POOL_ATTENTION, SIE_POOL_MAX})
        all.push_back({{128, 128, 128, 128}, 384, x, pooling, false, plain, true});
    }
  }
  return all;
}

}  // namespace

std::unique_ptr<Case> make_gather(int index) {
  static const std::vector<std::pair<SequenceConfig, Layout>> list =
      in_layouts(sequence_configs(false), true);
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<GatherCase>(config, layout, 900 + index);
}

std::unique_ptr<Case> make_pool(int index) {
  static const std::vector<std::pair<SequenceConfig, Layout>> list = in_layouts(sequence_configs(true));
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<PoolCase>(config, layout, 1100 + index);
}

std::unique_ptr<Case> model_gather(const ModelShape &m, const Lengths &lengths) {
  return in_layout<GatherCase>(SequenceConfig{lengths, m.width, SIE_BF16, SIE_POOL_CLS, false, plain, true},
                               dense, 1);
}

}  // namespace harness
