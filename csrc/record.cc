// record.cc — the recording half of a program: begin, free, and the operations that look up, normalise and choose rows.
#include "record.h"

#include "gpu.h"
#include "status.h"

using namespace sie;

namespace {

using ll = long long;

sie_status check_eps(float eps, sie_error *err) {
  SIE_FAIL_IF(!(eps >= 0 && eps < 1), SIE_INVALID_ARGUMENT, err, "eps is %g; 0 to below 1 is needed",
              static_cast<double>(eps));
  return SIE_OK;
}

sie_status check_table(const sie_program *p, const sie_weight *w, const sie_weight *word, const char *name,
                       sie_error *err) {
  SIE_TRY(check_weight(p, w, SIE_WEIGHT_TABLE, name, err));
  SIE_FAIL_IF(w->k != word->k, SIE_INVALID_ARGUMENT, err,
              "the %s table has %lld columns; the word table has %lld", name, static_cast<ll>(w->k),
              static_cast<ll>(word->k));
  SIE_FAIL_IF(w->compute != word->compute, SIE_INVALID_ARGUMENT, err,
              "the %s table is of class %s; the word table of %s", name, compute_name(w->compute),
              compute_name(word->compute));
  return SIE_OK;
}

}  // namespace

sie_status sie_program_begin(sie_device *device, const sie_caps *caps, sie_program **program,
                             sie_error *err) {
  SIE_FAIL_IF(program == nullptr, SIE_INVALID_ARGUMENT, err, "program is NULL");
  *program = nullptr;
  SIE_FAIL_IF(device == nullptr || caps == nullptr, SIE_INVALID_ARGUMENT, err, "device or caps is NULL");
  SIE_FAIL_IF(caps->struct_size != sizeof *caps, SIE_INVALID_ARGUMENT, err,
              "sie_caps has %u bytes; %zu expected", caps->struct_size, sizeof *caps);
  SIE_FAIL_IF(caps->max_tokens < 1 || caps->max_tokens > max_batch_tokens, SIE_INVALID_ARGUMENT, err,
              "max_tokens is %lld; 1 to %lld is possible", static_cast<ll>(caps->max_tokens),
              static_cast<ll>(max_batch_tokens));
  SIE_FAIL_IF(caps->max_seqs < 1 || caps->max_seqs > max_batch_seqs, SIE_INVALID_ARGUMENT, err,
              "max_seqs is %lld; 1 to %lld is possible", static_cast<ll>(caps->max_seqs),
              static_cast<ll>(max_batch_seqs));
  SIE_FAIL_IF(caps->max_len < 1 || caps->max_len > caps->max_tokens, SIE_INVALID_ARGUMENT, err,
              "max_len is %lld; 1 to max_tokens (%lld) is possible", static_cast<ll>(caps->max_len),
              static_cast<ll>(caps->max_tokens));
  SIE_FAIL_IF(caps->max_query_rows < 0 || caps->max_query_rows > max_batch_tokens, SIE_INVALID_ARGUMENT, err,
              "max_query_rows is %lld; 0 to %lld is possible", static_cast<ll>(caps->max_query_rows),
              static_cast<ll>(max_batch_tokens));
  sie_program *p = new_object<sie_program>();
  SIE_FAIL_IF(p == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for a program");
  p->device = device;
  p->serial = ++device->programs;
  p->caps = *caps;
  *program = p;
  return SIE_OK;
}

void sie_program_free(sie_program *program) {
  if (program == nullptr) return;
  gpu_program_free(program);
  release(&program->one_row_each);
  destroy_object(program);
}

sie_status sie_op_embed_layernorm(sie_program *p, const sie_weight *word, const sie_weight *position,
                                  const sie_weight *type, const sie_weight *gamma, const sie_weight *beta,
                                  float eps, int32_t position_offset, sie_value *y, sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_FAIL_IF(y == nullptr, SIE_INVALID_ARGUMENT, err, "y is NULL");
  SIE_FAIL_IF(p->vocabulary != 0, SIE_INVALID_ARGUMENT, err, "a program embeds its ids once");
  SIE_TRY(check_weight(p, word, SIE_WEIGHT_TABLE, "word", err));
  if (position != nullptr) SIE_TRY(check_table(p, position, word, "position", err));
  if (type != nullptr) SIE_TRY(check_table(p, type, word, "type", err));
  SIE_TRY(check_vector(p, gamma, word->k, false, "gamma", err));
  SIE_TRY(check_vector(p, beta, word->k, true, "beta", err));
  SIE_TRY(check_eps(eps, err));
  SIE_FAIL_IF(position_offset < 0 || (position != nullptr && position_offset >= position->n),
              SIE_INVALID_ARGUMENT, err, "position_offset is %d; it must be a row of the position table",
              position_offset);
  Op op = new_op(SIE_OP_EMBED_LAYERNORM);
  op.weights[0] = word;
  op.weights[1] = position;
  op.weights[2] = type;
  op.gamma = gamma->vector();
  op.beta = beta != nullptr ? beta->vector() : nullptr;
  op.eps = eps;
  op.position_offset = position_offset;
  SIE_TRY(append(p, op, Rows::tokens, word->compute, word->k, y, err));
  p->vocabulary = word->n;
  p->types = type != nullptr ? type->n : 0;
  p->positions = position != nullptr ? position->n - position_offset : 0;
  return SIE_OK;
}

sie_status sie_op_layernorm(sie_program *p, sie_value x, const sie_weight *gamma, const sie_weight *beta,
                            float eps, sie_value *y, sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_FAIL_IF(y == nullptr, SIE_INVALID_ARGUMENT, err, "y is NULL");
  SIE_TRY(check_value(p, x, "x", err));
  Value value = p->values[x];
  SIE_TRY(check_vector(p, gamma, value.columns, false, "gamma", err));
  SIE_TRY(check_vector(p, beta, value.columns, true, "beta", err));
  SIE_TRY(check_eps(eps, err));
  Op op = new_op(SIE_OP_LAYERNORM);
  op.in[0] = x;
  op.gamma = gamma->vector();
  op.beta = beta != nullptr ? beta->vector() : nullptr;
  op.eps = eps;
  return append(p, op, value.rows, value.compute, value.columns, y, err);
}

sie_status sie_op_columns(sie_program *p, sie_value x, int64_t column, int64_t width, sie_value *y,
                          sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_FAIL_IF(y == nullptr, SIE_INVALID_ARGUMENT, err, "y is NULL");
  SIE_TRY(check_value(p, x, "x", err));
  Value value = p->values[x];
  SIE_FAIL_IF(column < 0 || width < 1 || column > value.columns || width > value.columns - column,
              SIE_INVALID_ARGUMENT, err, "%lld columns from column %lld of a value of %lld columns",
              static_cast<ll>(width), static_cast<ll>(column), static_cast<ll>(value.columns));
  SIE_FAIL_IF(p->values.size() >= max_operations, SIE_INVALID_ARGUMENT, err,
              "a program has at most %lld values", static_cast<ll>(max_operations));
  value.column += column;
  value.columns = width;
  SIE_FAIL_IF(!p->values.push(value), SIE_OUT_OF_MEMORY, err, "no memory to record a view");
  *y = static_cast<sie_value>(p->values.size() - 1);
  return SIE_OK;
}

sie_status sie_op_gather_rows(sie_program *p, sie_value x, sie_pooling which, sie_value *y, sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_FAIL_IF(y == nullptr, SIE_INVALID_ARGUMENT, err, "y is NULL");
  SIE_TRY(check_value(p, x, "x", err));
  SIE_FAIL_IF(which != SIE_POOL_CLS && which != SIE_POOL_LAST, SIE_INVALID_ARGUMENT, err,
              "pooling %d cannot be gathered; cls and last can", static_cast<int>(which));
  Value value = p->values[x];
  SIE_FAIL_IF(value.rows == Rows::seqs, SIE_INVALID_ARGUMENT, err, "x has sequence rows already");
  Op op = new_op(SIE_OP_GATHER_ROWS);
  op.in[0] = x;
  op.pooling = which;
  return append(p, op, Rows::seqs, value.compute, value.columns, y, err);
}

sie_status sie_op_pool(sie_program *p, sie_value x, sie_pooling mode, sie_value *y, sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_FAIL_IF(y == nullptr, SIE_INVALID_ARGUMENT, err, "y is NULL");
  SIE_TRY(check_value(p, x, "x", err));
  SIE_FAIL_IF(mode < SIE_POOL_CLS || mode > SIE_POOL_LAST, SIE_INVALID_ARGUMENT, err,
              "pooling %d cannot be recorded; cls, mean and last can", static_cast<int>(mode));
  Op op = new_op(SIE_OP_POOL);
  op.in[0] = x;
  op.pooling = mode;
  return append(p, op, Rows::seqs, SIE_COMPUTE_F32, p->values[x].columns, y, err);
}

sie_status sie_op_keep_rows(sie_program *p, sie_value x, sie_value *y, sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_FAIL_IF(y == nullptr, SIE_INVALID_ARGUMENT, err, "y is NULL");
  SIE_TRY(check_value(p, x, "x", err));
  SIE_TRY(check_has(p, p->device->ops->keep_rows != nullptr, SIE_OP_KEEP_ROWS, err));
  Value value = p->values[x];
  SIE_FAIL_IF(value.rows != Rows::tokens, SIE_INVALID_ARGUMENT, err, "x has %s rows; token rows are kept",
              rows_name(value.rows));
  Op op = new_op(SIE_OP_KEEP_ROWS);
  op.in[0] = x;
  SIE_TRY(append(p, op, Rows::kept, value.compute, value.columns, y, err));
  p->has_kept = true;
  return SIE_OK;
}
