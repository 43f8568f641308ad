// record_linear.cc — records the operations that multiply by a packed matrix: linear, with or
// without LoRA adapters, and SPLADE.
#include "record.h"
#include "status.h"

namespace sie {

namespace {

using ll = long long;

// Adapter i of a linear [n, k], as the kernel takes it; rank 0 if the adapter does not change this
// linear.
sie_status check_adapter(const sie_program *p, const sie_linear_params &l, int32_t i, int32_t dtype,
                         sie_lora_pair *pair, sie_error *err) {
  const sie_weight *a = l.a[i], *b = l.b[i];
  *pair = {};
  pair->dtype = dtype;
  SIE_FAIL_IF((a == nullptr) != (b == nullptr), SIE_INVALID_ARGUMENT, err,
              "adapter %d has one of a and b; it needs both, or neither", i);
  if (a == nullptr) return SIE_OK;
  SIE_FAIL_IF(a->n > max_lora_rank, SIE_INVALID_ARGUMENT, err,
              "adapter %d is of rank %lld; at most %lld is possible", i, static_cast<ll>(a->n),
              static_cast<ll>(max_lora_rank));
  SIE_TRY(check_data(p, a, dtype, a->n, l.w->k, "a", err));
  SIE_TRY(check_data(p, b, dtype, l.w->n, a->n, "b", err));
  *pair = {a->table.p, b->table.p, static_cast<int32_t>(a->n), dtype};
  return SIE_OK;
}

// Appends the adapters of one linear to the program's list.
sie_status add_adapters(sie_program *p, const sie_linear_params &l, uint32_t compute, Op *op,
                        sie_error *err) {
  int64_t first = p->lora_pairs.size();
  sie_status status = SIE_OK;
  for (int32_t i = 0; i < l.n_adapters && status == SIE_OK; i++) {
    sie_lora_pair pair;
    status = check_adapter(p, l, i, stored_dtype(p, compute), &pair, err);
    if (status == SIE_OK && !p->lora_pairs.push(pair)) {
      status = fail(err, SIE_OUT_OF_MEMORY, "no memory to record an operation");
    }
    if (status == SIE_OK && pair.rank > op->max_rank) op->max_rank = pair.rank;
  }
  if (status == SIE_OK && op->max_rank > 0) {
    status = check_has(p, p->device->ops->lora != nullptr, SIE_OP_LORA, err);
    op->lora = static_cast<int32_t>(first);
  }
  // A linear that no adapter changes is recorded without adapters.
  while (p->lora_pairs.size() > first && (status != SIE_OK || op->lora < 0)) p->lora_pairs.pop();
  return status;
}

sie_status check_adapters(const sie_program *p, const sie_linear_params &l, sie_error *err) {
  if (l.n_adapters == 0) {
    bool none = l.a == nullptr && l.b == nullptr;
    SIE_FAIL_IF(!none, SIE_INVALID_ARGUMENT, err, "a or b is given, but n_adapters is 0");
    return check_zero(l.adapter, "adapter", err);
  }
  SIE_FAIL_IF(l.n_adapters < 1 || l.n_adapters > max_adapters, SIE_INVALID_ARGUMENT, err,
              "n_adapters is %d; 1 to %d is possible", l.n_adapters, max_adapters);
  SIE_FAIL_IF(p->n_adapters != 0 && l.n_adapters != p->n_adapters, SIE_INVALID_ARGUMENT, err,
              "n_adapters is %d; the program has %d", l.n_adapters, p->n_adapters);
  SIE_FAIL_IF(l.a == nullptr || l.b == nullptr, SIE_INVALID_ARGUMENT, err, "a or b is NULL");
  return check_input(p, l.adapter, SIE_SPACE_SEQS, -1, l.n_adapters, "adapter", err);
}

// The columns of the result: as many as W has rows, or half with a gate.
sie_status check_gate(const sie_linear_params &l, int64_t *columns, sie_error *err) {
  SIE_FAIL_IF(l.act > SIE_ACT_SILU, SIE_INVALID_ARGUMENT, err, "act %u is none of sie_act", l.act);
  SIE_FAIL_IF(l.gate > SIE_GATE_GEGLU_TANH, SIE_INVALID_ARGUMENT, err, "gate %u is none of sie_gate", l.gate);
  *columns = l.w->n;
  if (l.gate == SIE_GATE_NONE) return SIE_OK;
  SIE_FAIL_IF(l.act != SIE_ACT_NONE, SIE_INVALID_ARGUMENT, err, "act is %u; with a gate it is NONE", l.act);
  SIE_FAIL_IF(l.w->n % 2 != 0, SIE_INVALID_ARGUMENT, err, "W has %lld rows; with a gate they are pairs",
              static_cast<ll>(l.w->n));
  *columns = l.w->n / 2;
  return SIE_OK;
}

}  // namespace

sie_status record_linear(sie_program *p, const void *params, sie_error *err) {
  sie_linear_params l;
  int64_t columns = 0;
  SIE_TRY(take_params(params, &l, err));
  SIE_TRY(check_result(p, l.y, "y", err));
  SIE_TRY(check_linear(p, l.x, l.w, l.bias, err));
  SIE_TRY(check_gate(l, &columns, err));
  SIE_TRY(check_residual(p, l.residual, l.x, columns, err));
  SIE_TRY(check_adapters(p, l, err));
  const Value value = p->values[l.x];
  Op op = new_op(SIE_OP_LINEAR);
  op.in[0] = l.x;
  op.out = l.y;
  op.weights[0] = l.w;
  op.bias = vector_of(l.bias);
  op.act = static_cast<int32_t>(l.act);
  op.gate = static_cast<int32_t>(l.gate);
  op.residual = l.residual;
  op.inputs[0] = l.adapter;
  int64_t pairs = p->lora_pairs.size();
  SIE_TRY(add_adapters(p, l, value.compute, &op, err));
  sie_status status = append(p, op, value.space, value.compute, columns, err);
  while (status != SIE_OK && p->lora_pairs.size() > pairs) p->lora_pairs.pop();
  if (status != SIE_OK || l.n_adapters == 0) return status;
  p->n_adapters = l.n_adapters;
  read_input(p, l.adapter, -1, l.n_adapters);
  return SIE_OK;
}

sie_status record_splade(sie_program *p, const void *params, sie_error *err) {
  sie_splade_params s;
  SIE_TRY(take_params(params, &s, err));
  SIE_TRY(check_result(p, s.y, "y", err));
  SIE_TRY(check_zero(s.reserved, "reserved", err));
  SIE_TRY(check_linear(p, s.x, s.w, s.bias, err));
  SIE_TRY(check_has(p, p->device->ops->splade != nullptr, SIE_OP_SPLADE, err));
  SIE_FAIL_IF(p->seqs == 0, SIE_INVALID_ARGUMENT, err, "the program declares no SEQS space");
  sie_space space = p->values[s.x].space;
  SIE_FAIL_IF(kind_of(p, space) != SIE_SPACE_ROWS, SIE_INVALID_ARGUMENT, err,
              "x has rows of %s; the maximum is over those of a ROWS space", space_name(p, space));
  Op op = new_op(SIE_OP_SPLADE);
  op.in[0] = s.x;
  op.out = s.y;
  op.weights[0] = s.w;
  op.bias = vector_of(s.bias);
  SIE_TRY(append(p, op, p->seqs, SIE_COMPUTE_F32, s.w->n, err));
  p->values[s.y].outputs_only = true;
  return SIE_OK;
}

}  // namespace sie
