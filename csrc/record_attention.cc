// record_attention.cc — the operations in which rows meet rows: attention, and late interaction.
#include <math.h>

#include "record.h"
#include "status.h"

using namespace sie;

namespace {

using ll = long long;

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

}  // namespace

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
  SIE_FAIL_IF(vq.rows == Rows::kept, SIE_INVALID_ARGUMENT, err,
              "q has kept rows; token or sequence rows are needed");
  SIE_FAIL_IF(vk.rows != vv.rows || vk.rows == Rows::seqs, SIE_INVALID_ARGUMENT, err,
              "k and v must both have token rows or both kept rows");
  SIE_FAIL_IF(vk.rows == Rows::kept && params->mask != SIE_MASK_FULL, SIE_UNSUPPORTED, err,
              "kept keys have lost their places; a mask needs token rows");
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

sie_status sie_op_maxsim(sie_program *p, sie_value x, int32_t normalize, sie_value *y, sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_FAIL_IF(y == nullptr, SIE_INVALID_ARGUMENT, err, "y is NULL");
  SIE_TRY(check_value(p, x, "x", err));
  SIE_TRY(check_flag(normalize, "normalize", err));
  SIE_TRY(check_has(p, p->device->ops->maxsim != nullptr, SIE_OP_MAXSIM, err));
  const Value value = p->values[x];
  SIE_FAIL_IF(value.rows == Rows::seqs, SIE_INVALID_ARGUMENT, err,
              "x has sequence rows; late interaction is over token or kept rows");
  SIE_FAIL_IF(p->caps.max_query_rows < 1, SIE_INVALID_ARGUMENT, err,
              "the program's max_query_rows is 0; late interaction needs room for queries");
  SIE_FAIL_IF(p->query_columns != 0 && p->query_columns != value.columns, SIE_INVALID_ARGUMENT, err,
              "x has %lld columns; the program's queries have %lld", static_cast<ll>(value.columns),
              static_cast<ll>(p->query_columns));
  Op op = new_op(SIE_OP_MAXSIM);
  op.in[0] = x;
  op.normalize = normalize;
  SIE_TRY(append(p, op, Rows::seqs, SIE_COMPUTE_F32, 1, y, err));
  p->query_columns = value.columns;
  return SIE_OK;
}

int64_t sie_program_query_bytes(const sie_program *program) {
  return program != nullptr ? program->caps.max_query_rows * program->query_columns * 4 : 0;
}
