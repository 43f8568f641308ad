// entries.h — for tests, one function for each operation: it fills the struct of sie.h, chooses the
// result's number and adds the entry.
//
// All programs begun here declare the same spaces and inputs under the same numbers, so that one
// struct (Batch) can hold a batch of any of them.
#ifndef SIE_CSRC_TESTS_ENTRIES_H
#define SIE_CSRC_TESTS_ENTRIES_H

#include <stdio.h>

#include "program.h"
#include "sie.h"

namespace record {

enum Space { tokens = 1, sequences, kept, queries_space, labels, chosen_labels, words };
enum Input {
  ids = 1,
  type_ids,
  keep,
  adapter,
  partner,
  queries,
  label_ids,
  choose,
  prefix_first,
  prefix_rows,
  word_first,
  word_last
};

struct Caps {
  int64_t max_tokens = 0, max_seqs = 0, max_len = 0, min_len = 0;
  int64_t max_query_rows = 0;  // 0: no queries
};

template <class T>
T params() {
  T t = {};
  t.struct_size = sizeof t;
  return t;
}

template <class T>
sie_status add(sie_program *p, uint32_t kind, const T &t, sie_error *err) {
  sie_op op = {kind, 0, &t};
  return sie_program_add(p, &op, 1, err);
}

inline sie_status declare_space(sie_program *p, sie_space space, uint32_t kind, const char *name,
                                int64_t max_rows, int64_t max_each, sie_input marks, sie_error *err,
                                int64_t min_each = 0) {
  sie_space_params s = params<sie_space_params>();
  s.kind = kind;
  s.space = space;
  s.marks = marks;
  s.max_rows = max_rows;
  s.max_each = max_each;
  s.min_each = min_each;
  s.name = name;
  return add(p, SIE_SPACE, s, err);
}

inline sie_status declare_input(sie_program *p, sie_input input, const char *name, sie_space space,
                                uint32_t dtype, int32_t optional, int32_t otherwise, sie_error *err,
                                int32_t columns = 0) {
  sie_input_params i = params<sie_input_params>();
  i.input = input;
  i.space = space;
  i.dtype = dtype;
  i.columns = columns;
  i.optional = optional;
  i.otherwise = otherwise;
  i.name = name;
  return add(p, SIE_INPUT, i, err);
}

#define RECORD_TRY(call)                   \
  do {                                     \
    sie_status status_ = (call);           \
    if (status_ != SIE_OK) return status_; \
  } while (0)

inline sie_status begin(sie_device *device, const Caps &caps, sie_program **p, sie_error *err) {
  RECORD_TRY(sie_program_begin(device, p, err));
  RECORD_TRY(declare_space(*p, tokens, SIE_SPACE_ROWS, "tokens", caps.max_tokens, caps.max_len, 0, err,
                           caps.min_len));
  RECORD_TRY(declare_space(*p, sequences, SIE_SPACE_SEQS, "sequences", caps.max_seqs, 0, 0, err));
  RECORD_TRY(declare_input(*p, ids, "ids", tokens, SIE_I32, 0, 0, err));
  RECORD_TRY(declare_input(*p, type_ids, "type_ids", tokens, SIE_I32, 1, 0, err));
  RECORD_TRY(declare_input(*p, keep, "keep", tokens, SIE_U8, 1, 1, err));
  RECORD_TRY(declare_input(*p, adapter, "adapter", sequences, SIE_I32, 1, -1, err));
  RECORD_TRY(declare_input(*p, partner, "partner", sequences, SIE_I32, 1, -1, err));
  if (caps.max_query_rows == 0) return SIE_OK;
  return declare_space(*p, queries_space, SIE_SPACE_SHARED, "queries", caps.max_query_rows, 0, 0, err);
}

// The next free number; *y is set to it once the operation is recorded.
inline sie_value next(const sie_program *p) {
  return p != nullptr ? static_cast<sie_value>(p->values.size()) : 1;
}

template <class T>
sie_status result(sie_program *p, uint32_t kind, T t, sie_value *y, sie_error *err) {
  t.y = y != nullptr ? next(p) : 0;
  sie_status status = add(p, kind, t, err);
  if (status == SIE_OK && y != nullptr) *y = t.y;
  return status;
}

inline sie_status embed_layernorm(sie_program *p, const sie_weight *word, const sie_weight *position,
                                  const sie_weight *type, const sie_weight *gamma, const sie_weight *beta,
                                  float eps, int32_t position_offset, sie_value *y, sie_error *err) {
  sie_embed_params e = params<sie_embed_params>();
  e.ids = ids;
  e.type_ids = type != nullptr ? type_ids : 0;
  e.position_offset = position_offset;
  e.word = word;
  e.position = position;
  e.type = type;
  e.gamma = gamma;
  e.beta = beta;
  e.eps = eps;
  return result(p, SIE_EMBED, e, y, err);
}

inline sie_status linear(sie_program *p, sie_value x, const sie_weight *w, const sie_weight *bias,
                         uint32_t act, sie_value residual, sie_value *y, sie_error *err) {
  sie_linear_params l = params<sie_linear_params>();
  l.act = act;
  l.x = x;
  l.residual = residual;
  l.w = w;
  l.bias = bias;
  return result(p, SIE_LINEAR, l, y, err);
}

struct Lora {
  int32_t n_adapters;
  const sie_weight *const *a;
  const sie_weight *const *b;
};
inline sie_status linear_lora(sie_program *p, sie_value x, const sie_weight *w, const sie_weight *bias,
                              uint32_t act, sie_value residual, const Lora &lora, sie_value *y,
                              sie_error *err) {
  sie_linear_params l = params<sie_linear_params>();
  l.act = act;
  l.x = x;
  l.residual = residual;
  l.w = w;
  l.bias = bias;
  l.adapter = adapter;
  l.n_adapters = lora.n_adapters;
  l.a = lora.a;
  l.b = lora.b;
  return result(p, SIE_LINEAR, l, y, err);
}

inline sie_status layernorm(sie_program *p, sie_value x, const sie_weight *gamma, const sie_weight *beta,
                            float eps, sie_value *y, sie_error *err) {
  sie_norm_params n = params<sie_norm_params>();
  n.x = x;
  n.gamma = gamma;
  n.beta = beta;
  n.eps = eps;
  return result(p, SIE_NORM, n, y, err);
}

inline sie_status columns(sie_program *p, sie_value x, int64_t column, int64_t width, sie_value *y,
                          sie_error *err) {
  sie_columns_params c = params<sie_columns_params>();
  c.x = x;
  c.column = column;
  c.width = width;
  return result(p, SIE_COLUMNS, c, y, err);
}

inline sie_status join(sie_program *p, sie_value a, sie_value b, sie_value c, sie_value *y, sie_error *err) {
  sie_join_params j = params<sie_join_params>();
  j.x[0] = a;
  j.x[1] = b;
  j.x[2] = c;
  return result(p, SIE_JOIN, j, y, err);
}

// Rows of words made of rows of x, or of each sequence's own row.
inline sie_status take_words(sie_program *p, sie_value x, uint32_t which, sie_value *y, sie_error *err) {
  sie_take_rows_params t = params<sie_take_rows_params>();
  t.which = which;
  t.to = words;
  t.x = x;
  if (which == SIE_POOL_CLS || which == SIE_POOL_MEAN) t.first = word_first;
  if (which == SIE_POOL_LAST || which == SIE_POOL_MEAN) t.last = word_last;
  return result(p, SIE_TAKE_ROWS, t, y, err);
}

inline sie_status product(sie_program *p, sie_value a, sie_value b, sie_value *y, sie_error *err) {
  sie_product_params m = params<sie_product_params>();
  m.a = a;
  m.b = b;
  return result(p, SIE_PRODUCT, m, y, err);
}

inline sie_status dots(sie_program *p, sie_value a, sie_value b, sie_value *y, sie_error *err) {
  sie_dots_params d = params<sie_dots_params>();
  d.a = a;
  d.b = b;
  return result(p, SIE_DOTS, d, y, err);
}

inline sie_status lstm(sie_program *p, sie_value gates, const sie_weight *w, const sie_weight *reverse,
                       sie_value *y, sie_error *err) {
  sie_lstm_params l = params<sie_lstm_params>();
  l.gates = gates;
  l.w = w;
  l.w_reverse = reverse;
  return result(p, SIE_LSTM, l, y, err);
}

inline sie_status stream(sie_program *p, sie_value x, sie_error *err) {
  sie_stream_params s = params<sie_stream_params>();
  s.x = x;
  return add(p, SIE_STREAM, s, err);
}

inline sie_status attention(sie_program *p, sie_value q, sie_value k, sie_value v,
                            const sie_attention_params *a, sie_value *y, sie_error *err) {
  sie_attention_params of = *a;
  of.q = q;
  of.k = k;
  of.v = v;
  return result(p, SIE_ATTENTION, of, y, err);
}

// Declares that the program writes a state, or reads one.
inline sie_status state(sie_program *p, int64_t max_rows, bool reads, sie_error *err) {
  sie_state_params s = params<sie_state_params>();
  s.max_rows = max_rows;
  if (reads) {
    RECORD_TRY(declare_input(p, prefix_first, "prefix_first", sequences, SIE_I32, 1, 0, err));
    RECORD_TRY(declare_input(p, prefix_rows, "prefix_rows", sequences, SIE_I32, 1, 0, err));
    s.first = prefix_first;
    s.rows = prefix_rows;
  }
  return add(p, SIE_STATE, s, err);
}

inline sie_status state_rows(sie_program *p, sie_value x, int32_t segment, sie_error *err) {
  sie_state_rows_params s = params<sie_state_rows_params>();
  s.x = x;
  s.segment = segment;
  return add(p, SIE_STATE_ROWS, s, err);
}

inline sie_status gather_rows(sie_program *p, sie_value x, uint32_t which, sie_value *y, sie_error *err) {
  sie_gather_rows_params g = params<sie_gather_rows_params>();
  g.which = which;
  g.x = x;
  return result(p, SIE_GATHER_ROWS, g, y, err);
}

inline sie_status pool(sie_program *p, sie_value x, uint32_t mode, sie_value *y, sie_error *err,
                       const sie_weight *w = nullptr) {
  sie_pool_params m = params<sie_pool_params>();
  m.mode = mode;
  m.x = x;
  m.w = w;
  return result(p, SIE_POOL, m, y, err);
}

// Declares the space of kept rows when it is first used.
inline sie_status keep_rows(sie_program *p, sie_value x, sie_value *y, sie_error *err) {
  if (p != nullptr && p->spaces[kept].kind == 0) {
    RECORD_TRY(declare_space(p, kept, SIE_SPACE_SUBSET, "kept", 0, 0, keep, err));
  }
  sie_keep_rows_params k = params<sie_keep_rows_params>();
  k.to = kept;
  k.x = x;
  return result(p, SIE_KEEP_ROWS, k, y, err);
}

inline sie_status splade(sie_program *p, sie_value x, const sie_weight *w, const sie_weight *bias,
                         sie_value *y, sie_error *err) {
  sie_splade_params s = params<sie_splade_params>();
  s.x = x;
  s.w = w;
  s.bias = bias;
  return result(p, SIE_SPLADE, s, y, err);
}

// Declares the queries when first used; they are as wide as the first value compared with them.
inline sie_status maxsim(sie_program *p, sie_value x, int32_t normalize, sie_value *y, sie_error *err) {
  bool declare = p->inputs[queries].space == 0 && p->spaces[queries_space].kind != 0;
  if (declare && x > 0 && x < p->values.size()) {
    int32_t wide = static_cast<int32_t>(p->values[x].columns);
    RECORD_TRY(declare_input(p, queries, "queries", queries_space, SIE_F32, 0, 0, err, wide));
  }
  sie_maxsim_params m = params<sie_maxsim_params>();
  m.normalize = normalize;
  m.x = x;
  m.queries = queries;
  m.partner = partner;
  return result(p, SIE_MAXSIM, m, y, err);
}

// The queries as given rows.
inline sie_status given_rows(sie_program *p, int32_t columns, sie_value *y, sie_error *err) {
  if (p->inputs[queries].space == 0) {
    RECORD_TRY(declare_input(p, queries, "queries", queries_space, SIE_F32, 0, 0, err));
  }
  sie_given_rows_params g = params<sie_given_rows_params>();
  g.input = queries;
  g.columns = columns;
  return result(p, SIE_GIVEN_ROWS, g, y, err);
}

// The name of an output, made from its number.
struct OutputName {
  char text[16];
  explicit OutputName(int32_t index) { snprintf(text, sizeof text, "o%d", index & 0xffff); }
};

inline sie_status output(sie_program *p, uint32_t kind, sie_value x, int32_t index, sie_error *err) {
  OutputName name(index);
  sie_output_params o = params<sie_output_params>();
  o.x = x;
  o.name = name.text;
  return add(p, kind, o, err);
}
inline sie_status output_rows(sie_program *p, sie_value x, int32_t index, sie_error *err) {
  return output(p, SIE_OUTPUT_ROWS, x, index, err);
}
inline sie_status output_values(sie_program *p, sie_value x, int32_t index, sie_error *err) {
  return output(p, SIE_OUTPUT_VALUES, x, index, err);
}
inline sie_status output_token_rows(sie_program *p, sie_value x, int32_t index, sie_error *err) {
  return output(p, SIE_OUTPUT_TOKEN_ROWS, x, index, err);
}
inline sie_status output_sparse(sie_program *p, sie_value x, uint32_t transform, int32_t index,
                                sie_error *err) {
  OutputName name(index);
  sie_output_sparse_params o = params<sie_output_sparse_params>();
  o.x = x;
  o.name = name.text;
  o.transform = transform;
  return add(p, SIE_OUTPUT_SPARSE, o, err);
}
inline sie_status output_muvera(sie_program *p, sie_value x, const sie_muvera_params *m, int32_t index,
                                sie_error *err) {
  OutputName name(index);
  sie_muvera_params o = *m;
  o.x = x;
  o.name = name.text;
  return add(p, SIE_OUTPUT_MUVERA, o, err);
}
inline sie_status output_smve(sie_program *p, sie_value x, const sie_smve_params *s, int32_t index,
                              sie_error *err) {
  OutputName name(index);
  sie_smve_params o = *s;
  o.x = x;
  o.name = name.text;
  return add(p, SIE_OUTPUT_SMVE, o, err);
}

// A batch for a program begun here, by name.
struct Batch {
  int64_t n_seqs = 0;
  const int32_t *ids = nullptr, *type_ids = nullptr, *cu_seqlens = nullptr;
  const uint8_t *keep = nullptr;
  const int32_t *adapter = nullptr;
  int64_t n_queries = 0;
  const float *queries = nullptr;
  const int32_t *cu_queries = nullptr;
  const int32_t *partner = nullptr;
  const int32_t *cu_labels = nullptr, *label_ids = nullptr;
  const uint8_t *choose = nullptr;
  const int32_t *prefix_first = nullptr, *prefix_rows = nullptr;
  const int32_t *cu_words = nullptr, *word_first = nullptr, *word_last = nullptr;
  const sie_out_item *items[4] = {};
};

inline sie_status load(sie_slot *slot, const sie_program *program, const Batch *b, sie_error *err) {
  sie_rows_of spaces[] = {{0, b->cu_seqlens}, {}, {}, {b->n_queries, b->cu_queries}, {0, b->cu_labels}, {},
                          {0, b->cu_words}};
  const void *inputs[] = {b->ids,          b->type_ids,    b->keep,       b->adapter,
                          b->partner,      b->queries,     b->label_ids,  b->choose,
                          b->prefix_first, b->prefix_rows, b->word_first, b->word_last};
  sie_batch batch = params<sie_batch>();
  batch.n_spaces = words;
  batch.n_inputs = word_last;
  batch.n_outputs = 4;
  batch.n_seqs = b->n_seqs;
  batch.spaces = spaces;
  batch.inputs = inputs;
  batch.items = b->items;
  return sie_slot_load(slot, program, &batch, err);
}

#undef RECORD_TRY

}  // namespace record

#endif  // SIE_CSRC_TESTS_ENTRIES_H
