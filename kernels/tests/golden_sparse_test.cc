// golden_sparse_test.cc — sparse outputs as other software makes them: testdata/make_splade.py,
// make_smve.py.
#include "tests/golden_file.h"
#include "tests/sparse_rows.h"

using namespace harness;

namespace {

struct SpladeClass {
  uint32_t compute;
  int32_t dtype;
};
// Inputs are exact in all three, so each is held to what f32 sums lose.
constexpr SpladeClass classes[] = {
    {SIE_COMPUTE_F32, SIE_F32}, {SIE_COMPUTE_BF16, SIE_BF16}, {SIE_COMPUTE_F16, SIE_F16}};

// Sparse rows as dense ones; columns must ascend.
std::unique_ptr<Rows> dense_rows(const std::string &what, const SparseRows &sparse, int64_t rows,
                                 int64_t columns) {
  std::unique_ptr<Rows> y(new Rows(rows, columns, SIE_F32));
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < columns; i++) y->set(r, i, 0.0f);
    int64_t before = -1;
    for (int32_t i = 0; i < sparse.count(r); i++) {
      const SparseEntry entry = sparse.entry(r, i);
      const bool ascends = entry.column > before && entry.column < columns;
      CHECK(ascends, "%s: row %lld has column %lld behind %lld", what.c_str(), static_cast<long long>(r),
            static_cast<long long>(entry.column), static_cast<long long>(before));
      if (!ascends) break;
      before = entry.column;
      y->set(r, entry.column, static_cast<float>(entry.value));
    }
  }
  return y;
}

// splade, then output_sparse of what it gives.
void splade(const GoldenCase &c, const sie_ops *ops, const SpladeClass &of, GoldenRuns *runs) {
  Sequences sequences = c.sequences();
  const std::unique_ptr<Rows> x = c.rows("x", of.dtype);
  const int64_t n = c.array("w").rows, seqs = sequences.count();
  Weight weight(of.compute, n, x->columns(), c.values("w"));
  Rows y(seqs, n, SIE_F32);
  SparseRows out(nullptr, seqs, static_cast<int32_t>(n), SIE_F32);
  Array<int32_t> counts = {static_cast<int32_t>(sequences.tokens()), static_cast<int32_t>(seqs)};
  sie_splade_args a = {};
  a.tokens = {sequences.tokens(), counts.data()};
  a.seqs = {seqs, counts.data() + 1};
  a.cu_seqlens = sequences.cu(0, seqs);
  a.n = n;
  a.k = x->columns();
  a.x = x->tensor();
  a.w = weight.packed(ops);
  a.bias = c.floats("bias");
  a.y = y.tensor();
  sie_output_sparse_args b = {};
  b.seqs = a.seqs;
  b.c = n;
  b.x = a.y;
  b.transform = c.integer("transform");
  b.items = out.items(0, seqs);
  b.out = out.base();
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_SPLADE;
  bounds.compute = of.compute;
  bounds.rows = sequences.tokens();
  bounds.seqs = seqs;
  bounds.n = n;
  bounds.k = a.k;
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->splade(&a, share); })) return;
  bounds.kind = SIE_OP_OUTPUT_SPARSE;
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->output_sparse(&b, share); })) return;
  const std::string what = text("%s: splade %s, %s", ops->name, c.name.c_str(), dtype_text(of.dtype));
  check_near(what, *dense_rows(what, out, seqs, n), c.array("y"), golden_tolerance(SIE_F32));
}

void smve(const GoldenCase &c, const sie_ops *ops, int32_t dtype, GoldenRuns *runs) {
  Sequences sequences = c.sequences();
  const std::unique_ptr<Rows> x = c.rows("x", dtype);
  const int64_t seqs = sequences.count(), columns = c.array("y").columns;
  SparseRows out(nullptr, seqs, static_cast<int32_t>(columns), SIE_F32);
  Array<int32_t> counts = {static_cast<int32_t>(sequences.tokens()), static_cast<int32_t>(seqs)};
  sie_smve_args a = {};
  a.rows = {sequences.tokens(), counts.data()};
  a.seqs = {seqs, counts.data() + 1};
  a.cu_seqlens = sequences.cu(0, seqs);
  a.c = c.integer("c");
  a.x = x->tensor();
  a.repetitions = c.integer("repetitions");
  a.width = c.integer("width");
  a.top = c.integer("top");
  a.max_nonzeros = c.integer("max_nonzeros");
  a.is_query = c.integer("query");
  a.normalize = c.integer("normalize_rows");
  a.anchors = c.floats("anchors");
  a.items = out.items(0, seqs);
  a.out = out.base();
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_SMVE;
  bounds.rows = sequences.tokens();
  bounds.seqs = seqs;
  bounds.c = a.c;
  bounds.max_len = sequences.longest();
  bounds.repetitions = a.repetitions;
  bounds.top = a.top;
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->smve(&a, share); })) return;
  const std::string what = text("%s: smve %s, %s", ops->name, c.name.c_str(), dtype_text(dtype));
  check_near(what, *dense_rows(what, out, seqs, columns), c.array("y"), golden_tolerance(SIE_F32));
}

}  // namespace

TEST(golden_smve) {
  const std::vector<GoldenCase> cases = read_golden("smve.bin", 8);
  GoldenRuns runs;
  for (const sie_ops *ops : backends()) {
    if (ops->smve == nullptr) continue;
    for (const GoldenCase &c : cases) {
      for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) smve(c, ops, dtype, &runs);
    }
    runs.check(ops, {{"smve", true}});
  }
}

TEST(golden_splade) {
  const std::vector<GoldenCase> cases = read_golden("splade.bin", 4);
  GoldenRuns runs;
  for (const sie_ops *ops : backends()) {
    if (ops->splade == nullptr) continue;
    for (const GoldenCase &c : cases) {
      for (const SpladeClass &of : classes) {
        if ((ops->compute_mask >> of.compute & 1) != 0) splade(c, ops, of, &runs);
      }
    }
    runs.check(ops, {{"splade", true}});
  }
}
