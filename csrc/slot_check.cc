// slot_check.cc — checks a batch: every id, length, index, offset and bound is checked here, once.
#include "slot.h"
#include "status.h"

namespace sie {

namespace {

using ll = long long;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Reads the batch's lists, which may be shorter than the program's.
sie_status read_lists(const sie_slot *slot, const sie_program *p, const sie_batch &batch, BatchIn *in,
                      sie_error *err) {
  SIE_FAIL_IF(batch.spaces == nullptr && batch.n_spaces > 0, SIE_INVALID_ARGUMENT, err, "spaces is NULL");
  SIE_FAIL_IF(batch.inputs == nullptr && batch.n_inputs > 0, SIE_INVALID_ARGUMENT, err, "inputs is NULL");
  SIE_FAIL_IF(batch.items == nullptr && batch.n_outputs > 0, SIE_INVALID_ARGUMENT, err, "items is NULL");
  SIE_FAIL_IF(slot->caps.n_outputs < static_cast<uint32_t>(p->n_outputs), SIE_INVALID_ARGUMENT, err,
              "the slot has %u outputs; the program %d", slot->caps.n_outputs, p->n_outputs);
  *in = {};
  in->seqs = batch.n_seqs;
  for (int32_t i = 1; i <= max_inputs && static_cast<uint32_t>(i) <= batch.n_inputs; i++) {
    if (p->inputs[i].read) in->inputs[i] = batch.inputs[i - 1];
  }
  for (int32_t s = 1; s <= max_spaces && static_cast<uint32_t>(s) <= batch.n_spaces; s++) {
    bool shared = kind_of(p, s) == SIE_SPACE_SHARED;
    if (kind_of(p, s) != SIE_SPACE_ROWS && !shared) continue;
    in->offsets[s] = batch.spaces[s - 1].offsets;
    if (shared) in->groups[s] = batch.spaces[s - 1].groups;
  }
  for (int32_t o = 0; o < p->n_outputs && static_cast<uint32_t>(o) < batch.n_outputs; o++) {
    in->items[o] = batch.items[o];
  }
  return SIE_OK;
}

// Checks the offsets of n parts: from 0, ascending.
sie_status check_offsets(const int32_t *offsets, int64_t n, const char *name, sie_error *err) {
  SIE_FAIL_IF(offsets == nullptr, SIE_INVALID_ARGUMENT, err, "the offsets of %s are NULL", name);
  SIE_FAIL_IF(offsets[0] != 0, SIE_INVALID_ARGUMENT, err, "the offsets of %s start at %d, not at 0", name,
              offsets[0]);
  for (int64_t i = 0; i < n; i++) {
    SIE_FAIL_IF(offsets[i + 1] < offsets[i], SIE_INVALID_ARGUMENT, err,
                "the offsets of %s fall from %d to %d at %lld", name, offsets[i], offsets[i + 1],
                static_cast<ll>(i));
  }
  return SIE_OK;
}

// Checks the rows that the sequences have of a ROWS space.
sie_status check_rows(const sie_slot *slot, const sie_program *p, sie_space s, BatchIn *in, sie_error *err) {
  const Space &space = p->spaces[s];
  const char *name = space.name.text;
  int64_t rows_max = least(space.max_rows, slot->caps.max_tokens);
  const int32_t *cu = in->offsets[s];
  SIE_TRY(check_offsets(cu, in->seqs, name, err));
  in->rows[s] = cu[in->seqs];
  SIE_FAIL_IF(in->rows[s] > rows_max, SIE_INVALID_ARGUMENT, err, "%lld rows of %s; at most %lld fit",
              static_cast<ll>(in->rows[s]), name, static_cast<ll>(rows_max));
  int64_t longest = space.positions > 0 ? least(space.max_each, space.positions) : space.max_each;
  for (int64_t b = 0; b < in->seqs; b++) {
    int64_t length = int64_t{cu[b + 1]} - cu[b];
    SIE_FAIL_IF(length > longest, SIE_INVALID_ARGUMENT, err,
                "sequence %lld has %lld rows of %s; at most %lld are possible", static_cast<ll>(b),
                static_cast<ll>(length), name, static_cast<ll>(longest));
    SIE_FAIL_IF(length < space.min_each, SIE_INVALID_ARGUMENT, err,
                "sequence %lld has %lld rows of %s; at least %lld are needed", static_cast<ll>(b),
                static_cast<ll>(length), name, static_cast<ll>(space.min_each));
    in->longest = length > in->longest ? length : in->longest;
  }
  in->max_rows = in->rows[s] > in->max_rows ? in->rows[s] : in->max_rows;
  return SIE_OK;
}

sie_status check_sequences(const sie_slot *slot, const sie_program *p, BatchIn *in, sie_error *err) {
  int64_t seqs_max = least(p->caps.max_seqs, slot->caps.max_seqs);
  SIE_FAIL_IF(in->seqs < 0 || in->seqs > seqs_max, SIE_INVALID_ARGUMENT, err,
              "%lld sequences; at most %lld fit", static_cast<ll>(in->seqs), static_cast<ll>(seqs_max));
  in->rows[p->seqs] = in->seqs;
  for (int32_t s = 1; s <= max_spaces; s++) {
    if (kind_of(p, s) == SIE_SPACE_ROWS) SIE_TRY(check_rows(slot, p, s, in, err));
  }
  int64_t extents = 0;
  for (int64_t b = 0; p->many && b < in->seqs; b++) extents += extent_of(p, *in, b);
  SIE_FAIL_IF(extents > slot->caps.max_tokens, SIE_INVALID_ARGUMENT, err,
              "the sequences' largest numbers of rows are %lld together; at most %lld fit",
              static_cast<ll>(extents), static_cast<ll>(slot->caps.max_tokens));
  return SIE_OK;
}

// Checks the rows of a SHARED space, if an operation reads one of its inputs.
sie_status check_shared(const sie_slot *slot, const sie_program *p, sie_space s, BatchIn *in,
                        sie_error *err) {
  bool read = false;
  for (const Input &input : p->inputs) read = read || (input.read && input.space == s);
  const Space &space = p->spaces[s];
  int64_t n = read ? in->groups[s] : 0, most = least(p->caps.max_seqs, slot->caps.max_seqs);
  in->groups[s] = n;
  SIE_FAIL_IF(n < 0 || n > most, SIE_INVALID_ARGUMENT, err, "%lld groups of %s; at most %lld fit",
              static_cast<ll>(n), space.name.text, static_cast<ll>(most));
  if (n == 0) return SIE_OK;
  SIE_TRY(check_offsets(in->offsets[s], n, space.name.text, err));
  in->rows[s] = in->offsets[s][n];
  SIE_FAIL_IF(in->rows[s] > space.max_rows, SIE_INVALID_ARGUMENT, err, "%lld rows of %s; at most %lld fit",
              static_cast<ll>(in->rows[s]), space.name.text, static_cast<ll>(space.max_rows));
  return SIE_OK;
}

// Checks the prefixes that the sequences have in the state; the inputs' own bounds have been checked.
sie_status check_prefixes(const sie_program *p, BatchIn *in, sie_error *err) {
  const Space &space = p->spaces[p->rows];
  const int32_t *first = static_cast<const int32_t *>(in->inputs[p->state.first]);
  const int32_t *rows = static_cast<const int32_t *>(in->inputs[p->state.rows]);
  const int32_t *cu = in->offsets[p->rows];
  int64_t longest = space.positions > 0 ? least(space.max_each, space.positions) : space.max_each;
  int64_t otherwise = p->inputs[p->state.rows].otherwise, from = p->inputs[p->state.first].otherwise;
  for (int64_t b = 0; b < in->seqs; b++) {
    int64_t prefix = rows != nullptr ? rows[b] : otherwise, begin = first != nullptr ? first[b] : from;
    int64_t own = int64_t{cu[b + 1]} - cu[b];
    SIE_FAIL_IF(prefix > 0 && begin + prefix > p->state.max_rows, SIE_INVALID_ARGUMENT, err,
                "sequence %lld begins with %lld rows of the state from %lld on; it has at most %lld",
                static_cast<ll>(b), static_cast<ll>(prefix), static_cast<ll>(begin),
                static_cast<ll>(p->state.max_rows));
    SIE_FAIL_IF(prefix + own > longest, SIE_INVALID_ARGUMENT, err,
                "sequence %lld has %lld rows of the state and %lld of %s; together at most %lld are possible",
                static_cast<ll>(b), static_cast<ll>(prefix), static_cast<ll>(own), space.name.text,
                static_cast<ll>(longest));
    if (prefix > 0 && begin + prefix > in->state_rows) in->state_rows = begin + prefix;
    if (prefix + own > in->longest_keys) in->longest_keys = prefix + own;
  }
  return SIE_OK;
}

// The first pass has no branch for an index; a second pass runs only to name the wrong one.
sie_status check_indices(const Input &input, const int32_t *values, int64_t count, int64_t bound,
                         sie_error *err) {
  uint32_t base = static_cast<uint32_t>(input.least), largest = 0;
  for (int64_t i = 0; i < count; i++) {
    uint32_t above = static_cast<uint32_t>(values[i]) - base;
    largest = above > largest ? above : largest;
  }
  if (count == 0 || largest < bound - input.least) return SIE_OK;
  int64_t at = 0;
  while (static_cast<uint32_t>(values[at]) - base < bound - input.least) at++;
  return fail(err, SIE_INVALID_ARGUMENT, "%s is %d in row %lld; %lld to %lld are possible", input.name.text,
              values[at], static_cast<ll>(at), static_cast<ll>(input.least), static_cast<ll>(bound - 1));
}

// Checks places in the rows that each sequence has of a space; -1 is none.
sie_status check_places(const sie_program *p, const BatchIn &in, sie_input number, sie_error *err) {
  const Input &input = p->inputs[number];
  const int32_t *places = static_cast<const int32_t *>(in.inputs[number]);
  const int32_t *from = static_cast<const int32_t *>(in.inputs[input.from]);  // null without `from`
  const int32_t *cu = in.offsets[input.space], *of = in.offsets[input.places_of];
  for (int64_t b = 0; b < in.seqs; b++) {
    const int32_t length = of[b + 1] - of[b];
    for (int64_t r = cu[b]; r < cu[b + 1]; r++) {
      SIE_FAIL_IF(places[r] < -1 || places[r] >= length, SIE_INVALID_ARGUMENT, err,
                  "%s is %d in row %lld of sequence %lld, which has %d rows of %s", input.name.text,
                  places[r], static_cast<ll>(r - cu[b]), static_cast<ll>(b), length,
                  p->spaces[input.places_of].name.text);
      SIE_FAIL_IF(from != nullptr && from[r] < 0 && places[r] >= 0, SIE_INVALID_ARGUMENT, err,
                  "%s is %d in row %lld of sequence %lld, and %s is -1: a row of nothing has -1 in both",
                  input.name.text, places[r], static_cast<ll>(r - cu[b]), static_cast<ll>(b),
                  p->inputs[input.from].name.text);
      SIE_FAIL_IF(from != nullptr && places[r] < from[r], SIE_INVALID_ARGUMENT, err,
                  "%s is %d in row %lld of sequence %lld, before %s, which is %d", input.name.text, places[r],
                  static_cast<ll>(r - cu[b]), static_cast<ll>(b), p->inputs[input.from].name.text, from[r]);
    }
  }
  return SIE_OK;
}

sie_status check_marks(const Input &input, const uint8_t *marks, int64_t count, sie_error *err) {
  uint8_t bits = 0;
  for (int64_t i = 0; i < count; i++) bits |= marks[i];
  int64_t at = 0;
  while (bits > 1 && marks[at] <= 1) at++;
  SIE_FAIL_IF(bits > 1, SIE_INVALID_ARGUMENT, err, "%s is %u in row %lld, not 0 or 1", input.name.text,
              marks[at], static_cast<ll>(at));
  return SIE_OK;
}

// Checks that the marks of a subset of first rows keep no row behind one that they leave out.
sie_status check_first_rows(const sie_program *p, const BatchIn &in, sie_space s, sie_error *err) {
  const uint8_t *marks = marks_of(p, in, s, 0);
  if (marks == nullptr) return SIE_OK;  // all are kept, or none
  const int32_t *cu = in.offsets[whole_of(p, s)];
  for (int64_t b = 0; b < in.seqs; b++) {
    for (int64_t i = int64_t{cu[b]} + 1; i < cu[b + 1]; i++) {
      SIE_FAIL_IF(marks[i] > marks[i - 1], SIE_INVALID_ARGUMENT, err,
                  "sequence %lld keeps row %lld of %s behind one that it leaves out; attention needs the "
                  "first rows",
                  static_cast<ll>(b), static_cast<ll>(i - cu[b]), p->spaces[s].name.text);
    }
  }
  return SIE_OK;
}

sie_status check_values_of(const BatchIn &in, const Input &input, const void *values, sie_error *err) {
  int64_t rows = in.rows[input.space];
  if (values == nullptr) {
    SIE_FAIL_IF(!input.optional && rows > 0, SIE_INVALID_ARGUMENT, err,
                "%s is left out; only an optional input may be", input.name.text);
    return SIE_OK;
  }
  if (input.dtype == SIE_U8) return check_marks(input, static_cast<const uint8_t *>(values), rows, err);
  if (input.dtype != SIE_I32) return SIE_OK;
  int64_t bound = input.groups_of != 0 ? least(input.bound, in.groups[input.groups_of]) : input.bound;
  return check_indices(input, static_cast<const int32_t *>(values), rows, bound, err);
}

sie_status check_inputs(const sie_program *p, BatchIn *in, sie_error *err) {
  for (int32_t i = 1; i <= max_inputs; i++) {
    if (p->inputs[i].read) SIE_TRY(check_values_of(*in, p->inputs[i], in->inputs[i], err));
    if (p->inputs[i].places_of != 0) SIE_TRY(check_places(p, *in, i, err));
  }
  for (int32_t s = 1; s <= max_spaces; s++) {
    if (kind_of(p, s) != SIE_SPACE_SUBSET) continue;
    if (p->spaces[s].first_rows) SIE_TRY(check_first_rows(p, *in, s, err));
    bool otherwise = p->inputs[p->spaces[s].marks].otherwise != 0;
    in->rows[s] = count_marked(marks_of(p, *in, s, 0), otherwise, in->rows[whole_of(p, s)]);
  }
  return SIE_OK;
}

// Checks an item of an output that is found. *bytes receives the bytes that it may write.
sie_status check_found_item(const Output &output, int32_t o, const sie_out_item &item, int64_t b,
                            int64_t *bytes, sie_error *err) {
  SIE_FAIL_IF(item.dtype != SIE_F32, SIE_UNSUPPORTED, err,
              "item %lld of output %d asks for dtype %d; f32 is possible", static_cast<ll>(b), o, item.dtype);
  SIE_FAIL_IF(item.normalize != 0, SIE_INVALID_ARGUMENT, err,
              "item %lld of output %d: normalize is %u, not 0", static_cast<ll>(b), o, item.normalize);
  SIE_FAIL_IF(item.threshold != item.threshold, SIE_INVALID_ARGUMENT, err,
              "item %lld of output %d: the threshold is no number", static_cast<ll>(b), o);
  SIE_FAIL_IF(item.offset < 0 || item.offset % 16 != 0, SIE_INVALID_ARGUMENT, err,
              "item %lld of output %d: offset %lld is not a place for records", static_cast<ll>(b), o,
              static_cast<ll>(item.offset));
  SIE_FAIL_IF(item.dims < 1, SIE_INVALID_ARGUMENT, err,
              "item %lld of output %d has room for %d records; at least 1", static_cast<ll>(b), o, item.dims);
  *bytes = 16 + int64_t{item.dims} * output.columns * 4;
  return SIE_OK;
}

// Checks one item. *bytes receives the bytes that it writes for one row, or for a sparse row.
sie_status check_item(const Output &output, int32_t o, const sie_out_item &item, int64_t b, int64_t *bytes,
                      sie_error *err) {
  if (output.form == SIE_FORM_FOUND) return check_found_item(output, o, item, b, bytes, err);
  bool sparse = output.form == SIE_FORM_SPARSE;
  bool known = item.dtype == SIE_F32 || item.dtype == SIE_F16 ||
               (!sparse && (item.dtype == SIE_I8 || item.dtype == SIE_U8 || item.dtype == SIE_BINARY));
  SIE_FAIL_IF(!known, SIE_UNSUPPORTED, err, "item %lld of output %d asks for dtype %d; %s are possible",
              static_cast<ll>(b), o, item.dtype, sparse ? "f32 and f16" : "f32, f16, i8, u8 and binary");
  SIE_FAIL_IF(item.normalize > (sparse ? 0u : 1u), SIE_INVALID_ARGUMENT, err,
              "item %lld of output %d: normalize is %u, not %s", static_cast<ll>(b), o, item.normalize,
              sparse ? "0" : "0 or 1");
  SIE_FAIL_IF(item.threshold != 0, SIE_INVALID_ARGUMENT, err,
              "item %lld of output %d: the threshold is %g; it has no meaning here and must be 0",
              static_cast<ll>(b), o, static_cast<double>(item.threshold));
  int64_t alignment = sparse ? 16 : dtype_bytes(item.dtype);
  SIE_FAIL_IF(item.offset < 0 || item.offset % alignment != 0, SIE_INVALID_ARGUMENT, err,
              "item %lld of output %d: offset %lld is not a place for %s", static_cast<ll>(b), o,
              static_cast<ll>(item.offset), sparse ? "a sparse row" : dtype_name(item.dtype));
  if (sparse) {
    SIE_FAIL_IF(item.dims < 1, SIE_INVALID_ARGUMENT, err,
                "item %lld of output %d has room for %d columns; at least 1", static_cast<ll>(b), o,
                item.dims);
    *bytes = 16 + int64_t{item.dims} * (4 + dtype_bytes(item.dtype));
    return SIE_OK;
  }
  SIE_FAIL_IF(item.dims < 0 || item.dims > output.columns, SIE_INVALID_ARGUMENT, err,
              "item %lld of output %d asks for %d dims; 1 to %lld are possible", static_cast<ll>(b), o,
              item.dims, static_cast<ll>(output.columns));
  *bytes = item_bytes(item, output.columns);
  return SIE_OK;
}

// The number of rows that sequence b has in an output.
int64_t rows_of_item(const sie_program *p, const Output &output, const BatchIn &in, int64_t b) {
  if (output.form != SIE_FORM_TOKEN_ROWS) return 1;
  sie_space whole = whole_of(p, output.space);
  const int32_t *cu = in.offsets[whole];
  int64_t length = int64_t{cu[b + 1]} - cu[b];
  if (output.space == whole) return length;
  bool otherwise = p->inputs[p->spaces[output.space].marks].otherwise != 0;
  return count_marked(marks_of(p, in, output.space, cu[b]), otherwise, length);
}

sie_status check_items(const sie_slot *slot, const sie_program *p, const BatchIn &in, int32_t o,
                       sie_error *err) {
  const sie_out_item *items = in.items[o];
  const Output &output = p->outputs[o];
  SIE_FAIL_IF(items == nullptr && in.seqs > 0, SIE_INVALID_ARGUMENT, err,
              "items of output %d is NULL; the program writes it where items say", o);
  for (int64_t b = 0; b < in.seqs; b++) {
    int64_t bytes = 0, room = slot->caps.output_bytes[o];
    SIE_TRY(check_item(output, o, items[b], b, &bytes, err));
    bytes *= rows_of_item(p, output, in, b);
    SIE_FAIL_IF(bytes > room || items[b].offset > room - bytes, SIE_INVALID_ARGUMENT, err,
                "item %lld writes %lld bytes from byte %lld of output %d, which has %lld", static_cast<ll>(b),
                static_cast<ll>(bytes), static_cast<ll>(items[b].offset), o, static_cast<ll>(room));
  }
  return SIE_OK;
}

sie_status check_values(const sie_slot *slot, const sie_program *p, const BatchIn &in, int32_t o,
                        sie_error *err) {
  const Output &output = p->outputs[o];
  int64_t bytes = in.rows[output.space] * output.columns * 4;
  SIE_FAIL_IF(bytes > slot->caps.output_bytes[o], SIE_INVALID_ARGUMENT, err,
              "output %d needs %lld bytes; the slot has %lld", o, static_cast<ll>(bytes),
              static_cast<ll>(slot->caps.output_bytes[o]));
  return SIE_OK;
}

}  // namespace

sie_status check_batch(const sie_slot *slot, const sie_program *p, const sie_batch &batch, BatchIn *in,
                       sie_error *err) {
  SIE_TRY(read_lists(slot, p, batch, in, err));
  SIE_TRY(check_sequences(slot, p, in, err));
  for (int32_t s = 1; s <= max_spaces; s++) {
    if (kind_of(p, s) == SIE_SPACE_SHARED) SIE_TRY(check_shared(slot, p, s, in, err));
  }
  SIE_TRY(check_inputs(p, in, err));
  in->longest_keys = in->longest;
  if (p->state.reads()) SIE_TRY(check_prefixes(p, in, err));
  if (p->state.writes()) in->state_rows = in->rows[p->rows];
  for (int32_t o = 0; o < p->n_outputs; o++) {
    if (p->outputs[o].form == SIE_FORM_VALUES) {
      SIE_TRY(check_values(slot, p, *in, o, err));
    } else {
      SIE_TRY(check_items(slot, p, *in, o, err));
    }
  }
  return SIE_OK;
}

}  // namespace sie

int64_t sie_program_output_bytes(const sie_program *program, int32_t index, const sie_out_item *item,
                                 int64_t rows) {
  using namespace sie;
  if (program == nullptr || index < 0 || index >= program->n_outputs) return -1;
  const Output &output = program->outputs[index];
  if (rows < 0 || rows > max_batch_tokens) return -1;
  if (output.form == SIE_FORM_VALUES) return rows * output.columns * 4;
  int64_t bytes = 0;
  bool one = output.form != SIE_FORM_TOKEN_ROWS;
  if (item == nullptr || (one && rows != 1)) return -1;
  return check_item(output, index, *item, 0, &bytes, nullptr) == SIE_OK ? bytes * rows : -1;
}
