// golden_adapters_test.cc — linears with an addend, as PyTorch does them in float64.
#include "tests/golden_file.h"

using namespace harness;

namespace {

struct Class {
  uint32_t compute;
  int32_t x;
  double tolerance;
};

void linear(const GoldenCase &c, const sie_ops *ops, const Class &of, GoldenRuns *runs) {
  const int64_t n = c.array("w").rows, k = c.array("w").columns;
  Weight weight(of.compute, n, k, c.values("w"));
  const sie_packed *w = weight.packed(ops);
  if (w == nullptr) return;
  const std::unique_ptr<Rows> x = c.rows("x", of.x), addend = c.rows("addend", SIE_F32),
                              residual = c.rows("residual", SIE_F32);
  Rows y(x->rows(), c.array("y").columns, SIE_F32);
  Array<int32_t> rows(1, static_cast<int32_t>(x->rows()));
  sie_linear_args a = {};
  a.rows = {x->rows(), rows.data()};
  a.n = n;
  a.k = k;
  a.x = x->tensor();
  a.w = w;
  a.bias = c.floats("bias");
  a.act = c.integer("act");
  a.gate = c.integer("gate");
  a.addend = addend->tensor();
  a.residual = tensor_of(residual);
  a.y = y.tensor();
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_LINEAR;
  bounds.compute = of.compute;
  bounds.rows = x->rows();
  bounds.n = n;
  bounds.k = k;
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->linear(&a, share); })) return;
  check_near(text("%s: linear %s, %s", ops->name, c.name.c_str(), dtype_text(of.x)), y, c.array("y"),
             of.tolerance);
}

}  // namespace

TEST(golden_adapters) {
  const std::vector<GoldenCase> cases = read_golden("adapters.bin", 3);
  const Class classes[] = {
      {SIE_COMPUTE_F32, SIE_F32, 4e-6}, {SIE_COMPUTE_BF16, SIE_BF16, 3e-5}, {SIE_COMPUTE_F16, SIE_F16, 3e-5}};
  for (const sie_ops *ops : backends()) {
    GoldenRuns runs;
    for (const GoldenCase &c : cases) {
      for (const Class &of : classes) linear(c, ops, of, &runs);
    }
    runs.check(ops, {{"linear", ops->linear != nullptr}});
  }
}
