// record.cc — begins, records and frees a program; the list of entries.
#include "record.h"

#include <stdio.h>

#include "float_state.h"
#include "gpu.h"
#include "status.h"

using namespace sie;

namespace {

struct Entry {
  uint32_t kind;
  const char *name;
  Record record;
};

// The kinds of entries: each has a line here and a struct in sie.h.
constexpr Entry entries[] = {
    {SIE_SPACE, "space", record_space},
    {SIE_INPUT, "input", record_input},
    {SIE_EMBED, "embed", record_embed},
    {SIE_NORM, "norm", record_norm},
    {SIE_LINEAR, "linear", record_linear},
    {SIE_COLUMNS, "columns", record_columns},
    {SIE_ATTENTION, "attention", record_attention},
    {SIE_ROPE, "rope", record_rope},
    {SIE_GATHER_ROWS, "gather_rows", record_gather_rows},
    {SIE_POOL, "pool", record_pool},
    {SIE_KEEP_ROWS, "keep_rows", record_keep_rows},
    {SIE_SPLADE, "splade", record_splade},
    {SIE_MAXSIM, "maxsim", record_maxsim},
    {SIE_OUTPUT_ROWS, "output_rows", record_output_rows},
    {SIE_OUTPUT_VALUES, "output_values", record_output_values},
    {SIE_OUTPUT_TOKEN_ROWS, "output_token_rows", record_output_token_rows},
    {SIE_OUTPUT_SPARSE, "output_sparse", record_output_sparse},
    {SIE_OUTPUT_MUVERA, "output_muvera", record_output_muvera},
    {SIE_OUTPUT_SMVE, "output_smve", record_output_smve},
    {SIE_JOIN, "join", record_join},
    {SIE_STREAM, "stream", record_stream},
    {SIE_STATE, "state", record_state},
    {SIE_STATE_ROWS, "state_rows", record_state_rows},
    {SIE_TAKE_ROWS, "take_rows", record_take_rows},
    {SIE_PRODUCT, "product", record_product},
    {SIE_DOTS, "dots", record_dots},
    {SIE_LSTM, "lstm", record_lstm},
    {SIE_OUTPUT_SPANS, "output_spans", record_output_spans},
    {SIE_OUTPUT_PAIRS, "output_pairs", record_output_pairs},
    {SIE_GIVEN_ROWS, "given_rows", record_given_rows},
    {SIE_SOFTMAX, "softmax", record_softmax},
};

const Entry *entry_of(uint32_t kind) {
  for (const Entry &e : entries) {
    if (e.kind == kind) return &e;
  }
  return nullptr;
}

sie_status add(sie_program *p, const sie_op &op, sie_error *err) {
  const Entry *entry = entry_of(op.kind);
  SIE_FAIL_IF(entry == nullptr, SIE_UNSUPPORTED, err, "entry %lld is of kind %u, which this library lacks",
              static_cast<long long>(p->entries), op.kind);
  sie_error inner = {};
  sie_status status = SIE_OK;
  if (op.reserved != 0) {
    status = fail(&inner, SIE_INVALID_ARGUMENT, "reserved is %u, not 0", op.reserved);
  } else if (p->ops.size() >= max_operations) {
    status = fail(&inner, SIE_INVALID_ARGUMENT, "a program has at most %lld operations",
                  static_cast<long long>(max_operations));
  } else {
    status = entry->record(p, op.params, &inner);
  }
  SIE_FAIL_IF(status != SIE_OK, status, err, "entry %lld, %s: %.200s", static_cast<long long>(p->entries),
              entry->name, inner.message);
  p->entries++;
  return SIE_OK;
}

}  // namespace

sie_status sie_program_begin(sie_device *device, sie_program **program, sie_error *err) {
  SIE_FAIL_IF(program == nullptr, SIE_INVALID_ARGUMENT, err, "program is NULL");
  *program = nullptr;
  SIE_FAIL_IF(device == nullptr, SIE_INVALID_ARGUMENT, err, "device is NULL");
  sie_program *p = new_object<sie_program>();
  SIE_FAIL_IF(p == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for a program");
  if (!reserve_value(p, SIE_NO_VALUE)) {
    destroy_object(p);
    return fail(err, SIE_OUT_OF_MEMORY, "no memory for a program");
  }
  p->device = device;
  p->serial = ++device->programs;
  *program = p;
  return SIE_OK;
}

sie_status sie_program_add(sie_program *p, const sie_op *ops, int64_t n_ops, sie_error *err) {
  SIE_FAIL_IF(p == nullptr, SIE_INVALID_ARGUMENT, err, "program is NULL");
  SIE_FAIL_IF(p->ended, SIE_INVALID_ARGUMENT, err, "the program is ended; nothing can be recorded any more");
  SIE_FAIL_IF(n_ops < 0 || (ops == nullptr && n_ops > 0), SIE_INVALID_ARGUMENT, err,
              "%lld entries; ops is NULL or their number is below 0", static_cast<long long>(n_ops));
  FloatState plain;  // the default scale of attention is computed here
  for (int64_t i = 0; i < n_ops; i++) SIE_TRY(add(p, ops[i], err));
  return SIE_OK;
}

void sie_program_free(sie_program *program) {
  if (program == nullptr) return;
  gpu_program_free(program);
  release(&program->one_row_each);
  destroy_object(program);
}
