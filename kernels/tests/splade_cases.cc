// splade_cases.cc — splade: the largest logit of each sequence and column, in every class.
#include <math.h>

#include "common/dtype.h"
#include "common/tol.h"
#include "tests/model_cases.h"

namespace harness {

namespace {

struct Config {
  uint32_t compute;
  std::vector<int32_t> lengths;
  int64_t n, k;
  int32_t group;  // columns a scale of x, class FP8
  bool outliers;  // of x, class INT8
  bool bias, bench;
};

const char *const classes[] = {"", "f32", "bf16", "int8", "f16", "fp8"};

int32_t x_dtype(uint32_t compute) {
  static const int32_t types[] = {0, SIE_F32, SIE_BF16, SIE_U8, SIE_F16, SIE_F8E4M3};
  return types[compute];
}

class SpladeCase : public Case {
 public:
  SpladeCase(const Config &config, Layout layout, int seed) : c_(config), sequences_(config.lengths) {
    form = text("splade class=%s%s%s", classes[c_.compute], c_.group == 128 ? " blocks" : "",
                c_.outliers ? " outlier" : "");
    shape = text("T=%lld B=%lld N=%lld K=%lld%s", static_cast<long long>(sequences_.tokens()),
                 static_cast<long long>(sequences_.count()), static_cast<long long>(c_.n),
                 static_cast<long long>(c_.k), c_.bias ? " bias" : "");
    units = sequences_.count();
    bench = c_.bench;
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    x_.reset(new Rows(&random, operand(layout), sequences_.tokens(), c_.k, x_dtype(c_.compute),
                      {c_.outliers, c_.group}));
    y_.reset(new Rows(&random, layout, units, c_.n, SIE_F32));
    fill_x(&random);
    fill_weight(&random);
    outputs = {y_.get()};
  }

  bool present(const sie_ops *ops) const override {
    return ops->splade != nullptr && (ops->compute_mask >> c_.compute & 1) != 0;
  }
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = SIE_OP_SPLADE;
    b.compute = c_.compute;
    b.rows = sequences_.tokens();
    b.seqs = units;
    b.n = c_.n;
    b.k = b.c = c_.k;
    b.max_len = sequences_.longest();
    return b;
  }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    const int64_t row = sequences_.first(first);
    sie_splade_args a = {};
    a.tokens = row_count(0, sequences_.tokens() - row, sequences_.first(first + count) - row);
    a.seqs = row_count(1, units - first, count);
    a.cu_seqlens = sequences_.cu(first, count);
    a.n = c_.n;
    a.k = c_.k;
    a.x = x_->tensor(row);
    a.w = weight_->packed(ops);
    a.bias = c_.bias ? bias_.data() : nullptr;
    a.y = y_->tensor(first);
    return ops->splade(&a, share);
  }

  // The logits by the reference's linear; the maximum is taken over them.
  void expect() override {
    logits_.reset(new Rows(sequences_.tokens(), c_.n, SIE_F32));
    sie_linear_args a = {};
    a.rows = row_count(0, sequences_.tokens(), sequences_.tokens());
    a.n = c_.n;
    a.k = c_.k;
    a.x = x_->tensor();
    a.w = weight_->packed(sie_ref_ops());
    a.bias = c_.bias ? bias_.data() : nullptr;
    a.y = logits_->tensor();
    sie_op_bounds b = bounds();
    b.kind = SIE_OP_LINEAR;
    Scratch scratch(sie_ref_ops(), b);
    sie_share share = scratch.share(0, 1);
    sie_ref_ops()->linear(&a, &share);
  }
  void verify(const char *backend) override {
    for (int64_t b = 0; b < units; b++) {
      double x_norm = 0;
      for (int64_t t = sequences_.first(b); t < sequences_.first(b + 1); t++)
        x_norm = fmax(x_norm, row_norm(t));
      for (int64_t v = 0; v < c_.n; v++) {
        double want = 0, size = c_.bias ? fabs(static_cast<double>(bias_[static_cast<size_t>(v)])) : 0;
        for (int64_t t = sequences_.first(b); t < sequences_.first(b + 1); t++)
          want = fmax(want, logits_->get(t, v));
        const double w_norm = weight_->norm(v), got = y_->get(b, v);
        double tolerance = sie_tol_dot(c_.k, x_norm, w_norm) + 2 * SIE_TOL_U * (want + size);
        if (c_.compute == SIE_COMPUTE_FP8) tolerance += sie_tol_fp8_sum(x_norm, w_norm);
        CHECK(fabs(got - want) <= tolerance && !signbit(got),
              "%s %s %s: y[%lld,%lld] = %.9g, %.9g expected, ±%.2g", backend, form.c_str(), shape.c_str(),
              static_cast<long long>(b), static_cast<long long>(v), got, want, tolerance);
      }
    }
  }
  void poison(int64_t u) override {
    for (int64_t t = sequences_.first(u); t < sequences_.first(u + 1); t++) x_->poison(t);
  }
  double flops() const override { return 2.0 * static_cast<double>(sequences_.tokens() * c_.n * c_.k); }
  double bytes() const override {
    const int32_t x = x_dtype(c_.compute);
    const int64_t element = x == SIE_F32 ? 4 : (x == SIE_BF16 || x == SIE_F16 ? 2 : 1);
    return static_cast<double>(element * (c_.n * c_.k + sequences_.tokens() * c_.k) + 4 * units * c_.n);
  }

 private:
  // Quantised types are made by the reference from ordinary rows. Every third row points away from
  // the first weights, so that some columns have no logit above 0.
  void fill_x(Random *random) {
    const int64_t rows = sequences_.tokens();
    Rows x(rows, c_.k, SIE_F32);
    for (int64_t t = 0; t < rows; t++) {
      for (int64_t k = 0; k < c_.k; k++) x.set(t, k, random->real());
    }
    if (x_->dtype() != SIE_U8 && x_->dtype() != SIE_F8E4M3) {
      for (int64_t t = 0; t < rows; t++) {
        for (int64_t k = 0; k < c_.k; k++) x_->set(t, k, static_cast<float>(x.get(t, k)));
      }
      return;
    }
    sie_quantise_rows_args a = {row_count(0, rows, rows), c_.k, x.tensor(), x_->tensor()};
    sie_op_bounds b = {};
    b.kind = SIE_OP_QUANTISE_ROWS;
    b.c = c_.k;
    Scratch scratch(sie_ref_ops(), b);
    sie_share share = scratch.share(0, 1);
    sie_ref_ops()->quantise_rows(&a, &share);
  }

  // Every class holds its numbers exactly: INT8 on the grid of each row's scale.
  void fill_weight(Random *random) {
    std::vector<float> w(static_cast<size_t>(c_.n * c_.k));
    const float scale = 2 / sqrtf(static_cast<float>(c_.k));
    for (int64_t n = 0; n < c_.n; n++) {
      for (int64_t k = 0; k < c_.k; k++) {
        float x = random->real() * scale;
        if (c_.compute == SIE_COMPUTE_INT8)
          x = static_cast<float>(k == n % c_.k ? 127 : random->below(255) - 127) * 0x1p-9f;
        if (c_.compute == SIE_COMPUTE_BF16) x = sie_f32_from_bf16(sie_bf16_from_f32(x));
        if (c_.compute == SIE_COMPUTE_F16) x = sie_f32_from_f16(sie_f16_from_f32(x));
        w[static_cast<size_t>(n * c_.k + k)] = x;
      }
      // As a SPLADE head's: most columns stay below 0.
      bias_.push_back(n % 4 == 3 ? -20.0f : random->real());
    }
    weight_.reset(new Weight(c_.compute, c_.n, c_.k, std::move(w)));
  }

  // For INT8 also the norm of q without its zero point: a kernel may subtract it after the sum.
  double row_norm(int64_t t) const {
    double sum = 0;
    for (int64_t k = 0; k < c_.k; k++) {
      double x = x_->get(t, k);
      if (c_.compute == SIE_COMPUTE_INT8)
        x = fabs(x) + static_cast<double>(x_->scale(t) * static_cast<float>(x_->zero(t)));
      sum += x * x;
    }
    return sqrt(sum);
  }

  Config c_;
  Sequences sequences_;
  std::unique_ptr<Rows> x_, y_, logits_;
  std::unique_ptr<Weight> weight_;
  Array<float> bias_;
};

}  // namespace

std::unique_ptr<Case> make_splade(int index) {
  static const std::vector<std::pair<Config, Layout>> list = [] {
    std::vector<Config> all;
    const std::vector<int32_t>
        none = {},
        one = {1}, empty = {0, 0}, ragged = {7, 1, 0, 33, 2, 0, 65, 31, 32, 64},
        // Sequences that end with a tile or a warp's rows, begin there, or are many in one.
        edges = {16, 48, 64, 0, 128, 1, 1, 1, 1, 60, 0, 0}, longer = {130, 0, 513};
    for (uint32_t compute :
         {SIE_COMPUTE_F32, SIE_COMPUTE_BF16, SIE_COMPUTE_INT8, SIE_COMPUTE_F16, SIE_COMPUTE_FP8}) {
      int i = 0;
      auto add = [&](const std::vector<int32_t> &lengths, int64_t n, int64_t k) {
        const bool blocks = compute == SIE_COMPUTE_FP8 && i % 2 == 1,
                   outliers = compute == SIE_COMPUTE_INT8 && i % 2 == 1;
        all.push_back({compute, lengths, n, k, blocks ? 128 : -1, outliers, i % 3 != 2, false});
        i++;
      };
      add(ragged, 33, 64);
      add(ragged, 130, 65);
      add(none, 40, 32);
      add(one, 1, 1);
      add(empty, 70, 16);
      add(edges, 136, 136);
      add(edges, 129, 64);
      add(longer, 64, 31);
      add(longer, 65, 130);
      add({3, 0, 9, 2}, 7, 33);  // rows of one small tile of a GPU
      add({16}, 264, 72);
      add({33, 0, 31}, 513, 48);  // of a middle one
      add({64}, 257, 40);
      add({31, 33, 1}, 64, 256);
      add({2, 1}, 1031, 24);           // groups of panels of every width
      add({1, 4}, 8200, 16);           // zeros by several CTAs a row
      add({600, 1, 0, 560}, 136, 16);  // more than eight tiles of rows, and several of columns
      all.push_back({compute, ragged, 96, 513, -1, false, true, false});
      if (compute <= SIE_COMPUTE_INT8)
        all.push_back({compute, {32, 32, 32, 32}, 30522, 384, -1, false, true, true});
    }
    return in_layouts(all, true);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<SpladeCase>(config, layout, 4600 + index);
}

std::unique_ptr<Case> model_splade(const ModelShape &m, const Lengths &lengths, uint32_t compute) {
  return in_layout<SpladeCase>(Config{compute, lengths, vocabulary_of(m), m.width, -1, false, true, true},
                               dense, 1);
}

}  // namespace harness
