// replay_late.cc — a team's linear whose result exists as quantised rows only (class INT8), quantised
// late: in a step of its own.
//
// A row can be quantised when all of its columns are known. So by replay_op a member computes whole rows,
// and reads all weights for them. Here it computes its columns of all rows in f32, reads only their
// weights, and after a meeting quantises some of the rows. Bits are the same: a linear that writes
// quantised rows computes them in f32 as one that writes f32 does, and quantises as quantise_rows.
//
// Cost: a member reads k·n/parts bytes of weights where it would read k·n, and with the others writes and
// reads 8·rows·n bytes between caches, of which 1/parts each. So this form is taken where
// 8·rows < k·(parts − 1): a few rows, or many members.
#include <algorithm>

#include "replay_parts.h"

namespace sie {

namespace {

// A tensor from its row `row` on.
sie_tensor from_row(sie_tensor t, int64_t row) {
  if (t.p == nullptr) return t;
  t.p = static_cast<char *>(t.p) + row * t.ld * dtype_bytes(t.dtype);
  if (t.scale != nullptr) t.scale += row;
  if (t.zero != nullptr) t.zero += row;
  if (t.outlier != nullptr) t.outlier += row;
  return t;
}

}  // namespace

bool writes_levels_only(const PlannedOp &planned) {
  return planned.op.kind == SIE_OP_LINEAR && !planned.out.present && planned.quantised.present &&
         planned.op.weights[0]->packed.compute == SIE_COMPUTE_INT8;
}

int64_t late_group(const sie_program *p, const PlannedOp &planned) {
  const int64_t row = p->values[planned.op.out].columns * static_cast<int64_t>(sizeof(float));
  return std::clamp<int64_t>(p->late_limit / row, 1, p->slab_tokens);
}

int64_t late_bytes_of(const sie_program *p, const PlannedOp &planned) {
  return late_group(p, planned) * p->values[planned.op.out].columns * static_cast<int64_t>(sizeof(float));
}

bool quantises_late(const Replay &r, int32_t index) {
  const PlannedOp &planned = r.program->plan[index];
  if (r.late == nullptr || r.share.parts == 1 || !writes_levels_only(planned)) return false;
  return 8 * int64_t{*rows(r, planned.op.out).n} < planned.op.weights[0]->k * (r.share.parts - 1);
}

int64_t late_rows(const Replay &r, int32_t index) { return late_group(r.program, r.program->plan[index]); }

sie_status replay_columns(const Replay &r, int32_t index, int64_t first, int32_t rows) {
  const PlannedOp &planned = r.program->plan[index];
  const int64_t width = columns(r, planned.op.out);
  sie_linear_args a = linear_args(r, planned);
  a.rows = {rows, &rows};
  a.x = from_row(a.x, first);
  a.addend = from_row(a.addend, first);
  a.residual = from_row(a.residual, first);
  a.y = {r.late, width, SIE_F32, 0, nullptr, nullptr, nullptr};
  return r.program->device->ops->linear(&a, &r.share);
}

sie_status replay_levels(const Replay &r, int32_t index, int64_t first, int32_t rows) {
  const PlannedOp &planned = r.program->plan[index];
  sie_quantise_rows_args a = {};
  a.rows = {rows, &rows};
  a.c = columns(r, planned.op.out);
  a.x = {r.late, a.c, SIE_F32, 0, nullptr, nullptr, nullptr};
  a.y = from_row(tensor(r, planned.quantised), first);
  return r.program->device->ops->quantise_rows(&a, &r.share);
}

}  // namespace sie
