// linear_case.h — the operands of a linear, and what follows from them: of the cases of linear and of linear_norm.
#ifndef SIE_KERNELS_TESTS_LINEAR_CASE_H
#define SIE_KERNELS_TESTS_LINEAR_CASE_H

#include "harness.h"

namespace harness {

// Base is the class of the case. Config has compute, r, n, k, residual, act, gate, bias, addend, in_place and bench.
template <class Base, class Config>
class LinearOperands : public Base {
 public:
  sie_op_bounds bounds() const override {
    sie_op_bounds b = {};
    b.kind = kind_;
    b.compute = c_.compute;
    b.rows = c_.r;
    b.n = c_.n;
    b.k = b.c = c_.k;
    return b;
  }

  void poison(int64_t u) override {
    x_->poison(u);
    if (addend_ != nullptr) addend_->poison(u);
    if (residual_ != nullptr) residual_->poison(u);
  }

  double flops() const override { return 2.0 * static_cast<double>(c_.r * c_.n * c_.k); }

 protected:
  LinearOperands(const Config &config, uint32_t kind, const char *input) : c_(config), kind_(kind) {
    columns_ = c_.gate != SIE_GATE_NONE ? c_.n / 2 : c_.n;
    this->shape = text("R=%lld N=%lld K=%lld input=%s", static_cast<long long>(c_.r),
                       static_cast<long long>(c_.n), static_cast<long long>(c_.k), input);
    this->units = c_.r;
    this->bench = c_.bench;
  }

  // The residual of a call. In place it is y, to which the first share that is run brings it.
  const Rows *residual_of(const sie_share *share, Rows *y, int64_t first, int64_t count) {
    if (!c_.in_place) return residual_.get();
    if (Case::first_share(share)) y->copy(*residual_, first, first + count);
    return y;
  }

  sie_linear_args linear_args(const sie_ops *ops, const Rows &y, const Rows *residual, int64_t first,
                              int64_t count) {
    sie_linear_args a = {};
    a.rows = Case::row_count(0, c_.r - first, count);
    a.n = c_.n;
    a.k = c_.k;
    a.x = x_->tensor(first);
    a.w = weight_->packed(ops);
    a.bias = c_.bias ? bias_.data() : nullptr;
    a.act = c_.act;
    a.gate = c_.gate;
    if (addend_ != nullptr) a.addend = addend_->tensor(first);
    if (residual != nullptr) a.residual = residual->tensor(first);
    a.y = y.tensor(first);
    return a;
  }

  Config c_;
  int64_t columns_ = 0;  // of y
  std::unique_ptr<Rows> x_, addend_, residual_;
  std::unique_ptr<Weight> weight_;
  Array<float> bias_;

 private:
  uint32_t kind_;
};

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_LINEAR_CASE_H
