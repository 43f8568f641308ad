// replay_mark.cc — flags sequences with a NaN or an infinity in the rows from which outputs are
// computed.
//
// All earlier operations pass a NaN on; an infinity stays infinite, or becomes a NaN in the next
// norm. Outputs of bytes and bits, sparse rows, SPLADE, late interaction, found scores and pooling
// by the largest hide a NaN, for example because a maximum ignores it, and a softmax hides an infinity.
// So rows are checked before these.
#include "replay_parts.h"

namespace sie {

namespace {

bool hides_or_ends(const Op &op) {
  switch (op.kind) {
    case SIE_OP_POOL:
      return op.pooling == SIE_POOL_MAX || op.pooling == SIE_POOL_ABS_MAX;
    case SIE_OP_OUTPUT_ROWS:
    case SIE_OP_POOL_OUTPUT:
    case SIE_OP_OUTPUT_SPARSE:
    case SIE_OP_SPANS:
    case SIE_OP_PAIRS:
    case SIE_OP_MUVERA:
    case SIE_OP_SMVE:
    case SIE_OP_SPLADE:
    case SIE_OP_MAXSIM:
    case SIE_OP_LSTM:
    case SIE_OP_SOFTMAX:
    case op_output_values:
      return true;
    default:
      return false;
  }
}

// Which row of each sequence pooling reads: that of sie_pooling, or all (0).
int32_t rows_read(const Op &op) {
  bool one = op.kind == SIE_OP_POOL_OUTPUT && (op.pooling == SIE_POOL_CLS || op.pooling == SIE_POOL_LAST);
  return one ? op.pooling : 0;
}

}  // namespace

sie_status mark_nonfinite(const Replay &r, const PlannedOp &planned) {
  const Op &op = planned.op;
  if (!hides_or_ends(op) || planned.writes) return SIE_OK;
  for (int i = 0; i < (finds(op.kind) ? max_operands : 1); i++) {
    if (op.in[i] == SIE_NO_VALUE || planned.in[i].given != 0) continue;  // given rows are no sequence's
    sie_mark_nonfinite_args a = {};
    a.rows = rows(r, op.in[i]);
    a.seqs = seqs(r);
    a.cu_seqlens = offsets(r, op.in[i]);
    a.which = rows_read(op);
    a.c = columns(r, op.in[i]);
    a.x = tensor(r, planned.in[i]);
    a.place = r.slab->spaces[r.program->seqs].first;
    a.flags = r.nonfinite;
    const sie_status status = r.program->device->ops->mark_nonfinite(&a, &r.share);
    if (status != SIE_OK) return status;
  }
  return SIE_OK;
}

}  // namespace sie
