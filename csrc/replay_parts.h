// replay_parts.h — what the functions that fill arguments share.
#ifndef SIE_CSRC_REPLAY_PARTS_H
#define SIE_CSRC_REPLAY_PARTS_H

#include "replay.h"

namespace sie {

inline sie_tensor tensor(const Replay &r, const Operand &o) {
  if (!o.present) return {};
  sie_tensor t = {r.values + o.offset, o.ld, o.dtype, o.scale_group, nullptr, nullptr, nullptr};
  if (o.scale_group != 0) t.scale = reinterpret_cast<float *>(r.values + o.scale);
  if (o.dtype == SIE_U8) {
    t.zero = reinterpret_cast<int32_t *>(r.values + o.zero);
    if (o.outliers) t.outlier = reinterpret_cast<sie_outlier *>(r.values + o.outlier);
  }
  return t;
}

inline Rows rows_of(const Replay &r, sie_value v) { return r.program->values[v].rows; }
inline int64_t columns(const Replay &r, sie_value v) { return r.program->values[v].columns; }

inline sie_rows rows(const Replay &r, sie_value v) {
  Rows of = rows_of(r, v);
  return of == Rows::tokens ? r.tokens : (of == Rows::kept ? r.kept : r.seqs);
}

// Where each sequence's rows of a value begin; null: it has one row a sequence.
inline const int32_t *offsets(const Replay &r, sie_value v) {
  Rows of = rows_of(r, v);
  return of == Rows::tokens ? r.slab->cu_seqlens : (of == Rows::kept ? r.slab->cu_kept : nullptr);
}

// The operations that write outputs (replay_output.cc).
sie_status replay_output(const Replay &r, const PlannedOp &planned);

}  // namespace sie

#endif  // SIE_CSRC_REPLAY_PARTS_H
