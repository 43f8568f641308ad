// linear_cases.cc — y = act(x·Wᵀ + bias) + residual in three classes.
#include <math.h>

#include "common/dtype.h"
#include "common/tol.h"
#include "harness.h"

namespace harness {

namespace {

enum Input { plain, outliers, equal_rows, denormals, extremes };
const char *const input_names[] = {"plain", "outliers", "equal", "denormals", "extremes"};

struct Config {
  uint32_t compute;
  int64_t r, n, k;
  int32_t y, residual;  // residual 0: none
  int32_t act;
  bool bias, in_place, bench;
  Input input;
  const char *why;        // part of the form: what this case shows
  bool outliers = false;  // of x, and of y where it is u8
};

const char *const classes[] = {"", "f32", "bf16", "int8"};

class LinearCase : public Case {
 public:
  explicit LinearCase(const Config &config, int seed) : c_(config) {
    form = text("linear class=%s y=%s residual=%s%s", classes[c_.compute], dtype_text(c_.y),
                dtype_text(c_.residual), c_.why);
    shape = text("R=%lld N=%lld K=%lld input=%s", static_cast<long long>(c_.r), static_cast<long long>(c_.n),
                 static_cast<long long>(c_.k), input_names[c_.input]);
    units = c_.r;
    bench = c_.bench;
    Random random(static_cast<uint32_t>(seed));
    // Odd strides and starts, but for the bench, which shows what aligned rows give.
    int64_t gap = bench ? 0 : 1 + random.below(7), shift = bench ? 0 : random.below(9);
    int32_t x_dtype =
        c_.compute == SIE_COMPUTE_F32 ? SIE_F32 : (c_.compute == SIE_COMPUTE_BF16 ? SIE_BF16 : SIE_U8);
    x_.reset(new Rows(c_.r, c_.k, x_dtype, gap, shift, c_.outliers));
    y_.reset(new Rows(c_.r, c_.n, c_.y, gap, shift, c_.outliers && c_.y == SIE_U8));
    expected_.reset(new Rows(c_.r, c_.n, SIE_F32, 0, 0));
    before_act_.reset(new Rows(c_.r, c_.n, SIE_F32, 0, 0));
    if (c_.residual != 0) residual_.reset(new Rows(c_.r, c_.n, c_.residual, gap, shift));
    fill(&random);
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override {
    return ops->linear != nullptr && (ops->compute_mask >> c_.compute & 1) != 0;
  }

  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_LINEAR;
    b.compute = c_.compute;
    b.rows = c_.r;
    b.n = c_.n;
    b.k = b.c = c_.k;
    return b;
  }

  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    // In place, the first share that is run brings the residual.
    if (c_.in_place && share->part == share->parts - 1) copy_residual(first, count);
    return call_into(ops, share, first, count, c_.act, *y_, c_.in_place ? y_.get() : residual_.get());
  }

  void expect() override {
    const sie_ops *ref = sie_ref_ops();
    sie_op_bounds b = bounds();
    Scratch scratch(ref, b);
    sie_share share = scratch.share(0, 1);
    call_into(ref, &share, 0, c_.r, c_.act, *expected_, residual_.get());
    call_into(ref, &share, 0, c_.r, SIE_ACT_NONE, *before_act_, nullptr);
  }

  void verify(const char *backend) override {
    for (int64_t r = 0; r < c_.r; r++) {
      double x_norm = row_norm(r), lo = 0, hi = 0;
      for (int64_t n = 0; n < c_.n; n++) {
        lo = fmin(lo, expected_->get(r, n));
        hi = fmax(hi, expected_->get(r, n));
      }
      if (y_->outlier(r) >= 0) range_without(r, y_->outlier(r), &lo, &hi);
      for (int64_t n = 0; n < c_.n; n++) {
        double z = before_act_->get(r, n), want = expected_->get(r, n), got = y_->get(r, n);
        double bias = c_.bias ? fabs(static_cast<double>(bias_[static_cast<size_t>(n)])) : 0;
        double dz = sie_tol_dot(c_.k, x_norm, weight_->norm(n)) + 2 * SIE_TOL_U * (fabs(z) + bias) + flushed_;
        double tolerance =
            sie_tol_act(c_.act, c_.compute, c_.y, z, dz) + 4 * SIE_TOL_U * (fabs(want) + fabs(want - z));
        tolerance += c_.y == SIE_U8 ? 1.01 * (hi - lo) / 255 : sie_tol_store(c_.y, want);
        CHECK(fabs(got - want) <= tolerance, "%s %s act=%d %s: y[%lld,%lld] = %.9g, %.9g expected, ±%.2g",
              backend, form.c_str(), c_.act, shape.c_str(), static_cast<long long>(r),
              static_cast<long long>(n), got, want, tolerance);
      }
      if (c_.y == SIE_U8) {
        double scale = hi > lo ? (hi - lo) / 255 : 1;
        CHECK(fabs(static_cast<double>(y_->scale(r)) - scale) <= 2e-2 * scale,
              "%s %s %s: scale %g of row %lld, %g expected", backend, form.c_str(), shape.c_str(),
              static_cast<double>(y_->scale(r)), static_cast<long long>(r), scale);
      }
    }
  }

  void poison(int64_t u) override {
    x_->poison(u);
    if (residual_ != nullptr) residual_->poison(u);
  }

  double flops() const override { return 2.0 * static_cast<double>(c_.r * c_.n * c_.k); }
  double bytes() const override {
    double element = c_.compute == SIE_COMPUTE_F32 ? 4 : (c_.compute == SIE_COMPUTE_BF16 ? 2 : 1);
    return element * static_cast<double>(c_.n * c_.k + c_.r * c_.k + c_.r * c_.n);
  }

 private:
  sie_status call_into(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count, int32_t act,
                       const Rows &y, const Rows *residual) {
    int32_t rows = static_cast<int32_t>(count);
    sie_linear_args a = {};
    a.rows = {c_.r, &rows};
    a.n = c_.n;
    a.k = c_.k;
    a.x = x_->tensor(first);
    a.w = weight_->packed(ops);
    a.bias = c_.bias ? bias_.data() : nullptr;
    a.act = act;
    if (residual != nullptr) a.residual = residual->tensor(first);
    a.y = y.tensor(first);
    return ops->linear(&a, share);
  }

  // The step of a row with an outlier is that of the others' range, as long as that is not too small.
  void range_without(int64_t r, int64_t outlier, double *lo, double *hi) const {
    double whole = *hi - *lo;
    *lo = *hi = 0;
    for (int64_t n = 0; n < c_.n; n++) {
      if (n == outlier) continue;
      *lo = fmin(*lo, expected_->get(r, n));
      *hi = fmax(*hi, expected_->get(r, n));
    }
    if (*hi - *lo < whole / 32) *hi = *lo + whole / 32;
  }

  void copy_residual(int64_t first, int64_t count) {
    size_t bytes = static_cast<size_t>(c_.n) * (c_.y == SIE_F32 ? 4 : 2);
    for (int64_t r = first; r < first + count; r++) memcpy(y_->at(r), residual_->at(r), bytes);
  }

  float value(Random *random, int64_t r) const {
    switch (c_.input) {
      case outliers:
        return random->below(40) == 0 ? random->real() * 1e4f : random->real();
      case equal_rows:
        return 0.5f + 0.25f * static_cast<float>(r % 3);
      case denormals:
        return random->real() * 1e-39f;
      default:
        return random->real();
    }
  }

  void fill(Random *random) {
    for (int64_t r = 0; r < c_.r; r++) {
      if (c_.compute == SIE_COMPUTE_INT8) {
        fill_quantised(random, r);
        continue;
      }
      for (int64_t k = 0; k < c_.k; k++) x_->set(r, k, value(random, r));
    }
    for (int64_t r = 0; residual_ != nullptr && r < c_.r; r++) {
      for (int64_t n = 0; n < c_.n; n++) residual_->set(r, n, random->real() * 2);
    }
    for (int64_t n = 0; n < c_.n; n++) bias_.push_back(random->real());
    std::vector<float> w(static_cast<size_t>(c_.n * c_.k));
    float scale = 2 / sqrtf(static_cast<float>(c_.k));
    for (float &x : w) x = random->real() * scale;
    if (c_.compute == SIE_COMPUTE_INT8) quantise_weights(random, &w);
    if (c_.compute == SIE_COMPUTE_BF16) {
      for (float &x : w) x = sie_f32_from_bf16(sie_bf16_from_f32(x));
    }
    // AMX takes denormal bf16 operands as zero.
    if (c_.input == denormals && c_.compute == SIE_COMPUTE_BF16) flushed_ = 2e-38;
    weight_.reset(new Weight(c_.compute, c_.n, c_.k, std::move(w)));
  }

  // On the grid of its own scale, so that every way to round gives the same integers.
  void quantise_weights(Random *random, std::vector<float> *w) const {
    for (int64_t n = 0; n < c_.n; n++) {
      float step = ldexpf(1.0f, static_cast<int>(-9 - n % 4));
      for (int64_t k = 0; k < c_.k; k++) {
        int32_t q = c_.input == extremes ? (n % 2 == 0 ? 127 : -127) : random->below(255) - 127;
        (*w)[static_cast<size_t>(n * c_.k + k)] = static_cast<float>(k == n % c_.k ? 127 : q) * step;
      }
    }
  }

  void fill_quantised(Random *random, int64_t r) {
    sie_tensor t = x_->tensor(r);
    *t.scale = 0.01f * (1.5f + random->real());
    *t.zero = c_.input == extremes ? (r % 2 == 0 ? 0 : 255) : random->below(256);
    for (int64_t k = 0; k < c_.k; k++) {
      static_cast<uint8_t *>(t.p)[k] = static_cast<uint8_t>(c_.input == extremes ? 255 : random->below(256));
    }
    if (t.outlier == nullptr) return;
    // Neighbouring rows share a column or do not; the last one is where K is ragged.
    int32_t k = static_cast<int32_t>(
        r % 5 == 4 ? c_.k - 1 : (r % 5 < 2 ? c_.k / 2 : random->below(static_cast<int32_t>(c_.k))));
    *t.outlier = {k, c_.input == extremes ? (r % 2 == 0 ? 32767 : -32768)
                                          : (r % 7 == 6 ? 0 : random->below(16000) - 8000)};
  }

  // For INT8 of q without its zero point, too: a kernel may subtract after the sum.
  double row_norm(int64_t r) const {
    double sum = 0;
    for (int64_t k = 0; k < c_.k; k++) {
      double x = x_->get(r, k);
      if (c_.compute == SIE_COMPUTE_INT8)
        x = fabs(x) + static_cast<double>(x_->scale(r) * static_cast<float>(x_->zero(r)));
      sum += x * x;
    }
    return sqrt(sum);
  }

  Config c_;
  double flushed_ = 0;
  std::unique_ptr<Rows> x_, y_, residual_, expected_, before_act_;
  std::unique_ptr<Weight> weight_;
  std::vector<float> bias_;
};

void add_sizes(std::vector<Config> *list, uint32_t compute) {
  const int64_t rows[] = {0, 1, 7, 31, 32, 33, 64, 65, 130, 513};
  const int64_t shapes[][2] = {{33, 65}, {1, 1},    {130, 33}, {65, 130}, {7, 31},
                               {64, 64}, {31, 513}, {32, 7},   {96, 128}, {34, 34}};
  const int32_t ys[] = {SIE_F32, SIE_BF16, SIE_U8}, residuals[] = {0, SIE_F32, SIE_BF16};
  for (size_t i = 0; i < 10; i++) {
    for (size_t j = 0; j < 3; j++) {
      const int64_t *s = shapes[(i + 3 * j) % 10];
      list->push_back({compute, rows[i], s[0], s[1], ys[(i + j) % 3], residuals[(i / 3 + j) % 3],
                       static_cast<int32_t>((i + j) % 2), (i + j) % 4 != 0, false, false, plain, ""});
    }
  }
  // Real shapes: more than one block of every kind.
  list->push_back({compute, 65, 1152, 384, SIE_F32, 0, SIE_ACT_NONE, true, false, false, plain, ""});
  list->push_back({compute, 13, 384, 1536, SIE_F32, SIE_F32, SIE_ACT_NONE, true, false, false, plain, ""});
}

void add_types(std::vector<Config> *list, uint32_t compute) {
  for (int32_t y : {SIE_F32, SIE_BF16, SIE_U8}) {
    for (int32_t residual : {0, static_cast<int32_t>(SIE_F32), static_cast<int32_t>(SIE_BF16)}) {
      list->push_back({compute, 37, 70, 45, y, residual, SIE_ACT_GELU_ERF, true, false, false, plain, ""});
    }
    static const char *const acts[] = {" act=none",      " act=gelu", " act=tanh",
                                       " act=gelu_tanh", " act=relu", " act=silu"};
    for (int32_t act = 0; act < 6; act++) {
      list->push_back({compute, 9, 70, 45, y, 0, act, true, false, false, outliers, acts[act]});
    }
  }
  list->push_back(
      {compute, 37, 70, 45, SIE_F32, SIE_F32, SIE_ACT_NONE, true, true, false, plain, " in place"});
  list->push_back(
      {compute, 37, 70, 45, SIE_BF16, SIE_BF16, SIE_ACT_NONE, true, true, false, plain, " in place"});
  for (Input input : {outliers, equal_rows, denormals, extremes}) {
    list->push_back({compute, 35, 66, 257, SIE_F32, 0, SIE_ACT_NONE, false, false, false, input, ""});
  }
}

void add_outliers(std::vector<Config> *list) {
  const int64_t shapes[][3] = {{1, 1, 1},   {7, 33, 65},   {31, 70, 45},  {33, 130, 31}, {65, 34, 127},
                               {12, 32, 4}, {64, 64, 384}, {35, 66, 257}, {13, 96, 1536}};
  for (const int64_t *s : shapes) {
    for (int32_t y : {SIE_F32, SIE_BF16, SIE_U8}) {
      list->push_back({SIE_COMPUTE_INT8, s[0], s[1], s[2], y, y == SIE_BF16 ? SIE_BF16 : 0,
                       y == SIE_U8 ? SIE_ACT_GELU_ERF : SIE_ACT_NONE, true, false, false, plain, " outlier",
                       true});
    }
  }
  list->push_back({SIE_COMPUTE_INT8, 35, 66, 257, SIE_F32, 0, SIE_ACT_NONE, false, false, false, extremes,
                   " outlier", true});
}

void add_bench(std::vector<Config> *list, uint32_t compute) {
  bool quantised = compute == SIE_COMPUTE_INT8;
  int32_t act_type = compute == SIE_COMPUTE_BF16 ? SIE_BF16 : SIE_F32;
  for (int64_t r : {1, 16, 64, 512}) {
    auto add = [&](int64_t n, int64_t k, int32_t y, int32_t residual, int32_t act) {
      list->push_back({compute, r, n, k, y, residual, act, true, false, true, plain, ""});
      if (quantised)
        list->push_back({compute, r, n, k, y, residual, act, true, false, true, plain, " outlier", true});
    };
    add(1152, 384, act_type, 0, SIE_ACT_NONE);
    add(384, 384, SIE_F32, act_type, SIE_ACT_NONE);
    add(1536, 384, quantised ? static_cast<int32_t>(SIE_U8) : act_type, 0, SIE_ACT_GELU_ERF);
    add(384, 1536, SIE_F32, act_type, SIE_ACT_NONE);
  }
}

}  // namespace

std::unique_ptr<Case> make_linear(int index) {
  static const std::vector<Config> list = [] {
    std::vector<Config> all;
    for (uint32_t compute : {SIE_COMPUTE_F32, SIE_COMPUTE_BF16, SIE_COMPUTE_INT8}) {
      add_sizes(&all, compute);
      add_types(&all, compute);
      add_bench(&all, compute);
    }
    add_outliers(&all);
    return all;
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  return std::unique_ptr<Case>(new LinearCase(list[static_cast<size_t>(index)], 100 + index));
}

}  // namespace harness
