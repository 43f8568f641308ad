// norm_cases.cc — embed_layernorm and layernorm.
#include <math.h>

#include "common/tol.h"
#include "harness.h"

namespace harness {

namespace {

enum Input { plain, outliers, equal_rows, denormals, offset };
const char *const input_names[] = {"plain", "outliers", "equal", "denormals", "offset"};

float value(Random *random, Input input, int64_t r) {
  switch (input) {
    case outliers:
      return random->below(40) == 0 ? random->real() * 1e4f : random->real();
    case equal_rows:
      return 0.5f + 0.25f * static_cast<float>(r % 3);
    case denormals:
      return random->real() * 1e-39f;
    case offset:
      return 1000.0f + random->real();  // a two-pass variance keeps what one pass loses
    default:
      return random->real();
  }
}

// What both norms share: parameters, outputs and the comparison with the exact norm of given rows.
class NormCase : public Case {
 protected:
  void make_outputs(int64_t rows, int64_t c, int32_t y, bool quantised, int64_t gap, int64_t shift,
                    Random *random, bool beta, bool outliers) {
    y_.reset(new Rows(rows, c, y, gap, shift));
    outputs = {y_.get()};
    if (quantised) {
      yq_.reset(new Rows(rows, c, SIE_U8, gap, shift, outliers));
      outputs.push_back(yq_.get());
    }
    for (int64_t i = 0; i < c; i++) {
      gamma_.push_back(1 + 0.5f * random->real());
      beta_.push_back(random->real());
    }
    has_beta_ = beta;
  }

  const float *beta() const { return has_beta_ ? beta_.data() : nullptr; }

  // Row r of the outputs against the norm of x[c] in double; magnitude: the largest |term| x was summed from.
  void verify_row(const char *backend, int64_t r, const std::vector<double> &x, double magnitude) {
    double mean = 0, variance = 0, lo = 0, hi = 0, n = static_cast<double>(x.size());
    for (double v : x) mean += v;
    mean /= n;
    for (double v : x) variance += (v - mean) * (v - mean);
    double factor = 1 / sqrt(variance / n + static_cast<double>(eps_));
    std::vector<double> want(x.size()), tolerance(x.size());
    for (size_t i = 0; i < x.size(); i++) {
      double g = static_cast<double>(gamma_[i]), b = has_beta_ ? static_cast<double>(beta_[i]) : 0;
      want[i] = (x[i] - mean) * factor * g + b;
      tolerance[i] = sie_tol_norm(magnitude, factor, g, b, want[i] - b);
      lo = fmin(lo, want[i]);
      hi = fmax(hi, want[i]);
      double got = y_->get(r, static_cast<int64_t>(i)),
             t = tolerance[i] + sie_tol_store(y_->dtype(), want[i]);
      CHECK(fabs(got - want[i]) <= t, "%s %s %s: y[%lld,%zu] = %.9g, %.9g expected, ±%.2g", backend,
            form.c_str(), shape.c_str(), static_cast<long long>(r), i, got, want[i], t);
    }
    if (yq_ != nullptr && yq_->outlier(r) >= 0) {
      // The step is that of the others' range; the outlier is a multiple of it as well.
      size_t outlier = static_cast<size_t>(yq_->outlier(r));
      double whole = hi - lo;
      lo = hi = 0;
      for (size_t i = 0; i < x.size(); i++) {
        if (i != outlier) lo = fmin(lo, want[i]), hi = fmax(hi, want[i]);
        CHECK(fabs(want[i]) <= fabs(want[outlier]) + tolerance[i] + tolerance[outlier],
              "%s %s %s: row %lld: column %zu is larger than the outlier", backend, form.c_str(),
              shape.c_str(), static_cast<long long>(r), i);
      }
      if (hi - lo < whole / 32) hi = lo + whole / 32;
    }
    for (size_t i = 0; yq_ != nullptr && i < x.size(); i++) {
      double got = yq_->get(r, static_cast<int64_t>(i)),
             t = tolerance[i] + 1.01 * (hi - lo + tolerance[i]) / 255;
      CHECK(fabs(got - want[i]) <= t, "%s %s %s: yq[%lld,%zu] = %.9g, %.9g expected, ±%.2g", backend,
            form.c_str(), shape.c_str(), static_cast<long long>(r), i, got, want[i], t);
    }
  }

  float eps_ = 1e-12f;
  bool has_beta_ = true;
  std::unique_ptr<Rows> y_, yq_;
  std::vector<float> gamma_, beta_;
};

struct LayerNormConfig {
  int64_t r, c;
  int32_t x, y;
  bool quantised, in_place, beta, bench;
  Input input;
  bool outliers = false;
};

class LayerNormCase : public NormCase {
 public:
  LayerNormCase(const LayerNormConfig &config, int seed) : c_(config) {
    form = text("layernorm x=%s y=%s%s%s%s", dtype_text(c_.x), dtype_text(c_.y), c_.quantised ? " yq" : "",
                c_.outliers ? " outlier" : "", c_.in_place ? " in place" : "");
    shape = text("R=%lld C=%lld input=%s", static_cast<long long>(c_.r), static_cast<long long>(c_.c),
                 input_names[c_.input]);
    units = c_.r;
    bench = c_.bench;
    Random random(static_cast<uint32_t>(seed));
    int64_t gap = bench ? 0 : 1 + random.below(7), shift = bench ? 0 : random.below(9);
    x_.reset(new Rows(c_.r, c_.c, c_.x, gap, shift));
    make_outputs(c_.r, c_.c, c_.y, c_.quantised, gap, shift, &random, c_.beta, c_.outliers);
    for (int64_t r = 0; r < c_.r; r++) {
      for (int64_t i = 0; i < c_.c; i++) x_->set(r, i, value(&random, c_.input, r));
    }
  }

  bool present(const sie_ops *ops) const override { return ops->layernorm != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_LAYERNORM;
    b.rows = c_.r;
    b.c = c_.c;
    return b;
  }

  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    int32_t rows = static_cast<int32_t>(count);
    if (c_.in_place && share->part == share->parts - 1) {
      size_t bytes = static_cast<size_t>(c_.c) * (c_.x == SIE_F32 ? 4 : 2);
      for (int64_t r = first; r < first + count; r++) memcpy(y_->at(r), x_->at(r), bytes);
    }
    sie_layernorm_args a = {};
    a.rows = {c_.r, &rows};
    a.c = c_.c;
    a.x = c_.in_place ? y_->tensor(first) : x_->tensor(first);
    a.gamma = gamma_.data();
    a.beta = beta();
    a.eps = eps_;
    a.y = y_->tensor(first);
    if (yq_ != nullptr) a.yq = yq_->tensor(first);
    return ops->layernorm(&a, share);
  }

  void expect() override {}

  void verify(const char *backend) override {
    std::vector<double> x(static_cast<size_t>(c_.c));
    for (int64_t r = 0; r < c_.r; r++) {
      double largest = 0;
      for (int64_t i = 0; i < c_.c; i++) {
        x[static_cast<size_t>(i)] = x_->get(r, i);
        largest = fmax(largest, fabs(x_->get(r, i)));
      }
      verify_row(backend, r, x, largest);
    }
  }

  void poison(int64_t u) override { x_->poison(u); }
  double flops() const override { return 8.0 * static_cast<double>(c_.r * c_.c); }
  double bytes() const override {
    return static_cast<double>(c_.r * c_.c) *
           ((c_.x == SIE_F32 ? 4 : 2) + (c_.y == SIE_F32 ? 4 : 2) + (c_.quantised ? 1 : 0));
  }

 private:
  LayerNormConfig c_;
  std::unique_ptr<Rows> x_;
};

struct EmbedConfig {
  std::vector<int32_t> lengths;
  int64_t c;
  int32_t table, y;
  bool position, type, quantised, beta, bench;
  int32_t offset;
  Input input;
  bool outliers = false;
};

class EmbedCase : public NormCase {
 public:
  EmbedCase(const EmbedConfig &config, int seed) : c_(config) {
    form = text("embed_layernorm tables=%s%s%s y=%s%s", dtype_text(c_.table), c_.position ? " position" : "",
                c_.type ? " type" : "", dtype_text(c_.y),
                c_.quantised ? (c_.outliers ? " yq outlier" : " yq") : "");
    cu_.push_back(0);
    for (int32_t length : c_.lengths) cu_.push_back(cu_.back() + length);
    shape = text("T=%d B=%zu C=%lld input=%s", cu_.back(), c_.lengths.size(), static_cast<long long>(c_.c),
                 input_names[c_.input]);
    units = static_cast<int64_t>(c_.lengths.size());
    bench = c_.bench;
    Random random(static_cast<uint32_t>(seed));
    int64_t gap = bench ? 0 : 1 + random.below(7), shift = bench ? 0 : random.below(9);
    word_ = table(vocabulary, gap, shift, &random);
    position_ = table(positions, gap, shift, &random);
    type_ = table(2, gap, shift, &random);
    for (int32_t i = 0; i < cu_.back(); i++) {
      // The last row of each table is used: it ends where the memory ends.
      ids_.push_back(i % 9 == 8 ? vocabulary - 2 : random.below(vocabulary - 1));
      types_.push_back(random.below(2));
    }
    make_outputs(cu_.back(), c_.c, c_.y, c_.quantised, gap, shift, &random, c_.beta, c_.outliers);
  }

  bool present(const sie_ops *ops) const override { return ops->embed_layernorm != nullptr; }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_EMBED_LAYERNORM;
    b.rows = cu_.back();
    b.c = c_.c;
    return b;
  }

  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    std::vector<int32_t> cu;
    for (int64_t b = first; b <= first + count; b++)
      cu.push_back(cu_[static_cast<size_t>(b)] - cu_[static_cast<size_t>(first)]);
    int64_t row = cu_[static_cast<size_t>(first)];
    int32_t tokens = cu.back(), seqs = static_cast<int32_t>(count);
    sie_embed_layernorm_args a = {};
    a.tokens = {cu_.back(), &tokens};
    a.seqs = {units, &seqs};
    a.ids = ids_.data() + row;
    a.type_ids = c_.type ? types_.data() + row : nullptr;
    a.cu_seqlens = cu.data();
    a.word = word_->tensor();
    if (c_.position) a.position = position_->tensor();
    if (c_.type) a.type = type_->tensor();
    a.position_offset = c_.offset;
    a.gamma = gamma_.data();
    a.beta = beta();
    a.eps = eps_;
    a.c = c_.c;
    a.y = y_->tensor(row);
    if (yq_ != nullptr) a.yq = yq_->tensor(row);
    return ops->embed_layernorm(&a, share);
  }

  void rows_of(int64_t u, int64_t *first, int64_t *last) const override {
    *first = cu_[static_cast<size_t>(u)];
    *last = cu_[static_cast<size_t>(u) + 1];
  }

  void expect() override {}

  void verify(const char *backend) override {
    std::vector<double> x(static_cast<size_t>(c_.c));
    for (size_t b = 0; b < c_.lengths.size(); b++) {
      for (int32_t t = cu_[b]; t < cu_[b + 1]; t++) {
        double largest = 0;
        for (int64_t i = 0; i < c_.c; i++) {
          double terms[] = {word_->get(ids_[static_cast<size_t>(t)], i),
                            c_.position ? position_->get(t - cu_[b] + c_.offset, i) : 0,
                            c_.type ? type_->get(types_[static_cast<size_t>(t)], i) : 0};
          x[static_cast<size_t>(i)] = terms[0] + terms[1] + terms[2];
          largest = fmax(largest, fabs(terms[0]) + fabs(terms[1]) + fabs(terms[2]));
        }
        verify_row(backend, t, x, largest);
      }
    }
  }

  // The poisoned word is one that no other sequence has.
  void poison(int64_t u) override {
    word_->poison(vocabulary - 1);
    for (int32_t t = cu_[static_cast<size_t>(u)]; t < cu_[static_cast<size_t>(u) + 1]; t++) {
      ids_[static_cast<size_t>(t)] = vocabulary - 1;
    }
  }

  double flops() const override { return 10.0 * static_cast<double>(cu_.back() * c_.c); }
  double bytes() const override {
    return static_cast<double>(cu_.back() * c_.c) *
           (2 * (c_.table == SIE_F32 ? 4 : 2) + (c_.y == SIE_F32 ? 4 : 2));
  }

 private:
  static constexpr int32_t vocabulary = 50, positions = 700;

  std::unique_ptr<Rows> table(int64_t rows, int64_t gap, int64_t shift, Random *random) {
    std::unique_ptr<Rows> t(new Rows(rows, c_.c, c_.table, gap, shift));
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t i = 0; i < c_.c; i++) t->set(r, i, value(random, c_.input, r));
    }
    return t;
  }

  EmbedConfig c_;
  std::vector<int32_t> cu_, ids_, types_;
  std::unique_ptr<Rows> word_, position_, type_;
};

}  // namespace

std::unique_ptr<Case> make_layernorm(int index) {
  static const std::vector<LayerNormConfig> list = [] {
    std::vector<LayerNormConfig> all;
    const int64_t rows[] = {0, 1, 7, 31, 32, 33, 64, 65, 130, 513};
    const int64_t columns[] = {1, 7, 31, 32, 33, 64, 65, 130, 384, 1024};
    for (size_t i = 0; i < 10; i++) {
      for (size_t j = 0; j < 2; j++) {
        bool bf16_x = (i + j) % 3 == 0, bf16_y = (i + j) % 2 == 0;
        all.push_back({rows[i], columns[(3 * i + 7 * j) % 10], bf16_x ? SIE_BF16 : SIE_F32,
                       bf16_y ? SIE_BF16 : SIE_F32, i % 2 == 1, false, i % 4 != 0, false, plain});
      }
    }
    for (int32_t x : {SIE_F32, SIE_BF16}) {
      for (int32_t y : {SIE_F32, SIE_BF16}) {
        for (bool quantised : {false, true})
          all.push_back({21, 77, x, y, quantised, false, true, false, plain});
        all.push_back({21, 77, x, y, true, false, true, false, plain, true});
      }
      all.push_back({21, 77, x, x, true, true, true, false, plain});
      all.push_back({21, 77, x, x, false, true, false, false, plain});
    }
    for (Input input : {outliers, equal_rows, denormals, offset}) {
      for (bool outlier : {false, true})
        all.push_back({20, 384, SIE_F32, SIE_F32, true, false, true, false, input, outlier});
      all.push_back({20, 100, SIE_F32, SIE_BF16, false, false, true, false, input});
    }
    for (int32_t x : {SIE_F32, SIE_BF16}) all.push_back({512, 384, x, x, false, false, true, true, plain});
    for (bool outlier : {false, true})
      all.push_back({512, 384, SIE_F32, SIE_F32, true, false, true, true, plain, outlier});
    return all;
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  return std::unique_ptr<Case>(new LayerNormCase(list[static_cast<size_t>(index)], 300 + index));
}

std::unique_ptr<Case> make_embed(int index) {
  static const std::vector<EmbedConfig> list = [] {
    std::vector<EmbedConfig> all;
    const std::vector<int32_t> none = {}, one = {1}, ragged = {7, 1, 0, 33, 64, 2, 0, 130, 31},
                               empty = {0, 0};
    for (int32_t table : {SIE_F32, SIE_BF16}) {
      for (int32_t y : {SIE_F32, SIE_BF16}) {
        for (bool quantised : {false, true}) {
          all.push_back({ragged, 65, table, y, true, true, quantised, true, false, 0, plain});
          all.push_back({ragged, 33, table, y, true, false, quantised, false, false, 2, plain});
        }
        all.push_back({ragged, 65, table, y, true, true, true, true, false, 0, plain, true});
        all.push_back({ragged, 64, table, y, false, false, false, true, false, 0, plain});
      }
    }
    for (const std::vector<int32_t> &lengths : {none, one, empty}) {
      all.push_back({lengths, 31, SIE_F32, SIE_F32, true, true, true, true, false, 1, plain});
    }
    for (int64_t c : {1, 7, 384})
      all.push_back({ragged, c, SIE_F32, SIE_F32, true, true, true, true, false, 1, plain});
    for (Input input : {outliers, equal_rows, offset}) {
      for (bool outlier : {false, true})
        all.push_back({ragged, 130, SIE_F32, SIE_F32, true, true, true, true, false, 0, input, outlier});
    }
    const std::vector<int32_t> passages = {128, 128, 128, 128};
    for (int32_t t : {SIE_F32, SIE_BF16})
      all.push_back({passages, 384, t, t, true, true, false, true, true, 0, plain});
    return all;
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  return std::unique_ptr<Case>(new EmbedCase(list[static_cast<size_t>(index)], 500 + index));
}

}  // namespace harness
