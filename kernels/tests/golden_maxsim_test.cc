// golden_maxsim_test.cc — ColBERT scores as PyTorch computes them in float64.
#include "tests/golden_file.h"

using namespace harness;

namespace {

void maxsim(const GoldenCase &c, const sie_ops *ops, int32_t dtype, GoldenRuns *runs) {
  Sequences sequences = c.sequences();
  const GoldenArray &lengths = c.array("query_lengths");
  Sequences queries(std::vector<int32_t>(lengths.integers.begin(), lengths.integers.end()));
  const std::unique_ptr<Rows> x = c.rows("x", dtype);
  Rows y(sequences.count(), 1, SIE_F32);
  Array<int32_t> n = {static_cast<int32_t>(x->rows()), static_cast<int32_t>(sequences.count())};
  sie_maxsim_args a = {};
  a.rows = {x->rows(), n.data()};
  a.seqs = {sequences.count(), n.data() + 1};
  a.cu_seqlens = sequences.cu(0, sequences.count());
  a.c = x->columns();
  a.x = x->tensor();
  a.queries = c.floats("queries");
  a.cu_queries = queries.cu(0, queries.count());
  a.partner = c.integers("partner");
  a.normalize = c.integer("normalize");
  a.y = y.tensor();
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_MAXSIM;
  bounds.rows = x->rows();
  bounds.seqs = sequences.count();
  bounds.c = a.c;
  bounds.query_rows = queries.tokens();
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->maxsim(&a, share); })) return;
  check_near(text("%s: maxsim %s, %s", ops->name, c.name.c_str(), dtype_text(dtype)), y, c.array("y"), 1e-6);
}

}  // namespace

TEST(golden_maxsim) {
  const std::vector<GoldenCase> cases = read_golden("maxsim.bin", 4);
  GoldenRuns runs;
  for (const sie_ops *ops : backends()) {
    if (ops->maxsim == nullptr) continue;
    for (const GoldenCase &c : cases) {
      for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) maxsim(c, ops, dtype, &runs);
    }
    runs.check(ops, {{"maxsim", true}});
  }
}
