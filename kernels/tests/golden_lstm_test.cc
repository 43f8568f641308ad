// golden_lstm_test.cc — the states of an LSTM as torch.nn.LSTM computes them in float64.
#include "tests/golden_file.h"

using namespace harness;

namespace {

void lstm(const GoldenCase &c, const sie_ops *ops, GoldenRuns *runs) {
  Sequences sequences = c.sequences();
  const std::unique_ptr<Rows> gates = c.rows("gates", SIE_F32);
  const int64_t h = gates->columns() / 8;
  Weight forward(SIE_COMPUTE_F32, 4 * h, h, c.values("forward")),
      reverse(SIE_COMPUTE_F32, 4 * h, h, c.values("reverse"));
  Rows y(gates->rows(), 2 * h, SIE_F32);
  Array<int32_t> n = {static_cast<int32_t>(y.rows()), static_cast<int32_t>(sequences.count())};
  sie_lstm_args a = {};
  a.rows = {y.rows(), n.data()};
  a.seqs = {sequences.count(), n.data() + 1};
  a.cu_seqlens = sequences.cu(0, sequences.count());
  a.h = h;
  a.w = forward.packed(ops);
  a.w_reverse = reverse.packed(ops);
  a.gates = gates->tensor();
  a.y = y.tensor();
  sie_op_bounds bounds = {};
  bounds.kind = SIE_OP_LSTM;
  bounds.rows = y.rows();
  bounds.seqs = sequences.count();
  bounds.c = gates->columns();
  bounds.k = h;
  bounds.max_len = sequences.longest();
  if (!runs->run(c, ops, bounds, [&](sie_share *share) { return ops->lstm(&a, share); })) return;
  check_near(text("%s: lstm, %s", ops->name, c.name.c_str()), y, c.array("y"), 1e-6);
}

}  // namespace

TEST(golden_lstm) {
  const std::vector<GoldenCase> cases = read_golden("lstm.bin", 3);
  GoldenRuns runs;
  for (const sie_ops *ops : backends()) {
    if (ops->lstm == nullptr) continue;
    for (const GoldenCase &c : cases) lstm(c, ops, &runs);
    runs.check(ops, {{"lstm", true}});
  }
}
