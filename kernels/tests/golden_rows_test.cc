// golden_rows_test.cc — norms, embeddings, RoPE, pooling and quantisation by PyTorch and its
// libraries.
#include "tests/golden_file.h"
#include "tests/out_rows.h"

using namespace harness;

namespace {

constexpr int32_t float_types[] = {SIE_F32, SIE_BF16, SIE_F16};

std::string what(const sie_ops *ops, const GoldenCase &c, int32_t dtype) {
  return text("%s: %s %s, %s", ops->name, c.operation.c_str(), c.name.c_str(), dtype_text(dtype));
}

sie_op_bounds bounds_of(sie_op_kind kind, int64_t rows, int64_t c, const Sequences *sequences) {
  sie_op_bounds b = {};
  b.kind = kind;
  b.rows = rows;
  b.c = c;
  if (sequences != nullptr) {
    b.seqs = sequences->count();
    b.max_len = sequences->longest();
  }
  return b;
}

void layernorm(const GoldenCase &c, const sie_ops *ops, int32_t dtype, GoldenRuns *runs) {
  const std::unique_ptr<Rows> x = c.rows("x", dtype), residual = c.rows("residual", dtype);
  Rows y(x->rows(), x->columns(), dtype), sum(x->rows(), x->columns(), SIE_F32);
  Array<int32_t> n(1, static_cast<int32_t>(x->rows()));
  sie_layernorm_args a = {};
  a.rows = {x->rows(), n.data()};
  a.c = x->columns();
  a.x = x->tensor();
  a.residual = tensor_of(residual);
  a.bias = c.floats("bias");
  a.gamma = c.floats("gamma");
  a.beta = c.floats("beta");
  a.norm = c.integer("norm");
  a.eps = static_cast<float>(c.real("eps"));
  a.weight_offset = static_cast<float>(c.real("offset"));
  a.y = y.tensor();
  if (c.has("out")) a.sum = sum.tensor();
  const sie_op_bounds bounds = bounds_of(SIE_OP_LAYERNORM, x->rows(), a.c, nullptr);
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->layernorm(&a, share); })) return;
  check_near(what(ops, c, dtype), y, c.array("y"), golden_tolerance(dtype));
  if (c.has("out")) check_near(what(ops, c, dtype) + " sum", sum, c.array("out"), golden_tolerance(SIE_F32));
}

void embed(const GoldenCase &c, const sie_ops *ops, int32_t dtype, GoldenRuns *runs) {
  Sequences sequences = c.sequences();
  const std::unique_ptr<Rows> word = c.rows("word", dtype), position = c.rows("position", dtype),
                              type = c.rows("type", dtype);
  Rows y(sequences.tokens(), word->columns(), dtype);
  Array<int32_t> n = {static_cast<int32_t>(sequences.tokens()), static_cast<int32_t>(sequences.count())};
  sie_embed_layernorm_args a = {};
  a.tokens = {sequences.tokens(), n.data()};
  a.seqs = {sequences.count(), n.data() + 1};
  a.ids = c.integers("ids");
  a.type_ids = c.integers("types");
  a.cu_seqlens = sequences.cu(0, sequences.count());
  a.word = word->tensor();
  a.position = position->tensor();
  a.type = type->tensor();
  a.norm = SIE_NORM_LAYER;
  a.gamma = c.floats("gamma");
  a.beta = c.floats("beta");
  a.eps = static_cast<float>(c.real("eps"));
  a.c = word->columns();
  a.y = y.tensor();
  const sie_op_bounds bounds = bounds_of(SIE_OP_EMBED_LAYERNORM, sequences.tokens(), a.c, &sequences);
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->embed_layernorm(&a, share); })) return;
  check_near(what(ops, c, dtype), y, c.array("y"), golden_tolerance(dtype));
}

void rope(const GoldenCase &c, const sie_ops *ops, int32_t dtype, GoldenRuns *runs) {
  Sequences sequences = c.sequences();
  const std::unique_ptr<Rows> q = c.rows("q", dtype), k = c.rows("k", dtype);
  Array<int32_t> n = {static_cast<int32_t>(sequences.tokens()), static_cast<int32_t>(sequences.count())};
  sie_qk_norm_rope_args a = {};
  a.tokens = {sequences.tokens(), n.data()};
  a.seqs = {sequences.count(), n.data() + 1};
  a.cu_seqlens = sequences.cu(0, sequences.count());
  a.heads = c.integer("heads");
  a.kv_heads = c.integer("kv_heads");
  a.head_dim = c.integer("d");
  a.rot = c.integer("rot");
  a.q_gamma = c.floats("q_gamma");
  a.k_gamma = c.floats("k_gamma");
  a.eps = static_cast<float>(c.real("eps"));
  a.cos = c.floats("cos");
  a.sin = c.floats("sin");
  a.positions = c.array("cos").rows;
  a.q = q->tensor();
  a.k = k->tensor();
  sie_op_bounds bounds = bounds_of(SIE_OP_QK_NORM_ROPE, sequences.tokens(), 0, &sequences);
  bounds.head_dim = a.head_dim;
  bounds.heads = a.heads;
  bounds.kv_heads = a.kv_heads;
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->qk_norm_rope(&a, share); })) return;
  check_near(what(ops, c, dtype) + " q", *q, c.array("y"), golden_tolerance(dtype));
  check_near(what(ops, c, dtype) + " k", *k, c.array("k_out"), golden_tolerance(dtype));
}

// pool, and pool_output with the first columns normalised.
void pool(const GoldenCase &c, const sie_ops *ops, int32_t dtype, GoldenRuns *runs) {
  Sequences sequences = c.sequences();
  const std::unique_ptr<Rows> x = c.rows("x", dtype);
  Rows y(sequences.count(), x->columns(), SIE_F32);
  OutRows cut(nullptr, sequences.count(), x->columns(), {SIE_F32, c.integer("dims"), true});
  Array<int32_t> n(1, static_cast<int32_t>(sequences.count()));
  sie_pool_args a = {};
  a.seqs = {sequences.count(), n.data()};
  a.cu_seqlens = sequences.cu(0, sequences.count());
  a.mode = c.integer("mode");
  a.longest = static_cast<int32_t>(sequences.longest());
  a.c = x->columns();
  a.x = x->tensor();
  a.w = c.floats("w");
  a.y = y.tensor();
  sie_pool_output_args b = {};
  b.seqs = a.seqs;
  b.cu_seqlens = a.cu_seqlens;
  b.mode = a.mode;
  b.longest = a.longest;
  b.c = a.c;
  b.x = a.x;
  b.w = a.w;
  b.items = cut.items(0, sequences.count());
  b.out = cut.base();
  const sie_op_bounds pool_bounds = bounds_of(SIE_OP_POOL, sequences.tokens(), a.c, &sequences),
                      output_bounds = bounds_of(SIE_OP_POOL_OUTPUT, sequences.tokens(), a.c, &sequences);
  if (!runs->run(c, ops, pool_bounds, [&](sie_share *share) { return ops->pool(&a, share); })) return;
  check_near(what(ops, c, dtype), y, c.array("y"), golden_tolerance(SIE_F32));
  if (!runs->run(c, ops, output_bounds, [&](sie_share *share) { return ops->pool_output(&b, share); }))
    return;
  Rows normalised(sequences.count(), cut.dims(), SIE_F32);
  for (int64_t r = 0; r < normalised.rows(); r++) {
    for (int64_t i = 0; i < cut.dims(); i++) normalised.set(r, i, static_cast<float>(cut.element(r, i)));
  }
  check_near(what(ops, c, dtype) + " output", normalised, c.array("out"), golden_tolerance(SIE_F32));
}

// To the bit: codes, scales and zero points.
void quantise(const GoldenCase &c, const sie_ops *ops, GoldenRuns *runs) {
  const bool f8 = c.operation == "quantise_f8";
  const int32_t group = f8 ? c.integer("group") : -1, dtype = f8 ? SIE_F8E4M3 : SIE_U8;
  const std::unique_ptr<Rows> x = c.rows("x", SIE_F32), want = c.quantised("codes", dtype, group);
  Rows y(x->rows(), x->columns(), dtype, {false, group});
  Array<int32_t> n(1, static_cast<int32_t>(x->rows()));
  sie_quantise_rows_args a = {{x->rows(), n.data()}, x->columns(), x->tensor(), y.tensor()};
  const sie_op_bounds bounds = bounds_of(SIE_OP_QUANTISE_ROWS, x->rows(), a.c, nullptr);
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->quantise_rows(&a, share); })) return;
  for (int64_t r = 0; r < x->rows(); r++) {
    CHECK(y.bytes(r, r + 1) == want->bytes(r, r + 1), "%s: row %lld has other bits",
          what(ops, c, dtype).c_str(), static_cast<long long>(r));
  }
}

}  // namespace

TEST(golden_rows) {
  const std::vector<GoldenCase> cases = read_golden("operations.bin", 30);
  GoldenRuns runs;
  for (const sie_ops *ops : backends()) {
    for (const GoldenCase &c : cases) {
      if (c.operation.compare(0, 8, "quantise") == 0) quantise(c, ops, &runs);
      for (int32_t dtype : float_types) {
        if (c.operation == "layernorm") layernorm(c, ops, dtype, &runs);
        if (c.operation == "embed_layernorm") embed(c, ops, dtype, &runs);
        if (c.operation == "qk_norm_rope") rope(c, ops, dtype, &runs);
        if (c.operation == "pool") pool(c, ops, dtype, &runs);
      }
    }
    const bool u8 = ops->isa != 0 || ops == sie_ref_ops();
    runs.check(ops, {{"layernorm", ops->layernorm != nullptr},
                     {"embed_layernorm", ops->embed_layernorm != nullptr},
                     {"qk_norm_rope", ops->qk_norm_rope != nullptr},
                     {"pool", ops->pool != nullptr},
                     {"quantise_u8", u8},
                     {"quantise_f8", ops->quantise_rows != nullptr}});
  }
}
