// record_check.cc — the checks that recording functions share (record.h).
#include <math.h>
#include <string.h>

#include <algorithm>

#include "record.h"
#include "status.h"

namespace sie {

namespace {

using ll = long long;

// Whether a weight of class `weight` may multiply values of class `value`: the classes are equal,
// or on a GPU BF16 weights multiply values of class FP8, which are stored as bf16.
bool goes_with(const sie_device *device, uint32_t value, uint32_t weight) {
  return value == weight || (device->is_gpu() && value == SIE_COMPUTE_FP8 && weight == SIE_COMPUTE_BF16);
}

bool is_made(const sie_program *p, sie_value v) {
  return v > 0 && v < p->values.size() && p->values[v].space != 0;
}

}  // namespace

sie_status check_value(const sie_program *p, sie_value v, const char *name, sie_error *err) {
  SIE_TRY(check_value_or_given(p, v, name, err));
  SIE_FAIL_IF(p->values[v].given != 0, SIE_INVALID_ARGUMENT, err,
              "%s is rows of %s that batches bring; output_spans and output_pairs alone read them, as labels",
              name, space_name(p, p->values[v].space));
  return SIE_OK;
}

sie_status check_value_or_given(const sie_program *p, sie_value v, const char *name, sie_error *err) {
  SIE_FAIL_IF(!is_made(p, v), SIE_INVALID_ARGUMENT, err,
              "%s is %d, a value that no operation before it makes", name, v);
  SIE_FAIL_IF(p->values[v].outputs_only, SIE_INVALID_ARGUMENT, err,
              "%s is the result of splade, which output_sparse and output_values alone read", name);
  return SIE_OK;
}

sie_status check_result(const sie_program *p, sie_value v, const char *name, sie_error *err) {
  SIE_FAIL_IF(v < 1 || v > SIE_MAX_VALUES, SIE_INVALID_ARGUMENT, err,
              "%s is %d; 1 to %d is possible for a result", name, v, SIE_MAX_VALUES);
  SIE_FAIL_IF(is_made(p, v), SIE_INVALID_ARGUMENT, err, "%s is %d, which another operation has made", name,
              v);
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
  if (n == 0) n = w->n;
  SIE_FAIL_IF(w->n != n || w->k != k, SIE_INVALID_ARGUMENT, err, "%s is [%lld, %lld]; [%lld, %lld] is needed",
              name, static_cast<ll>(w->n), static_cast<ll>(w->k), static_cast<ll>(n), static_cast<ll>(k));
  return SIE_OK;
}

int32_t stored_dtype(const sie_program *p, uint32_t compute) {
  if (!p->device->is_gpu()) return SIE_F32;
  return compute == SIE_COMPUTE_F16 ? SIE_F16 : SIE_BF16;
}

sie_status check_linear(const sie_program *p, sie_value x, const sie_weight *w, const sie_weight *bias,
                        sie_error *err) {
  SIE_TRY(check_value(p, x, "x", err));
  SIE_TRY(check_weight(p, w, SIE_WEIGHT_LINEAR, "w", err));
  const Value &value = p->values[x];
  SIE_FAIL_IF(value.columns != w->k, SIE_INVALID_ARGUMENT, err, "x has %lld columns; the weight takes %lld",
              static_cast<ll>(value.columns), static_cast<ll>(w->k));
  SIE_FAIL_IF(!goes_with(p->device, value.compute, w->compute), SIE_INVALID_ARGUMENT, err,
              "x is of class %s, the weight of class %s; after pooling weights are f32",
              compute_name(value.compute), compute_name(w->compute));
  return check_vector(p, bias, w->n, true, "bias", err);
}

sie_status check_residual(const sie_program *p, sie_value residual, sie_value x, int64_t columns,
                          sie_error *err) {
  if (residual == SIE_NO_VALUE) return SIE_OK;
  SIE_TRY(check_value(p, residual, "residual", err));
  const Value &r = p->values[residual], &value = p->values[x];
  SIE_FAIL_IF(r.columns != columns || r.space != value.space, SIE_INVALID_ARGUMENT, err,
              "the residual has %lld columns in rows of %s; %lld columns in rows of %s are needed",
              static_cast<ll>(r.columns), space_name(p, r.space), static_cast<ll>(columns),
              space_name(p, value.space));
  return SIE_OK;
}

sie_status check_flag(int32_t flag, const char *name, sie_error *err) {
  SIE_FAIL_IF(flag != 0 && flag != 1, SIE_INVALID_ARGUMENT, err, "%s is %d, not 0 or 1", name, flag);
  return SIE_OK;
}

sie_status check_zero(int64_t field, const char *name, sie_error *err) {
  SIE_FAIL_IF(field != 0, SIE_INVALID_ARGUMENT, err, "%s is %lld; it has no meaning here and must be 0", name,
              static_cast<ll>(field));
  return SIE_OK;
}

sie_status check_norm(float eps, float weight_offset, sie_error *err) {
  SIE_FAIL_IF(!(eps >= 0 && eps < 1), SIE_INVALID_ARGUMENT, err, "eps is %g; 0 to below 1 is needed",
              static_cast<double>(eps));
  SIE_FAIL_IF(!isfinite(weight_offset), SIE_INVALID_ARGUMENT, err, "weight_offset is not finite");
  return SIE_OK;
}

sie_status check_name(const char *name, Name *to, sie_error *err) {
  SIE_FAIL_IF(name == nullptr, SIE_INVALID_ARGUMENT, err, "name is NULL");
  size_t length = strnlen(name, SIE_MAX_NAME + 1);
  SIE_FAIL_IF(length < 1 || length > SIE_MAX_NAME, SIE_INVALID_ARGUMENT, err,
              "the name has %s%zu bytes; 1 to %d are possible", length > SIE_MAX_NAME ? "at least " : "",
              length, SIE_MAX_NAME);
  for (size_t i = 0; i < length; i++) {
    char c = name[i];
    bool fine = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    SIE_FAIL_IF(!fine, SIE_INVALID_ARGUMENT, err, "byte %zu of the name is none of a to z, 0 to 9 and '_'",
                i);
  }
  *to = {};
  memcpy(to->text, name, length);
  return SIE_OK;
}

sie_status check_has(const sie_program *p, bool has, uint32_t kind, sie_error *err) {
  SIE_FAIL_IF(!has, SIE_UNSUPPORTED, err, "this device (%s) has no %s", p->device->ops->name, op_name(kind));
  return SIE_OK;
}

sie_status check_input(const sie_program *p, sie_input input, uint32_t kind, int64_t least, int64_t bound,
                       const char *name, sie_error *err) {
  SIE_FAIL_IF(input < 1 || input > max_inputs || p->inputs[input].space == 0, SIE_INVALID_ARGUMENT, err,
              "%s is %d, which is no input", name, input);
  const Input &i = p->inputs[input];
  SIE_FAIL_IF(i.dtype != SIE_I32 || kind_of(p, i.space) != kind, SIE_INVALID_ARGUMENT, err,
              "%s is %s, %s of %s; i32 of a %s space is needed", name, i.name.text, dtype_name(i.dtype),
              space_name(p, i.space), kind == SIE_SPACE_ROWS ? "ROWS" : "SEQS");
  SIE_FAIL_IF(i.optional && (i.otherwise < least || i.otherwise >= bound), SIE_INVALID_ARGUMENT, err,
              "%s counts as %d where it is left out; %lld to %lld are possible", i.name.text, i.otherwise,
              static_cast<ll>(least), static_cast<ll>(bound - 1));
  return SIE_OK;
}

void read_input(sie_program *p, sie_input input, int64_t least, int64_t bound) {
  Input &i = p->inputs[input];
  i.read = true;
  i.least = std::max(i.least, least);
  i.bound = std::min(i.bound, bound);
}

sie_status check_partner(const sie_program *p, sie_input partner, sie_space shared, sie_error *err) {
  SIE_TRY(check_input(p, partner, SIE_SPACE_SEQS, -1, int64_t{INT32_MAX} + 1, "partner", err));
  const Input &i = p->inputs[partner];
  SIE_FAIL_IF(i.optional && i.otherwise != -1, SIE_INVALID_ARGUMENT, err,
              "%s counts as %d where it is left out; only -1 is always there", i.name.text, i.otherwise);
  SIE_FAIL_IF(i.groups_of != 0 && i.groups_of != shared, SIE_INVALID_ARGUMENT, err,
              "%s names groups of %s for another operation, and here those of %s", i.name.text,
              space_name(p, i.groups_of), space_name(p, shared));
  return SIE_OK;
}

void read_partner(sie_program *p, sie_input partner, sie_space shared) {
  read_input(p, partner, -1, int64_t{INT32_MAX} + 1);
  p->inputs[partner].groups_of = shared;
}

const char *space_name(const sie_program *p, sie_space space) { return p->spaces[space].name.text; }

Op new_op(uint32_t kind) {
  Op op = {};
  op.kind = kind;
  op.lora = -1;
  return op;
}

bool reserve_value(sie_program *p, sie_value v) {
  while (p->values.size() <= v) {
    Value none = {0, 0, static_cast<int32_t>(p->values.size()), 0, 0, false, false, -1, -1, -1, 0};
    if (!p->values.push(none)) return false;
  }
  return true;
}

sie_status append(sie_program *p, const Op &op, sie_space space, uint32_t compute, int64_t columns,
                  sie_error *err) {
  bool room = reserve_value(p, std::max(op.out, op.sum)) && p->ops.push(op);
  SIE_FAIL_IF(!room, SIE_OUT_OF_MEMORY, err, "no memory to record an operation");
  for (sie_value v : {op.out, op.sum}) {
    if (v != SIE_NO_VALUE) p->values[v] = {space, compute, v, 0, columns, false, false, -1, -1, -1, 0};
  }
  return SIE_OK;
}

}  // namespace sie
