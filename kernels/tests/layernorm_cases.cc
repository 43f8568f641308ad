// layernorm_cases.cc — layernorm: both norms, bias and residual before, the sum beside, quantised
// twins.
#include <math.h>

#include "common/dtype.h"
#include "common/tol.h"
#include "tests/model_cases.h"
#include "tests/norm_case.h"

namespace harness {

namespace {

struct Config {
  int64_t r, c;
  int32_t x, y;
  Twin twin;
  bool in_place, beta, bench;
  Input input;
  int32_t norm = SIE_NORM_LAYER;
  bool bias = false;
  int32_t residual = 0, sum = 0;  // types; 0: absent
  bool sum_in_residual = false;   // sum and residual are one tensor
  float weight_offset = 0;
};

class LayerNormCase : public NormCase {
 public:
  LayerNormCase(const Config &config, Layout layout, int seed) : c_(config) {
    form = text("layernorm%s x=%s y=%s%s%s%s", c_.norm == SIE_NORM_RMS ? " rms" : "", dtype_text(c_.x),
                dtype_text(c_.y), twin_names[c_.twin], c_.in_place ? " in place" : "", extras().c_str());
    shape = text("R=%lld C=%lld input=%s", static_cast<long long>(c_.r), static_cast<long long>(c_.c),
                 input_names[c_.input]);
    units = c_.r;
    bench = c_.bench;
    if (names_only) return;
    eps_ = c_.norm == SIE_NORM_RMS ? 1e-6f : 1e-12f;
    Random random(static_cast<uint32_t>(seed));
    x_.reset(new Rows(&random, operand(layout), c_.r, c_.c, c_.x));
    make_outputs(&random, layout, c_.r, c_.c, c_.y, c_.twin, c_.beta, c_.norm, c_.weight_offset);
    fill(x_.get(), &random);
    if (c_.residual != 0) {
      residual_.reset(new Rows(&random, layout, c_.r, c_.c, c_.residual));
      fill(residual_.get(), &random);
    }
    if (c_.sum != 0) {
      sum_.reset(new Rows(&random, layout, c_.r, c_.c, c_.sum));
      outputs.push_back(sum_.get());
    }
    for (int64_t i = 0; i < c_.c && c_.bias; i++) bias_.push_back(random.real());
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
    if (first_share(share)) {
      if (c_.in_place) y_->copy(*x_, first, first + count);
      if (c_.sum_in_residual) sum_->copy(*residual_, first, first + count);
    }
    sie_layernorm_args a = {};
    a.rows = row_count(0, c_.r - first, count);
    a.c = c_.c;
    a.x = c_.in_place ? y_->tensor(first) : x_->tensor(first);
    a.gamma = gamma_.data();
    a.beta = beta();
    a.eps = eps_;
    a.y = y_->tensor(first);
    if (yq_ != nullptr) a.yq = yq_->tensor(first);
    a.norm = c_.norm;
    a.weight_offset = c_.weight_offset;
    a.bias = c_.bias ? bias_.data() : nullptr;
    if (residual_ != nullptr)
      a.residual = c_.sum_in_residual ? sum_->tensor(first) : residual_->tensor(first);
    if (sum_ != nullptr) a.sum = sum_->tensor(first);
    sie_status status = ops->layernorm(&a, share);
    // A refusal leaves the outputs alone, so what was copied into them is cleared.
    for (Rows *rows : outputs) {
      if (status == SIE_UNSUPPORTED && (c_.in_place || c_.sum_in_residual)) rows->clear();
    }
    return status;
  }

  void expect() override {}

  void verify(const char *backend) override {
    std::vector<double> x(static_cast<size_t>(c_.c));
    for (int64_t r = 0; r < c_.r; r++) {
      double largest = 0;
      for (int64_t i = 0; i < c_.c; i++) {
        // In f32, in this order: the sum is exact to the bit.
        float s = static_cast<float>(x_->get(r, i)), magnitude = fabsf(s);
        if (c_.bias) s += bias_[static_cast<size_t>(i)], magnitude += fabsf(bias_[static_cast<size_t>(i)]);
        if (residual_ != nullptr) {
          s += static_cast<float>(residual_->get(r, i));
          magnitude += fabsf(static_cast<float>(residual_->get(r, i)));
        }
        x[static_cast<size_t>(i)] = static_cast<double>(s);
        largest = fmax(largest, static_cast<double>(magnitude));
        if (sum_ == nullptr) continue;
        float want = s;
        if (c_.sum == SIE_BF16) want = sie_f32_from_bf16(sie_bf16_from_f32(s));
        if (c_.sum == SIE_F16) want = sie_f32_from_f16(sie_f16_from_f32(s));
        CHECK(static_cast<float>(sum_->get(r, i)) == want, "%s %s %s: sum[%lld,%lld] = %.9g, not %.9g",
              backend, form.c_str(), shape.c_str(), static_cast<long long>(r), static_cast<long long>(i),
              sum_->get(r, i), static_cast<double>(want));
      }
      verify_row(backend, r, x, largest);
    }
  }

  void poison(int64_t u) override {
    x_->poison(u);
    if (residual_ != nullptr) residual_->poison(u);
  }
  double flops() const override { return 8.0 * static_cast<double>(c_.r * c_.c); }
  double bytes() const override {
    double element = 0;
    for (int32_t t : {c_.x, c_.y, c_.residual, c_.sum}) element += t == 0 ? 0 : (t == SIE_F32 ? 4 : 2);
    return static_cast<double>(c_.r * c_.c) * (element + (c_.twin != no_twin ? 1 : 0));
  }

 private:
  std::string extras() const {
    std::string all;
    if (c_.bias) all += " bias";
    if (c_.residual != 0) all += text(" residual=%s", dtype_text(c_.residual));
    if (c_.sum != 0) all += text(" sum=%s%s", dtype_text(c_.sum), c_.sum_in_residual ? " in place" : "");
    if (c_.weight_offset != 0) all += " offset";
    return all;
  }

  void fill(Rows *rows, Random *random) {
    for (int64_t r = 0; r < c_.r; r++) {
      for (int64_t i = 0; i < c_.c; i++) rows->set(r, i, input_value(random, c_.input, r));
    }
  }

  Config c_;
  Array<float> bias_;
  std::unique_ptr<Rows> x_, residual_, sum_;
};

void add_plain(std::vector<Config> *all) {
  const int64_t rows[] = {0, 1, 7, 31, 32, 33, 64, 65, 130, 513};
  const int64_t columns[] = {1, 7, 31, 32, 33, 64, 65, 130, 384, 1024};
  for (size_t i = 0; i < 10; i++) {
    for (size_t j = 0; j < 2; j++) {
      bool bf16_x = (i + j) % 3 == 0, bf16_y = (i + j) % 2 == 0;
      all->push_back({rows[i], columns[(3 * i + 7 * j) % 10], bf16_x ? SIE_BF16 : SIE_F32,
                      bf16_y ? SIE_BF16 : SIE_F32, i % 2 == 1 ? twin_u8 : no_twin, false, i % 4 != 0, false,
                      plain});
    }
    all->push_back(
        {rows[i], columns[(7 * i + 2) % 10], SIE_F16, SIE_F16, no_twin, false, i % 4 != 0, false, plain});
  }
  for (int32_t x : {SIE_F32, SIE_BF16}) {
    for (int32_t y : {SIE_F32, SIE_BF16}) {
      for (Twin twin : {no_twin, twin_u8, twin_u8_outlier, twin_f8})
        all->push_back({21, 77, x, y, twin, false, true, false, plain});
    }
    all->push_back({21, 77, x, x, twin_u8, true, true, false, plain});
  }
  for (int32_t x : {SIE_F32, SIE_BF16, SIE_F16}) {
    all->push_back({21, 77, x, x, no_twin, true, true, false, plain});
    all->push_back({21, 768, x, x, twin_f8, false, true, false, plain});
  }
  for (Input input : {outliers, equal_rows, denormals, offset}) {
    for (Twin twin : {twin_u8, twin_u8_outlier, twin_f8})
      all->push_back({20, 384, SIE_F32, SIE_F32, twin, false, true, false, input});
    all->push_back({20, 100, SIE_F32, SIE_BF16, no_twin, false, true, false, input});
    all->push_back({20, 104, SIE_BF16, SIE_BF16, no_twin, false, true, false, input});
  }
}

// Post-norm (bias, residual) and pre-norm (residual, sum) blocks, both norms, every type.
void add_residual(std::vector<Config> *all) {
  const int64_t columns[] = {1, 7, 33, 64, 130, 384, 768, 1024};
  size_t i = 0;
  for (int32_t norm : {SIE_NORM_LAYER, SIE_NORM_RMS}) {
    for (int32_t t : {SIE_F32, SIE_BF16, SIE_F16}) {
      for (Twin twin : {no_twin, twin_f8}) {
        bool beta = norm == SIE_NORM_LAYER;
        float offset = norm == SIE_NORM_RMS && t != SIE_F32 ? 1.0f : 0.0f;
        auto add = [&](int64_t r, bool bias, int32_t residual, int32_t sum, bool in_residual) {
          all->push_back({r, columns[i++ % 8], t, t, twin, false, beta, false, plain, norm, bias, residual,
                          sum, in_residual, offset});
        };
        add(33, false, 0, 0, false);
        add(33, true, 0, 0, false);
        add(33, true, t, 0, false);
        add(65, false, t, t, false);
        add(33, true, t, t, true);
        add(33, false, SIE_F32, SIE_F32, true);
      }
    }
    for (int64_t r : {0, 1, 7, 31, 32, 33, 64, 65, 130, 513}) {
      all->push_back({r, columns[i++ % 8], SIE_BF16, SIE_BF16, no_twin, false, norm == SIE_NORM_LAYER, false,
                      plain, norm, true, SIE_BF16, SIE_BF16});
    }
    for (Input input : {outliers, equal_rows, denormals, offset}) {
      all->push_back(
          {20, 96, SIE_F32, SIE_F32, no_twin, false, true, false, input, norm, true, SIE_F32, SIE_F32});
      all->push_back(
          {20, 96, SIE_BF16, SIE_BF16, twin_u8, false, true, false, input, norm, true, SIE_BF16, SIE_BF16});
    }
    all->push_back({21, 77, SIE_BF16, SIE_BF16, no_twin, true, true, false, plain, norm, true, SIE_BF16});
    for (int32_t t : {SIE_F32, SIE_BF16})
      all->push_back({512, 384, t, t, no_twin, false, false, true, plain, norm, true, t, t});
  }
}

// Streams: sums in f32 whatever the class's type. Norms of one alone, behind a branch of the class's
// type or of f32, into rows of the class's type with or without an e4m3 twin.
void add_streams(std::vector<Config> *all) {
  const int64_t columns[] = {33, 64, 130, 768, 1544};
  size_t i = 0;
  for (int32_t norm : {SIE_NORM_LAYER, SIE_NORM_RMS}) {
    for (int32_t narrow : {SIE_BF16, SIE_F16}) {
      for (Twin twin : {no_twin, twin_f8}) {
        auto add = [&](int32_t x, int32_t residual, int32_t sum) {
          all->push_back({17, columns[i++ % 5], x, narrow, twin, false, norm == SIE_NORM_LAYER, false, plain,
                          norm, false, residual, sum});
        };
        add(SIE_F32, 0, 0);
        add(SIE_F32, 0, SIE_F32);
        add(narrow, SIE_F32, SIE_F32);
        add(SIE_F32, SIE_F32, SIE_F32);
      }
    }
  }
}

// Every form that a GPU has for rows, one to eight warps each, and the widths at which the next
// form begins.
void add_wide(std::vector<Config> *all) {
  int i = 0;
  auto add = [&](int64_t r, int64_t c, int32_t t, bool residual) {
    all->push_back({r, c, t, t, i % 3 == 0 ? twin_f8 : no_twin, false, true, false, plain,
                    i / 2 % 2 == 0 ? SIE_NORM_LAYER : SIE_NORM_RMS, residual, residual ? t : 0,
                    residual ? t : 0});
    i++;
  };
  for (int64_t c : {256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192}) {
    for (int32_t t : {SIE_BF16, SIE_F16}) {
      add(2, c, t, false);
      add(2, c, t, true);
    }
  }
  for (int64_t c : {257, 520, 776, 1032, 1544, 2049, 3080, 4104, 6152, 8191}) add(9, c, SIE_BF16, c % 2 == 0);
}

}  // namespace

std::unique_ptr<Case> make_layernorm(int index) {
  static const std::vector<std::pair<Config, Layout>> list = [] {
    std::vector<Config> all;
    add_plain(&all);
    add_residual(&all);
    add_streams(&all);
    add_wide(&all);
    for (int32_t x : {SIE_F32, SIE_BF16}) all.push_back({512, 384, x, x, no_twin, false, true, true, plain});
    for (Twin twin : {twin_u8, twin_u8_outlier})
      all.push_back({512, 384, SIE_F32, SIE_F32, twin, false, true, true, plain});
    return in_layouts(all, true);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<LayerNormCase>(config, layout, 300 + index);
}

std::unique_ptr<Case> model_norm(const ModelShape &m, const Lengths &lengths, bool twin) {
  const int32_t before = m.rotary ? SIE_BF16 : 0;  // residual in, sum out
  return in_layout<LayerNormCase>(
      Config{tokens_of(lengths), m.width, SIE_BF16, SIE_BF16, twin ? twin_f8 : no_twin, false,
             m.norm == SIE_NORM_LAYER, true, plain, m.norm, false, before, before},
      dense, 1);
}

}  // namespace harness
