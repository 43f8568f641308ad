// heads_blocks.cc — the operations in the blocks of other model families, recorded as heads: norms
// that sum, streams, gates, rotations in place, masks, grouped keys, the other poolings, joined
// columns, and rows of two spaces.
#include <math.h>

#include "heads.h"

namespace heads {

namespace {

using model::Model;

#define TRY(call)                          \
  do {                                     \
    sie_status status_ = (call);           \
    if (status_ != SIE_OK) return status_; \
  } while (0)

constexpr int hidden = 64, positions = 700;

// Records a norm with both results: y, and the sum that was normalised.
sie_status normalise(Model *m, sie_norm_params n, sie_value *y, sie_value *sum) {
  n.y = record::next(m->program);
  n.sum = sum != nullptr ? n.y + 1 : 0;
  TRY(record::add(m->program, SIE_NORM, n, &m->err));
  *y = n.y;
  if (sum != nullptr) *sum = n.sum;
  return SIE_OK;
}

sie_status gate(Model *m, sie_value x, const sie_weight *w, uint32_t kind, sie_value *y) {
  sie_linear_params l = record::params<sie_linear_params>();
  l.gate = kind;
  l.x = x;
  l.w = w;
  return record::result(m->program, SIE_LINEAR, l, y, &m->err);
}

sie_status attend(Model *m, const Qkv &x, uint32_t mask, const sie_weight *alibi, sie_value *y,
                  uint32_t which = 0, const sie_weight *bias = nullptr) {
  sie_attention_params a = record::params<sie_attention_params>();
  a.mask = mask;
  a.heads = block_heads;
  a.kv_heads = block_kv_heads;
  a.head_dim = block_dim;
  a.window = mask == SIE_MASK_WINDOW ? block_window : 0;
  a.alibi = alibi;
  a.which = which;
  a.bias = bias;
  return record::attention(m->program, x.q, x.k, x.v, &a, y, &m->err);
}

}  // namespace

sie_status project(Model *m, sie_value x, int64_t n, int64_t k, sie_value *y) {
  sie_weight *w;
  TRY(m->weight(SIE_WEIGHT_LINEAR, m->compute(), n, k, 1.7f / sqrtf(static_cast<float>(k)), 0, &w));
  return record::linear(m->program, x, w, nullptr, SIE_ACT_NONE, SIE_NO_VALUE, y, &m->err);
}

sie_status make_qkv(Model *m, sie_value x, Qkv *y) {
  constexpr int64_t q_columns = block_heads * block_dim, k_columns = block_kv_heads * block_dim;
  TRY(project(m, x, q_columns + 2 * k_columns, hidden, &y->all));
  TRY(record::columns(m->program, y->all, 0, q_columns, &y->q, &m->err));
  TRY(record::columns(m->program, y->all, q_columns, k_columns, &y->k, &m->err));
  TRY(record::columns(m->program, y->all, q_columns + k_columns, k_columns, &y->v, &m->err));
  sie_weight *cos, *sin, *q_gamma, *k_gamma;
  TRY(m->data(SIE_F32, positions, block_rot / 2, rotation(false).data(), &cos));
  TRY(m->data(SIE_F32, positions, block_rot / 2, rotation(true).data(), &sin));
  TRY(m->vector(head_gamma(0), &q_gamma));
  TRY(m->vector(head_gamma(1), &k_gamma));
  y->rope = record::params<sie_rope_params>();
  y->rope.q = y->q;
  y->rope.k = y->k;
  y->rope.heads = block_heads;
  y->rope.kv_heads = block_kv_heads;
  y->rope.head_dim = block_dim;
  y->rope.rot = block_rot;
  y->rope.position_offset = 3;
  y->rope.cos = cos;
  y->rope.sin = sin;
  y->rope.q_gamma = q_gamma;
  y->rope.k_gamma = k_gamma;
  y->rope.eps = block_eps;
  return SIE_OK;
}

std::vector<float> norm_gamma() { return reals(81, hidden, 0.3f); }
std::vector<float> norm_bias() { return reals(82, hidden, 0.2f); }
std::vector<float> head_gamma(int which) {
  std::vector<float> values = reals(static_cast<uint32_t>(83 + which), block_dim, 0.3f);
  for (float &x : values) x += 1;
  return values;
}
std::vector<float> slopes() { return {0.25f, 0.0625f}; }
std::vector<float> biases() { return reals(87, block_heads * (2 * bias_reach + 1), 3); }
std::vector<float> positions_of(bool queries) {
  return reals(queries ? 89 : 88, position_rows * block_heads * block_dim, 0.6f);
}
std::vector<int32_t> buckets() {
  std::vector<int32_t> rows;
  for (int distance = -bucket_reach; distance <= bucket_reach; distance++) {
    const int far = abs(distance), step = far <= 4 ? far : (far <= 8 ? 5 : 6);
    rows.push_back(position_rows / 2 + (distance < 0 ? -step : step));
  }
  return rows;
}
std::vector<float> scorer() { return reals(86, hidden, 0.4f); }
std::vector<float> rotation(bool sine) {
  std::vector<float> values;
  for (int p = 0; p < positions; p++) {
    for (int i = 0; i < block_rot / 2; i++) {
      float angle = static_cast<float>(p) * powf(100, -static_cast<float>(i) / (block_rot / 2));
      values.push_back(sine ? sinf(angle) : cosf(angle));
    }
  }
  return values;
}

double turn_of(int length, int pair) {
  return pow(length + 1, -static_cast<double>(pair) / (block_rot / 2)) / (2 * M_PI);
}

static std::vector<int32_t> turns() {
  std::vector<int32_t> upper_and_lower;
  for (int length = turned_from + 1; length <= positions; length++) {
    for (int shift : {32, 0}) {
      for (int i = 0; i < block_rot / 2; i++) {
        uint64_t turn = static_cast<uint64_t>(ldexp(turn_of(length, i), 64));
        upper_and_lower.push_back(static_cast<int32_t>(turn >> shift));
      }
    }
  }
  return upper_and_lower;
}

// A sum in the middle of a residual stream, which two operations read, and one at its end.
sie_status residual_tail(Model *m, sie_value x) {
  sie_weight *gamma, *bias;
  sie_value inner, y, sum, outer, last;
  TRY(m->vector(norm_gamma(), &gamma));
  TRY(m->vector(norm_bias(), &bias));
  TRY(project(m, x, hidden, hidden, &inner));
  TRY(record::output_values(m->program, inner, 0, &m->err));
  sie_norm_params n = record::params<sie_norm_params>();
  n.norm = SIE_NORM_RMS;
  n.x = inner;
  n.residual = x;
  n.gamma = gamma;
  n.bias = bias;
  n.eps = block_eps;
  n.weight_offset = 1;
  TRY(normalise(m, n, &y, &sum));
  TRY(record::output_values(m->program, sum, 1, &m->err));
  TRY(record::output_values(m->program, y, 2, &m->err));
  TRY(project(m, y, hidden, hidden, &outer));
  n.norm = SIE_NORM_LAYER;
  n.x = outer;
  n.residual = sum;
  n.bias = nullptr;
  TRY(normalise(m, n, &last, nullptr));
  return record::output_token_rows(m->program, last, 3, &m->err);
}

// Streams made by a linear and by a norm's sum. A matrix, attention over a view, and kept rows in
// front of a matrix read them in the class's type; a norm and a residual read them as they are.
sie_status stream_tail(Model *m, sie_value x) {
  sie_program *p = m->program;
  sie_error *err = &m->err;
  sie_weight *w, *gamma;
  sie_value first, branch, y, sum, view, second;
  TRY(m->weight(SIE_WEIGHT_LINEAR, m->compute(), hidden, hidden, 0.2f, 0, &w));
  TRY(m->vector(norm_gamma(), &gamma));
  TRY(record::linear(p, x, w, nullptr, SIE_ACT_NONE, x, &first, err));
  TRY(record::stream(p, first, err));
  TRY(record::output_values(p, first, 0, err));
  TRY(project(m, first, hidden, hidden, &branch));
  TRY(record::output_values(p, branch, 1, err));
  sie_norm_params n = record::params<sie_norm_params>();
  n.norm = SIE_NORM_RMS;
  n.x = branch;
  n.residual = first;
  n.gamma = gamma;
  n.eps = block_eps;
  n.weight_offset = 1;
  TRY(normalise(m, n, &y, &sum));
  TRY(record::stream(p, sum, err));
  TRY(record::output_values(p, sum, 2, err));
  sie_attention_params a = record::params<sie_attention_params>();
  a.heads = 1;
  a.head_dim = block_dim;
  TRY(record::columns(p, first, 16, block_dim, &view, err));
  TRY(record::attention(p, view, view, view, &a, &view, err));
  TRY(m->weight(SIE_WEIGHT_LINEAR, m->compute(), hidden, block_dim, 0.2f, 0, &w));
  TRY(record::linear(p, view, w, nullptr, SIE_ACT_NONE, sum, &second, err));
  TRY(record::stream(p, second, err));
  n.x = y;
  n.residual = second;
  TRY(normalise(m, n, &y, nullptr));
  TRY(record::keep_rows(p, second, &second, err));
  TRY(project(m, second, reduced, hidden, &second));
  TRY(record::keep_rows(p, y, &y, err));
  TRY(project(m, y, reduced, hidden, &y));
  TRY(record::join(p, second, y, 0, &y, err));
  return record::output_token_rows(p, y, 3, err);
}

sie_status gate_tail(Model *m, sie_value x) {
  sie_weight *w;
  sie_value z, swiglu, geglu, narrow;
  TRY(m->weight(SIE_WEIGHT_LINEAR, m->compute(), 2 * gated, hidden, 0.2f, 0, &w));
  TRY(record::linear(m->program, x, w, nullptr, SIE_ACT_NONE, SIE_NO_VALUE, &z, &m->err));
  TRY(gate(m, x, w, SIE_GATE_SWIGLU, &swiglu));
  TRY(gate(m, x, w, SIE_GATE_GEGLU, &geglu));
  TRY(project(m, swiglu, hidden, gated, &narrow));
  TRY(record::output_values(m->program, z, 0, &m->err));
  TRY(record::output_values(m->program, swiglu, 1, &m->err));
  TRY(record::output_values(m->program, geglu, 2, &m->err));
  return record::output_token_rows(m->program, narrow, 3, &m->err);
}

// Outputs the rows before and after the rotation, and attention's result from the rotated rows.
sie_status rotary_tail(Model *m, sie_value x) {
  Qkv qkv;
  sie_weight *alibi;
  sie_value causal, window;
  TRY(make_qkv(m, x, &qkv));
  TRY(m->vector(slopes(), &alibi));
  TRY(record::output_values(m->program, qkv.all, 0, &m->err));
  TRY(record::add(m->program, SIE_ROPE, qkv.rope, &m->err));
  TRY(record::output_values(m->program, qkv.all, 1, &m->err));
  TRY(attend(m, qkv, SIE_MASK_CAUSAL, nullptr, &causal));
  TRY(attend(m, qkv, SIE_MASK_WINDOW, alibi, &window));
  TRY(record::output_values(m->program, causal, 2, &m->err));
  return record::output_values(m->program, window, 3, &m->err);
}

// As "rotary" without an offset, and by a sequence's own length where it is longer than the tables.
sie_status turned_tail(Model *m, sie_value x) {
  Qkv qkv;
  sie_weight *cos, *sin, *by_length;
  sie_value all, window;
  TRY(make_qkv(m, x, &qkv));
  TRY(m->data(SIE_F32, turned_from, block_rot / 2, rotation(false).data(), &cos));
  TRY(m->data(SIE_F32, turned_from, block_rot / 2, rotation(true).data(), &sin));
  TRY(m->data(SIE_I32, positions - turned_from, block_rot, turns().data(), &by_length));
  qkv.rope.position_offset = 0;
  qkv.rope.cos = cos;
  qkv.rope.sin = sin;
  qkv.rope.turns = by_length;
  TRY(record::output_values(m->program, qkv.all, 0, &m->err));
  TRY(record::add(m->program, SIE_ROPE, qkv.rope, &m->err));
  TRY(record::output_values(m->program, qkv.all, 1, &m->err));
  TRY(attend(m, qkv, SIE_MASK_FULL, nullptr, &all));
  TRY(attend(m, qkv, SIE_MASK_WINDOW, nullptr, &window));
  TRY(record::output_values(m->program, all, 2, &m->err));
  return record::output_values(m->program, window, 3, &m->err);
}

// Outputs the rows that attention reads, and its results with a relative bias: over all keys, of
// each sequence's last row alone, and in a window.
sie_status bias_tail(Model *m, sie_value x) {
  Qkv qkv;
  sie_weight *bias;
  sie_value all, last, window;
  TRY(make_qkv(m, x, &qkv));
  TRY(m->data(SIE_F32, block_heads, 2 * bias_reach + 1, biases().data(), &bias));
  TRY(record::output_values(m->program, qkv.all, 0, &m->err));
  TRY(attend(m, qkv, SIE_MASK_FULL, nullptr, &all, 0, bias));
  TRY(attend(m, qkv, SIE_MASK_WINDOW, nullptr, &window, 0, bias));
  Qkv one = qkv;
  TRY(record::gather_rows(m->program, qkv.q, SIE_POOL_LAST, &one.q, &m->err));
  TRY(attend(m, one, SIE_MASK_FULL, nullptr, &last, SIE_POOL_LAST, bias));
  TRY(record::output_values(m->program, all, 1, &m->err));
  TRY(record::output_values(m->program, window, 2, &m->err));
  return record::output_values(m->program, last, 3, &m->err);
}

// Outputs q, k and v of two heads, and disentangled attention: of all rows, of each sequence's first
// row alone, and of all rows with the keys' table alone.
sie_status disentangled_tail(Model *m, sie_value x) {
  constexpr int64_t columns = block_heads * block_dim;
  sie_value all, y, first, parts[3];
  sie_weight *key, *query, *rows;
  TRY(project(m, x, 3 * columns, hidden, &all));
  for (int i = 0; i < 3; i++) TRY(record::columns(m->program, all, i * columns, columns, &parts[i], &m->err));
  TRY(stored(m, position_rows, columns, positions_of(false), &key));
  TRY(stored(m, position_rows, columns, positions_of(true), &query));
  TRY(m->data(SIE_I32, 1, 2 * bucket_reach + 1, buckets().data(), &rows));
  sie_attention_params a = record::params<sie_attention_params>();
  a.heads = block_heads;
  a.head_dim = block_dim;
  a.pos_key = key;
  a.pos_query = query;
  a.buckets = rows;
  TRY(record::output_values(m->program, all, 0, &m->err));
  TRY(record::attention(m->program, parts[0], parts[1], parts[2], &a, &y, &m->err));
  TRY(record::output_values(m->program, y, 1, &m->err));
  TRY(record::gather_rows(m->program, parts[0], SIE_POOL_CLS, &first, &m->err));
  a.which = SIE_POOL_CLS;
  TRY(record::attention(m->program, first, parts[1], parts[2], &a, &y, &m->err));
  TRY(record::output_values(m->program, y, 2, &m->err));
  a.which = 0;
  a.pos_query = nullptr;
  TRY(record::attention(m->program, parts[0], parts[1], parts[2], &a, &y, &m->err));
  return record::output_values(m->program, y, 3, &m->err);
}

// Each sequence's first row of attention in a window, and its last row of causal attention: taken
// from all rows, then computed alone. Both have the same bits.
sie_status one_query_tail(Model *m, sie_value x) {
  Qkv qkv;
  sie_weight *alibi;
  sie_value y;
  TRY(make_qkv(m, x, &qkv));
  TRY(m->vector(slopes(), &alibi));
  int32_t output = 0;
  for (uint32_t which : {SIE_POOL_CLS, SIE_POOL_LAST}) {
    const uint32_t mask = which == SIE_POOL_CLS ? SIE_MASK_WINDOW : SIE_MASK_CAUSAL;
    const sie_weight *slopes = which == SIE_POOL_CLS ? alibi : nullptr;
    Qkv one = qkv;
    TRY(attend(m, qkv, mask, slopes, &y));
    TRY(record::gather_rows(m->program, y, which, &y, &m->err));
    TRY(record::output_values(m->program, y, output++, &m->err));
    TRY(record::gather_rows(m->program, qkv.q, which, &one.q, &m->err));
    TRY(attend(m, one, mask, slopes, &y, which));
    TRY(record::output_values(m->program, y, output++, &m->err));
  }
  return SIE_OK;
}

// Uses one matrix before and after an update: no quantised rows from before may be used after it.
// Also pools before the update and outputs after it.
sie_status update_tail(Model *m, sie_value x) {
  Qkv qkv;
  sie_weight *w;
  sie_value before, after, early, late;
  TRY(make_qkv(m, x, &qkv));
  TRY(m->weight(SIE_WEIGHT_LINEAR, m->compute(), reduced, hidden, 0.2f, 0, &w));
  TRY(record::linear(m->program, qkv.q, w, nullptr, SIE_ACT_NONE, SIE_NO_VALUE, &before, &m->err));
  TRY(record::pool(m->program, qkv.q, SIE_POOL_MEAN, &early, &m->err));
  TRY(record::add(m->program, SIE_ROPE, qkv.rope, &m->err));
  TRY(record::linear(m->program, qkv.q, w, nullptr, SIE_ACT_NONE, SIE_NO_VALUE, &after, &m->err));
  TRY(record::pool(m->program, qkv.q, SIE_POOL_MEAN, &late, &m->err));
  TRY(record::output_values(m->program, before, 0, &m->err));
  TRY(record::output_values(m->program, after, 1, &m->err));
  TRY(record::output_rows(m->program, early, 2, &m->err));
  return record::output_rows(m->program, late, 3, &m->err);
}

sie_status embed_labels(Model *m, sie_value *y) {
  sie_program *p = m->program;
  sie_error *err = &m->err;
  TRY(record::declare_space(p, record::labels, SIE_SPACE_ROWS, "labels", m->max_tokens, positions, 0, err));
  TRY(record::declare_input(p, record::label_ids, "label_ids", record::labels, SIE_I32, 0, 0, err));
  TRY(record::declare_input(p, record::choose, "choose", record::labels, SIE_U8, 1, 0, err));
  TRY(record::declare_space(p, record::chosen_labels, SIE_SPACE_SUBSET, "chosen", 0, 0, record::choose, err));
  sie_embed_params e = record::params<sie_embed_params>();
  e.ids = record::label_ids;
  e.word = m->weights[0];
  e.position = m->weights[1];
  e.gamma = m->weights[3];
  e.eps = block_eps;
  return record::result(p, SIE_EMBED, e, y, err);
}

// Two ROWS spaces: each sequence has tokens and labels. Both attend to the other; the labels also
// attend to themselves, and some of them are chosen. A sequence without labels has its own tokens.
sie_status labels_tail(Model *m, sie_value x) {
  sie_program *p = m->program;
  sie_error *err = &m->err;
  sie_value rows, qkv, q, k, v, own, tokens, y, z, pooled, chosen;
  sie_attention_params a = record::params<sie_attention_params>();
  a.heads = hidden / block_dim;
  a.head_dim = block_dim;
  auto split = [&](sie_value of) {
    TRY(project(m, of, 3 * hidden, hidden, &qkv));
    TRY(record::columns(p, qkv, 0, hidden, &q, err));
    TRY(record::columns(p, qkv, hidden, hidden, &k, err));
    return record::columns(p, qkv, 2 * hidden, hidden, &v, err);
  };
  TRY(embed_labels(m, &rows));
  TRY(split(rows));
  a.mask = SIE_MASK_CAUSAL;
  TRY(record::attention(p, q, k, v, &a, &own, err));
  a.mask = SIE_MASK_FULL;
  sie_value label_q = q, label_k = k, label_v = v;
  TRY(split(x));
  TRY(record::attention(p, label_q, k, v, &a, &y, err));
  TRY(record::attention(p, q, label_k, label_v, &a, &tokens, err));
  sie_weight *w;
  TRY(m->weight(SIE_WEIGHT_LINEAR, m->compute(), hidden, hidden, 0.2f, 0, &w));
  TRY(record::linear(p, y, w, nullptr, SIE_ACT_NONE, own, &z, err));
  TRY(record::linear(p, tokens, w, nullptr, SIE_ACT_NONE, x, &tokens, err));
  TRY(record::pool(p, z, SIE_POOL_MEAN, &pooled, err));
  sie_keep_rows_params keep = record::params<sie_keep_rows_params>();
  keep.to = record::chosen_labels;
  keep.x = z;
  TRY(record::result(p, SIE_KEEP_ROWS, keep, &chosen, err));
  TRY(project(m, chosen, reduced, hidden, &chosen));
  TRY(record::output_token_rows(p, chosen, 0, err));
  TRY(record::output_values(p, z, 1, err));
  TRY(record::output_rows(p, pooled, 2, err));
  return record::output_token_rows(p, tokens, 3, err);
}

// Joins token rows of two widths and a view that begins at an odd column, for a matrix and an
// output; and two poolings.
sie_status join_tail(Model *m, sie_value x) {
  sie_value sum, narrow, view, all, wide, mean, weighted, pools;
  TRY(project(m, x, reduced, hidden, &narrow));
  TRY(record::columns(m->program, x, joined_first, joined_width, &view, &m->err));
  TRY(record::join(m->program, x, narrow, view, &all, &m->err));
  TRY(project(m, all, hidden, joined, &wide));
  sie_weight *w;  // a sum, which a CPU stores in f32
  TRY(m->weight(SIE_WEIGHT_LINEAR, m->compute(), hidden, hidden, 0.2f, 0, &w));
  TRY(record::linear(m->program, wide, w, nullptr, SIE_ACT_NONE, x, &sum, &m->err));
  TRY(record::join(m->program, narrow, sum, 0, &wide, &m->err));
  TRY(project(m, wide, hidden, reduced + hidden, &wide));
  TRY(record::pool(m->program, x, SIE_POOL_MEAN, &mean, &m->err));
  TRY(record::pool(m->program, x, SIE_POOL_WEIGHTED_MEAN, &weighted, &m->err));
  TRY(record::join(m->program, mean, weighted, 0, &pools, &m->err));
  TRY(record::output_values(m->program, all, 0, &m->err));
  TRY(record::output_token_rows(m->program, wide, 1, &m->err));
  TRY(record::output_rows(m->program, pools, 2, &m->err));
  return record::output_values(m->program, narrow, 3, &m->err);
}

// Rows of words: first, last and mean of their tokens, the LSTM over them, their products with each
// other and with the sequence's row; and their attention to the tokens.
sie_status words_tail(Model *m, sie_value x) {
  sie_program *p = m->program;
  sie_error *err = &m->err;
  TRY(record::declare_space(p, record::words, SIE_SPACE_ROWS, "words", m->max_tokens, positions, 0, err));
  TRY(record::declare_input(p, record::word_first, "word_first", record::words, SIE_I32, 0, 0, err));
  TRY(record::declare_input(p, record::word_last, "word_last", record::words, SIE_I32, 0, 0, err));
  sie_value first, last, mean, all, gates, states, z, dots, row, own, product, q, k, v, y, pooled;
  TRY(record::take_words(p, x, SIE_POOL_CLS, &first, err));
  TRY(record::take_words(p, x, SIE_POOL_LAST, &last, err));
  TRY(record::take_words(p, x, SIE_POOL_MEAN, &mean, err));
  TRY(record::join(p, first, last, mean, &all, err));
  TRY(project(m, all, 8 * word_hidden, 3 * hidden, &gates));
  sie_weight *w[2];
  for (int i = 0; i < 2; i++) {
    TRY(m->weight(SIE_WEIGHT_LINEAR, SIE_COMPUTE_F32, 4 * word_hidden, word_hidden, 0.3f, 0, &w[i]));
  }
  TRY(record::lstm(p, gates, w[0], w[1], &states, err));
  TRY(project(m, states, hidden, 2 * word_hidden, &z));
  TRY(record::dots(p, first, last, &dots, err));
  TRY(record::gather_rows(p, x, SIE_POOL_CLS, &row, err));
  TRY(record::take_words(p, row, 0, &own, err));
  TRY(record::product(p, z, own, &product, err));
  TRY(project(m, product, hidden, hidden, &q));
  TRY(project(m, x, hidden, hidden, &k));
  TRY(project(m, x, hidden, hidden, &v));
  sie_attention_params a = record::params<sie_attention_params>();
  a.heads = hidden / block_dim;
  a.head_dim = block_dim;
  TRY(record::attention(p, q, k, v, &a, &y, err));
  TRY(record::pool(p, y, SIE_POOL_MEAN, &pooled, err));
  TRY(record::output_token_rows(p, product, 0, err));
  TRY(record::output_values(p, states, 1, err));
  TRY(record::output_values(p, dots, 2, err));
  return record::output_rows(p, pooled, 3, err);
}

sie_status pools_tail(Model *m, sie_value x) {
  sie_weight *w;
  sie_value weighted, scored, largest, root, joined;
  TRY(m->vector(scorer(), &w));
  TRY(record::pool(m->program, x, SIE_POOL_WEIGHTED_MEAN, &weighted, &m->err));
  TRY(record::pool(m->program, x, SIE_POOL_ATTENTION, &scored, &m->err, w));
  TRY(record::pool(m->program, x, SIE_POOL_MAX, &largest, &m->err));
  TRY(record::pool(m->program, x, SIE_POOL_MEAN_SQRT, &root, &m->err));
  TRY(record::join(m->program, scored, root, 0, &joined, &m->err));
  TRY(record::output_rows(m->program, weighted, 0, &m->err));
  TRY(record::output_rows(m->program, joined, 1, &m->err));
  TRY(record::output_values(m->program, x, 2, &m->err));
  return record::output_rows(m->program, largest, 3, &m->err);
}

// Pools kept rows, as where a prompt is left out: by their places among all rows, by the largest, and
// several ways at once.
sie_status kept_pools_tail(Model *m, sie_value x) {
  sie_value kept, weighted, largest, first, root, last, joined;
  TRY(record::keep_rows(m->program, x, &kept, &m->err));
  TRY(record::pool(m->program, kept, SIE_POOL_WEIGHTED_MEAN, &weighted, &m->err));
  TRY(record::pool(m->program, kept, SIE_POOL_MAX, &largest, &m->err));
  TRY(record::pool(m->program, kept, SIE_POOL_CLS, &first, &m->err));
  TRY(record::pool(m->program, kept, SIE_POOL_MEAN_SQRT, &root, &m->err));
  TRY(record::pool(m->program, kept, SIE_POOL_LAST, &last, &m->err));
  TRY(record::join(m->program, first, largest, root, &joined, &m->err));
  TRY(record::join(m->program, joined, weighted, last, &joined, &m->err));
  TRY(record::output_rows(m->program, weighted, 0, &m->err));
  TRY(record::output_rows(m->program, joined, 1, &m->err));
  TRY(record::output_values(m->program, kept, 2, &m->err));
  return record::output_rows(m->program, largest, 3, &m->err);
}

}  // namespace heads
