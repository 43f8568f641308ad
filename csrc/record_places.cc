// record_places.cc — records the operations of words, markers and spans: rows that are taken by
// place, their products, their softmax and the LSTM over them.
#include <float.h>

#include "record.h"
#include "status.h"

namespace sie {

namespace {

using ll = long long;

// Checks an input that names places among x's rows.
sie_status check_place_input(const sie_program *p, const sie_take_rows_params &t, sie_input input,
                             const char *name, sie_error *err) {
  SIE_TRY(check_input(p, input, SIE_SPACE_ROWS, INT32_MIN, int64_t{INT32_MAX} + 1, name, err));
  const Input &i = p->inputs[input];
  sie_space of = p->values[t.x].space;
  SIE_FAIL_IF(i.space != t.to, SIE_INVALID_ARGUMENT, err, "%s has rows of %s; y has rows of %s", name,
              space_name(p, i.space), space_name(p, t.to));
  SIE_FAIL_IF(i.optional, SIE_INVALID_ARGUMENT, err, "%s is optional; a row without a place takes none",
              name);
  SIE_FAIL_IF(i.places_of != 0 && i.places_of != of, SIE_INVALID_ARGUMENT, err,
              "%s names places of %s for another operation; x has rows of %s", name,
              space_name(p, i.places_of), space_name(p, of));
  return SIE_OK;
}

sie_status check_taken(const sie_program *p, const sie_take_rows_params &t, sie_error *err) {
  if (of_seqs(p, t.x)) {
    SIE_TRY(check_zero(t.which, "which", err));
    SIE_TRY(check_zero(t.first, "first", err));
    return check_zero(t.last, "last", err);
  }
  sie_space of = p->values[t.x].space;
  SIE_FAIL_IF(kind_of(p, of) != SIE_SPACE_ROWS || of == t.to, SIE_INVALID_ARGUMENT, err,
              "x has rows of %s; those of another ROWS space than %s or one a sequence are needed",
              space_name(p, of), space_name(p, t.to));
  SIE_FAIL_IF(t.which < SIE_POOL_CLS || t.which > SIE_POOL_LAST, SIE_INVALID_ARGUMENT, err,
              "which is %u; cls, last and mean are possible", t.which);
  if (t.which != SIE_POOL_LAST) SIE_TRY(check_place_input(p, t, t.first, "first", err));
  if (t.which != SIE_POOL_CLS) SIE_TRY(check_place_input(p, t, t.last, "last", err));
  if (t.which == SIE_POOL_LAST) return check_zero(t.first, "first", err);
  if (t.which == SIE_POOL_CLS) return check_zero(t.last, "last", err);
  const Input &last = p->inputs[t.last];
  SIE_FAIL_IF(t.first == t.last || (last.from != 0 && last.from != t.first), SIE_INVALID_ARGUMENT, err,
              "last is %s, which ends a range that begins at %s", last.name.text,
              p->inputs[last.from != 0 ? last.from : t.first].name.text);
  return SIE_OK;
}

void read_places(sie_program *p, sie_input input, sie_space of) {
  if (input == 0) return;
  p->inputs[input].read = true;
  p->inputs[input].places_of = of;
}

// Checks two values of the same rows and columns.
sie_status check_pair(const sie_program *p, sie_value a, sie_value b, sie_error *err) {
  SIE_TRY(check_value(p, a, "a", err));
  SIE_TRY(check_value(p, b, "b", err));
  const Value &x = p->values[a], &y = p->values[b];
  SIE_FAIL_IF(x.columns != y.columns || x.space != y.space, SIE_INVALID_ARGUMENT, err,
              "a has %lld columns in rows of %s, b %lld in rows of %s; they must agree",
              static_cast<ll>(x.columns), space_name(p, x.space), static_cast<ll>(y.columns),
              space_name(p, y.space));
  return SIE_OK;
}

sie_status check_recurrent(const sie_program *p, const sie_weight *w, int64_t hidden, const char *name,
                           sie_error *err) {
  if (w == nullptr) return SIE_OK;
  SIE_TRY(check_weight(p, w, SIE_WEIGHT_LINEAR, name, err));
  SIE_FAIL_IF(w->n != 4 * hidden || w->k != hidden || w->packed.compute != SIE_COMPUTE_F32,
              SIE_INVALID_ARGUMENT, err,
              "%s is [%lld, %lld] of class %s; [%lld, %lld] of class f32 is needed", name,
              static_cast<ll>(w->n), static_cast<ll>(w->k), compute_name(w->packed.compute),
              static_cast<ll>(4 * hidden), static_cast<ll>(hidden));
  return SIE_OK;
}

}  // namespace

sie_status record_take_rows(sie_program *p, const void *params, sie_error *err) {
  sie_take_rows_params t;
  SIE_TRY(take_params(params, &t, err));
  SIE_TRY(check_result(p, t.y, "y", err));
  SIE_TRY(check_value(p, t.x, "x", err));
  SIE_TRY(check_zero(t.reserved, "reserved", err));
  SIE_TRY(check_has(p, p->device->ops->take_rows != nullptr, SIE_OP_TAKE_ROWS, err));
  SIE_FAIL_IF(t.to < 1 || t.to > max_spaces || kind_of(p, t.to) != SIE_SPACE_ROWS, SIE_INVALID_ARGUMENT, err,
              "to is %d, which is no ROWS space", t.to);
  SIE_TRY(check_taken(p, t, err));
  const Value value = p->values[t.x];
  Op op = new_op(SIE_OP_TAKE_ROWS);
  op.in[0] = t.x;
  op.out = t.y;
  op.pooling = static_cast<int32_t>(t.which);
  op.inputs[0] = t.first;
  op.inputs[1] = t.last;
  // rows of a stream are f32, and what is made of them is as precise
  uint32_t compute = value.compute;
  if (is_stream(p, t.x)) compute = SIE_COMPUTE_F32;
  SIE_TRY(append(p, op, t.to, compute, value.columns, err));
  read_places(p, t.first, value.space);
  read_places(p, t.last, value.space);
  if (t.which == SIE_POOL_MEAN) p->inputs[t.last].from = t.first;
  return SIE_OK;
}

sie_status record_product(sie_program *p, const void *params, sie_error *err) {
  sie_product_params m;
  SIE_TRY(take_params(params, &m, err));
  SIE_TRY(check_result(p, m.y, "y", err));
  SIE_TRY(check_pair(p, m.a, m.b, err));
  SIE_TRY(check_has(p, p->device->ops->product != nullptr, SIE_OP_PRODUCT, err));
  const Value a = p->values[m.a], &b = p->values[m.b];
  SIE_FAIL_IF(a.compute != b.compute, SIE_INVALID_ARGUMENT, err,
              "a is of class %s and b of %s; one is needed", compute_name(a.compute),
              compute_name(b.compute));
  Op op = new_op(SIE_OP_PRODUCT);
  op.in[0] = m.a;
  op.in[1] = m.b;
  op.out = m.y;
  return append(p, op, a.space, a.compute, a.columns, err);
}

sie_status record_dots(sie_program *p, const void *params, sie_error *err) {
  sie_dots_params d;
  SIE_TRY(take_params(params, &d, err));
  SIE_TRY(check_result(p, d.y, "y", err));
  SIE_TRY(check_pair(p, d.a, d.b, err));
  SIE_TRY(check_has(p, p->device->ops->dots != nullptr, SIE_OP_DOTS, err));
  Op op = new_op(SIE_OP_DOTS);
  op.in[0] = d.a;
  op.in[1] = d.b;
  op.out = d.y;
  return append(p, op, p->values[d.a].space, SIE_COMPUTE_F32, 1, err);
}

sie_status record_softmax(sie_program *p, const void *params, sie_error *err) {
  sie_softmax_params s;
  SIE_TRY(take_params(params, &s, err));
  SIE_TRY(check_result(p, s.y, "y", err));
  SIE_TRY(check_value(p, s.x, "x", err));
  SIE_TRY(check_has(p, p->device->ops->softmax != nullptr, SIE_OP_SOFTMAX, err));
  const Value x = p->values[s.x];
  SIE_FAIL_IF(x.columns != 1 || x.compute != SIE_COMPUTE_F32, SIE_INVALID_ARGUMENT, err,
              "x has %lld columns of class %s; one of class f32 is needed", static_cast<ll>(x.columns),
              compute_name(x.compute));
  SIE_FAIL_IF(kind_of(p, x.space) != SIE_SPACE_ROWS, SIE_INVALID_ARGUMENT, err,
              "x has rows of %s; those of a ROWS space are needed", space_name(p, x.space));
  SIE_FAIL_IF(!(s.scale > 0 && s.scale <= FLT_MAX), SIE_INVALID_ARGUMENT, err,
              "scale is %g; a finite number above 0 is needed", static_cast<double>(s.scale));
  Op op = new_op(SIE_OP_SOFTMAX);
  op.in[0] = s.x;
  op.out = s.y;
  op.eps = s.scale;
  return append(p, op, x.space, SIE_COMPUTE_F32, 1, err);
}

sie_status record_lstm(sie_program *p, const void *params, sie_error *err) {
  sie_lstm_params l;
  SIE_TRY(take_params(params, &l, err));
  SIE_TRY(check_result(p, l.y, "y", err));
  SIE_TRY(check_value(p, l.gates, "gates", err));
  SIE_TRY(check_zero(l.reserved, "reserved", err));
  SIE_TRY(check_has(p, p->device->ops->lstm != nullptr, SIE_OP_LSTM, err));
  SIE_FAIL_IF(l.w == nullptr && l.w_reverse == nullptr, SIE_INVALID_ARGUMENT, err,
              "w and w_reverse are NULL; an LSTM has a direction");
  const Value gates = p->values[l.gates];
  SIE_FAIL_IF(kind_of(p, gates.space) != SIE_SPACE_ROWS, SIE_INVALID_ARGUMENT, err,
              "gates has rows of %s; those of a ROWS space are needed", space_name(p, gates.space));
  const int64_t directions = l.w != nullptr && l.w_reverse != nullptr ? 2 : 1, each = 4 * directions;
  SIE_FAIL_IF(gates.columns % each != 0, SIE_INVALID_ARGUMENT, err,
              "gates has %lld columns; a multiple of %lld is needed", static_cast<ll>(gates.columns),
              static_cast<ll>(each));
  SIE_FAIL_IF(p->device->is_gpu() && gates.columns / each > SIE_MAX_GPU_LSTM, SIE_UNSUPPORTED, err,
              "an LSTM of %lld hidden columns; %s has kernels for up to %d",
              static_cast<ll>(gates.columns / each), p->device->ops->name, SIE_MAX_GPU_LSTM);
  SIE_TRY(check_recurrent(p, l.w, gates.columns / each, "w", err));
  SIE_TRY(check_recurrent(p, l.w_reverse, gates.columns / each, "w_reverse", err));
  Op op = new_op(SIE_OP_LSTM);
  op.in[0] = l.gates;
  op.out = l.y;
  op.weights[0] = l.w;
  op.weights[1] = l.w_reverse;
  return append(p, op, gates.space, gates.compute, gates.columns / 4, err);
}

}  // namespace sie
