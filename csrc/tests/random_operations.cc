// random_operations.cc — records the random operations and outputs of a program.
#include <math.h>
#include <stdio.h>

#include "random_recording.h"

namespace random_program {

namespace {

constexpr int32_t widths[] = {1, 3, 8, 17, 31, 32, 48, 64, 65, 96, 128, 130, 512};
constexpr int32_t n_widths = 13, n_narrow = 12;  // a linear makes no 512 columns of fewer
constexpr int32_t head_dims[] = {7, 16, 24, 32, 40, 64, 80, 96, 128};
constexpr int32_t n_head_dims = 9;
constexpr int64_t max_joined = 600;  // columns
constexpr float eps = 1e-3f;

}  // namespace

class Recorder : Recording {
 public:
  using Recording::Recording;

  bool record() {
    program_->declare();
    embed();
    int steps = 2 + random_.below(14);
    for (int i = 0; i < steps; i++) step();
    outputs();
    return !program_->failed_;
  }

 private:
  void embed() {
    int64_t columns = widths[random_.below(n_widths)];
    sie_embed_params e = record::params<sie_embed_params>();
    e.y = fresh();
    e.ids = ids;
    e.word = table(words, columns, 1);
    int style = random_.below(4);
    if (style > 0) e.position = table(position_rows, columns, 0.5f);
    if (style == 1) e.position_offset = random_.below(50);
    if (style == 2) e.positions = positions;
    if (style == 3) {
      e.type = table(type_rows, columns, 0.5f);
      if (chance(2)) e.type_ids = types;
    }
    e.norm = static_cast<uint32_t>(random_.below(3));
    if (e.norm != SIE_NORM_NONE) {
      e.gamma = vector(columns, 0.5f, 1);
      if (chance(2)) e.beta = vector(columns, 0.5f);
    }
    e.eps = eps;
    if (chance(3)) e.word_scale = 1.5f;
    add(SIE_EMBED, e);
    maybe_stream(e.y);
    keep_value(e.y, tokens, columns);
    note("embed -> %d: %d columns", e.y, static_cast<int>(columns));
  }

  void maybe_stream(sie_value x) {
    if (!chance(3)) return;
    sie_stream_params s = record::params<sie_stream_params>();
    s.x = x;
    add(SIE_STREAM, s);
    note("%d is a stream", x);
  }

  void step() {
    Value x = pick();
    int what = random_.below(13);
    if (what <= 2) return linear_step(x);
    if (what <= 5) return norm(x);
    if (what == 6) return cut_columns(x);
    if (what <= 8 && x.space == tokens) return attention(x);
    if (what == 9 && x.space != sequences) return pool(x);
    if (what == 10 && x.space == tokens) return keep_rows(x);
    if (what == 11 && x.space == tokens && sparse_ == SIE_NO_VALUE && chance(2)) return splade(x);
    if (what == 11 && x.space != sequences) return maxsim(x);
    if (what == 12) return join(x);
  }

  sie_value linear(const Value &x, int64_t n, uint32_t act, uint32_t gate, sie_value residual, bool lora) {
    sie_linear_params l = record::params<sie_linear_params>();
    l.act = act;
    l.gate = gate;
    l.x = x.number;
    l.residual = residual;
    l.y = fresh();
    // Rows of sequences are not quantised.
    uint32_t compute = x.space == sequences ? static_cast<uint32_t>(SIE_COMPUTE_F32) : compute_;
    l.w = weight(SIE_WEIGHT_LINEAR, compute, n, x.columns, 1.5f / sqrtf(static_cast<float>(x.columns)));
    if (chance(2)) l.bias = vector(n, 0.3f);
    const sie_weight *a[adapters] = {}, *b[adapters] = {};  // adapter 0 changes nothing here
    if (lora) {
      int64_t rank = 1 + random_.below(20);
      a[1] = data(rank, x.columns, 0.2f);
      b[1] = data(n, rank, 0.2f);
      l.adapter = adapter;
      l.n_adapters = adapters;
      l.a = a;
      l.b = b;
    }
    add(SIE_LINEAR, l);
    note("linear %d -> %d: %d rows of weights, act %u, gate %u, residual %d%s", l.x, l.y, static_cast<int>(n),
         act, gate, residual, lora ? ", adapters" : "");
    return l.y;
  }

  void linear_step(const Value &x) {
    uint32_t gate = chance(4) ? 1 + static_cast<uint32_t>(random_.below(3)) : 0;
    uint32_t act = gate == 0 ? static_cast<uint32_t>(random_.below(6)) : 0;
    int64_t n = chance(3) ? widths[random_.below(n_narrow)] : x.columns;
    sie_value residual = like(x.space, n);
    sie_value y = linear(x, gate != 0 ? 2 * n : n, act, gate, residual, chance(5));
    maybe_stream(y);
    keep_value(y, x.space, n);
  }

  void norm(const Value &x) {
    sie_norm_params n = record::params<sie_norm_params>();
    n.norm = static_cast<uint32_t>(random_.below(2));
    n.x = x.number;
    n.residual = like(x.space, x.columns);
    n.y = fresh();
    if (chance(2)) n.sum = fresh();
    n.gamma = vector(x.columns, 0.5f, 1);
    if (chance(2)) n.beta = vector(x.columns, 0.5f);
    if (chance(2)) n.bias = vector(x.columns, 0.5f);
    n.eps = eps;
    n.weight_offset = static_cast<float>(random_.below(2));
    add(SIE_NORM, n);
    maybe_stream(n.y);
    if (n.sum != SIE_NO_VALUE) maybe_stream(n.sum);
    keep_value(n.y, x.space, x.columns);
    if (n.sum != SIE_NO_VALUE) keep_value(n.sum, x.space, x.columns);
    note("norm %d + %d -> %d, sum %d", n.x, n.residual, n.y, n.sum);
  }

  void cut_columns(const Value &x) {
    sie_columns_params c = record::params<sie_columns_params>();
    int32_t all = static_cast<int32_t>(x.columns);
    c.x = x.number;
    c.width = all;
    if (!chance(3)) {
      c.column = random_.below(all);
      c.width = 1 + random_.below(all - static_cast<int32_t>(c.column));
    }
    c.y = fresh();
    add(SIE_COLUMNS, c);
    keep_value(c.y, x.space, c.width);
    note("columns %d from %d, %d of them -> %d", c.x, static_cast<int>(c.column), static_cast<int>(c.width),
         c.y);
  }

  void join(const Value &x) {
    sie_join_params j = record::params<sie_join_params>();
    int64_t columns = x.columns;
    int n = 1;
    j.x[0] = x.number;
    for (const Value &v : values_) {
      if (n == SIE_MAX_JOINED || v.space != x.space || columns + v.columns > max_joined || chance(2))
        continue;
      columns += v.columns;
      j.x[n++] = v.number;
    }
    if (n == 1) return;
    j.y = fresh();
    add(SIE_JOIN, j);
    keep_value(j.y, x.space, columns);
    note("join %d, %d, %d -> %d", j.x[0], j.x[1], j.x[2], j.y);
  }

  // What reads a query before and after its update in place.
  void read_queries(const Value &q) {
    if (chance(2)) keep_value(linear(q, 9, 0, 0, SIE_NO_VALUE, false), tokens, 9);
  }

  void rope(const sie_attention_params &a) {
    sie_rope_params r = record::params<sie_rope_params>();
    Value q = {a.q, tokens, int64_t{a.heads} * a.head_dim};
    r.q = a.q;
    if (!chance(4)) r.k = a.k;
    r.heads = a.heads;
    r.kv_heads = a.kv_heads;
    r.head_dim = a.head_dim;
    r.rot = random_.below(a.head_dim / 2 + 1) * 2;
    r.position_offset = random_.below(9);
    r.eps = eps;
    if (chance(2)) r.q_gamma = vector(a.head_dim, 0.3f, 1);
    if (r.k != SIE_NO_VALUE && chance(2)) r.k_gamma = vector(a.head_dim, 0.3f, 1);
    if (r.rot > 0) {
      const int32_t rows = chance(3) ? 1 + random_.below(40) : position_rows;
      r.cos = data(rows, r.rot / 2, 1);
      r.sin = data(rows, r.rot / 2, 1);
      if (rows < position_rows) {
        r.position_offset = 0;
        r.turns = integers(position_rows - rows, r.rot);
      }
    }
    if (chance(3)) values_.push_back(q);
    read_queries(q);
    add(SIE_ROPE, r);
    note("rope %d and %d, %d columns%s", r.q, r.k, r.rot, r.turns != nullptr ? " by length" : "");
    read_queries(q);
  }

  void attention(const Value &x) {
    sie_attention_params a = record::params<sie_attention_params>();
    a.kv_heads = 1 + random_.below(2);
    a.heads = a.kv_heads * (1 + random_.below(3));
    a.head_dim = head_dims[random_.below(n_head_dims)];
    int64_t q_columns = int64_t{a.heads} * a.head_dim, kv_columns = int64_t{a.kv_heads} * a.head_dim;
    sie_columns_params c = record::params<sie_columns_params>();
    c.x = linear(x, q_columns + 2 * kv_columns, 0, 0, SIE_NO_VALUE, false);
    for (sie_value *part : {&a.q, &a.k, &a.v}) {
      c.width = part == &a.q ? q_columns : kv_columns;
      c.y = *part = fresh();
      add(SIE_COLUMNS, c);
      c.column += c.width;
    }
    if (chance(2)) rope(a);
    a.mask = static_cast<uint32_t>(random_.below(3));
    if (a.mask == SIE_MASK_WINDOW) a.window = random_.below(80);
    if (chance(4)) a.alibi = vector(a.heads, 0.2f, 0.2f);
    if (chance(5)) a.bias = data(a.heads, 2 * random_.below(90) + 1, 2);
    // Queries and keys may be chosen.
    bool by_length = a.mask == SIE_MASK_FULL && a.alibi == nullptr && a.bias == nullptr;
    if (by_length && chance(2)) {
      for (sie_value *part : {&a.k, &a.v}) *part = kept_rows_of(*part);
    }
    bool gathered = chance(3);
    if (gathered) {
      sie_gather_rows_params g = record::params<sie_gather_rows_params>();
      g.which = a.which = chance(2) ? SIE_POOL_CLS : SIE_POOL_LAST;
      g.x = a.q;
      g.y = a.q = fresh();
      add(SIE_GATHER_ROWS, g);
    }
    a.y = fresh();
    add(SIE_ATTENTION, a);
    note("attention %d %d %d%s, %d heads over %d of %d, mask %u, window %d -> %d", a.q, a.k, a.v,
         gathered ? " (one query each)" : "", a.heads, a.kv_heads, a.head_dim, a.mask, a.window, a.y);
    if (gathered) {
      pool_by(SIE_POOL_CLS, {a.y, sequences, q_columns});
    } else {
      keep_value(a.y, tokens, q_columns);
    }
  }

  void pool_by(uint32_t mode, const Value &x) {
    sie_pool_params m = record::params<sie_pool_params>();
    m.mode = mode;
    m.x = x.number;
    m.y = fresh();
    if (mode == SIE_POOL_ATTENTION) m.w = vector(x.columns, 0.5f);
    add(SIE_POOL, m);
    keep_value(m.y, sequences, x.columns);
    note("pool %d by mode %u -> %d", m.x, mode, m.y);
  }
  void pool(const Value &x) { pool_by(1 + static_cast<uint32_t>(random_.below(7)), x); }

  sie_value kept_rows_of(sie_value x) {
    sie_keep_rows_params k = record::params<sie_keep_rows_params>();
    k.to = kept;
    k.x = x;
    k.y = fresh();
    add(SIE_KEEP_ROWS, k);
    note("kept rows of %d -> %d", x, k.y);
    return k.y;
  }
  void keep_rows(const Value &x) { keep_value(kept_rows_of(x.number), kept, x.columns); }

  void splade(const Value &x) {
    sie_splade_params s = record::params<sie_splade_params>();
    sparse_columns_ = 20 + random_.below(400);
    s.x = x.number;
    s.y = sparse_ = fresh();
    s.w = weight(SIE_WEIGHT_LINEAR, compute_, sparse_columns_, x.columns, 1);
    s.bias = vector(sparse_columns_, 0.5f);
    add(SIE_SPLADE, s);
    note("splade %d -> %d", s.x, s.y);
  }

  // All read the same queries, so all have as many columns as the first.
  void maxsim(const Value &x) {
    if (program_->query_columns_ != 0 && program_->query_columns_ != x.columns) return;
    sie_maxsim_params m = record::params<sie_maxsim_params>();
    m.normalize = random_.below(2);
    m.x = x.number;
    m.y = fresh();
    m.queries = queries;
    m.partner = partner;
    add(SIE_MAXSIM, m);
    program_->query_columns_ = x.columns;
    keep_value(m.y, sequences, 1);
    note("maxsim %d -> %d", m.x, m.y);
  }

  template <class T>
  void output(uint32_t kind, T params, sie_value x, const Output &out) {
    if (program_->outputs_.size() == SIE_MAX_OUTPUTS) return;
    char name[8];
    snprintf(name, sizeof name, "o%zu", program_->outputs_.size());
    params.x = x;
    params.name = name;
    add(kind, params);
    program_->outputs_.push_back(out);
  }

  // The last values, and some of the others.
  void outputs() {
    if (sparse_ != SIE_NO_VALUE) {
      output(SIE_OUTPUT_SPARSE, record::params<sie_output_sparse_params>(), sparse_,
             {SIE_FORM_SPARSE, sequences, sparse_columns_});
    }
    for (size_t i = values_.size(); i-- > 0;) {
      const Value &v = values_[i];
      if (i + 3 < values_.size() && !chance(3)) continue;
      Output out = {SIE_FORM_VALUES, v.space, v.columns};
      uint32_t kind = SIE_OUTPUT_VALUES;
      if (v.space == sequences && !chance(3)) kind = SIE_OUTPUT_ROWS, out.form = SIE_FORM_ROWS;
      if (v.space != sequences && chance(2)) kind = SIE_OUTPUT_TOKEN_ROWS, out.form = SIE_FORM_TOKEN_ROWS;
      output(kind, record::params<sie_output_params>(), v.number, out);
    }
  }

  sie_value sparse_ = SIE_NO_VALUE;  // of the one SPLADE
  int64_t sparse_columns_ = 0;
};

bool record_random(Program *program, uint32_t seed, uint32_t compute) {
  return Recorder(program, seed, compute).record();
}

}  // namespace random_program
