// record_state.cc — records what a program does with a state.
#include "record.h"
#include "status.h"

namespace sie {

namespace {

using ll = long long;

// A reading program's inputs, which say where each sequence's prefix is.
sie_status check_prefixes(const sie_program *p, const sie_state_params &s, sie_error *err) {
  SIE_FAIL_IF((s.first == 0) != (s.rows == 0), SIE_INVALID_ARGUMENT, err,
              "first is %d and rows is %d; a program that reads needs both inputs, one that writes neither",
              s.first, s.rows);
  if (s.rows == 0) return SIE_OK;
  SIE_FAIL_IF(s.first == s.rows, SIE_INVALID_ARGUMENT, err, "first and rows are both input %d", s.rows);
  SIE_TRY(check_input(p, s.first, SIE_SPACE_SEQS, 0, s.max_rows + 1, "first", err));
  return check_input(p, s.rows, SIE_SPACE_SEQS, 0, s.max_rows + 1, "rows", err);
}

}  // namespace

sie_status record_state(sie_program *p, const void *params, sie_error *err) {
  sie_state_params s;
  SIE_TRY(take_params(params, &s, err));
  SIE_TRY(check_zero(s.reserved, "reserved", err));
  SIE_FAIL_IF(p->state.declared, SIE_INVALID_ARGUMENT, err, "the program has declared its state already");
  SIE_FAIL_IF(p->rows == 0 || p->many, SIE_UNSUPPORTED, err,
              "the program has %s ROWS space declared; with a state it has one, declared before",
              p->many ? "more than one" : "no");
  SIE_FAIL_IF(s.max_rows < 1 || s.max_rows > max_batch_tokens, SIE_INVALID_ARGUMENT, err,
              "max_rows is %lld; 1 to %lld is possible", static_cast<ll>(s.max_rows),
              static_cast<ll>(max_batch_tokens));
  SIE_TRY(check_prefixes(p, s, err));
  SIE_FAIL_IF(s.rows == 0 && s.max_rows < p->caps.max_rows, SIE_INVALID_ARGUMENT, err,
              "max_rows is %lld; a batch of this program writes up to %lld", static_cast<ll>(s.max_rows),
              static_cast<ll>(p->caps.max_rows));
  p->state.declared = true;
  p->state.max_rows = s.max_rows;
  p->state.first = s.first;
  p->state.rows = s.rows;
  if (s.rows != 0) {
    read_input(p, s.first, 0, s.max_rows + 1);
    read_input(p, s.rows, 0, s.max_rows + 1);
  }
  return SIE_OK;
}

sie_status check_segment(const sie_program *p, int32_t segment, bool writes, sie_error *err) {
  SIE_FAIL_IF(segment < 1 || segment > SIE_MAX_SEGMENTS, SIE_INVALID_ARGUMENT, err,
              "segment is %d; 1 to %d is possible", segment, SIE_MAX_SEGMENTS);
  bool declared = writes ? p->state.writes() : p->state.reads();
  SIE_FAIL_IF(!declared, SIE_INVALID_ARGUMENT, err,
              "segment is %d, but the program declares no state that it %s", segment,
              writes ? "writes" : "reads");
  return SIE_OK;
}

sie_status record_state_rows(sie_program *p, const void *params, sie_error *err) {
  sie_state_rows_params s;
  SIE_TRY(take_params(params, &s, err));
  SIE_TRY(check_zero(s.reserved, "reserved", err));
  SIE_TRY(check_value(p, s.x, "x", err));
  SIE_TRY(check_segment(p, s.segment, true, err));
  const Value x = p->values[s.x];
  SIE_FAIL_IF(x.space != p->rows, SIE_INVALID_ARGUMENT, err,
              "x has rows of %s; those of the ROWS space are needed", space_name(p, x.space));
  SIE_FAIL_IF(p->state.segments[s.segment].columns != 0, SIE_INVALID_ARGUMENT, err,
              "segment %d is written already", s.segment);
  Op op = new_op(op_state_rows);
  op.in[0] = s.x;
  op.segment = s.segment;
  SIE_TRY(append(p, op, 0, 0, 0, err));
  p->state.segments[s.segment].columns = x.columns;
  return SIE_OK;
}

}  // namespace sie
