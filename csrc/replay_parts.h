// replay_parts.h — what the functions that fill kernel arguments share.
#ifndef SIE_CSRC_REPLAY_PARTS_H
#define SIE_CSRC_REPLAY_PARTS_H

#include "replay.h"

namespace sie {

// Where a long slab has a buffer, for how many rows, and which of them is the first of the block.
struct LongPlace {
  char *base;
  int64_t cap, row;
};
inline LongPlace long_place(const Replay &r, const Buffer &b) {
  char *stage = r.values + r.long_cap * r.program->long_row_bytes;
  if (b.of_seqs) return {stage + r.stage_cap * r.program->long_stage_bytes + b.row_offset, 1, 0};
  if (b.inner) return {stage + r.stage_cap * b.row_offset, r.stage_cap, r.first_row - r.stage_first};
  return {r.values + r.long_cap * b.row_offset, r.long_cap, r.first_row};
}

// An operand of a long slab, from the first row of the block.
inline sie_tensor long_tensor(const Replay &r, const Operand &o) {
  const Buffer &b = r.program->buffers[o.buffer];
  auto [base, cap, row] = long_place(r, b);
  BufferParts parts = parts_of(b, cap);
  sie_tensor t = {base + row * b.ld * dtype_bytes(b.dtype) + o.column,
                  b.ld,
                  b.dtype,
                  b.scale_group,
                  nullptr,
                  nullptr,
                  nullptr};
  int64_t groups = b.scale_group > 0 ? (b.columns + b.scale_group - 1) / b.scale_group : 1;
  if (b.scale_group != 0) t.scale = reinterpret_cast<float *>(base + parts.scale) + row * groups;
  if (b.dtype == SIE_U8) t.zero = reinterpret_cast<int32_t *>(base + parts.zero) + row;
  if (b.outliers) t.outlier = reinterpret_cast<sie_outlier *>(base + parts.outlier) + row;
  return t;
}

// Rows that the batch brings.
inline sie_tensor given_tensor(const Replay &r, const Operand &o) {
  const char *rows = static_cast<const char *>(r.slab->inputs[o.given]) + o.column;
  return {const_cast<char *>(rows), o.ld, SIE_F32, 0, nullptr, nullptr, nullptr};  // no kernel writes them
}

inline sie_tensor tensor(const Replay &r, const Operand &o) {
  if (!o.present) return {};
  if (o.given != 0) return given_tensor(r, o);
  if (r.long_cap > 0) return long_tensor(r, o);
  sie_tensor t = {r.values + o.offset, o.ld, o.dtype, o.scale_group, nullptr, nullptr, nullptr};
  if (o.scale_group != 0) t.scale = reinterpret_cast<float *>(r.values + o.scale);
  if (o.dtype == SIE_U8) {
    t.zero = reinterpret_cast<int32_t *>(r.values + o.zero);
    if (o.outliers) t.outlier = reinterpret_cast<sie_outlier *>(r.values + o.outlier);
  }
  return t;
}

// The rows of a segment of the state, from this column on.
inline sie_tensor segment_rows(const Replay &r, int32_t segment, int64_t column) {
  const Segment &s = r.program->state.segments[segment];
  char *base = r.state + s.before * r.state_rows + column * dtype_bytes(s.dtype);
  return {base, s.ld, s.dtype, 0, nullptr, nullptr, nullptr};
}

inline sie_space space_of(const Replay &r, sie_value v) { return r.program->values[v].space; }
inline int64_t columns(const Replay &r, sie_value v) { return r.program->values[v].columns; }

inline sie_rows rows(const Replay &r, sie_value v) { return r.rows[space_of(r, v)]; }
inline sie_rows seqs(const Replay &r) { return r.rows[r.program->seqs]; }

// Where each sequence's rows of a value begin; null if it has one row a sequence.
inline const int32_t *offsets(const Replay &r, sie_value v) { return r.slab->spaces[space_of(r, v)].offsets; }

// The most rows that a sequence of this run has in any space; at least 1, because 0 means that nobody knows.
inline int32_t longest(const Replay &r) {
  return static_cast<int32_t>(r.slab->max_len > 0 ? r.slab->max_len : 1);
}

// An i32 input, or null for none.
inline const int32_t *indices(const Replay &r, sie_input input) {
  return static_cast<const int32_t *>(r.slab->inputs[input]);
}

// The places of rows that are pooled by their places in the space that they were kept of; both
// stay null in another space and for another pooling.
inline void kept_places(const Replay &r, const Op &op, const int32_t **index, const int32_t **cu_whole) {
  sie_space space = space_of(r, op.in[0]), whole = whole_of(r.program, space);
  if (op.pooling != SIE_POOL_WEIGHTED_MEAN || space == whole) return;
  *index = r.slab->spaces[space].index;
  *cu_whole = r.slab->spaces[whole].offsets;
}

// The arguments of a linear (replay.cc).
sie_linear_args linear_args(const Replay &r, const PlannedOp &planned);

// Flags the sequences of which the operation reads a row with a NaN or an infinity
// (replay_mark.cc). Does nothing unless the operation makes an output, or its result would no
// longer show the NaN.
sie_status mark_nonfinite(const Replay &r, const PlannedOp &planned);

// Copies rows to the state (replay_state.cc).
sie_status write_state(const Replay &r, const PlannedOp &planned);

// The operations that write outputs (replay_output.cc).
sie_status replay_output(const Replay &r, const PlannedOp &planned);

}  // namespace sie

#endif  // SIE_CSRC_REPLAY_PARTS_H
