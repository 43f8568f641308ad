// record_attention.cc — records attention, rotary embeddings and late interaction.
#include <math.h>

#include "record.h"
#include "status.h"

namespace sie {

namespace {

using ll = long long;

sie_status check_heads(int32_t heads, int32_t kv_heads, int32_t head_dim, sie_error *err) {
  SIE_FAIL_IF(heads < 1 || heads > 4096 || kv_heads < 1 || heads % kv_heads != 0, SIE_INVALID_ARGUMENT, err,
              "%d heads over %d key heads; a whole multiple is needed", heads, kv_heads);
  SIE_FAIL_IF(head_dim < 1 || head_dim > 256, SIE_INVALID_ARGUMENT, err,
              "head_dim is %d; 1 to 256 is possible", head_dim);
  return SIE_OK;
}

// Whether keys need places among the queries' rows.
bool has_places(const sie_attention_params &a) {
  return a.mask != SIE_MASK_FULL || a.alibi != nullptr || a.bias != nullptr || a.buckets != nullptr;
}

sie_status check_bias(const sie_program *p, const sie_attention_params &a, sie_error *err) {
  if (a.bias == nullptr) return SIE_OK;
  SIE_TRY(check_data(p, a.bias, SIE_F32, a.heads, a.bias->k, "bias", err));
  SIE_FAIL_IF(a.bias->k % 2 == 0 || a.bias->k > 2 * int64_t{SIE_MAX_BIAS_REACH} + 1, SIE_INVALID_ARGUMENT,
              err, "bias has %lld columns; an odd number up to %lld is needed, one for each distance",
              static_cast<ll>(a.bias->k), 2 * static_cast<ll>(SIE_MAX_BIAS_REACH) + 1);
  return SIE_OK;
}

// A table of disentangled attention of values of this class; NULL passes.
sie_status check_positions(const sie_program *p, const sie_weight *w, const sie_attention_params &a,
                           uint32_t compute, const char *name, sie_error *err) {
  if (w == nullptr) return SIE_OK;
  SIE_TRY(check_data(p, w, stored_dtype(p, compute), 0, int64_t{a.heads} * a.head_dim, name, err));
  SIE_FAIL_IF(w->n > SIE_MAX_POSITION_ROWS, SIE_INVALID_ARGUMENT, err,
              "%s has %lld rows; at most %d are possible", name, static_cast<ll>(w->n),
              SIE_MAX_POSITION_ROWS);
  SIE_FAIL_IF(a.buckets->index_least < 0 || a.buckets->index_end > w->n, SIE_INVALID_ARGUMENT, err,
              "buckets has values from %lld to %lld; %s has %lld rows",
              static_cast<ll>(a.buckets->index_least), static_cast<ll>(a.buckets->index_end) - 1, name,
              static_cast<ll>(w->n));
  return SIE_OK;
}

// Terms by content and distance. What a table's kernel lacks, such as a head dimension, is found by the
// rehearsal.
sie_status check_disentangled(const sie_program *p, const sie_attention_params &a, uint32_t compute,
                              sie_error *err) {
  if (a.buckets == nullptr) {
    SIE_FAIL_IF(a.pos_key != nullptr || a.pos_query != nullptr, SIE_INVALID_ARGUMENT, err,
                "pos_key or pos_query is given, but buckets is NULL");
    return SIE_OK;
  }
  const sie_weight *rows = a.pos_key != nullptr ? a.pos_key : a.pos_query;
  SIE_FAIL_IF(rows == nullptr, SIE_INVALID_ARGUMENT, err,
              "buckets is given, but neither pos_key nor pos_query");
  SIE_TRY(check_data(p, a.buckets, SIE_I32, 1, a.buckets->k, "buckets", err));
  SIE_FAIL_IF(a.buckets->k % 2 == 0 || a.buckets->k > 2 * int64_t{SIE_MAX_BIAS_REACH} + 1,
              SIE_INVALID_ARGUMENT, err,
              "buckets has %lld columns; an odd number up to %lld is needed, one for each distance",
              static_cast<ll>(a.buckets->k), 2 * static_cast<ll>(SIE_MAX_BIAS_REACH) + 1);
  SIE_TRY(check_positions(p, a.pos_key, a, compute, "pos_key", err));
  SIE_TRY(check_positions(p, a.pos_query, a, compute, "pos_query", err));
  SIE_FAIL_IF(a.pos_key != nullptr && a.pos_query != nullptr && a.pos_key->n != a.pos_query->n,
              SIE_INVALID_ARGUMENT, err, "pos_key has %lld rows and pos_query %lld; as many are needed",
              static_cast<ll>(a.pos_key->n), static_cast<ll>(a.pos_query->n));
  SIE_FAIL_IF(a.mask != SIE_MASK_FULL || a.kv_heads != a.heads || a.alibi != nullptr || a.bias != nullptr ||
                  a.first_keys != 0 || a.segment != 0,
              SIE_UNSUPPORTED, err,
              "attention with buckets has no mask, alibi, bias, first_keys or segment, and a key head for "
              "each of its %d heads",
              a.heads);
  const auto &fall = a.buckets->index_fall;
  SIE_FAIL_IF(fall.at > 0, SIE_INVALID_ARGUMENT, err,
              "buckets falls from %d to %d at column %lld; it may not fall from one distance to the next",
              fall.from, fall.to, static_cast<ll>(fall.at));
  return SIE_OK;
}

sie_status check_attention(const sie_program *p, const sie_attention_params &a, sie_error *err) {
  SIE_FAIL_IF(a.mask > SIE_MASK_WINDOW, SIE_INVALID_ARGUMENT, err, "mask %u is none of sie_mask", a.mask);
  SIE_TRY(check_heads(a.heads, a.kv_heads, a.head_dim, err));
  SIE_FAIL_IF(a.mask == SIE_MASK_WINDOW && a.window < 0, SIE_INVALID_ARGUMENT, err,
              "window is %d; at least 0", a.window);
  SIE_FAIL_IF(!isfinite(a.scale), SIE_INVALID_ARGUMENT, err, "scale is not finite");
  SIE_TRY(check_flag(a.first_keys, "first_keys", err));
  SIE_TRY(check_vector(p, a.alibi, a.heads, true, "alibi", err));
  return check_bias(p, a, err);
}

// Keys that are the first rows of q's sequences.
sie_status check_first_keys(const sie_program *p, sie_space q, sie_space k, sie_error *err) {
  bool of_q = kind_of(p, q) == SIE_SPACE_ROWS && kind_of(p, k) == SIE_SPACE_SUBSET && whole_of(p, k) == q;
  SIE_FAIL_IF(!of_q, SIE_INVALID_ARGUMENT, err,
              "first_keys is 1, and keys of %s are no subset of the rows of %s", space_name(p, k),
              space_name(p, q));
  return SIE_OK;
}

sie_status check_spaces(const sie_program *p, const sie_attention_params &a, sie_error *err) {
  sie_space q = p->values[a.q].space, k = p->values[a.k].space, v = p->values[a.v].space;
  SIE_FAIL_IF(q != p->seqs && kind_of(p, q) != SIE_SPACE_ROWS, SIE_INVALID_ARGUMENT, err,
              "q has rows of %s; those of a ROWS space or one a sequence are needed", space_name(p, q));
  SIE_FAIL_IF(k != v || k == p->seqs, SIE_INVALID_ARGUMENT, err,
              "k has rows of %s and v of %s; one space that is not SEQS is needed", space_name(p, k),
              space_name(p, v));
  bool placed = has_places(a);
  bool one = q == p->seqs, known = a.which == SIE_POOL_CLS || a.which == SIE_POOL_LAST;
  SIE_FAIL_IF(one ? placed && !known : a.which != 0, SIE_INVALID_ARGUMENT, err,
              "which is %u; it names the row that a query of sequence rows is, SIE_POOL_CLS or "
              "SIE_POOL_LAST, and is 0 for other queries",
              a.which);
  SIE_FAIL_IF(!known && a.which != 0, SIE_INVALID_ARGUMENT, err,
              "which is %u; SIE_POOL_CLS, SIE_POOL_LAST and 0 are possible", a.which);
  if (a.first_keys != 0) return check_first_keys(p, q, k, err);
  SIE_FAIL_IF(placed && (one ? kind_of(p, k) != SIE_SPACE_ROWS : k != q), SIE_UNSUPPORTED, err,
              "keys of %s have no places among the rows of %s, which a mask, alibi, a bias and buckets need",
              space_name(p, k), space_name(p, q));
  return SIE_OK;
}

// Keys whose first ones are rows of the state.
sie_status check_prefix(const sie_program *p, const sie_attention_params &a, sie_error *err) {
  if (a.segment == 0) return SIE_OK;
  SIE_TRY(check_segment(p, a.segment, false, err));
  SIE_FAIL_IF(a.alibi != nullptr || a.bias != nullptr, SIE_UNSUPPORTED, err,
              "segment is %d; with rows of a state attention has neither alibi nor bias", a.segment);
  bool last = p->values[a.q].space != p->seqs || a.which == SIE_POOL_LAST || a.mask == SIE_MASK_FULL;
  SIE_FAIL_IF(
      !last || a.first_keys != 0 || p->values[a.k].space != p->rows, SIE_UNSUPPORTED, err,
      "segment is %d; rows of a state go before keys of the ROWS space whose last ones are the queries",
      a.segment);
  int64_t have = p->state.segments[a.segment].columns, want = int64_t{2} * a.kv_heads * a.head_dim;
  SIE_FAIL_IF(have != 0 && have != want, SIE_INVALID_ARGUMENT, err,
              "segment %d has %lld columns for another attention; %lld are needed", a.segment,
              static_cast<ll>(have), static_cast<ll>(want));
  return SIE_OK;
}

// Whether two views share a column.
bool overlap(const Value &a, const Value &b) {
  return a.base == b.base && a.column < b.column + b.columns && b.column < a.column + a.columns;
}

sie_status check_rotation(const sie_program *p, const sie_rope_params &r, sie_error *err) {
  SIE_FAIL_IF(r.rot < 0 || r.rot > r.head_dim || r.rot % 2 != 0, SIE_INVALID_ARGUMENT, err,
              "rot is %d; an even number up to head_dim (%d) is needed", r.rot, r.head_dim);
  SIE_FAIL_IF(r.position_offset < 0, SIE_INVALID_ARGUMENT, err, "position_offset is %d; at least 0",
              r.position_offset);
  if (r.rot == 0) {
    SIE_FAIL_IF(r.cos != nullptr || r.sin != nullptr || r.turns != nullptr, SIE_INVALID_ARGUMENT, err,
                "cos, sin or turns is given, but rot is 0");
    return SIE_OK;
  }
  SIE_TRY(check_data(p, r.cos, SIE_F32, 0, r.rot / 2, "cos", err));
  SIE_TRY(check_data(p, r.sin, SIE_F32, r.cos->n, r.rot / 2, "sin", err));
  SIE_FAIL_IF(r.position_offset >= r.cos->n, SIE_INVALID_ARGUMENT, err,
              "position_offset is %d; cos has %lld rows", r.position_offset, static_cast<ll>(r.cos->n));
  if (r.turns == nullptr) return SIE_OK;
  SIE_TRY(check_data(p, r.turns, SIE_I32, 0, r.rot, "turns", err));
  SIE_FAIL_IF(
      r.position_offset != 0 || r.behind != 0, SIE_INVALID_ARGUMENT, err,
      "turns are by the length of whole sequences; position_offset is %d and behind %d, both must be 0",
      r.position_offset, r.behind);
  return SIE_OK;
}

}  // namespace

sie_status record_attention(sie_program *p, const void *params, sie_error *err) {
  sie_attention_params a;
  SIE_TRY(take_params(params, &a, err));
  if (a.kv_heads == 0) a.kv_heads = a.heads;
  SIE_TRY(check_result(p, a.y, "y", err));
  SIE_TRY(check_value(p, a.q, "q", err));
  SIE_TRY(check_value(p, a.k, "k", err));
  SIE_TRY(check_value(p, a.v, "v", err));
  SIE_TRY(check_attention(p, a, err));
  if (a.scale == 0) a.scale = 1 / sqrtf(static_cast<float>(a.head_dim));
  const Value vq = p->values[a.q], vk = p->values[a.k], vv = p->values[a.v];
  int64_t q_columns = int64_t{a.heads} * a.head_dim, kv_columns = int64_t{a.kv_heads} * a.head_dim;
  SIE_FAIL_IF(vq.columns != q_columns || vk.columns != kv_columns || vv.columns != kv_columns,
              SIE_INVALID_ARGUMENT, err,
              "q, k, v have %lld, %lld, %lld columns; heads and head_dim ask for %lld, %lld, %lld",
              static_cast<ll>(vq.columns), static_cast<ll>(vk.columns), static_cast<ll>(vv.columns),
              static_cast<ll>(q_columns), static_cast<ll>(kv_columns), static_cast<ll>(kv_columns));
  SIE_TRY(check_spaces(p, a, err));
  SIE_TRY(check_prefix(p, a, err));
  if (!has_places(a)) a.which = 0;  // places make no difference
  SIE_FAIL_IF(vq.compute != vk.compute || vq.compute != vv.compute, SIE_INVALID_ARGUMENT, err,
              "q, k, v are of classes %s, %s, %s; one is needed", compute_name(vq.compute),
              compute_name(vk.compute), compute_name(vv.compute));
  SIE_TRY(check_disentangled(p, a, vq.compute, err));
  Op op = new_op(SIE_OP_ATTENTION);
  op.in[0] = a.q;
  op.in[1] = a.k;
  op.in[2] = a.v;
  op.out = a.y;
  op.attention = a;
  op.vector = vector_of(a.alibi);
  SIE_TRY(append(p, op, vq.space, vq.compute, vq.columns, err));
  if (a.first_keys != 0) p->spaces[vk.space].first_rows = true;
  if (a.segment != 0) p->state.segments[a.segment].columns = 2 * kv_columns;
  return SIE_OK;
}

sie_status record_rope(sie_program *p, const void *params, sie_error *err) {
  sie_rope_params r;
  SIE_TRY(take_params(params, &r, err));
  SIE_TRY(check_value(p, r.q, "q", err));
  SIE_TRY(check_has(p, p->device->ops->qk_norm_rope != nullptr, SIE_OP_QK_NORM_ROPE, err));
  if (r.kv_heads == 0) r.kv_heads = r.heads;
  SIE_TRY(check_heads(r.heads, r.kv_heads, r.head_dim, err));
  const Value q = p->values[r.q];
  SIE_FAIL_IF(q.columns != int64_t{r.heads} * r.head_dim || kind_of(p, q.space) != SIE_SPACE_ROWS,
              SIE_INVALID_ARGUMENT, err,
              "q has %lld columns in rows of %s; heads and head_dim ask for %lld in those of a ROWS space",
              static_cast<ll>(q.columns), space_name(p, q.space),
              static_cast<ll>(int64_t{r.heads} * r.head_dim));
  SIE_FAIL_IF(is_stream(p, r.q), SIE_INVALID_ARGUMENT, err, "q is a stream, which nothing updates in place");
  if (r.k != SIE_NO_VALUE) {
    SIE_TRY(check_value(p, r.k, "k", err));
    const Value k = p->values[r.k];
    SIE_FAIL_IF(k.columns != int64_t{r.kv_heads} * r.head_dim || k.space != q.space, SIE_INVALID_ARGUMENT,
                err, "k has %lld columns in rows of %s; kv_heads and head_dim ask for %lld in rows of %s",
                static_cast<ll>(k.columns), space_name(p, k.space),
                static_cast<ll>(int64_t{r.kv_heads} * r.head_dim), space_name(p, q.space));
    SIE_FAIL_IF(k.compute != q.compute, SIE_INVALID_ARGUMENT, err,
                "q is of class %s and k of %s; one is needed", compute_name(q.compute),
                compute_name(k.compute));
    SIE_FAIL_IF(is_stream(p, r.k), SIE_INVALID_ARGUMENT, err,
                "k is a stream, which nothing updates in place");
    SIE_FAIL_IF(overlap(q, k), SIE_INVALID_ARGUMENT, err, "q and k have columns in common");
  } else {
    SIE_FAIL_IF(r.k_gamma != nullptr, SIE_INVALID_ARGUMENT, err, "k_gamma is given, but there is no k");
    r.kv_heads = 0;
  }
  SIE_TRY(check_vector(p, r.q_gamma, r.head_dim, true, "q_gamma", err));
  SIE_TRY(check_vector(p, r.k_gamma, r.head_dim, true, "k_gamma", err));
  SIE_TRY(check_norm(r.eps, r.weight_offset, err));
  SIE_TRY(check_flag(r.behind, "behind", err));
  SIE_TRY(check_zero(r.reserved, "reserved", err));
  SIE_FAIL_IF(r.behind != 0 && !p->state.reads(), SIE_INVALID_ARGUMENT, err,
              "behind is 1, but the program declares no state that it reads");
  SIE_TRY(check_rotation(p, r, err));
  Op op = new_op(SIE_OP_QK_NORM_ROPE);
  op.in[0] = r.q;
  op.in[1] = r.k;
  op.updates = true;
  op.rope = r;
  SIE_TRY(append(p, op, 0, 0, 0, err));
  const int64_t longer = r.turns != nullptr ? r.turns->n : 0;
  if (r.rot > 0) bound_positions(&p->spaces[q.space], r.cos->n + longer - r.position_offset);
  return SIE_OK;
}

sie_status record_maxsim(sie_program *p, const void *params, sie_error *err) {
  sie_maxsim_params m;
  SIE_TRY(take_params(params, &m, err));
  SIE_TRY(check_result(p, m.y, "y", err));
  SIE_TRY(check_value(p, m.x, "x", err));
  SIE_TRY(check_flag(m.normalize, "normalize", err));
  SIE_TRY(check_has(p, p->device->ops->maxsim != nullptr, SIE_OP_MAXSIM, err));
  const Value value = p->values[m.x];
  SIE_FAIL_IF(p->seqs == 0 || value.space == p->seqs, SIE_INVALID_ARGUMENT, err,
              "x has rows of %s; late interaction is over several a sequence", space_name(p, value.space));
  SIE_FAIL_IF(m.queries < 1 || m.queries > max_inputs || p->inputs[m.queries].dtype != SIE_F32,
              SIE_INVALID_ARGUMENT, err, "queries is %d, which is no f32 input of a SHARED space", m.queries);
  const Input &queries = p->inputs[m.queries];
  SIE_FAIL_IF(queries.columns != 0 && queries.columns != value.columns, SIE_INVALID_ARGUMENT, err,
              "x has %lld columns; %s has %d", static_cast<ll>(value.columns), queries.name.text,
              queries.columns);
  SIE_FAIL_IF(p->queries != 0 && p->queries != m.queries, SIE_UNSUPPORTED, err,
              "the program's queries are %s; it has one input of them", p->inputs[p->queries].name.text);
  SIE_TRY(check_partner(p, m.partner, queries.space, err));
  Op op = new_op(SIE_OP_MAXSIM);
  op.in[0] = m.x;
  op.out = m.y;
  op.normalize = m.normalize;
  op.inputs[0] = m.queries;
  op.inputs[1] = m.partner;
  SIE_TRY(append(p, op, p->seqs, SIE_COMPUTE_F32, 1, err));
  p->queries = m.queries;
  p->inputs[m.queries].read = true;
  p->inputs[m.queries].columns = static_cast<int32_t>(value.columns);
  read_partner(p, m.partner, queries.space);
  return SIE_OK;
}

}  // namespace sie
