// record_space.cc — records the declarations of spaces and inputs.
#include "record.h"

#include <string.h>

#include <algorithm>

namespace sie {

namespace {

using ll = long long;

sie_status check_bounds(const sie_space_params &s, sie_error *err) {
  bool subset = s.kind == SIE_SPACE_SUBSET;
  int64_t most = s.kind == SIE_SPACE_SEQS ? max_batch_seqs : max_batch_tokens;
  if (subset) {
    SIE_TRY(check_zero(s.max_rows, "max_rows", err));
  } else {
    SIE_FAIL_IF(s.max_rows < 1 || s.max_rows > most, SIE_INVALID_ARGUMENT, err,
                "max_rows is %lld; 1 to %lld is possible", static_cast<ll>(s.max_rows),
                static_cast<ll>(most));
  }
  if (s.kind != SIE_SPACE_ROWS) {
    SIE_TRY(check_zero(s.min_each, "min_each", err));
    return check_zero(s.max_each, "max_each", err);
  }
  SIE_FAIL_IF(s.max_each < 1 || s.max_each > s.max_rows, SIE_INVALID_ARGUMENT, err,
              "max_each is %lld; 1 to max_rows (%lld) is possible", static_cast<ll>(s.max_each),
              static_cast<ll>(s.max_rows));
  SIE_FAIL_IF(s.min_each < 0 || s.min_each > s.max_each, SIE_INVALID_ARGUMENT, err,
              "min_each is %lld; 0 to max_each (%lld) is possible", static_cast<ll>(s.min_each),
              static_cast<ll>(s.max_each));
  return SIE_OK;
}

sie_status check_marks(const sie_program *p, const sie_space_params &s, sie_error *err) {
  if (s.kind != SIE_SPACE_SUBSET) return check_zero(s.marks, "marks", err);
  SIE_FAIL_IF(s.marks < 1 || s.marks > max_inputs || p->inputs[s.marks].space == 0, SIE_INVALID_ARGUMENT, err,
              "marks is %d, which is no input", s.marks);
  const Input &marks = p->inputs[s.marks];
  SIE_FAIL_IF(marks.dtype != SIE_U8, SIE_INVALID_ARGUMENT, err, "marks is %s; u8 of a ROWS space is needed",
              dtype_name(marks.dtype));
  SIE_FAIL_IF(marks.read, SIE_INVALID_ARGUMENT, err, "marks already choose the rows of another space");
  return SIE_OK;
}

bool allows(uint32_t space_kind, uint32_t dtype) {
  switch (dtype) {
    case SIE_I32:
      return space_kind == SIE_SPACE_SEQS || space_kind == SIE_SPACE_ROWS;
    case SIE_U8:
      return space_kind == SIE_SPACE_ROWS;
    case SIE_F32:
      return space_kind == SIE_SPACE_SHARED;
    default:
      return false;
  }
}

}  // namespace

sie_status record_space(sie_program *p, const void *params, sie_error *err) {
  sie_space_params s;
  Name name;
  SIE_TRY(take_params(params, &s, err));
  SIE_TRY(check_name(s.name, &name, err));
  SIE_FAIL_IF(s.space < 1 || s.space > max_spaces, SIE_INVALID_ARGUMENT, err,
              "space is %d; 1 to %d is possible", s.space, max_spaces);
  SIE_FAIL_IF(p->spaces[s.space].kind != 0, SIE_INVALID_ARGUMENT, err, "space %d is declared already, as %s",
              s.space, p->spaces[s.space].name.text);
  SIE_FAIL_IF(sie_program_find_space(p, name.text) != 0, SIE_INVALID_ARGUMENT, err,
              "a space of the name %s is declared already", name.text);
  SIE_FAIL_IF(s.kind < SIE_SPACE_SEQS || s.kind > SIE_SPACE_SHARED, SIE_INVALID_ARGUMENT, err,
              "kind %u is none of sie_space_kind", s.kind);
  bool seqs = s.kind == SIE_SPACE_SEQS, rows = s.kind == SIE_SPACE_ROWS;
  SIE_FAIL_IF(seqs && p->seqs != 0, SIE_UNSUPPORTED, err,
              "a program has one space of the kind SEQS, and it is declared");
  SIE_FAIL_IF(rows && p->state.declared, SIE_UNSUPPORTED, err,
              "a program with a state has one space of the kind ROWS, and it is declared");
  SIE_TRY(check_bounds(s, err));
  SIE_TRY(check_marks(p, s, err));
  p->spaces[s.space] = {s.kind, s.marks, s.max_rows, s.max_each, s.min_each, name, 0, false};
  if (seqs) {
    p->seqs = s.space;
    p->caps.max_seqs = s.max_rows;
  } else if (rows) {
    p->many = p->rows != 0;
    p->rows = s.space;
    p->caps.max_rows = std::max(p->caps.max_rows, s.max_rows);
    p->caps.max_extents = std::min(p->caps.max_extents + s.max_rows, max_batch_tokens);
    p->caps.max_len = std::max(p->caps.max_len, s.max_each);
    p->caps.min_len = std::max(p->caps.min_len, s.min_each);
  } else if (s.kind == SIE_SPACE_SUBSET) {
    p->inputs[s.marks].read = true;
  }
  return SIE_OK;
}

sie_status record_input(sie_program *p, const void *params, sie_error *err) {
  sie_input_params i;
  Name name;
  SIE_TRY(take_params(params, &i, err));
  SIE_TRY(check_name(i.name, &name, err));
  SIE_TRY(check_zero(i.reserved, "reserved", err));
  SIE_TRY(check_flag(i.optional, "optional", err));
  SIE_FAIL_IF(i.input < 1 || i.input > max_inputs, SIE_INVALID_ARGUMENT, err,
              "input is %d; 1 to %d is possible", i.input, max_inputs);
  SIE_FAIL_IF(p->inputs[i.input].space != 0, SIE_INVALID_ARGUMENT, err, "input %d is declared already, as %s",
              i.input, p->inputs[i.input].name.text);
  SIE_FAIL_IF(sie_program_find_input(p, name.text) != 0, SIE_INVALID_ARGUMENT, err,
              "an input of the name %s is declared already", name.text);
  SIE_FAIL_IF(i.space < 1 || i.space > max_spaces || kind_of(p, i.space) == 0, SIE_INVALID_ARGUMENT, err,
              "space is %d, which is not declared", i.space);
  SIE_FAIL_IF(!allows(kind_of(p, i.space), i.dtype), SIE_UNSUPPORTED, err,
              "%s of %s: i32 goes with SEQS and ROWS spaces, u8 with ROWS, f32 with SHARED",
              dtype_name(static_cast<int32_t>(i.dtype)), p->spaces[i.space].name.text);
  bool later = i.columns == 0 && i.dtype == SIE_F32;  // the first operation that reads it says
  int64_t columns = i.columns != 0 || later ? i.columns : 1, most = i.dtype == SIE_F32 ? max_columns : 1;
  SIE_FAIL_IF(columns < (later ? 0 : 1) || columns > most, SIE_INVALID_ARGUMENT, err,
              "columns is %d; 1 to %lld is possible", i.columns, static_cast<ll>(most));
  SIE_FAIL_IF(i.dtype == SIE_F32 && i.optional != 0, SIE_INVALID_ARGUMENT, err,
              "optional is 1; a SHARED space without rows brings nothing anyhow");
  SIE_FAIL_IF(i.optional == 0 && i.otherwise != 0, SIE_INVALID_ARGUMENT, err,
              "otherwise is %d, but the input is not optional", i.otherwise);
  SIE_FAIL_IF(i.dtype == SIE_U8 && (i.otherwise < 0 || i.otherwise > 1), SIE_INVALID_ARGUMENT, err,
              "otherwise is %d; marks are 0 or 1", i.otherwise);
  Input &input = p->inputs[i.input];
  input.space = i.space;
  input.dtype = static_cast<int32_t>(i.dtype);
  input.columns = static_cast<int32_t>(columns);
  input.optional = i.optional != 0;
  input.otherwise = i.otherwise;
  input.name = name;
  input.least = INT32_MIN;
  input.bound = int64_t{INT32_MAX} + 1;
  return SIE_OK;
}

}  // namespace sie

using namespace sie;

sie_space sie_program_find_space(const sie_program *program, const char *name) {
  for (int32_t i = 1; program != nullptr && name != nullptr && i <= max_spaces; i++) {
    if (program->spaces[i].kind != 0 && strcmp(program->spaces[i].name.text, name) == 0) return i;
  }
  return 0;
}

sie_input sie_program_find_input(const sie_program *program, const char *name) {
  for (int32_t i = 1; program != nullptr && name != nullptr && i <= max_inputs; i++) {
    if (program->inputs[i].space != 0 && strcmp(program->inputs[i].name.text, name) == 0) return i;
  }
  return 0;
}

sie_status sie_program_input(const sie_program *program, sie_input input, sie_input_info *info,
                             sie_error *err) {
  SIE_FAIL_IF(program == nullptr || !program->ended, SIE_INVALID_ARGUMENT, err,
              "program is NULL or not ended");
  SIE_FAIL_IF(input < 1 || input > max_inputs || program->inputs[input].space == 0, SIE_INVALID_ARGUMENT, err,
              "the program has no input %d", input);
  const Input &i = program->inputs[input];
  sie_input_info known = {};
  known.space = i.space;
  known.dtype = static_cast<uint32_t>(i.dtype);
  known.columns = i.columns;
  known.optional = i.optional || !i.read ? 1 : 0;
  known.least = static_cast<int32_t>(i.least);
  known.most = static_cast<int32_t>(i.bound - 1);
  memcpy(known.name, i.name.text, sizeof known.name);
  return give(known, info, "sie_input_info", err);
}
