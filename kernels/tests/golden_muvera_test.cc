// golden_muvera_test.cc — encodings as the original server makes them (testdata/make_muvera.py).
#include "common/muvera.h"
#include "tests/golden_file.h"
#include "tests/out_rows.h"

using namespace harness;

namespace {

void muvera(const GoldenCase &c, const sie_ops *ops, int32_t dtype, GoldenRuns *runs) {
  Sequences sequences = c.sequences();
  const int64_t columns = c.array("y").columns;
  const std::unique_ptr<Rows> x = c.rows("x", dtype);
  OutRows out(nullptr, sequences.count(), columns, {SIE_F32, 0, c.integer("normalize") != 0});
  Array<int32_t> n = {static_cast<int32_t>(sequences.tokens()), static_cast<int32_t>(sequences.count())};
  sie_muvera_args a = {};
  a.tokens = {sequences.tokens(), n.data()};
  a.seqs = {sequences.count(), n.data() + 1};
  a.cu_seqlens = sequences.cu(0, sequences.count());
  a.c = c.integer("c");
  a.x = x->tensor();
  a.repetitions = c.integer("repetitions");
  a.simhash_bits = c.integer("bits");
  a.projected = c.integer("projected");
  a.final_dims = c.integer("final_dims");
  a.is_query = c.integer("query");
  a.center_tokens = c.integer("center_tokens");
  a.normalize = c.integer("normalize_rows");
  a.simhash = c.floats("simhash");
  a.ams = c.integers("ams");
  a.sketch = c.integers("sketch");
  Array<int32_t> output, source;
  if (a.sketch != nullptr) {
    const int64_t block = (a.projected != 0 ? a.projected : a.c) << a.simhash_bits;
    output.resize(static_cast<size_t>(a.repetitions * block));
    source.resize(output.size());
    std::vector<int32_t> room(static_cast<size_t>(columns + 2 * block));
    sie_order_sketch(a.sketch, a.repetitions, block, columns, room.data(), output.data(), source.data());
    a.sketch_output = output.data();
    a.sketch_source = source.data();
  }
  a.items = out.items(0, sequences.count());
  a.out = out.base();
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_MUVERA;
  bounds.rows = sequences.tokens();
  bounds.seqs = sequences.count();
  bounds.c = a.c;
  bounds.max_len = sequences.longest();
  bounds.projected = a.projected != 0 ? a.projected : static_cast<int32_t>(a.c);
  bounds.repetitions = a.repetitions;
  bounds.simhash_bits = a.simhash_bits;
  bounds.final_dims = columns;
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->muvera(&a, share); })) return;
  Rows y(sequences.count(), columns, SIE_F32);
  for (int64_t r = 0; r < y.rows(); r++) {
    for (int64_t i = 0; i < columns; i++) y.set(r, i, static_cast<float>(out.element(r, i)));
  }
  check_near(text("%s: muvera %s, %s", ops->name, c.name.c_str(), dtype_text(dtype)), y, c.array("y"), 4e-6);
}

}  // namespace

TEST(golden_muvera) {
  const std::vector<GoldenCase> cases = read_golden("muvera.bin", 10);
  GoldenRuns runs;
  for (const sie_ops *ops : backends()) {
    if (ops->muvera == nullptr) continue;
    for (const GoldenCase &c : cases) {
      for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_F16}) muvera(c, ops, dtype, &runs);
    }
    runs.check(ops, {{"muvera", true}});
  }
}
