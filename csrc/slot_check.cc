// slot_check.cc — what a batch may contain: every id, length, index, offset and cap is checked here, once.
#include "slot.h"
#include "status.h"

namespace sie {

namespace {

using ll = long long;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

sie_status check_sizes(const sie_slot *slot, const sie_program *p, const sie_batch &batch, sie_error *err) {
  int64_t tokens_max = least(p->caps.max_tokens, slot->caps.max_tokens);
  int64_t seqs_max = least(p->caps.max_seqs, slot->caps.max_seqs);
  SIE_FAIL_IF(batch.n_tokens < 0 || batch.n_tokens > tokens_max, SIE_INVALID_ARGUMENT, err,
              "%lld tokens; at most %lld fit", static_cast<ll>(batch.n_tokens), static_cast<ll>(tokens_max));
  SIE_FAIL_IF(batch.n_seqs < 0 || batch.n_seqs > seqs_max, SIE_INVALID_ARGUMENT, err,
              "%lld sequences; at most %lld fit", static_cast<ll>(batch.n_seqs), static_cast<ll>(seqs_max));
  SIE_FAIL_IF(slot->caps.n_outputs < static_cast<uint32_t>(p->n_outputs), SIE_INVALID_ARGUMENT, err,
              "the slot has %u outputs; the program %d", slot->caps.n_outputs, p->n_outputs);
  return SIE_OK;
}

sie_status check_lengths(const sie_program *p, const sie_batch &batch, sie_error *err) {
  const int32_t *cu = batch.cu_seqlens;
  SIE_FAIL_IF(cu == nullptr, SIE_INVALID_ARGUMENT, err, "cu_seqlens is NULL");
  SIE_FAIL_IF(cu[0] != 0, SIE_INVALID_ARGUMENT, err, "cu_seqlens starts at %d, not at 0", cu[0]);
  int64_t longest = p->caps.max_len;
  if (p->positions > 0) longest = least(longest, p->positions);
  for (int64_t b = 0; b < batch.n_seqs; b++) {
    int64_t length = int64_t{cu[b + 1]} - cu[b];
    SIE_FAIL_IF(length < 0, SIE_INVALID_ARGUMENT, err, "cu_seqlens falls from %d to %d at sequence %lld",
                cu[b], cu[b + 1], static_cast<ll>(b));
    SIE_FAIL_IF(length > longest, SIE_INVALID_ARGUMENT, err,
                "sequence %lld has %lld tokens; at most %lld are possible", static_cast<ll>(b),
                static_cast<ll>(length), static_cast<ll>(longest));
  }
  SIE_FAIL_IF(cu[batch.n_seqs] != batch.n_tokens, SIE_INVALID_ARGUMENT, err,
              "cu_seqlens ends at %d; there are %lld tokens", cu[batch.n_seqs],
              static_cast<ll>(batch.n_tokens));
  return SIE_OK;
}

// One pass without a branch an id, and a second one only to name the offender.
sie_status check_ids(const int32_t *ids, int64_t count, int64_t bound, const char *name, sie_error *err) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    uint32_t id = static_cast<uint32_t>(ids[i]);
    largest = id > largest ? id : largest;
  }
  if (count == 0 || largest < bound) return SIE_OK;
  int64_t at = 0;
  while (static_cast<uint32_t>(ids[at]) < bound) at++;
  return fail(err, SIE_INVALID_ARGUMENT, "%s %d of token %lld; 0 to %lld are possible", name, ids[at],
              static_cast<ll>(at), static_cast<ll>(bound - 1));
}

sie_status check_keep(const sie_batch &batch, int64_t *n_kept, sie_error *err) {
  *n_kept = batch.n_tokens;
  if (batch.keep == nullptr) return SIE_OK;
  int64_t kept = 0;
  uint8_t bits = 0;
  for (int64_t i = 0; i < batch.n_tokens; i++) {
    kept += batch.keep[i];
    bits |= batch.keep[i];
  }
  int64_t at = 0;
  while (bits > 1 && batch.keep[at] <= 1) at++;
  SIE_FAIL_IF(bits > 1, SIE_INVALID_ARGUMENT, err, "keep is %u for token %lld, not 0 or 1", batch.keep[at],
              static_cast<ll>(at));
  *n_kept = kept;
  return SIE_OK;
}

// An index a sequence, from −1 for none to below `count`.
sie_status check_choices(const int32_t *choices, int64_t n_seqs, int64_t count, const char *name,
                         sie_error *err) {
  for (int64_t b = 0; choices != nullptr && b < n_seqs; b++) {
    SIE_FAIL_IF(choices[b] < -1 || choices[b] >= count, SIE_INVALID_ARGUMENT, err,
                "%s of sequence %lld is %d; -1 to %lld are possible", name, static_cast<ll>(b), choices[b],
                static_cast<ll>(count - 1));
  }
  return SIE_OK;
}

sie_status check_queries(const sie_slot *slot, const sie_program *p, const sie_batch &batch, sie_error *err) {
  const int32_t *cu = batch.cu_queries;
  int64_t seqs_max = least(p->caps.max_seqs, slot->caps.max_seqs), n = batch.n_queries;
  SIE_FAIL_IF(n < 0 || n > seqs_max, SIE_INVALID_ARGUMENT, err, "%lld queries; at most %lld fit",
              static_cast<ll>(n), static_cast<ll>(seqs_max));
  if (n > 0) {
    SIE_FAIL_IF(cu == nullptr, SIE_INVALID_ARGUMENT, err, "cu_queries is NULL");
    SIE_FAIL_IF(cu[0] != 0, SIE_INVALID_ARGUMENT, err, "cu_queries starts at %d, not at 0", cu[0]);
    for (int64_t i = 0; i < n; i++) {
      SIE_FAIL_IF(cu[i + 1] < cu[i], SIE_INVALID_ARGUMENT, err,
                  "cu_queries falls from %d to %d at query %lld", cu[i], cu[i + 1], static_cast<ll>(i));
    }
    SIE_FAIL_IF(batch.queries == nullptr && cu[n] > 0, SIE_INVALID_ARGUMENT, err, "queries is NULL");
    SIE_FAIL_IF(cu[n] > p->caps.max_query_rows, SIE_INVALID_ARGUMENT, err,
                "the queries have %d rows; at most %lld fit", cu[n], static_cast<ll>(p->caps.max_query_rows));
    int64_t bytes = cu[n] * p->query_columns * 4;
    SIE_FAIL_IF(!slot->device->is_gpu() && bytes > slot->caps.query_bytes, SIE_INVALID_ARGUMENT, err,
                "the queries have %lld bytes; the slot takes %lld", static_cast<ll>(bytes),
                static_cast<ll>(slot->caps.query_bytes));
  }
  return check_choices(batch.partner, batch.n_seqs, n, "partner", err);
}

// An item on its own; *bytes receives what it writes for one row, or for the columns of a sparse one.
sie_status check_item(const Output &output, int32_t o, const sie_out_item &item, int64_t b, int64_t *bytes,
                      sie_error *err) {
  bool sparse = output.form == OutputForm::sparse;
  bool known = item.dtype == SIE_F32 || item.dtype == SIE_F16 ||
               (!sparse && (item.dtype == SIE_I8 || item.dtype == SIE_U8 || item.dtype == SIE_BINARY));
  SIE_FAIL_IF(!known, SIE_UNSUPPORTED, err, "item %lld of output %d asks for dtype %d; %s are possible",
              static_cast<ll>(b), o, item.dtype, sparse ? "f32 and f16" : "f32, f16, i8, u8 and binary");
  SIE_FAIL_IF(item.normalize > (sparse ? 0u : 1u), SIE_INVALID_ARGUMENT, err,
              "item %lld of output %d: normalize is %u, not %s", static_cast<ll>(b), o, item.normalize,
              sparse ? "0" : "0 or 1");
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

// How many rows of an output are sequence b's.
int64_t rows_of_item(const Output &output, const sie_batch &batch, int64_t b) {
  if (output.form != OutputForm::token_rows) return 1;
  int64_t length = int64_t{batch.cu_seqlens[b + 1]} - batch.cu_seqlens[b];
  if (output.rows == Rows::tokens || batch.keep == nullptr) return length;
  int64_t kept = 0;
  for (int64_t i = batch.cu_seqlens[b]; i < batch.cu_seqlens[b + 1]; i++) kept += batch.keep[i];
  return kept;
}

sie_status check_items(const sie_slot *slot, const sie_program *p, const sie_batch &batch, int32_t o,
                       sie_error *err) {
  const sie_out_item *items = batch.items[o];
  const Output &output = p->outputs[o];
  SIE_FAIL_IF(items == nullptr && batch.n_seqs > 0, SIE_INVALID_ARGUMENT, err,
              "items of output %d is NULL; the program writes it where items say", o);
  for (int64_t b = 0; b < batch.n_seqs; b++) {
    int64_t bytes = 0, room = slot->caps.output_bytes[o];
    SIE_TRY(check_item(output, o, items[b], b, &bytes, err));
    bytes *= rows_of_item(output, batch, b);
    SIE_FAIL_IF(bytes > room || items[b].offset > room - bytes, SIE_INVALID_ARGUMENT, err,
                "item %lld writes %lld bytes from byte %lld of output %d, which has %lld", static_cast<ll>(b),
                static_cast<ll>(bytes), static_cast<ll>(items[b].offset), o, static_cast<ll>(room));
  }
  return SIE_OK;
}

sie_status check_values(const sie_slot *slot, const sie_program *p, const sie_batch &batch, int64_t n_kept,
                        int32_t o, sie_error *err) {
  const Output &output = p->outputs[o];
  int64_t rows =
      output.rows == Rows::tokens ? batch.n_tokens : (output.rows == Rows::kept ? n_kept : batch.n_seqs);
  int64_t bytes = rows * output.columns * 4;
  SIE_FAIL_IF(bytes > slot->caps.output_bytes[o], SIE_INVALID_ARGUMENT, err,
              "output %d needs %lld bytes; the slot has %lld", o, static_cast<ll>(bytes),
              static_cast<ll>(slot->caps.output_bytes[o]));
  return SIE_OK;
}

}  // namespace

sie_status check_batch(const sie_slot *slot, const sie_program *p, const sie_batch &batch, int64_t *n_kept,
                       sie_error *err) {
  *n_kept = 0;
  SIE_TRY(check_sizes(slot, p, batch, err));
  SIE_TRY(check_lengths(p, batch, err));
  SIE_FAIL_IF(batch.ids == nullptr && batch.n_tokens > 0, SIE_INVALID_ARGUMENT, err, "ids is NULL");
  SIE_TRY(check_ids(batch.ids, batch.n_tokens, p->vocabulary, "id", err));
  if (batch.type_ids != nullptr && p->types > 0) {
    SIE_TRY(check_ids(batch.type_ids, batch.n_tokens, p->types, "type id", err));
  }
  if (p->has_kept) SIE_TRY(check_keep(batch, n_kept, err));
  if (p->n_adapters > 0) {
    SIE_TRY(check_choices(batch.adapter, batch.n_seqs, p->n_adapters, "adapter", err));
  }
  if (p->query_columns > 0) SIE_TRY(check_queries(slot, p, batch, err));
  for (int32_t o = 0; o < p->n_outputs; o++) {
    if (p->outputs[o].form == OutputForm::values) {
      SIE_TRY(check_values(slot, p, batch, *n_kept, o, err));
    } else {
      SIE_TRY(check_items(slot, p, batch, o, err));
    }
  }
  return SIE_OK;
}

}  // namespace sie
