// record.cc — the recording half of a program: begin, one function an operation, free.
//
// Every function checks first and appends last, so a refused call leaves the program as it was.
#include <math.h>
#include <string.h>

#include "gpu.h"
#include "program.h"
#include "status.h"

using namespace sie;

namespace {

using ll = long long;

sie_status check_open(const sie_program *p, sie_error *err) {
  SIE_FAIL_IF(p == nullptr, SIE_INVALID_ARGUMENT, err, "program is NULL");
  SIE_FAIL_IF(p->ended, SIE_INVALID_ARGUMENT, err, "the program is ended; nothing can be recorded any more");
  SIE_FAIL_IF(p->ops.size() >= max_operations, SIE_INVALID_ARGUMENT, err,
              "a program has at most %lld operations", static_cast<ll>(max_operations));
  return SIE_OK;
}

sie_status check_value(const sie_program *p, sie_value v, const char *name, sie_error *err) {
  SIE_FAIL_IF(v < 0 || v >= p->values.size(), SIE_INVALID_ARGUMENT, err,
              "%s is %d; the program has values 0 to %lld", name, v, static_cast<ll>(p->values.size() - 1));
  return SIE_OK;
}

sie_status check_weight(const sie_program *p, const sie_weight *w, uint32_t kind, const char *name,
                        sie_error *err) {
  static const char *const kinds[] = {"?", "a linear weight", "a table", "a vector"};
  SIE_FAIL_IF(w == nullptr, SIE_INVALID_ARGUMENT, err, "%s is NULL", name);
  SIE_FAIL_IF(w->device != p->device, SIE_INVALID_ARGUMENT, err, "%s belongs to another device", name);
  SIE_FAIL_IF(w->kind != kind, SIE_INVALID_ARGUMENT, err, "%s is %s; %s is needed", name, kinds[w->kind],
              kinds[kind]);
  SIE_FAIL_IF(w->table.p == nullptr, SIE_INVALID_ARGUMENT, err,
              "%s is not on the device yet; sie_weight_place says when it is", name);
  return SIE_OK;
}

// A vector of `length` elements; NULL passes when optional.
sie_status check_vector(const sie_program *p, const sie_weight *w, int64_t length, bool optional,
                        const char *name, sie_error *err) {
  if (w == nullptr && optional) return SIE_OK;
  SIE_TRY(check_weight(p, w, SIE_WEIGHT_VECTOR, name, err));
  SIE_FAIL_IF(w->n != length, SIE_INVALID_ARGUMENT, err, "%s has %lld elements; %lld are needed", name,
              static_cast<ll>(w->n), static_cast<ll>(length));
  return SIE_OK;
}

sie_status check_eps(float eps, sie_error *err) {
  SIE_FAIL_IF(!(eps >= 0 && eps < 1), SIE_INVALID_ARGUMENT, err, "eps is %g; 0 to below 1 is needed",
              static_cast<double>(eps));
  return SIE_OK;
}

// Whether a weight multiplies values of a class: its own, or in an FP8 model, whose values are bf16, BF16.
bool goes_with(const sie_device *device, uint32_t value, uint32_t weight) {
  return value == weight || (device->is_gpu() && value == SIE_COMPUTE_FP8 && weight == SIE_COMPUTE_BF16);
}

const char *rows_name(Rows rows) { return rows == Rows::tokens ? "token" : "sequence"; }

Op new_op(uint32_t kind) {
  Op op = {};
  op.kind = kind;
  op.in[0] = op.in[1] = op.in[2] = op.residual = op.out = SIE_NO_VALUE;
  return op;
}

// Appends the operation and, when y is given, the value it makes.
sie_status append(sie_program *p, Op op, Rows rows, uint32_t compute, int64_t columns, sie_value *y,
                  sie_error *err) {
  if (y != nullptr) {
    op.out = static_cast<sie_value>(p->values.size());
    Value value = {rows, compute, op.out, 0, columns, -1, -1};
    SIE_FAIL_IF(!p->values.push(value), SIE_OUT_OF_MEMORY, err, "no memory to record an operation");
  }
  if (!p->ops.push(op)) {
    if (y != nullptr) p->values.pop();
    return fail(err, SIE_OUT_OF_MEMORY, "no memory to record an operation");
  }
  if (y != nullptr) *y = op.out;
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

sie_status check_attention(const sie_attention_params *a, sie_error *err) {
  SIE_FAIL_IF(a == nullptr, SIE_INVALID_ARGUMENT, err, "params is NULL");
  SIE_FAIL_IF(a->struct_size != sizeof *a, SIE_INVALID_ARGUMENT, err,
              "sie_attention_params has %u bytes; %zu expected", a->struct_size, sizeof *a);
  SIE_FAIL_IF(a->mask > SIE_MASK_WINDOW, SIE_INVALID_ARGUMENT, err, "mask %u is none of sie_mask", a->mask);
  SIE_FAIL_IF(a->heads < 1 || a->heads > 4096 || a->kv_heads < 1 || a->heads % a->kv_heads != 0,
              SIE_INVALID_ARGUMENT, err, "%d heads over %d key heads; a whole multiple is needed", a->heads,
              a->kv_heads);
  SIE_FAIL_IF(a->head_dim < 1 || a->head_dim > 256, SIE_INVALID_ARGUMENT, err,
              "head_dim is %d; 1 to 256 is possible", a->head_dim);
  SIE_FAIL_IF(a->mask == SIE_MASK_WINDOW && a->window < 0, SIE_INVALID_ARGUMENT, err,
              "window is %d; at least 0", a->window);
  SIE_FAIL_IF(!isfinite(a->scale), SIE_INVALID_ARGUMENT, err, "scale is not finite");
  return SIE_OK;
}

sie_status check_output(const sie_program *p, sie_value x, int32_t index, sie_error *err) {
  SIE_TRY(check_value(p, x, "x", err));
  SIE_FAIL_IF(index >= max_outputs, SIE_INVALID_ARGUMENT, err, "output %d; a program has at most %d outputs",
              index, max_outputs);
  SIE_FAIL_IF(index != p->n_outputs, SIE_INVALID_ARGUMENT, err, "output %d declared; %d is next", index,
              p->n_outputs);
  return SIE_OK;
}

sie_status append_output(sie_program *p, uint32_t kind, sie_value x, int32_t index, sie_error *err) {
  const Value &value = p->values[x];
  Op op = new_op(kind);
  op.in[0] = x;
  op.output = index;
  SIE_TRY(append(p, op, value.rows, value.compute, 0, nullptr, err));
  p->output_is_rows[index] = kind == SIE_OP_OUTPUT_ROWS;
  p->output_rows_of[index] = value.rows;
  p->output_columns[index] = value.columns;
  p->has_output_rows = p->has_output_rows || kind == SIE_OP_OUTPUT_ROWS;
  p->n_outputs++;
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
  sie_program *p = new_object<sie_program>();
  SIE_FAIL_IF(p == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for a program");
  p->device = device;
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

sie_status sie_op_linear(sie_program *p, sie_value x, const sie_weight *w, const sie_weight *bias,
                         sie_act act, sie_value residual, sie_value *y, sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_FAIL_IF(y == nullptr, SIE_INVALID_ARGUMENT, err, "y is NULL");
  SIE_TRY(check_value(p, x, "x", err));
  SIE_TRY(check_weight(p, w, SIE_WEIGHT_LINEAR, "w", err));
  Value value = p->values[x];
  SIE_FAIL_IF(value.columns != w->k, SIE_INVALID_ARGUMENT, err, "x has %lld columns; the weight takes %lld",
              static_cast<ll>(value.columns), static_cast<ll>(w->k));
  SIE_FAIL_IF(!goes_with(p->device, value.compute, w->compute), SIE_INVALID_ARGUMENT, err,
              "x is of class %s, the weight of class %s; after sie_op_pool weights are f32",
              compute_name(value.compute), compute_name(w->compute));
  SIE_TRY(check_vector(p, bias, w->n, true, "bias", err));
  SIE_FAIL_IF(act < SIE_ACT_NONE || act > SIE_ACT_SILU, SIE_INVALID_ARGUMENT, err,
              "act %d is none of sie_act", static_cast<int>(act));
  if (residual != SIE_NO_VALUE) {
    SIE_TRY(check_value(p, residual, "residual", err));
    const Value &r = p->values[residual];
    SIE_FAIL_IF(r.columns != w->n || r.rows != value.rows, SIE_INVALID_ARGUMENT, err,
                "the residual has %lld columns of %s rows; %lld columns of %s rows are needed",
                static_cast<ll>(r.columns), rows_name(r.rows), static_cast<ll>(w->n), rows_name(value.rows));
  }
  Op op = new_op(SIE_OP_LINEAR);
  op.in[0] = x;
  op.weights[0] = w;
  op.bias = bias != nullptr ? bias->vector() : nullptr;
  op.act = act;
  op.residual = residual;
  return append(p, op, value.rows, value.compute, w->n, y, err);
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

sie_status sie_op_attention(sie_program *p, sie_value q, sie_value k, sie_value v,
                            const sie_attention_params *params, sie_value *y, sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_FAIL_IF(y == nullptr, SIE_INVALID_ARGUMENT, err, "y is NULL");
  SIE_TRY(check_value(p, q, "q", err));
  SIE_TRY(check_value(p, k, "k", err));
  SIE_TRY(check_value(p, v, "v", err));
  SIE_TRY(check_attention(params, err));
  Value vq = p->values[q];
  const Value &vk = p->values[k], &vv = p->values[v];
  int64_t q_columns = int64_t{params->heads} * params->head_dim;
  int64_t kv_columns = int64_t{params->kv_heads} * params->head_dim;
  SIE_FAIL_IF(vq.columns != q_columns || vk.columns != kv_columns || vv.columns != kv_columns,
              SIE_INVALID_ARGUMENT, err,
              "q, k, v have %lld, %lld, %lld columns; heads and head_dim ask for %lld, %lld, %lld",
              static_cast<ll>(vq.columns), static_cast<ll>(vk.columns), static_cast<ll>(vv.columns),
              static_cast<ll>(q_columns), static_cast<ll>(kv_columns), static_cast<ll>(kv_columns));
  SIE_FAIL_IF(vk.rows != Rows::tokens || vv.rows != Rows::tokens, SIE_INVALID_ARGUMENT, err,
              "k and v must have token rows");
  SIE_FAIL_IF(vq.compute != vk.compute || vq.compute != vv.compute, SIE_INVALID_ARGUMENT, err,
              "q, k, v are of classes %s, %s, %s; one is needed", compute_name(vq.compute),
              compute_name(vk.compute), compute_name(vv.compute));
  SIE_FAIL_IF(vq.rows == Rows::seqs && params->mask != SIE_MASK_FULL, SIE_UNSUPPORTED, err,
              "a query of sequence rows sees all keys; a mask needs token rows");
  Op op = new_op(SIE_OP_ATTENTION);
  op.in[0] = q;
  op.in[1] = k;
  op.in[2] = v;
  op.attention = *params;
  return append(p, op, vq.rows, vq.compute, vq.columns, y, err);
}

sie_status sie_op_gather_rows(sie_program *p, sie_value x, sie_pooling which, sie_value *y, sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_FAIL_IF(y == nullptr, SIE_INVALID_ARGUMENT, err, "y is NULL");
  SIE_TRY(check_value(p, x, "x", err));
  SIE_FAIL_IF(which != SIE_POOL_CLS && which != SIE_POOL_LAST, SIE_INVALID_ARGUMENT, err,
              "pooling %d cannot be gathered; cls and last can", static_cast<int>(which));
  Value value = p->values[x];
  SIE_FAIL_IF(value.rows != Rows::tokens, SIE_INVALID_ARGUMENT, err, "x has sequence rows already");
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
              "pooling %d is none of sie_pooling", static_cast<int>(mode));
  Op op = new_op(SIE_OP_POOL);
  op.in[0] = x;
  op.pooling = mode;
  return append(p, op, Rows::seqs, SIE_COMPUTE_F32, p->values[x].columns, y, err);
}

sie_status sie_op_output_rows(sie_program *p, sie_value x, int32_t index, sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_TRY(check_output(p, x, index, err));
  SIE_FAIL_IF(p->values[x].rows != Rows::seqs, SIE_INVALID_ARGUMENT, err,
              "x has token rows; sie_op_pool or sie_op_gather_rows gives one row a sequence");
  return append_output(p, SIE_OP_OUTPUT_ROWS, x, index, err);
}

sie_status sie_op_output_values(sie_program *p, sie_value x, int32_t index, sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_TRY(check_output(p, x, index, err));
  return append_output(p, op_output_values, x, index, err);
}
