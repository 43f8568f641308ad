// record_output.cc — the operations that declare what a program writes.
#include "common/muvera.h"
#include "record.h"
#include "status.h"

using namespace sie;

namespace {

using ll = long long;

// Of x and the number of an output; outputs alone read what SPLADE leaves.
sie_status check_output(const sie_program *p, sie_value x, int32_t index, bool of_splade, sie_error *err) {
  SIE_TRY(check_open(p, err));
  bool splade = of_splade && x >= 0 && x < p->values.size() && p->values[x].outputs_only;
  if (!splade) SIE_TRY(check_value(p, x, "x", err));
  SIE_FAIL_IF(index >= max_outputs, SIE_INVALID_ARGUMENT, err, "output %d; a program has at most %d outputs",
              index, max_outputs);
  SIE_FAIL_IF(index != p->n_outputs, SIE_INVALID_ARGUMENT, err, "output %d declared; %d is next", index,
              p->n_outputs);
  return SIE_OK;
}

sie_status check_rows(const sie_program *p, sie_value x, bool of_sequences, sie_error *err) {
  Rows rows = p->values[x].rows;
  SIE_FAIL_IF((rows == Rows::seqs) != of_sequences, SIE_INVALID_ARGUMENT, err, "x has %s rows; %s",
              rows_name(rows),
              of_sequences ? "sie_op_pool or sie_op_gather_rows gives one row a sequence"
                           : "token or kept rows are needed");
  return SIE_OK;
}

sie_status append_output(sie_program *p, Op op, sie_value x, int32_t index, const Output &output,
                         sie_error *err) {
  op.in[0] = x;
  op.output = index;
  SIE_TRY(append(p, op, output.rows, p->values[x].compute, 0, nullptr, err));
  p->outputs[index] = output;
  p->n_outputs++;
  return SIE_OK;
}

// A table of indices, each from `least` to below `bound`, counting ~index as index.
sie_status check_indices(const sie_program *p, const sie_weight *w, int64_t n, int64_t k, int64_t bound,
                         bool signs, const char *name, sie_error *err) {
  SIE_TRY(check_data(p, w, SIE_I32, n, k, name, err));
  SIE_FAIL_IF(w->index_end > bound || (!signs && w->index_least < 0), SIE_CORRUPT, err,
              "%s has indices up to %lld, the least is %lld; below %lld are possible", name,
              static_cast<ll>(w->index_end - 1), static_cast<ll>(w->index_least), static_cast<ll>(bound));
  return SIE_OK;
}

sie_status check_sketch(const sie_program *p, const sie_muvera *m, int64_t block, sie_error *err) {
  int64_t all = m->repetitions * block;
  if (m->final_dims == 0) {
    bool none = m->sketch == nullptr && m->sketch_first == nullptr && m->sketch_source == nullptr;
    SIE_FAIL_IF(!none, SIE_INVALID_ARGUMENT, err, "there is a sketch, but final_dims is 0");
    return SIE_OK;
  }
  if (!p->device->is_gpu()) return check_indices(p, m->sketch, all, 1, m->final_dims, true, "sketch", err);
  SIE_TRY(check_indices(p, m->sketch_first, m->repetitions, int64_t{m->final_dims} + 1, all + 1, false,
                        "sketch_first", err));
  return check_indices(p, m->sketch_source, all, 1, block, true, "sketch_source", err);
}

sie_status check_muvera(const sie_program *p, const sie_muvera *m, int64_t c, Output *output,
                        sie_error *err) {
  SIE_FAIL_IF(m == nullptr, SIE_INVALID_ARGUMENT, err, "params is NULL");
  SIE_FAIL_IF(m->struct_size != sizeof *m, SIE_INVALID_ARGUMENT, err, "sie_muvera has %u bytes; %zu expected",
              m->struct_size, sizeof *m);
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
  *output = {OutputForm::rows, Rows::seqs, m->final_dims != 0 ? m->final_dims : all};
  return SIE_OK;
}

sie_status check_smve(const sie_program *p, const sie_smve *s, int64_t c, Output *output, sie_error *err) {
  SIE_FAIL_IF(s == nullptr, SIE_INVALID_ARGUMENT, err, "params is NULL");
  SIE_FAIL_IF(s->struct_size != sizeof *s, SIE_INVALID_ARGUMENT, err, "sie_smve has %u bytes; %zu expected",
              s->struct_size, sizeof *s);
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
  *output = {OutputForm::sparse, Rows::seqs, columns};
  return SIE_OK;
}

}  // namespace

sie_status sie_op_output_rows(sie_program *p, sie_value x, int32_t index, sie_error *err) {
  SIE_TRY(check_output(p, x, index, false, err));
  SIE_TRY(check_rows(p, x, true, err));
  return append_output(p, new_op(SIE_OP_OUTPUT_ROWS), x, index,
                       {OutputForm::rows, Rows::seqs, p->values[x].columns}, err);
}

sie_status sie_op_output_values(sie_program *p, sie_value x, int32_t index, sie_error *err) {
  SIE_TRY(check_output(p, x, index, true, err));
  const Value &value = p->values[x];
  return append_output(p, new_op(op_output_values), x, index, {OutputForm::values, value.rows, value.columns},
                       err);
}

sie_status sie_op_output_token_rows(sie_program *p, sie_value x, int32_t index, sie_error *err) {
  SIE_TRY(check_output(p, x, index, false, err));
  SIE_TRY(check_rows(p, x, false, err));
  const Value &value = p->values[x];
  return append_output(p, new_op(SIE_OP_OUTPUT_ROWS), x, index,
                       {OutputForm::token_rows, value.rows, value.columns}, err);
}

sie_status sie_op_output_sparse(sie_program *p, sie_value x, sie_sparse transform, int32_t index,
                                sie_error *err) {
  SIE_TRY(check_output(p, x, index, true, err));
  SIE_TRY(check_rows(p, x, true, err));
  SIE_FAIL_IF(transform < SIE_SPARSE_AS_IS || transform > SIE_SPARSE_LOG_LOG, SIE_INVALID_ARGUMENT, err,
              "transform %d is none of sie_sparse", static_cast<int>(transform));
  SIE_TRY(check_has(p, p->device->ops->output_sparse != nullptr, SIE_OP_OUTPUT_SPARSE, err));
  Op op = new_op(SIE_OP_OUTPUT_SPARSE);
  op.transform = transform;
  return append_output(p, op, x, index, {OutputForm::sparse, Rows::seqs, p->values[x].columns}, err);
}

sie_status sie_op_output_muvera(sie_program *p, sie_value x, const sie_muvera *params, int32_t index,
                                sie_error *err) {
  SIE_TRY(check_output(p, x, index, false, err));
  SIE_TRY(check_rows(p, x, false, err));
  SIE_TRY(check_has(p, p->device->ops->muvera != nullptr, SIE_OP_MUVERA, err));
  Output output;
  SIE_TRY(check_muvera(p, params, p->values[x].columns, &output, err));
  Op op = new_op(SIE_OP_MUVERA);
  op.muvera = *params;
  return append_output(p, op, x, index, output, err);
}

sie_status sie_muvera_group(const int32_t *sketch, int64_t repetitions, int64_t block, int64_t final_dims,
                            int32_t *first, int32_t *source, sie_error *err) {
  SIE_FAIL_IF(sketch == nullptr || first == nullptr || source == nullptr, SIE_INVALID_ARGUMENT, err,
              "sketch, first or source is NULL");
  SIE_FAIL_IF(repetitions < 1 || block < 1 || final_dims < 1 || final_dims > max_columns ||
                  repetitions > (int64_t{1} << 24) / block,
              SIE_INVALID_ARGUMENT, err, "a sketch of %lld repetitions of %lld columns to %lld",
              static_cast<ll>(repetitions), static_cast<ll>(block), static_cast<ll>(final_dims));
  for (int64_t i = 0; i < repetitions * block; i++) {
    int32_t to = sketch[i] < 0 ? ~sketch[i] : sketch[i];
    SIE_FAIL_IF(to >= final_dims, SIE_CORRUPT, err,
                "entry %lld of the sketch is %d; the result has %lld columns", static_cast<ll>(i), sketch[i],
                static_cast<ll>(final_dims));
  }
  sie_group_sketch(sketch, repetitions, block, final_dims, first, source);
  return SIE_OK;
}

sie_status sie_op_output_smve(sie_program *p, sie_value x, const sie_smve *params, int32_t index,
                              sie_error *err) {
  SIE_TRY(check_output(p, x, index, false, err));
  SIE_TRY(check_rows(p, x, false, err));
  SIE_TRY(check_has(p, p->device->ops->smve != nullptr, SIE_OP_SMVE, err));
  Output output;
  SIE_TRY(check_smve(p, params, p->values[x].columns, &output, err));
  Op op = new_op(SIE_OP_SMVE);
  op.smve = *params;
  return append_output(p, op, x, index, output, err);
}
