// golden_products_test.cc — linear and attention as PyTorch does them in float64.
#include <math.h>

#include "tests/golden_file.h"

using namespace harness;

namespace {

std::string what(const sie_ops *ops, const GoldenCase &c, const char *form) {
  return text("%s: %s %s, %s", ops->name, c.operation.c_str(), c.name.c_str(), form);
}

// A weight class, the type of its x, and the error that shorter activations and sums of 13 bits
// (common/tol.h) may add.
struct Class {
  uint32_t compute;
  int32_t x;
  double tolerance;
};

void linear(const GoldenCase &c, const sie_ops *ops, const Class &of, const Rows &x, GoldenRuns *runs) {
  const int64_t n = c.array("w").rows, k = c.array("w").columns;
  Weight weight(of.compute, n, k, c.values("w"));
  const sie_packed *w = ops->packed_bytes != nullptr ? weight.packed(ops) : nullptr;
  if (w == nullptr) return;
  const std::unique_ptr<Rows> residual = c.rows("residual", SIE_F32);
  Rows y(x.rows(), c.array("y").columns, SIE_F32);
  Array<int32_t> rows(1, static_cast<int32_t>(x.rows()));
  sie_linear_args a = {};
  a.rows = {x.rows(), rows.data()};
  a.n = n;
  a.k = k;
  a.x = x.tensor();
  a.w = w;
  a.bias = c.floats("bias");
  if (c.operation == "linear") {
    a.act = c.integer("act");
    a.gate = c.integer("gate");
  }
  a.residual = tensor_of(residual);
  a.y = y.tensor();
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_LINEAR;
  bounds.compute = of.compute;
  bounds.rows = x.rows();
  bounds.n = n;
  bounds.k = k;
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->linear(&a, share); })) return;
  check_near(what(ops, c, dtype_text(of.x)), y, c.array("y"), of.tolerance);
}

void attention(const GoldenCase &c, const sie_ops *ops, int32_t dtype, double tolerance, GoldenRuns *runs) {
  Sequences sequences = c.sequences();
  const std::unique_ptr<Rows> q = c.rows("q", dtype), k = c.rows("k", dtype), v = c.rows("v", dtype);
  Rows y(q->rows(), q->columns(), dtype);
  Array<int32_t> n = {static_cast<int32_t>(sequences.tokens()), static_cast<int32_t>(sequences.count())};
  sie_attention_args a = {};
  a.q_rows = {sequences.tokens(), n.data()};
  a.seqs = {sequences.count(), n.data() + 1};
  a.cu_q = a.cu_kv = sequences.cu(0, sequences.count());
  a.max_kv = sequences.longest();
  a.q = q->tensor();
  a.k = k->tensor();
  a.v = v->tensor();
  a.heads = c.integer("heads");
  a.kv_heads = c.integer("kv_heads");
  a.head_dim = c.integer("d");
  a.mask = c.integer("mask");
  a.window = c.integer("window");
  a.scale = 1 / sqrtf(static_cast<float>(a.head_dim));
  a.y = y.tensor();
  a.alibi_slopes = c.floats("slopes");
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_ATTENTION;
  bounds.rows = sequences.tokens();
  bounds.seqs = sequences.count();
  bounds.max_len = sequences.longest();
  bounds.heads = a.heads;
  bounds.kv_heads = a.kv_heads;
  bounds.head_dim = a.head_dim;
  Array<uint8_t> work;
  const bool ran = runs->run(c, ops, bounds, [&](sie_share *share) {
    if (ops->attention_work != nullptr) {
      work.resize(static_cast<size_t>(ops->attention_work_bytes(&bounds)));
      const sie_status status = ops->attention_work(&a, work.data());
      if (status != SIE_OK) return status;
      a.work = work.data();
    }
    return ops->attention(&a, share);
  });
  if (ran) check_near(what(ops, c, dtype_text(dtype)), y, c.array("y"), tolerance);
}

}  // namespace

TEST(golden_products) {
  const std::vector<GoldenCase> cases = read_golden("operations.bin", 30);
  const Class classes[] = {
      {SIE_COMPUTE_F32, SIE_F32, 4e-6}, {SIE_COMPUTE_BF16, SIE_BF16, 3e-5}, {SIE_COMPUTE_F16, SIE_F16, 3e-5}};
  GoldenRuns runs;
  for (const sie_ops *ops : backends()) {
    for (const GoldenCase &c : cases) {
      if (c.operation == "linear") {
        for (const Class &of : classes) linear(c, ops, of, *c.rows("x", of.x), &runs);
      } else if (c.operation == "linear_int8") {
        linear(c, ops, {SIE_COMPUTE_INT8, SIE_U8, 4e-6}, *c.quantised("codes", SIE_U8, -1), &runs);
      } else if (c.operation == "linear_f8") {
        const std::unique_ptr<Rows> x = c.quantised("codes", SIE_F8E4M3, c.integer("group"));
        linear(c, ops, {SIE_COMPUTE_FP8, SIE_F8E4M3, 2e-3}, *x, &runs);
      } else if (c.operation == "attention") {
        // Probabilities of 8 and 11 bits, then the store (sie_tol_attention).
        attention(c, ops, SIE_F32, 4e-6, &runs);
        attention(c, ops, SIE_BF16, 0.008, &runs);
        attention(c, ops, SIE_F16, 0.001, &runs);
      }
    }
    const auto has = [&](sie_compute compute) {
      return ops->linear != nullptr && (ops->compute_mask >> compute & 1) != 0;
    };
    runs.check(ops, {{"linear", ops->linear != nullptr},
                     {"linear_int8", has(SIE_COMPUTE_INT8)},
                     {"linear_f8", has(SIE_COMPUTE_FP8)},
                     {"attention", ops->attention != nullptr}});
  }
}
