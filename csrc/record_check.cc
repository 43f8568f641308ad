// record_check.cc — the checks that recording functions share (record.h).
#include "record.h"
#include "status.h"

namespace sie {

namespace {

using ll = long long;

// Whether a weight multiplies values of a class: its own, or in an FP8 model, whose values are bf16, BF16.
bool goes_with(const sie_device *device, uint32_t value, uint32_t weight) {
  return value == weight || (device->is_gpu() && value == SIE_COMPUTE_FP8 && weight == SIE_COMPUTE_BF16);
}

}  // namespace

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
  SIE_FAIL_IF(p->values[v].outputs_only, SIE_INVALID_ARGUMENT, err,
              "%s is the result of sie_op_splade, which sie_op_output_sparse and sie_op_output_values read",
              name);
  return SIE_OK;
}

sie_status check_weight(const sie_program *p, const sie_weight *w, uint32_t kind, const char *name,
                        sie_error *err) {
  static const char *const kinds[] = {"?", "a linear weight", "a table", "a vector", "data"};
  SIE_FAIL_IF(w == nullptr, SIE_INVALID_ARGUMENT, err, "%s is NULL", name);
  SIE_FAIL_IF(w->device != p->device, SIE_INVALID_ARGUMENT, err, "%s belongs to another device", name);
  SIE_FAIL_IF(w->kind != kind, SIE_INVALID_ARGUMENT, err, "%s is %s; %s is needed", name, kinds[w->kind],
              kinds[kind]);
  SIE_FAIL_IF(w->table.p == nullptr, SIE_INVALID_ARGUMENT, err,
              "%s is not on the device yet; sie_weight_place says when it is", name);
  return SIE_OK;
}

sie_status check_vector(const sie_program *p, const sie_weight *w, int64_t length, bool optional,
                        const char *name, sie_error *err) {
  if (w == nullptr && optional) return SIE_OK;
  SIE_TRY(check_weight(p, w, SIE_WEIGHT_VECTOR, name, err));
  SIE_FAIL_IF(w->n != length, SIE_INVALID_ARGUMENT, err, "%s has %lld elements; %lld are needed", name,
              static_cast<ll>(w->n), static_cast<ll>(length));
  return SIE_OK;
}

sie_status check_data(const sie_program *p, const sie_weight *w, int32_t dtype, int64_t n, int64_t k,
                      const char *name, sie_error *err) {
  SIE_TRY(check_weight(p, w, SIE_WEIGHT_DATA, name, err));
  SIE_FAIL_IF(w->table.dtype != dtype, SIE_INVALID_ARGUMENT, err, "%s is %s; %s is needed", name,
              dtype_name(w->table.dtype), dtype_name(dtype));
  SIE_FAIL_IF(w->n != n || w->k != k, SIE_INVALID_ARGUMENT, err, "%s is [%lld, %lld]; [%lld, %lld] is needed",
              name, static_cast<ll>(w->n), static_cast<ll>(w->k), static_cast<ll>(n), static_cast<ll>(k));
  return SIE_OK;
}

sie_status check_linear(const sie_program *p, sie_value x, const sie_weight *w, const sie_weight *bias,
                        sie_error *err) {
  SIE_TRY(check_value(p, x, "x", err));
  SIE_TRY(check_weight(p, w, SIE_WEIGHT_LINEAR, "w", err));
  const Value &value = p->values[x];
  SIE_FAIL_IF(value.columns != w->k, SIE_INVALID_ARGUMENT, err, "x has %lld columns; the weight takes %lld",
              static_cast<ll>(value.columns), static_cast<ll>(w->k));
  SIE_FAIL_IF(!goes_with(p->device, value.compute, w->compute), SIE_INVALID_ARGUMENT, err,
              "x is of class %s, the weight of class %s; after sie_op_pool weights are f32",
              compute_name(value.compute), compute_name(w->compute));
  return check_vector(p, bias, w->n, true, "bias", err);
}

sie_status check_flag(int32_t flag, const char *name, sie_error *err) {
  SIE_FAIL_IF(flag != 0 && flag != 1, SIE_INVALID_ARGUMENT, err, "%s is %d, not 0 or 1", name, flag);
  return SIE_OK;
}

sie_status check_has(const sie_program *p, bool has, uint32_t kind, sie_error *err) {
  SIE_FAIL_IF(!has, SIE_UNSUPPORTED, err, "this device (%s) has no %s", p->device->ops->name, op_name(kind));
  return SIE_OK;
}

const char *rows_name(Rows rows) {
  switch (rows) {
    case Rows::tokens:
      return "token";
    case Rows::kept:
      return "kept";
    default:
      return "sequence";
  }
}

Op new_op(uint32_t kind) {
  Op op = {};
  op.kind = kind;
  op.in[0] = op.in[1] = op.in[2] = op.residual = op.out = SIE_NO_VALUE;
  op.lora = -1;
  return op;
}

sie_status append(sie_program *p, const Op &op, Rows rows, uint32_t compute, int64_t columns, sie_value *y,
                  sie_error *err) {
  Op appended = op;
  if (y != nullptr) {
    appended.out = static_cast<sie_value>(p->values.size());
    Value value = {rows, compute, appended.out, 0, columns, false, -1, -1};
    SIE_FAIL_IF(!p->values.push(value), SIE_OUT_OF_MEMORY, err, "no memory to record an operation");
  }
  if (!p->ops.push(appended)) {
    if (y != nullptr) p->values.pop();
    return fail(err, SIE_OUT_OF_MEMORY, "no memory to record an operation");
  }
  if (y != nullptr) *y = appended.out;
  return SIE_OK;
}

}  // namespace sie
