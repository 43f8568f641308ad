// linear_norm_cases.cc — linear_norm: the bits of the table's own linear and layernorm, one after the other, and
// the norm of what that linear stores.
#include <math.h>

#include <algorithm>

#include "common/dtype.h"
#include "tests/linear_case.h"
#include "tests/model_cases.h"
#include "tests/norm_case.h"

namespace harness {

namespace {

struct Config {
  uint32_t compute;
  int64_t r, n, k;
  int32_t y, residual;  // residual 0: none
  bool in_place;        // the residual is y
  bool bias, beta, bench;
  Input input;
  int32_t norm = SIE_NORM_LAYER;
  float weight_offset = 0;
  int32_t act = SIE_ACT_NONE, gate = SIE_GATE_NONE;
  bool addend = false;
};

int32_t type_of(uint32_t compute) { return compute == SIE_COMPUTE_F16 ? SIE_F16 : SIE_BF16; }

class LinearNormCase : public LinearOperands<NormCase, Config> {
 public:
  LinearNormCase(const Config &config, Layout layout, int seed)
      : LinearOperands(config, SIE_OP_LINEAR_NORM, input_names[config.input]) {
    form = text("linear_norm%s class=%s y=%s residual=%s%s%s%s", c_.norm == SIE_NORM_RMS ? " rms" : "",
                dtype_text(type_of(c_.compute)), dtype_text(c_.y), dtype_text(c_.residual),
                c_.gate != SIE_GATE_NONE ? " gate" : "", c_.act != SIE_ACT_NONE ? " act" : "",
                c_.addend ? " addend" : "");
    if (names_only) return;
    Random random(static_cast<uint32_t>(seed));
    x_.reset(new Rows(&random, operand(layout), c_.r, c_.k, type_of(c_.compute)));
    make_outputs(&random, layout, c_.r, columns_, c_.y, no_twin, c_.beta, c_.norm, c_.weight_offset);
    fill(x_.get(), &random, c_.input);
    if (c_.residual != 0) {
      residual_.reset(new Rows(&random, layout, c_.r, columns_, c_.residual));
      fill(residual_.get(), &random, plain);
    }
    if (c_.addend) {
      addend_.reset(new Rows(&random, layout, c_.r, c_.n, SIE_F32));
      fill(addend_.get(), &random, plain);
    }
    for (int64_t n = 0; n < c_.n; n++) bias_.push_back(random.real());
    std::vector<float> w(static_cast<size_t>(c_.n * c_.k));
    const float scale = 2 / sqrtf(static_cast<float>(c_.k));
    for (float &v : w) v = random.real() * scale;
    weight_.reset(new Weight(c_.compute, c_.n, c_.k, std::move(w)));
  }

  bool present(const sie_ops *ops) const override { return ops->linear_norm != nullptr; }
  sie_status call(const sie_ops *ops, const sie_share *share, int64_t first, int64_t count) override {
    write_changed(&called_, ops);
    const sie_linear_norm_args a = args(ops, *y_, residual_of(share, y_.get(), first, count), first, count);
    const sie_status status = ops->linear_norm(&a, share);
    if (c_.in_place && status == SIE_UNSUPPORTED) y_->clear();
    return status;
  }

  void expect() override {}

  void verify(const char *backend) override {
    Rows two(c_.r, columns_, c_.y);
    const sie_linear_norm_args a = args(called_, two, residual_.get(), 0, c_.r);
    run_alone(SIE_OP_LINEAR, [&](const sie_share *share) { return called_->linear(&a.linear, share); });
    std::vector<double> row(static_cast<size_t>(columns_));
    for (int64_t r = 0; r < c_.r; r++) {
      double largest = 0;
      for (int64_t i = 0; i < columns_; i++) {
        row[static_cast<size_t>(i)] = two.get(r, i);
        largest = fmax(largest, fabs(two.get(r, i)));
      }
      verify_row(backend, r, row, largest);
    }
    run_alone(SIE_OP_LAYERNORM, [&](const sie_share *share) { return called_->layernorm(&a.norm, share); });
    for (int64_t r = 0; r < c_.r; r++) {
      CHECK(y_->bytes(r, r + 1) == two.bytes(r, r + 1),
            "%s %s %s: row %lld has other bits than two operations give", backend, form.c_str(),
            shape.c_str(), static_cast<long long>(r));
    }
  }

  double bytes() const override {
    const int64_t residual = c_.residual == 0 ? 0 : (c_.residual == SIE_F32 ? 4 : 2);
    return static_cast<double>(2 * (c_.n * c_.k + c_.r * c_.k) + (2 + residual) * c_.r * columns_);
  }

 private:
  sie_linear_norm_args args(const sie_ops *ops, const Rows &y, const Rows *residual, int64_t first,
                            int64_t count) {
    sie_linear_norm_args a = {};
    a.linear = linear_args(ops, y, residual, first, count);
    a.norm.rows = a.linear.rows;
    a.norm.x = a.norm.y = a.linear.y;
    a.norm.c = columns_;
    a.norm.gamma = gamma_.data();
    a.norm.beta = beta();
    a.norm.eps = eps_;
    a.norm.norm = c_.norm;
    a.norm.weight_offset = c_.weight_offset;
    return a;
  }

  // One of the two operations, with the scratch that the table states for it.
  template <class Call>
  void run_alone(uint32_t kind, const Call &call) {
    sie_op_bounds b = bounds();
    b.kind = kind;
    if (kind == SIE_OP_LAYERNORM) b.c = columns_;
    Scratch scratch(called_, b);
    const sie_share share = scratch.share(0, 1);
    CHECK(call(&share) == SIE_OK && memory.finish(share.on) == SIE_OK,
          "%s %s %s: operation %u alone is refused", called_->name, form.c_str(), shape.c_str(), kind);
  }

  const sie_ops *called_ = nullptr;
};

// What programs have: a residual in y's type. The widths that one kernel knows, at rows that fill its tiles and
// do not, and others.
void add_blocks(std::vector<Config> *all, uint32_t compute) {
  const int32_t t = type_of(compute);
  const int64_t rows[] = {0, 1, 7, 31, 32, 33, 64, 65, 130, 257};
  const int64_t widths[] = {384, 768, 1024}, others[] = {8, 33, 64, 130, 383, 385, 512, 760, 1032, 2048};
  const int64_t depths[] = {64, 8, 136, 200};
  for (size_t i = 0; i < 10; i++) {
    for (size_t j = 0; j < 3; j++)
      all->push_back({compute, rows[i], widths[j], depths[(i + j) % 4], t, t, (i + j) % 2 == 0,
                      (i + j) % 4 != 1, (i + j) % 5 != 2, false, plain});
    all->push_back({compute, rows[(3 * i + 1) % 9], others[i], depths[i % 4], t, t, i % 2 == 1, i % 3 != 0,
                    i % 4 != 0, false, plain});
  }
  for (Input input : {outliers, equal_rows, denormals, offset}) {
    all->push_back({compute, 20, 384, 64, t, t, false, true, true, false, input});
    all->push_back({compute, 20, 1024, 72, t, t, true, false, true, false, input});
  }
}

// What the operation takes besides.
void add_forms(std::vector<Config> *all, uint32_t compute) {
  const int32_t t = type_of(compute), other = t == SIE_BF16 ? SIE_F16 : SIE_BF16;
  for (int32_t y : {t, other}) {
    for (int32_t residual : {0, static_cast<int32_t>(SIE_F32), t, other})
      all->push_back({compute, 21, 384, 64, y, residual, false, true, true, false, plain});
  }
  all->push_back({compute, 21, 768, 64, t, t, false, true, false, false, plain, SIE_NORM_RMS, 1});
  all->push_back({compute, 21, 768, 64, t, t, true, true, true, false, plain, SIE_NORM_LAYER, 1});
  all->push_back(
      {compute, 21, 384, 64, t, t, false, true, true, false, plain, SIE_NORM_LAYER, 0, SIE_ACT_GELU_ERF});
  all->push_back({compute, 21, 768, 64, t, t, false, true, true, false, plain, SIE_NORM_LAYER, 0,
                  SIE_ACT_NONE, SIE_GATE_SWIGLU});
  all->push_back({compute, 21, 384, 64, t, t, false, true, true, false, plain, SIE_NORM_LAYER, 0,
                  SIE_ACT_NONE, SIE_GATE_NONE, true});
}

}  // namespace

std::unique_ptr<Case> make_linear_norm(int index) {
  static const std::vector<std::pair<Config, Layout>> list = [] {
    std::vector<Config> all;
    for (uint32_t compute : {SIE_COMPUTE_BF16, SIE_COMPUTE_F16}) {
      add_blocks(&all, compute);
      add_forms(&all, compute);
    }
    return in_layouts(all, true);
  }();
  if (static_cast<size_t>(index) >= list.size()) return nullptr;
  const auto &[config, layout] = list[static_cast<size_t>(index)];
  return in_layout<LinearNormCase>(config, layout, 5200 + index);
}

std::unique_ptr<Case> model_linear_norm(const ModelShape &m, const Lengths &lengths, ModelLinear part) {
  const int64_t k = part == ModelLinear::down ? m.inner : int64_t{m.heads} * m.head_dim;
  const Config c = {
      SIE_COMPUTE_BF16, tokens_of(lengths), m.width, k, SIE_BF16, SIE_BF16, false, true, true, true, plain};
  return in_layout<LinearNormCase>(c, dense, 1);
}

}  // namespace harness
