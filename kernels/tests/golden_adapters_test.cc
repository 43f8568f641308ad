// golden_adapters_test.cc — LoRA, and linears with an addend, as PyTorch does them in float64.
#include "common/dtype.h"
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

// The matrix in f32, or in the 16-bit type of x, which holds it exactly.
struct Matrix {
  Array<float> wide;
  Array<uint16_t> halves;
  Matrix(const GoldenArray &from, int32_t dtype) : wide(from.floats) {
    for (float v : wide) halves.push_back(dtype == SIE_F16 ? sie_f16_from_f32(v) : sie_bf16_from_f32(v));
  }
};

void lora(const GoldenCase &c, const sie_ops *ops, int32_t dtype, GoldenRuns *runs) {
  const bool gpu = stream_of(ops) != nullptr;
  if (gpu && dtype == SIE_F32) return;
  Sequences sequences = c.sequences();
  const std::unique_ptr<Rows> x = c.rows("x", dtype);
  Rows y(x->rows(), c.array("y").columns, SIE_F32);
  std::vector<Matrix> matrices;
  const int32_t count = c.integer("adapters");
  sie_lora_args a = {};
  for (int32_t i = 0; i < count; i++) {
    matrices.emplace_back(c.array(text("a%d", i).c_str()), dtype);
    matrices.emplace_back(c.array(text("b%d", i).c_str()), dtype);
  }
  Array<sie_lora_pair> pairs;
  for (int32_t i = 0; i < count; i++) {
    const Matrix &down = matrices[static_cast<size_t>(2 * i)], &up = matrices[static_cast<size_t>(2 * i + 1)];
    const int32_t rank = c.integer(text("rank%d", i).c_str());
    a.max_rank = a.max_rank > rank ? a.max_rank : rank;
    if (gpu) pairs.push_back({down.halves.data(), up.halves.data(), rank, dtype});
    if (!gpu) pairs.push_back({down.wide.data(), up.wide.data(), rank, SIE_F32});
  }
  Array<int32_t> n = {static_cast<int32_t>(x->rows()), static_cast<int32_t>(sequences.count())};
  a.rows = {x->rows(), n.data()};
  a.seqs = {sequences.count(), n.data() + 1};
  a.cu_seqlens = sequences.cu(0, sequences.count());
  a.adapter = c.integers("adapter");
  a.n_adapters = count;
  a.adapters = pairs.data();
  a.n = y.columns();
  a.k = x->columns();
  a.x = x->tensor();
  a.y = y.tensor();
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_LORA;
  bounds.rows = x->rows();
  bounds.seqs = sequences.count();
  bounds.n = a.n;
  bounds.k = a.k;
  bounds.max_rank = a.max_rank;
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->lora(&a, share); })) return;
  // A GPU keeps x·Aᵀ in x's type.
  const double rounding = !gpu ? 0 : golden_tolerance(dtype);
  check_near(text("%s: lora %s, %s", ops->name, c.name.c_str(), dtype_text(dtype)), y, c.array("y"),
             4e-6 + rounding);
}

}  // namespace

TEST(golden_adapters) {
  const std::vector<GoldenCase> cases = read_golden("adapters.bin", 6);
  const Class classes[] = {
      {SIE_COMPUTE_F32, SIE_F32, 4e-6}, {SIE_COMPUTE_BF16, SIE_BF16, 3e-5}, {SIE_COMPUTE_F16, SIE_F16, 3e-5}};
  for (const sie_ops *ops : backends()) {
    GoldenRuns runs;
    for (const GoldenCase &c : cases) {
      for (const Class &of : classes) {
        if (c.operation == "linear") linear(c, ops, of, &runs);
        if (c.operation == "lora" && ops->lora != nullptr) lora(c, ops, of.x, &runs);
      }
    }
    runs.check(ops, {{"linear", ops->linear != nullptr}, {"lora", ops->lora != nullptr}});
  }
}
