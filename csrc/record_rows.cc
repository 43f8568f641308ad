// record_rows.cc — records the operations that look rows up, normalise, join or pool them, or choose
// among them; and which results are streams.
#include "record.h"

#include <math.h>

#include <algorithm>

namespace sie {

namespace {

using ll = long long;

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

// Checks an input that indexes a table: it must be of the ids' space.
sie_status check_places_of(const sie_program *p, const sie_embed_params &e, sie_input input,
                           const sie_weight *table, const char *name, sie_error *err) {
  SIE_TRY(check_input(p, input, SIE_SPACE_ROWS, 0, table->n, name, err));
  sie_space space = p->inputs[input].space, of = p->inputs[e.ids].space;
  SIE_FAIL_IF(space != of, SIE_INVALID_ARGUMENT, err, "%s has rows of %s; ids has rows of %s", name,
              space_name(p, space), space_name(p, of));
  return SIE_OK;
}

// Checks the position and type tables, and the inputs that index them.
sie_status check_places(const sie_program *p, const sie_embed_params &e, sie_error *err) {
  if (e.position != nullptr) SIE_TRY(check_table(p, e.position, e.word, "position", err));
  if (e.type != nullptr) SIE_TRY(check_table(p, e.type, e.word, "type", err));
  SIE_FAIL_IF(e.type_ids != 0 && e.type == nullptr, SIE_INVALID_ARGUMENT, err,
              "type_ids has an input, but there is no type table");
  if (e.type_ids != 0) SIE_TRY(check_places_of(p, e, e.type_ids, e.type, "type_ids", err));
  if (e.positions != 0) {
    SIE_FAIL_IF(e.position == nullptr, SIE_INVALID_ARGUMENT, err,
                "positions has an input, but there is no position table");
    SIE_FAIL_IF(e.type != nullptr, SIE_UNSUPPORTED, err, "positions of the batch's beside a type table");
    SIE_TRY(check_places_of(p, e, e.positions, e.position, "positions", err));
    return check_zero(e.position_offset, "position_offset", err);
  }
  SIE_FAIL_IF(e.position_offset < 0 || (e.position != nullptr && e.position_offset >= e.position->n),
              SIE_INVALID_ARGUMENT, err, "position_offset is %d; it must be a row of the position table",
              e.position_offset);
  return SIE_OK;
}

}  // namespace

sie_status record_embed(sie_program *p, const void *params, sie_error *err) {
  sie_embed_params e;
  SIE_TRY(take_params(params, &e, err));
  SIE_TRY(check_result(p, e.y, "y", err));
  SIE_TRY(check_weight(p, e.word, SIE_WEIGHT_TABLE, "word", err));
  SIE_TRY(check_input(p, e.ids, SIE_SPACE_ROWS, 0, e.word->n, "ids", err));
  SIE_TRY(check_places(p, e, err));
  SIE_FAIL_IF(e.norm > SIE_NORM_NONE, SIE_INVALID_ARGUMENT, err, "norm %u is none of sie_norm", e.norm);
  bool plain = e.norm == SIE_NORM_NONE;
  SIE_FAIL_IF(plain && (e.gamma != nullptr || e.beta != nullptr), SIE_INVALID_ARGUMENT, err,
              "gamma or beta is given, but norm is NONE");
  if (!plain) SIE_TRY(check_vector(p, e.gamma, e.word->k, false, "gamma", err));
  SIE_TRY(check_vector(p, e.beta, e.word->k, true, "beta", err));
  SIE_TRY(check_norm(e.eps, e.weight_offset, err));
  SIE_FAIL_IF(!isfinite(e.word_scale), SIE_INVALID_ARGUMENT, err, "word_scale is not finite");
  Op op = new_op(SIE_OP_EMBED_LAYERNORM);
  op.out = e.y;
  op.weights[0] = e.word;
  op.inputs[0] = e.ids;
  // The kernel looks up rows by an input in weights[2] only, whether they are positions or types.
  op.weights[1] = e.positions != 0 ? nullptr : e.position;
  op.weights[2] = e.positions != 0 ? e.position : e.type;
  op.inputs[1] = e.positions != 0 ? e.positions : e.type_ids;
  op.gamma = vector_of(e.gamma);
  op.beta = vector_of(e.beta);
  op.norm = static_cast<int32_t>(e.norm);
  op.eps = e.eps;
  op.weight_offset = e.weight_offset;
  op.word_scale = e.word_scale;
  op.position_offset = e.position_offset;
  sie_space space = p->inputs[e.ids].space;
  SIE_TRY(append(p, op, space, e.word->compute, e.word->k, err));
  read_input(p, e.ids, 0, e.word->n);
  if (op.inputs[1] != 0) read_input(p, op.inputs[1], 0, op.weights[2]->n);
  if (op.weights[1] != nullptr) bound_positions(&p->spaces[space], e.position->n - e.position_offset);
  return SIE_OK;
}

sie_status record_norm(sie_program *p, const void *params, sie_error *err) {
  sie_norm_params n;
  SIE_TRY(take_params(params, &n, err));
  SIE_TRY(check_result(p, n.y, "y", err));
  if (n.sum != SIE_NO_VALUE) SIE_TRY(check_result(p, n.sum, "sum", err));
  SIE_FAIL_IF(n.sum == n.y, SIE_INVALID_ARGUMENT, err, "y and sum are both %d; two results need two numbers",
              n.y);
  SIE_TRY(check_value(p, n.x, "x", err));
  SIE_FAIL_IF(n.norm != SIE_NORM_LAYER && n.norm != SIE_NORM_RMS, SIE_INVALID_ARGUMENT, err,
              "norm is %u; LAYER and RMS are possible", n.norm);
  const Value value = p->values[n.x];
  SIE_TRY(check_residual(p, n.residual, n.x, value.columns, err));
  SIE_TRY(check_vector(p, n.gamma, value.columns, false, "gamma", err));
  SIE_TRY(check_vector(p, n.beta, value.columns, true, "beta", err));
  SIE_TRY(check_vector(p, n.bias, value.columns, true, "bias", err));
  SIE_TRY(check_norm(n.eps, n.weight_offset, err));
  Op op = new_op(SIE_OP_LAYERNORM);
  op.in[0] = n.x;
  op.residual = n.residual;
  op.out = n.y;
  op.sum = n.sum;
  op.norm = static_cast<int32_t>(n.norm);
  op.bias = vector_of(n.bias);
  op.gamma = vector_of(n.gamma);
  op.beta = vector_of(n.beta);
  op.eps = n.eps;
  op.weight_offset = n.weight_offset;
  return append(p, op, value.space, value.compute, value.columns, err);
}

sie_status record_columns(sie_program *p, const void *params, sie_error *err) {
  sie_columns_params c;
  SIE_TRY(take_params(params, &c, err));
  SIE_TRY(check_result(p, c.y, "y", err));
  SIE_TRY(check_value_or_given(p, c.x, "x", err));
  SIE_TRY(check_zero(c.reserved, "reserved", err));
  Value value = p->values[c.x];
  SIE_FAIL_IF(c.column < 0 || c.width < 1 || c.width > value.columns - c.column, SIE_INVALID_ARGUMENT, err,
              "%lld columns from column %lld of a value of %lld columns", static_cast<ll>(c.width),
              static_cast<ll>(c.column), static_cast<ll>(value.columns));
  value.column += c.column;
  value.columns = c.width;
  SIE_FAIL_IF(!reserve_value(p, c.y), SIE_OUT_OF_MEMORY, err, "no memory to record a view");
  p->values[c.y] = value;
  return SIE_OK;
}

sie_status record_join(sie_program *p, const void *params, sie_error *err) {
  sie_join_params j;
  SIE_TRY(take_params(params, &j, err));
  SIE_TRY(check_result(p, j.y, "y", err));
  SIE_TRY(check_zero(j.reserved, "reserved", err));
  SIE_TRY(check_has(p, p->device->ops->join_columns != nullptr, SIE_OP_JOIN_COLUMNS, err));
  Op op = new_op(SIE_OP_JOIN_COLUMNS);
  op.out = j.y;
  int64_t columns = 0;
  for (int i = 0; i < SIE_MAX_JOINED && (i < 2 || j.x[i] != SIE_NO_VALUE); i++) {
    static const char *const names[] = {"x[0]", "x[1]", "x[2]"};
    SIE_TRY(check_value(p, j.x[i], names[i], err));
    const Value &x = p->values[j.x[i]], &first = p->values[j.x[0]];
    SIE_FAIL_IF(x.space != first.space || x.compute != first.compute, SIE_INVALID_ARGUMENT, err,
                "%s has rows of %s and is of class %s; x[0] has rows of %s and is of class %s", names[i],
                space_name(p, x.space), compute_name(x.compute), space_name(p, first.space),
                compute_name(first.compute));
    op.in[i] = j.x[i];
    columns += x.columns;
  }
  SIE_FAIL_IF(columns > max_columns, SIE_INVALID_ARGUMENT, err,
              "y has %lld columns; at most %lld are possible", static_cast<ll>(columns),
              static_cast<ll>(max_columns));
  const Value first = p->values[j.x[0]];
  return append(p, op, first.space, first.compute, columns, err);
}

// It follows its operation at once, so that no operation has read the value as it would be without.
sie_status record_stream(sie_program *p, const void *params, sie_error *err) {
  sie_stream_params s;
  SIE_TRY(take_params(params, &s, err));
  SIE_TRY(check_value(p, s.x, "x", err));
  SIE_TRY(check_has(p, p->device->ops->join_columns != nullptr, SIE_OP_JOIN_COLUMNS, err));
  const Op &before = p->ops[p->ops.size() - 1];
  bool kind = before.kind == SIE_OP_EMBED_LAYERNORM || before.kind == SIE_OP_LAYERNORM ||
              before.kind == SIE_OP_LINEAR;
  SIE_FAIL_IF(!kind || (s.x != before.out && s.x != before.sum), SIE_INVALID_ARGUMENT, err,
              "x is %d, which is no result of an embed, a norm or a linear just before", s.x);
  SIE_FAIL_IF(p->values[s.x].stream, SIE_INVALID_ARGUMENT, err, "x is a stream already");
  p->values[s.x].stream = true;
  return SIE_OK;
}

sie_status record_gather_rows(sie_program *p, const void *params, sie_error *err) {
  sie_gather_rows_params g;
  SIE_TRY(take_params(params, &g, err));
  SIE_TRY(check_result(p, g.y, "y", err));
  SIE_TRY(check_value(p, g.x, "x", err));
  SIE_FAIL_IF(g.which != SIE_POOL_CLS && g.which != SIE_POOL_LAST, SIE_INVALID_ARGUMENT, err,
              "pooling %u cannot be gathered; cls and last can", g.which);
  SIE_FAIL_IF(p->seqs == 0, SIE_INVALID_ARGUMENT, err, "the program declares no SEQS space");
  SIE_FAIL_IF(of_seqs(p, g.x), SIE_INVALID_ARGUMENT, err, "x has one row a sequence already");
  const Value value = p->values[g.x];
  Op op = new_op(SIE_OP_GATHER_ROWS);
  op.in[0] = g.x;
  op.out = g.y;
  op.pooling = static_cast<int32_t>(g.which);
  SIE_TRY(append(p, op, p->seqs, value.compute, value.columns, err));
  p->values[g.y].stream = is_stream(p, g.x);
  return SIE_OK;
}

sie_status record_pool(sie_program *p, const void *params, sie_error *err) {
  sie_pool_params m;
  SIE_TRY(take_params(params, &m, err));
  SIE_TRY(check_result(p, m.y, "y", err));
  SIE_TRY(check_value(p, m.x, "x", err));
  SIE_FAIL_IF(m.mode < SIE_POOL_CLS || m.mode > SIE_POOL_ABS_MEAN, SIE_INVALID_ARGUMENT, err,
              "mode %u is none of sie_pooling", m.mode);
  SIE_FAIL_IF(m.mode > SIE_POOL_MEAN_SQRT && p->device->is_gpu(), SIE_UNSUPPORTED, err,
              "mode %u, a sum or sizes of rows, is not computed on GPUs", m.mode);
  SIE_FAIL_IF(p->seqs == 0, SIE_INVALID_ARGUMENT, err, "the program declares no SEQS space");
  bool scored = m.mode == SIE_POOL_ATTENTION;
  SIE_FAIL_IF(!scored && m.w != nullptr, SIE_INVALID_ARGUMENT, err,
              "w is given, which ATTENTION alone reads");
  int64_t columns = p->values[m.x].columns;
  if (scored) SIE_TRY(check_vector(p, m.w, columns, false, "w", err));
  Op op = new_op(SIE_OP_POOL);
  op.in[0] = m.x;
  op.out = m.y;
  op.pooling = static_cast<int32_t>(m.mode);
  op.vector = vector_of(m.w);
  return append(p, op, p->seqs, SIE_COMPUTE_F32, columns, err);
}

sie_status record_keep_rows(sie_program *p, const void *params, sie_error *err) {
  sie_keep_rows_params k;
  SIE_TRY(take_params(params, &k, err));
  SIE_TRY(check_result(p, k.y, "y", err));
  SIE_TRY(check_value(p, k.x, "x", err));
  SIE_TRY(check_has(p, p->device->ops->keep_rows != nullptr, SIE_OP_KEEP_ROWS, err));
  SIE_FAIL_IF(k.to < 1 || k.to > max_spaces || kind_of(p, k.to) != SIE_SPACE_SUBSET, SIE_INVALID_ARGUMENT,
              err, "to is %d, which is no SUBSET space", k.to);
  const Value value = p->values[k.x];
  sie_space from = whole_of(p, k.to);
  SIE_FAIL_IF(value.space != from, SIE_INVALID_ARGUMENT, err,
              "x has rows of %s; the rows of %s are chosen from %s", space_name(p, value.space),
              space_name(p, k.to), space_name(p, from));
  Op op = new_op(SIE_OP_KEEP_ROWS);
  op.in[0] = k.x;
  op.out = k.y;
  SIE_TRY(append(p, op, k.to, value.compute, value.columns, err));
  p->values[k.y].stream = is_stream(p, k.x);
  return SIE_OK;
}

}  // namespace sie
