// record_output.cc — records a program's outputs.
#include <string.h>

#include "common/muvera.h"
#include "memory.h"
#include "record.h"
#include "status.h"

namespace sie {

namespace {

using ll = long long;

sie_status check_rows(const sie_program *p, sie_value x, bool of_sequences, sie_error *err) {
  SIE_FAIL_IF(
      of_seqs(p, x) != of_sequences, SIE_INVALID_ARGUMENT, err, "x has rows of %s; %s",
      p->spaces[p->values[x].space].name.text,
      of_sequences ? "pool and gather_rows give one row a sequence" : "several rows a sequence are needed");
  return SIE_OK;
}

// w must be a table of indices, each from `least` to below `bound`; ~index counts as index.
sie_status check_indices(const sie_program *p, const sie_weight *w, int64_t n, int64_t k, int64_t bound,
                         bool signs, const char *name, sie_error *err) {
  SIE_TRY(check_data(p, w, SIE_I32, n, k, name, err));
  SIE_FAIL_IF(w->index_end > bound || (!signs && w->index_least < 0), SIE_CORRUPT, err,
              "%s has indices up to %lld, the least is %lld; below %lld are possible", name,
              static_cast<ll>(w->index_end - 1), static_cast<ll>(w->index_least), static_cast<ll>(bound));
  return SIE_OK;
}

sie_status check_sketch(const sie_program *p, const sie_muvera_params *m, int64_t block, sie_error *err) {
  int64_t all = m->repetitions * block;
  if (m->final_dims == 0) {
    bool none = m->sketch == nullptr && m->sketch_output == nullptr && m->sketch_source == nullptr;
    SIE_FAIL_IF(!none, SIE_INVALID_ARGUMENT, err, "there is a sketch, but final_dims is 0");
    return SIE_OK;
  }
  if (!p->device->is_gpu()) return check_indices(p, m->sketch, all, 1, m->final_dims, true, "sketch", err);
  SIE_TRY(check_indices(p, m->sketch_output, all, 1, int64_t{m->final_dims} * SIE_SKETCH_ROUNDS, false,
                        "sketch_output", err));
  return check_indices(p, m->sketch_source, all, 1, block, true, "sketch_source", err);
}

sie_status check_muvera(const sie_program *p, const sie_muvera_params *m, int64_t c, Output *output,
                        sie_error *err) {
  SIE_FAIL_IF(m->repetitions < 1 || m->repetitions > 4096, SIE_INVALID_ARGUMENT, err,
              "repetitions is %d; 1 to 4096 is possible", m->repetitions);
  SIE_FAIL_IF(m->simhash_bits < 0 || m->simhash_bits > 10, SIE_INVALID_ARGUMENT, err,
              "simhash_bits is %d; 0 to 10 is possible", m->simhash_bits);
  SIE_FAIL_IF(m->projected < 0 || m->projected > max_columns, SIE_INVALID_ARGUMENT, err,
              "projected is %d; 0 to %lld is possible", m->projected, static_cast<ll>(max_columns));
  SIE_FAIL_IF(m->final_dims < 0 || m->final_dims > max_columns, SIE_INVALID_ARGUMENT, err,
              "final_dims is %d; 0 to %lld is possible", m->final_dims, static_cast<ll>(max_columns));
  SIE_TRY(check_flag(m->is_query, "is_query", err));
  SIE_TRY(check_flag(m->fill_empty, "fill_empty", err));
  SIE_TRY(check_flag(m->center_tokens, "center_tokens", err));
  SIE_TRY(check_flag(m->normalize, "normalize", err));
  int64_t block = (int64_t{1} << m->simhash_bits) * (m->projected != 0 ? m->projected : c);
  int64_t all = m->repetitions * block;
  int64_t bound = m->final_dims != 0 ? int64_t{1} << 24 : max_columns;
  SIE_FAIL_IF(all > bound, SIE_INVALID_ARGUMENT, err,
              "the encoding has %lld columns; at most %lld are possible", static_cast<ll>(all),
              static_cast<ll>(bound));
  if (m->simhash_bits > 0) {
    SIE_TRY(check_data(p, m->simhash, SIE_F32, m->repetitions * c, m->simhash_bits, "simhash", err));
  } else {
    SIE_FAIL_IF(m->simhash != nullptr, SIE_INVALID_ARGUMENT, err, "simhash has a table, but no bits");
  }
  if (m->projected > 0) {
    SIE_TRY(check_indices(p, m->ams, m->repetitions, c, m->projected, true, "ams", err));
  } else {
    SIE_FAIL_IF(m->ams != nullptr, SIE_INVALID_ARGUMENT, err, "ams has a table, but projected is 0");
  }
  SIE_TRY(check_sketch(p, m, block, err));
  output->form = SIE_FORM_ROWS;
  output->space = p->seqs;
  output->columns = m->final_dims != 0 ? m->final_dims : all;
  return SIE_OK;
}

sie_status check_smve(const sie_program *p, const sie_smve_params *s, int64_t c, Output *output,
                      sie_error *err) {
  int64_t columns = int64_t{s->repetitions} * s->width;
  SIE_FAIL_IF(s->repetitions < 1 || s->width < 1 || columns > max_columns, SIE_INVALID_ARGUMENT, err,
              "%d repetitions of %d columns; at least 1 each and at most %lld together are possible",
              s->repetitions, s->width, static_cast<ll>(max_columns));
  SIE_FAIL_IF(s->top < 1 || s->top > s->width, SIE_INVALID_ARGUMENT, err,
              "top is %d; 1 to width (%d) is possible", s->top, s->width);
  SIE_FAIL_IF(s->max_nonzeros < 0, SIE_INVALID_ARGUMENT, err, "max_nonzeros is %d; at least 0",
              s->max_nonzeros);
  SIE_TRY(check_flag(s->is_query, "is_query", err));
  SIE_TRY(check_flag(s->normalize, "normalize", err));
  SIE_TRY(check_data(p, s->anchors, SIE_F32, columns, c, "anchors", err));
  output->form = SIE_FORM_SPARSE;
  output->space = p->seqs;
  output->columns = columns;
  return SIE_OK;
}

}  // namespace

sie_status check_output(const sie_program *p, sie_value x, const char *field, const char *name,
                        bool of_splade, Name *to, sie_error *err) {
  bool splade = of_splade && x > 0 && x < p->values.size() && p->values[x].outputs_only;
  if (!splade) SIE_TRY(check_value(p, x, field, err));
  SIE_TRY(check_name(name, to, err));
  SIE_FAIL_IF(sie_program_find_output(p, to->text) >= 0, SIE_INVALID_ARGUMENT, err,
              "an output of the name %s is recorded already", to->text);
  SIE_FAIL_IF(p->n_outputs == max_outputs, SIE_INVALID_ARGUMENT, err, "a program has at most %d outputs",
              max_outputs);
  return SIE_OK;
}

sie_status check_has_sequences(const sie_program *p, sie_error *err) {
  SIE_FAIL_IF(p->seqs == 0, SIE_INVALID_ARGUMENT, err, "the program declares no SEQS space");
  return SIE_OK;
}

sie_status append_output(sie_program *p, Op op, sie_value x, const Output &output, sie_error *err) {
  op.in[0] = x;
  op.output = p->n_outputs;
  SIE_TRY(append(p, op, 0, 0, 0, err));
  p->outputs[p->n_outputs++] = output;
  return SIE_OK;
}

sie_status record_output_rows(sie_program *p, const void *params, sie_error *err) {
  sie_output_params o;
  Output output = {SIE_FORM_ROWS, p->seqs, 0, {}};
  SIE_TRY(take_params(params, &o, err));
  SIE_TRY(check_output(p, o.x, "x", o.name, false, &output.name, err));
  SIE_TRY(check_rows(p, o.x, true, err));
  output.columns = p->values[o.x].columns;
  return append_output(p, new_op(SIE_OP_OUTPUT_ROWS), o.x, output, err);
}

sie_status record_output_values(sie_program *p, const void *params, sie_error *err) {
  sie_output_params o;
  Output output = {SIE_FORM_VALUES, 0, 0, {}};
  SIE_TRY(take_params(params, &o, err));
  SIE_TRY(check_output(p, o.x, "x", o.name, true, &output.name, err));
  output.space = p->values[o.x].space;
  output.columns = p->values[o.x].columns;
  return append_output(p, new_op(op_output_values), o.x, output, err);
}

sie_status record_output_token_rows(sie_program *p, const void *params, sie_error *err) {
  sie_output_params o;
  Output output = {SIE_FORM_TOKEN_ROWS, 0, 0, {}};
  SIE_TRY(take_params(params, &o, err));
  SIE_TRY(check_output(p, o.x, "x", o.name, false, &output.name, err));
  SIE_TRY(check_rows(p, o.x, false, err));
  output.space = p->values[o.x].space;
  output.columns = p->values[o.x].columns;
  return append_output(p, new_op(SIE_OP_OUTPUT_ROWS), o.x, output, err);
}

sie_status record_output_sparse(sie_program *p, const void *params, sie_error *err) {
  sie_output_sparse_params o;
  Output output = {SIE_FORM_SPARSE, p->seqs, 0, {}};
  SIE_TRY(take_params(params, &o, err));
  SIE_TRY(check_output(p, o.x, "x", o.name, true, &output.name, err));
  SIE_TRY(check_rows(p, o.x, true, err));
  SIE_TRY(check_zero(o.reserved, "reserved", err));
  SIE_FAIL_IF(o.transform > SIE_SPARSE_LOG_LOG, SIE_INVALID_ARGUMENT, err,
              "transform %u is none of sie_sparse", o.transform);
  SIE_TRY(check_has(p, p->device->ops->output_sparse != nullptr, SIE_OP_OUTPUT_SPARSE, err));
  Op op = new_op(SIE_OP_OUTPUT_SPARSE);
  op.transform = static_cast<int32_t>(o.transform);
  output.columns = p->values[o.x].columns;
  return append_output(p, op, o.x, output, err);
}

sie_status record_output_muvera(sie_program *p, const void *params, sie_error *err) {
  Op op = new_op(SIE_OP_MUVERA);
  Output output = {};
  SIE_TRY(take_params(params, &op.muvera, err));
  SIE_TRY(check_output(p, op.muvera.x, "x", op.muvera.name, false, &output.name, err));
  SIE_TRY(check_has_sequences(p, err));
  SIE_TRY(check_rows(p, op.muvera.x, false, err));
  SIE_TRY(check_has(p, p->device->ops->muvera != nullptr, SIE_OP_MUVERA, err));
  SIE_TRY(check_muvera(p, &op.muvera, p->values[op.muvera.x].columns, &output, err));
  op.muvera.name = nullptr;
  return append_output(p, op, op.muvera.x, output, err);
}

sie_status record_output_smve(sie_program *p, const void *params, sie_error *err) {
  Op op = new_op(SIE_OP_SMVE);
  Output output = {};
  SIE_TRY(take_params(params, &op.smve, err));
  SIE_TRY(check_output(p, op.smve.x, "x", op.smve.name, false, &output.name, err));
  SIE_TRY(check_has_sequences(p, err));
  SIE_TRY(check_rows(p, op.smve.x, false, err));
  SIE_TRY(check_has(p, p->device->ops->smve != nullptr, SIE_OP_SMVE, err));
  SIE_TRY(check_smve(p, &op.smve, p->values[op.smve.x].columns, &output, err));
  op.smve.name = nullptr;
  return append_output(p, op, op.smve.x, output, err);
}

}  // namespace sie

using namespace sie;

sie_status sie_muvera_order(const int32_t *sketch, int64_t repetitions, int64_t block, int64_t final_dims,
                            int32_t *output, int32_t *source, sie_error *err) {
  SIE_FAIL_IF(sketch == nullptr || output == nullptr || source == nullptr, SIE_INVALID_ARGUMENT, err,
              "sketch, output or source is NULL");
  SIE_FAIL_IF(repetitions < 1 || block < 1 || final_dims < 1 || final_dims > max_columns ||
                  repetitions > (int64_t{1} << 24) / block,
              SIE_INVALID_ARGUMENT, err, "a sketch of %lld repetitions of %lld columns to %lld",
              static_cast<long long>(repetitions), static_cast<long long>(block),
              static_cast<long long>(final_dims));
  for (int64_t i = 0; i < repetitions * block; i++) {
    int32_t to = sketch[i] < 0 ? ~sketch[i] : sketch[i];
    SIE_FAIL_IF(to >= final_dims, SIE_CORRUPT, err,
                "entry %lld of the sketch is %d; the result has %lld columns", static_cast<long long>(i),
                sketch[i], static_cast<long long>(final_dims));
  }
  Block memory;
  int32_t *room = array_of<int32_t>(&memory, final_dims + 2 * block);
  SIE_FAIL_IF(room == nullptr, SIE_OUT_OF_MEMORY, err, "no memory to order a sketch");
  sie_order_sketch(sketch, repetitions, block, final_dims, room, output, source);
  release(&memory);
  return SIE_OK;
}

int32_t sie_program_find_output(const sie_program *program, const char *name) {
  for (int32_t i = 0; program != nullptr && name != nullptr && i < program->n_outputs; i++) {
    if (strcmp(program->outputs[i].name.text, name) == 0) return i;
  }
  return -1;
}

int32_t sie_program_n_outputs(const sie_program *program) {
  return program != nullptr ? program->n_outputs : 0;
}

sie_status sie_program_output(const sie_program *program, int32_t index, sie_output_info *info,
                              sie_error *err) {
  SIE_FAIL_IF(program == nullptr, SIE_INVALID_ARGUMENT, err, "program is NULL");
  SIE_FAIL_IF(index < 0 || index >= program->n_outputs, SIE_INVALID_ARGUMENT, err,
              "output %d; the program has %d", index, program->n_outputs);
  const Output &o = program->outputs[index];
  sie_output_info known = {};
  known.form = o.form;
  known.space = o.space;
  known.columns = static_cast<int32_t>(o.columns);
  memcpy(known.name, o.name.text, sizeof known.name);
  return give(known, info, "sie_output_info", err);
}
