// record_linear.cc — the operations that multiply by a packed matrix: linear, with adapters or not, and SPLADE.
#include "record.h"
#include "status.h"

using namespace sie;

namespace {

using ll = long long;

// What a GPU keeps values of a class in; adapters are of the same type there.
int32_t adapter_dtype(const sie_program *p, uint32_t compute) {
  if (!p->device->is_gpu()) return SIE_F32;
  return compute == SIE_COMPUTE_F16 ? SIE_F16 : SIE_BF16;
}

// Adapter i of a linear [n, k], as the kernel takes it: rank 0 where the linear has none of it.
sie_status check_adapter(const sie_program *p, const sie_lora *lora, int32_t i, const sie_weight *w,
                         int32_t dtype, sie_lora_pair *pair, sie_error *err) {
  const sie_weight *a = lora->a[i], *b = lora->b[i];
  *pair = {};
  pair->dtype = dtype;
  SIE_FAIL_IF((a == nullptr) != (b == nullptr), SIE_INVALID_ARGUMENT, err,
              "adapter %d has one of a and b; it needs both, or neither", i);
  if (a == nullptr) return SIE_OK;
  SIE_FAIL_IF(a->n > max_lora_rank, SIE_INVALID_ARGUMENT, err,
              "adapter %d is of rank %lld; at most %lld is possible", i, static_cast<ll>(a->n),
              static_cast<ll>(max_lora_rank));
  SIE_TRY(check_data(p, a, dtype, a->n, w->k, "a", err));
  SIE_TRY(check_data(p, b, dtype, w->n, a->n, "b", err));
  *pair = {a->table.p, b->table.p, static_cast<int32_t>(a->n), dtype};
  return SIE_OK;
}

// Appends the adapters of one linear to the program's list.
sie_status add_adapters(sie_program *p, const sie_lora *lora, const sie_weight *w, uint32_t compute, Op *op,
                        sie_error *err) {
  int64_t first = p->lora_pairs.size();
  sie_status status = SIE_OK;
  for (int32_t i = 0; i < lora->n_adapters && status == SIE_OK; i++) {
    sie_lora_pair pair;
    status = check_adapter(p, lora, i, w, adapter_dtype(p, compute), &pair, err);
    if (status == SIE_OK && !p->lora_pairs.push(pair)) {
      status = fail(err, SIE_OUT_OF_MEMORY, "no memory to record an operation");
    }
    if (status == SIE_OK && pair.rank > op->max_rank) op->max_rank = pair.rank;
  }
  if (status == SIE_OK && op->max_rank > 0) {
    status = check_has(p, p->device->ops->lora != nullptr, SIE_OP_LORA, err);
    op->lora = static_cast<int32_t>(first);
  }
  // A linear that no adapter touches is a plain one.
  while (p->lora_pairs.size() > first && (status != SIE_OK || op->lora < 0)) p->lora_pairs.pop();
  return status;
}

sie_status check_lora(const sie_program *p, const sie_lora *lora, sie_error *err) {
  SIE_FAIL_IF(lora == nullptr, SIE_INVALID_ARGUMENT, err, "lora is NULL");
  SIE_FAIL_IF(lora->struct_size != sizeof *lora, SIE_INVALID_ARGUMENT, err,
              "sie_lora has %u bytes; %zu expected", lora->struct_size, sizeof *lora);
  SIE_FAIL_IF(lora->n_adapters < 1 || lora->n_adapters > max_adapters, SIE_INVALID_ARGUMENT, err,
              "n_adapters is %d; 1 to %d is possible", lora->n_adapters, max_adapters);
  SIE_FAIL_IF(p->n_adapters != 0 && lora->n_adapters != p->n_adapters, SIE_INVALID_ARGUMENT, err,
              "n_adapters is %d; the program has %d", lora->n_adapters, p->n_adapters);
  SIE_FAIL_IF(lora->a == nullptr || lora->b == nullptr, SIE_INVALID_ARGUMENT, err, "lora's a or b is NULL");
  return SIE_OK;
}

// A linear operation, with `lora` or NULL.
sie_status record_linear(sie_program *p, sie_value x, const sie_weight *w, const sie_weight *bias,
                         sie_act act, sie_value residual, const sie_lora *lora, sie_value *y,
                         sie_error *err) {
  SIE_FAIL_IF(y == nullptr, SIE_INVALID_ARGUMENT, err, "y is NULL");
  SIE_TRY(check_linear(p, x, w, bias, err));
  const Value value = p->values[x];
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
  int64_t pairs = p->lora_pairs.size();
  if (lora != nullptr) SIE_TRY(add_adapters(p, lora, w, value.compute, &op, err));
  sie_status status = append(p, op, value.rows, value.compute, w->n, y, err);
  while (status != SIE_OK && p->lora_pairs.size() > pairs) p->lora_pairs.pop();
  return status;
}

}  // namespace

sie_status sie_op_linear(sie_program *p, sie_value x, const sie_weight *w, const sie_weight *bias,
                         sie_act act, sie_value residual, sie_value *y, sie_error *err) {
  SIE_TRY(check_open(p, err));
  return record_linear(p, x, w, bias, act, residual, nullptr, y, err);
}

sie_status sie_op_linear_lora(sie_program *p, sie_value x, const sie_weight *w, const sie_weight *bias,
                              sie_act act, sie_value residual, const sie_lora *lora, sie_value *y,
                              sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_TRY(check_lora(p, lora, err));
  SIE_TRY(record_linear(p, x, w, bias, act, residual, lora, y, err));
  p->n_adapters = lora->n_adapters;
  return SIE_OK;
}

sie_status sie_op_splade(sie_program *p, sie_value x, const sie_weight *w, const sie_weight *bias,
                         sie_value *y, sie_error *err) {
  SIE_TRY(check_open(p, err));
  SIE_FAIL_IF(y == nullptr, SIE_INVALID_ARGUMENT, err, "y is NULL");
  SIE_TRY(check_linear(p, x, w, bias, err));
  SIE_TRY(check_has(p, p->device->ops->splade != nullptr, SIE_OP_SPLADE, err));
  SIE_FAIL_IF(p->values[x].rows != Rows::tokens, SIE_INVALID_ARGUMENT, err,
              "x has %s rows; the maximum is over token rows", rows_name(p->values[x].rows));
  Op op = new_op(SIE_OP_SPLADE);
  op.in[0] = x;
  op.weights[0] = w;
  op.bias = bias != nullptr ? bias->vector() : nullptr;
  SIE_TRY(append(p, op, Rows::seqs, SIE_COMPUTE_F32, w->n, y, err));
  p->values[*y].outputs_only = true;
  return SIE_OK;
}
