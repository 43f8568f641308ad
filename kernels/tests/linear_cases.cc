// linear_cases.cc — y = act(x·Wᵀ + bias + addend) + residual, or a gate of it, in every class.
#include <math.h>

#include "common/dtype.h"
#include "common/tol.h"
#include "tests/linear_case.h"
#include "tests/model_cases.h"

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
  int32_t gate = SIE_GATE_NONE;
  int32_t group = -1;  // columns a scale of x, class FP8
  bool addend = false;
};

const char *const classes[] = {"", "f32", "bf16", "int8", "f16", "fp8"};
const char *const gates[] = {"", " gate=swiglu", " gate=geglu", " gate=geglu_tanh"};

int32_t x_dtype(uint32_t compute) {
  static const int32_t types[] = {0, SIE_F32, SIE_BF16, SIE_U8, SIE_F16, SIE_F8E4M3};
  return types[compute];
}

int64_t bytes_of(int32_t dtype) {
  return dtype == SIE_F32 ? 4 : (dtype == SIE_BF16 || dtype == SIE_F16 ? 2 : 1);
}

// The slope of g(gate)·up in gate and in up, bounded: |g'| ≤ 1.13, |g(z)| ≤ |z|.
double tol_gate(int32_t gate, uint32_t compute, int32_t stored_as, double z_gate, double z_up, double dz_gate,
                double dz_up) {
  static const int32_t acts[] = {SIE_ACT_NONE, SIE_ACT_SILU, SIE_ACT_GELU_ERF, SIE_ACT_GELU_TANH};
  double g = sie_tol_act(acts[gate], compute, stored_as, z_gate, dz_gate);
  return g * (fabs(z_up) + dz_up) + (fabs(z_gate) + 1) * dz_up;
}

class LinearCase : public LinearOperands<Case, Config> {
 public:
  LinearCase(const Config &config, Layout layout, int seed)
      : LinearOperands(config, SIE_OP_LINEAR, input_names[config.input]) {
    form = text("linear class=%s%s y=%s residual=%s%s%s%s", classes[c_.compute],
                c_.compute == SIE_COMPUTE_FP8 && c_.group == 128 ? " blocks" : "", dtype_text(c_.y),
                dtype_text(c_.residual), gates[c_.gate], c_.addend ? " addend" : "", c_.why);
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    x_.reset(new Rows(&random, operand(layout), c_.r, c_.k, x_dtype(c_.compute), {c_.outliers, c_.group}));
    y_.reset(new Rows(&random, layout, c_.r, columns_, c_.y, {c_.outliers, 128}));
    if (c_.residual != 0) residual_.reset(new Rows(&random, layout, c_.r, columns_, c_.residual));
    if (c_.addend) addend_.reset(new Rows(&random, layout, c_.r, c_.n, SIE_F32));
    fill(&random);
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override {
    return ops->linear != nullptr && (ops->compute_mask >> c_.compute & 1) != 0;
  }

  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    const sie_linear_args a = linear_args(ops, *y_, residual_of(share, y_.get(), first, count), first, count);
    const sie_status status = ops->linear(&a, share);
    if (c_.in_place && status == SIE_UNSUPPORTED) y_->clear();
    return status;
  }

  void expect() override {
    expected_.reset(new Rows(c_.r, columns_, SIE_F32));
    before_act_.reset(new Rows(c_.r, c_.n, SIE_F32));
    const sie_ops *ref = sie_ref_ops();
    sie_op_bounds b = bounds();
    Scratch scratch(ref, b);
    sie_share share = scratch.share(0, 1);
    sie_linear_args a = linear_args(ref, *expected_, residual_.get(), 0, c_.r);
    ref->linear(&a, &share);
    a = linear_args(ref, *before_act_, nullptr, 0, c_.r);
    a.act = SIE_ACT_NONE;
    a.gate = SIE_GATE_NONE;
    ref->linear(&a, &share);
  }

  void verify(const char *backend) override {
    for (int64_t r = 0; r < c_.r; r++) {
      double x_norm = row_norm(r), lo = 0, hi = 0, within = 0;
      for (int64_t j = 0; j < columns_; j++) {
        lo = fmin(lo, expected_->get(r, j));
        hi = fmax(hi, expected_->get(r, j));
      }
      if (y_->outlier(r) >= 0) range_without(r, y_->outlier(r), &lo, &hi);
      for (int64_t j = 0; j < columns_; j++) {
        double want = expected_->get(r, j), got = y_->get(r, j);
        double tolerance = computed_within(r, j, x_norm, want);
        within = fmax(within, tolerance);
        if (c_.y == SIE_U8) {
          tolerance += 1.01 * (hi - lo) / 255;
        } else if (c_.y == SIE_F8E4M3) {
          tolerance += e4m3_half_step * fabs(want) + 0x1p-10 * 1.01 * static_cast<double>(y_->scale(r, j));
        } else {
          tolerance += sie_tol_store(c_.y, want);
        }
        CHECK(fabs(got - want) <= tolerance, "%s %s act=%d %s: y[%lld,%lld] = %.9g, %.9g expected, ±%.2g",
              backend, form.c_str(), c_.act, shape.c_str(), static_cast<long long>(r),
              static_cast<long long>(j), got, want, tolerance);
      }
      if (c_.y == SIE_U8) check_scale(backend, r, 0, hi - lo, 255, within);
      for (int64_t first = 0; c_.y == SIE_F8E4M3 && first < columns_; first += 128) {
        double most = 0;
        for (int64_t j = first; j < columns_ && j < first + 128; j++)
          most = fmax(most, fabs(expected_->get(r, j)));
        check_scale(backend, r, first, most, 448, within);
      }
    }
  }

  double bytes() const override {
    const int64_t element = bytes_of(x_dtype(c_.compute));
    return static_cast<double>(element * (c_.n * c_.k + c_.r * c_.k) +
                               (bytes_of(c_.y) + (c_.residual != 0 ? bytes_of(c_.residual) : 0)) * c_.r *
                                   columns_ +
                               (c_.addend ? 4 * c_.r * c_.n : 0));
  }

 private:
  // How far element (r, j) may be from `want` before it is stored.
  double computed_within(int64_t r, int64_t j, double x_norm, double want) const {
    auto dz = [&](int64_t n) {
      double bias = c_.bias ? fabs(static_cast<double>(bias_[static_cast<size_t>(n)])) : 0;
      if (addend_ != nullptr) bias += fabs(addend_->get(r, n));
      double w_norm = weight_->norm(n), own = sie_tol_dot(c_.k, x_norm, w_norm);
      if (c_.compute == SIE_COMPUTE_FP8) own += sie_tol_fp8_sum(x_norm, w_norm);
      return own + 2 * SIE_TOL_U * (fabs(before_act_->get(r, n)) + bias) + flushed_;
    };
    double residual = residual_ != nullptr ? fabs(residual_->get(r, j)) : 0;
    double rounding = 4 * SIE_TOL_U * (fabs(want) + residual);
    if (c_.gate == SIE_GATE_NONE) {
      double z = before_act_->get(r, j);
      return sie_tol_act(c_.act, c_.compute, c_.y, z, dz(j)) + rounding;
    }
    return tol_gate(c_.gate, c_.compute, c_.y, before_act_->get(r, 2 * j), before_act_->get(r, 2 * j + 1),
                    dz(2 * j), dz(2 * j + 1)) +
           rounding;
  }

  // A row of results that are all within the tolerance of 0 may be zeros, whose scale is 1.
  void check_scale(const char *backend, int64_t r, int64_t column, double range, double levels,
                   double within) const {
    double scale = range > 0 ? range / levels : 1, got = static_cast<double>(y_->scale(r, column));
    if (range <= within && y_->scale(r, column) == 1) return;
    CHECK(fabs(got - scale) <= 2e-2 * scale, "%s %s %s: scale %g of row %lld from column %lld, %g expected",
          backend, form.c_str(), shape.c_str(), got, static_cast<long long>(r),
          static_cast<long long>(column), scale);
  }

  // The step of a row with an outlier is that of the others' range, as long as that is not too
  // small.
  void range_without(int64_t r, int64_t outlier, double *lo, double *hi) const {
    double whole = *hi - *lo;
    *lo = *hi = 0;
    for (int64_t n = 0; n < columns_; n++) {
      if (n == outlier) continue;
      *lo = fmin(*lo, expected_->get(r, n));
      *hi = fmax(*hi, expected_->get(r, n));
    }
    if (*hi - *lo < whole / 32) *hi = *lo + whole / 32;
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
      if (c_.compute == SIE_COMPUTE_FP8) {
        fill_f8(random, r);
        continue;
      }
      for (int64_t k = 0; k < c_.k; k++) x_->set(r, k, value(random, r));
    }
    for (int64_t r = 0; residual_ != nullptr && r < c_.r; r++) {
      for (int64_t n = 0; n < columns_; n++) residual_->set(r, n, random->real() * 2);
    }
    for (int64_t r = 0; addend_ != nullptr && r < c_.r; r++) {
      for (int64_t n = 0; n < c_.n; n++) addend_->set(r, n, random->real());
    }
    for (int64_t n = 0; n < c_.n; n++) bias_.push_back(random->real());
    std::vector<float> w(static_cast<size_t>(c_.n * c_.k));
    float scale = 2 / sqrtf(static_cast<float>(c_.k));
    for (float &x : w) x = random->real() * scale;
    if (c_.compute == SIE_COMPUTE_INT8) quantise_weights(random, &w);
    if (c_.compute == SIE_COMPUTE_BF16) {
      for (float &x : w) x = sie_f32_from_bf16(sie_bf16_from_f32(x));
    }
    if (c_.compute == SIE_COMPUTE_F16) {
      for (float &x : w) x = sie_f32_from_f16(sie_f16_from_f32(x));
    }
    // AMX takes denormal bf16 operands as zero.
    if (c_.input == denormals && c_.compute == SIE_COMPUTE_BF16) flushed_ = 2e-38;
    weight_.reset(new Weight(c_.compute, c_.n, c_.k, std::move(w)));
  }

  // Weights on the grid of their own scale, so that every way to round gives the same integers.
  void quantise_weights(Random *random, std::vector<float> *w) const {
    for (int64_t n = 0; n < c_.n; n++) {
      // Powers of two, which divide exactly, in an order that does not repeat within 16 panels.
      float step = ldexpf(1.0f, static_cast<int>(-9 - n % 37 * 7 % 37 % 5));
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

  // Any finite e4m3, under scales that differ from block to block.
  void fill_f8(Random *random, int64_t r) {
    sie_tensor t = x_->tensor(r);
    const int64_t group = c_.group == 128 ? 128 : c_.k, scales = (c_.k + group - 1) / group;
    for (int64_t g = 0; g < scales; g++) {
      t.scale[g] =
          c_.input == denormals ? 1e-6f : ldexpf(0.75f + 0.25f * random->real(), random->below(4) - 9);
    }
    for (int64_t k = 0; k < c_.k; k++) {
      int32_t magnitude = c_.input == denormals ? random->below(8) : random->below(127);
      if (c_.input == extremes) magnitude = 126;
      if (c_.input == equal_rows) magnitude = static_cast<int32_t>(40 + 8 * (r % 3));
      static_cast<uint8_t *>(t.p)[k] = static_cast<uint8_t>(magnitude | (random->below(2) << 7));
    }
  }

  // For INT8 also the norm of q without its zero point: a kernel may subtract it after the sum.
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

  double flushed_ = 0;
  std::unique_ptr<Rows> y_, expected_, before_act_;
};

// What y and residual may be in a class.
std::vector<int32_t> output_types(uint32_t compute) {
  switch (compute) {
    case SIE_COMPUTE_F16:
      return {SIE_F16, SIE_F32};
    case SIE_COMPUTE_FP8:
      return {SIE_BF16, SIE_F32, SIE_F8E4M3, SIE_F16};
    default:
      return {SIE_F32, SIE_BF16, SIE_U8};
  }
}
std::vector<int32_t> residual_types(uint32_t compute) {
  if (compute == SIE_COMPUTE_F16) return {0, SIE_F16, SIE_F32};
  return {0, SIE_F32, SIE_BF16};
}
bool on_gpu(uint32_t compute) { return compute != SIE_COMPUTE_F32 && compute != SIE_COMPUTE_INT8; }

void add_sizes(std::vector<Config> *list, uint32_t compute) {
  const int64_t rows[] = {0, 1, 7, 31, 32, 33, 64, 65, 130, 513};
  const int64_t shapes[][2] = {{33, 65}, {1, 1},    {130, 33}, {65, 130}, {7, 31},
                               {64, 64}, {31, 513}, {32, 7},   {96, 128}, {34, 34}};
  const std::vector<int32_t> ys = output_types(compute), residuals = residual_types(compute);
  for (size_t i = 0; i < 10; i++) {
    for (size_t j = 0; j < 3; j++) {
      const int64_t *s = shapes[(i + 3 * j) % 10];
      list->push_back({compute, rows[i], s[0], s[1], ys[(i + j) % ys.size()], residuals[(i / 3 + j) % 3],
                       static_cast<int32_t>((i + j) % 2), (i + j) % 4 != 0, false, false, plain, "", false,
                       SIE_GATE_NONE, j == 0 ? 128 : -1});
    }
  }
  // More than one tile of every kind a GPU has, whole and cut short in each direction; few rows.
  const int64_t tiles[][3] = {{130, 264, 192}, {257, 136, 128}, {128, 256, 64}, {64, 384, 256},
                              {16, 160, 512},  {8, 128, 136},   {3, 264, 72},   {65, 72, 640}};
  for (size_t i = 0; i < 8 && on_gpu(compute); i++) {
    const int64_t *s = tiles[i];
    list->push_back({compute, s[0], s[1], s[2], ys[i % ys.size()], residuals[i % 3],
                     static_cast<int32_t>(i % 2), true, false, false, plain, "", false, SIE_GATE_NONE,
                     i % 2 == 0 ? 128 : -1});
  }
  // Real shapes: more than one block of every kind.
  list->push_back({compute, 65, 1152, 384, SIE_F32, 0, SIE_ACT_NONE, true, false, false, plain, ""});
  list->push_back({compute, 13, 384, 1536, SIE_F32, SIE_F32, SIE_ACT_NONE, true, false, false, plain, ""});
}

void add_types(std::vector<Config> *list, uint32_t compute) {
  const std::vector<int32_t> ys = output_types(compute), residuals = residual_types(compute);
  static const char *const acts[] = {" act=none",      " act=gelu", " act=tanh",
                                     " act=gelu_tanh", " act=relu", " act=silu"};
  for (int32_t y : ys) {
    for (int32_t residual : residuals) {
      for (int32_t group : {-1, 128}) {
        if (group == 128 && compute != SIE_COMPUTE_FP8) continue;
        list->push_back({compute, 37, 70, 145, y, residual, SIE_ACT_GELU_ERF, true, false, false, plain, "",
                         false, SIE_GATE_NONE, group});
      }
    }
    for (int32_t act = 0; act < 6; act++)
      list->push_back({compute, 9, 70, 45, y, 0, act, true, false, false, outliers, acts[act]});
  }
  for (int32_t t : ys) {
    if (t == SIE_U8 || t == SIE_F8E4M3) continue;
    list->push_back({compute, 37, 70, 45, t, t, SIE_ACT_NONE, true, true, false, plain, " in place"});
  }
  for (Input input : {outliers, equal_rows, denormals, extremes})
    list->push_back({compute, 35, 66, 257, SIE_F32, 0, SIE_ACT_NONE, false, false, false, input, ""});
}

void add_gates(std::vector<Config> *list, uint32_t compute) {
  const std::vector<int32_t> ys = output_types(compute), residuals = residual_types(compute);
  const int64_t shapes[][3] = {{37, 70, 45},   {1, 2, 7},     {0, 66, 33},   {7, 34, 130},
                               {130, 264, 72}, {65, 130, 64}, {33, 512, 128}};
  for (int32_t gate : {SIE_GATE_SWIGLU, SIE_GATE_GEGLU, SIE_GATE_GEGLU_TANH}) {
    size_t i = 0;
    for (int32_t y : ys) {
      for (int32_t residual : residuals) {
        const int64_t *s = shapes[i++ % 7];
        list->push_back({compute, s[0], s[1], s[2], y, residual, SIE_ACT_NONE, i % 3 != 0, false, false,
                         plain, "", false, gate, i % 2 == 0 ? 128 : -1});
      }
      for (const int64_t *s : shapes) {
        list->push_back(
            {compute, s[0], s[1], s[2], y, 0, SIE_ACT_NONE, true, false, false, plain, "", false, gate, 128});
      }
    }
    list->push_back({compute, 21, 140, 45, ys[0], ys[0], SIE_ACT_NONE, true, true, false, plain, " in place",
                     false, gate});
  }
}

// Addends with every kind of tile: whole, cut short, few rows, a row that does not exist; every y,
// with and without a gate.
void add_addends(std::vector<Config> *list, uint32_t compute) {
  const std::vector<int32_t> ys = output_types(compute), residuals = residual_types(compute);
  const int64_t shapes[][3] = {{1, 1, 1},     {0, 34, 33},    {7, 34, 130},    {37, 70, 45},  {31, 33, 65},
                               {65, 130, 64}, {130, 264, 72}, {257, 136, 128}, {16, 512, 64}, {33, 96, 257}};
  size_t i = 0;
  for (const int64_t *s : shapes) {
    for (int32_t gate : {SIE_GATE_NONE, SIE_GATE_SWIGLU, SIE_GATE_GEGLU, SIE_GATE_GEGLU_TANH}) {
      if (gate != SIE_GATE_NONE && s[1] % 2 != 0) continue;
      const int32_t act = gate == SIE_GATE_NONE ? static_cast<int32_t>(i % 6) : SIE_ACT_NONE;
      list->push_back({compute, s[0], s[1], s[2], ys[i % ys.size()], residuals[i / 2 % 3], act, i % 3 != 0,
                       false, false, plain, "", false, gate, i % 2 == 0 ? 128 : -1, true});
      i++;
    }
  }
  if (compute == SIE_COMPUTE_INT8) {
    list->push_back({compute, 35, 66, 257, SIE_U8, SIE_F32, SIE_ACT_SILU, true, false, false, plain,
                     " outlier", true, SIE_GATE_NONE, -1, true});
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
  static const std::vector<std::pair<Config, Layout>> list = [] {
    std::vector<Config> all;
    for (uint32_t compute :
         {SIE_COMPUTE_F32, SIE_COMPUTE_BF16, SIE_COMPUTE_INT8, SIE_COMPUTE_F16, SIE_COMPUTE_FP8}) {
      add_sizes(&all, compute);
      add_types(&all, compute);
      add_gates(&all, compute);
      add_addends(&all, compute);
      if (compute <= SIE_COMPUTE_INT8) add_bench(&all, compute);
    }
    add_outliers(&all);
    // Whole panels, and an addend before the bias and residual that otherwise the tile adds.
    all.push_back({SIE_COMPUTE_F32, 33, 96, 257, SIE_F32, SIE_F32, SIE_ACT_NONE, true, false, false, plain,
                   "", false, SIE_GATE_NONE, -1, true});
    return in_layouts(all, true);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<LinearCase>(config, layout, 100 + index);
}

// 512 rows at the linears of MiniLM, base and large models: more slabs and groups of rows than one
// of every kernel.
std::unique_ptr<Case> make_production_linear(int index) {
  static const std::vector<Config> list = [] {
    std::vector<Config> all;
    const int64_t shapes[][2] = {{1536, 384}, {384, 1536},  {3072, 768},
                                 {768, 3072}, {4096, 1024}, {1024, 4096}};
    for (const int64_t *s : shapes) {
      const bool up = s[0] > s[1];
      const int32_t act = up ? SIE_ACT_GELU_ERF : SIE_ACT_NONE;
      all.push_back(
          {SIE_COMPUTE_F32, 512, s[0], s[1], SIE_F32, up ? 0 : SIE_F32, act, true, false, true, plain, ""});
      all.push_back({SIE_COMPUTE_BF16, 512, s[0], s[1], SIE_BF16, up ? 0 : SIE_BF16, act, true, false, true,
                     plain, ""});
      all.push_back({SIE_COMPUTE_INT8, 512, s[0], s[1], up ? static_cast<int32_t>(SIE_U8) : SIE_F32,
                     up ? 0 : SIE_F32, act, true, false, true, plain, " outlier", true});
    }
    // A last step that K does not fill, and a last panel that N does not; every operand of a row.
    for (uint32_t compute : {SIE_COMPUTE_F32, SIE_COMPUTE_BF16, SIE_COMPUTE_INT8}) {
      all.push_back({compute, 509, 399, 3089, SIE_F32, 0, SIE_ACT_NONE, true, false, true, plain, ""});
      all.push_back({compute, 509, 1550, 399,
                     compute == SIE_COMPUTE_INT8 ? static_cast<int32_t>(SIE_U8) : SIE_F32, 0, SIE_ACT_NONE,
                     true, false, true, plain, "", false, SIE_GATE_SWIGLU});
      for (int32_t residual : {SIE_F32, SIE_BF16}) {
        all.push_back({compute, 509, 1550, 399,
                       compute == SIE_COMPUTE_INT8 ? static_cast<int32_t>(SIE_U8) : SIE_F32, residual,
                       SIE_ACT_NONE, true, false, true, plain, "", compute == SIE_COMPUTE_INT8, SIE_GATE_NONE,
                       -1, true});
      }
    }
    return all;
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  return in_layout<LinearCase>(list[static_cast<size_t>(index)], dense, 9100 + index);
}

std::unique_ptr<Case> model_linear(const ModelShape &m, const Lengths &lengths, ModelLinear part,
                                   uint32_t compute) {
  const bool fp8 = compute == SIE_COMPUTE_FP8, bias = !m.rotary;
  const int64_t r = tokens_of(lengths), heads = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  const int32_t act = m.gate == SIE_GATE_NONE ? SIE_ACT_GELU_ERF : SIE_ACT_NONE;
  Config c = {compute, r, 0, m.width, SIE_BF16, 0, SIE_ACT_NONE, bias, false, true, plain, ""};
  if (part == ModelLinear::qkv) c.n = heads + 2 * kv;
  if (part == ModelLinear::attention_out) c.n = m.width, c.k = heads, c.residual = SIE_BF16;
  if (part == ModelLinear::up) {
    c.n = m.gate == SIE_GATE_NONE ? m.inner : 2 * m.inner;
    c.act = act, c.gate = m.gate;
    if (fp8) c.y = SIE_F8E4M3;
  }
  if (part == ModelLinear::down) c.n = m.width, c.k = m.inner, c.residual = SIE_BF16, c.group = 128;
  if (fp8 && part == ModelLinear::attention_out) return nullptr;
  return in_layout<LinearCase>(c, dense, 1);
}

std::unique_ptr<Case> model_head(const ModelShape &m, const Lengths &lengths) {
  const int64_t r = static_cast<int64_t>(lengths.size());
  return in_layout<LinearCase>(
      Config{SIE_COMPUTE_F32, r, m.width, m.width, SIE_F32, 0, SIE_ACT_TANH, true, false, true, plain, ""},
      dense, 1);
}

}  // namespace harness
