// host_refusals_test.cc — on every CPU table: arguments that are accepted at each of their bounds,
// and refused beyond it. No call has a row, so only the refusals differ.
#include "harness.h"

using namespace harness;

namespace {

const int32_t none = 0;
const int32_t starts[] = {0, 0};

sie_tensor of(int32_t dtype, int32_t group = 0) {
  static uint8_t element[64];
  sie_tensor t = {};
  t.p = element;
  t.ld = 64;
  t.dtype = dtype;
  t.scale_group = group;
  return t;
}

// One operation with arguments that all tables take, and what its changes must give.
template <class Args>
struct Refusals {
  sie_status (*sie_ops::*entry)(const Args *, const sie_share *);
  const char *name;
  Args good;
  bool ref_only = false, without_ref = false, with_avx2 = false;

  template <class Change>
  void expect(sie_status want, const char *what, Change change) const {
    Args args = good;
    change(&args);
    for (const sie_ops *ops : backends()) {
      const bool left_out = ref_only && !(with_avx2 && ops->isa == SIE_ISA_AVX2);
      if (stream_of(ops) != nullptr || (ops == sie_ref_ops() ? without_ref : left_out)) continue;
      alignas(64) static uint8_t scratch[1 << 16];
      const sie_share share = {0, 1, scratch, sizeof scratch, nullptr};
      const sie_status status = (ops->*entry)(&args, &share);
      CHECK(status == want, "%s: %s: %s: status %d, %d expected", ops->name, name, what, status, want);
    }
  }
  template <class Change>
  void takes(const char *what, Change change) const {
    expect(SIE_OK, what, change);
  }
  template <class Change>
  void lacks(const char *what, Change change) const {
    expect(SIE_UNSUPPORTED, what, change);
  }
  template <class Change>
  void denies(const char *what, Change change) const {
    expect(SIE_INVALID_ARGUMENT, what, change);
  }
  // No bytes, and no bf16 where only f32 will do.
  void lacks_types(const char *what, sie_tensor Args::*which, bool only_f32 = false) const {
    takes(what, [](Args *) {});
    lacks(what, [=](Args *a) { (a->*which).dtype = SIE_U8; });
    if (only_f32) lacks(what, [=](Args *a) { (a->*which).dtype = SIE_BF16; });
    if (!only_f32) takes(what, [=](Args *a) { (a->*which).dtype = SIE_BF16; });
  }
};

template <class Args>
Refusals<Args> of_entry(sie_status (*sie_ops::*entry)(const Args *, const sie_share *), const char *name) {
  return {entry, name, {}, false};
}

}  // namespace

TEST(host_refuses_types_of_embeddings) {
  auto r = of_entry(&sie_ops::embed_layernorm, "embed_layernorm");
  using Args = sie_embed_layernorm_args;
  r.good.seqs = r.good.tokens = {0, &none};
  r.good.cu_seqlens = starts;
  r.good.word = of(SIE_F32), r.good.y = of(SIE_F32);
  r.good.norm = SIE_NORM_LAYER;
  r.good.c = 1;
  r.lacks_types("word", &Args::word);
  r.lacks_types("y", &Args::y);
  r.takes("all tables", [](Args *a) { a->position = a->type = of(SIE_F32); });
  r.lacks("position of bytes", [](Args *a) { a->position = of(SIE_U8); });
  r.lacks("type of bytes", [](Args *a) { a->type = of(SIE_U8); });
  for (int32_t norm : {SIE_NORM_LAYER, SIE_NORM_RMS, SIE_NORM_NONE})
    r.takes("norm", [=](Args *a) { a->norm = norm; });
  for (int32_t norm : {SIE_NORM_LAYER - 1, SIE_NORM_NONE + 1})
    r.lacks("norm", [=](Args *a) { a->norm = norm; });
  r.takes("a twin of bytes", [](Args *a) { a->yq = of(SIE_U8); });
  r.lacks("a twin of f32", [](Args *a) { a->yq = of(SIE_F32); });
  r.lacks("a twin in blocks", [](Args *a) { a->yq = of(SIE_F8E4M3, 128); });
}

TEST(host_refuses_pooling_of_bytes) {
  auto r = of_entry(&sie_ops::pool, "pool");
  r.good.seqs = {0, &none};
  r.good.cu_seqlens = starts;
  r.good.mode = SIE_POOL_CLS;
  r.good.c = 1;
  r.good.x = of(SIE_F32), r.good.y = of(SIE_F32);
  r.lacks_types("x", &sie_pool_args::x);
  r.lacks_types("y", &sie_pool_args::y, true);
  auto o = of_entry(&sie_ops::pool_output, "pool_output");
  o.good.seqs = {0, &none};
  o.good.cu_seqlens = starts;
  o.good.mode = SIE_POOL_CLS;
  o.good.c = 1;
  o.good.x = of(SIE_F32);
  o.lacks_types("x", &sie_pool_output_args::x);
  for (int32_t mode : {SIE_POOL_CLS, SIE_POOL_ABS_MEAN}) {
    r.takes("mode", [=](sie_pool_args *a) { a->mode = mode; });
    o.takes("mode", [=](sie_pool_output_args *a) { a->mode = mode; });
  }
  for (int32_t mode : {SIE_POOL_CLS - 1, SIE_POOL_ABS_MEAN + 1}) {
    r.lacks("mode", [=](sie_pool_args *a) { a->mode = mode; });
    o.lacks("mode", [=](sie_pool_output_args *a) { a->mode = mode; });
  }
}

TEST(host_refuses_other_outputs) {
  auto dense = of_entry(&sie_ops::output_rows, "output_rows");
  dense.good.seqs = {0, &none};
  dense.good.c = 1;
  dense.good.x = of(SIE_F32);
  dense.lacks_types("x", &sie_output_rows_args::x, true);
  auto sparse = of_entry(&sie_ops::output_sparse, "output_sparse");
  sparse.good.seqs = {0, &none};
  sparse.good.c = 1;
  sparse.good.x = of(SIE_F32);
  sparse.lacks_types("x", &sie_output_sparse_args::x, true);
  for (int32_t transform : {SIE_SPARSE_AS_IS, SIE_SPARSE_LOG_LOG})
    sparse.takes("transform", [=](sie_output_sparse_args *a) { a->transform = transform; });
  for (int32_t transform : {SIE_SPARSE_AS_IS - 1, SIE_SPARSE_LOG_LOG + 1})
    sparse.denies("transform", [=](sie_output_sparse_args *a) { a->transform = transform; });
}

TEST(host_refuses_other_sparse_items) {
  const int32_t one = 1;
  float x[8] = {0, 3};
  alignas(16) uint8_t out[64];
  auto r = of_entry(&sie_ops::output_sparse, "output_sparse");
  sie_out_item item = {};
  item.dtype = SIE_F32;
  item.dims = 1;
  r.good.seqs = {1, &one};
  r.good.c = 8;
  r.good.x = of(SIE_F32);
  r.good.x.p = x;
  r.good.items = &item;
  r.good.out = out;
  auto none_changed = [](sie_output_sparse_args *) {};
  r.takes("f32", none_changed);
  item.dtype = SIE_F16;
  r.takes("f16", none_changed);
  item.dtype = SIE_I8;
  r.lacks("bytes", none_changed);
  item.dtype = SIE_F32, item.dims = 0;
  r.lacks("no columns", none_changed);
  item.dims = -1;
  r.lacks("fewer than no columns", none_changed);
  item.dims = 1, item.normalize = 1;
  r.lacks("normalised values", none_changed);
}

TEST(host_refuses_types_of_scores) {
  auto s = of_entry(&sie_ops::softmax, "softmax");
  s.good.rows = s.good.seqs = {0, &none};
  s.good.cu_seqlens = starts;
  s.good.x = of(SIE_F32), s.good.y = of(SIE_F32);
  s.lacks_types("x", &sie_softmax_args::x, true);
  s.lacks_types("y", &sie_softmax_args::y, true);
  auto m = of_entry(&sie_ops::maxsim, "maxsim");
  m.good.rows = m.good.seqs = {0, &none};
  m.good.cu_seqlens = m.good.cu_queries = starts;
  m.good.c = 1;
  m.good.x = of(SIE_F32), m.good.y = of(SIE_F32);
  m.lacks_types("x", &sie_maxsim_args::x);
  m.lacks_types("y", &sie_maxsim_args::y, true);
}

TEST(host_refuses_other_adapters) {
  auto r = of_entry(&sie_ops::lora, "lora");
  using Args = sie_lora_args;
  // The one behind those that are named is not looked at.
  sie_lora_pair pairs[] = {{nullptr, nullptr, 2, SIE_F32}, {nullptr, nullptr, -1, SIE_U8}};
  r.good.rows = r.good.seqs = {0, &none};
  r.good.cu_seqlens = starts;
  r.good.n_adapters = 1;
  r.good.max_rank = 2;
  r.good.adapters = pairs;
  r.good.n = r.good.k = 1;
  r.good.x = of(SIE_F32), r.good.y = of(SIE_F32);
  r.lacks_types("x", &Args::x);
  r.lacks_types("y", &Args::y, true);
  r.denies("a rank above the largest", [](Args *a) { a->max_rank = 1; });
  auto unchanged = [](Args *) {};
  pairs[0].rank = -1;
  r.denies("a negative rank", unchanged);
  pairs[0].rank = 0;
  r.takes("no rank", unchanged);
  pairs[0] = {nullptr, nullptr, 1, SIE_U8};
  r.lacks("an adapter of bytes", unchanged);
  r.without_ref = true;
  pairs[0].rank = 0;
  r.takes("no rank of any type", unchanged);
}

TEST(host_refuses_marks_of_other_rows) {
  auto r = of_entry(&sie_ops::mark_nonfinite, "mark_nonfinite");
  using Args = sie_mark_nonfinite_args;
  r.good.rows = r.good.seqs = {0, &none};
  r.good.cu_seqlens = starts;
  r.good.c = 1;
  r.good.x = of(SIE_F32);
  for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_U8}) r.takes("x", [=](Args *a) { a->x.dtype = dtype; });
  r.lacks("x of int8", [](Args *a) { a->x.dtype = SIE_I8; });
  for (int32_t which : {0, +SIE_POOL_CLS, +SIE_POOL_LAST})
    r.takes("which", [=](Args *a) { a->which = which; });
  r.denies("which", [](Args *a) { a->which = SIE_POOL_MEAN; });
}

TEST(host_refuses_other_recurrences) {
  auto r = of_entry(&sie_ops::lstm, "lstm");
  using Args = sie_lstm_args;
  alignas(64) static float data[1024];
  static const sie_packed weight = {SIE_COMPUTE_F32, 0, 32, 8, data},
                          halves = {SIE_COMPUTE_BF16, 0, 32, 8, data},
                          wide = {SIE_COMPUTE_F32, 0, 40, 8, data}, deep = {SIE_COMPUTE_F32, 0, 32, 10, data};
  r.good.rows = r.good.seqs = {0, &none};
  r.good.cu_seqlens = starts;
  r.good.h = 8;
  r.good.w = r.good.w_reverse = &weight;
  r.good.gates = of(SIE_F32), r.good.y = of(SIE_F32);
  r.lacks_types("gates", &Args::gates);
  r.lacks_types("y", &Args::y);
  for (const sie_packed *other : {&halves, &wide, &deep}) {
    r.denies("another weight ahead", [=](Args *a) { a->w = other; });
    r.denies("another weight back", [=](Args *a) { a->w_reverse = other; });
  }
  r.takes("ahead alone", [](Args *a) { a->w_reverse = nullptr; });
  r.takes("back alone", [](Args *a) { a->w = nullptr; });
  r.denies("no direction", [](Args *a) { a->w = a->w_reverse = nullptr; });
}

TEST(host_refuses_other_rotations) {
  auto r = of_entry(&sie_ops::qk_norm_rope, "qk_norm_rope");
  using Args = sie_qk_norm_rope_args;
  r.good.tokens = r.good.seqs = {0, &none};
  r.good.cu_seqlens = starts;
  r.good.heads = r.good.kv_heads = 1;
  r.good.head_dim = 12;
  r.good.rot = 12;
  r.good.positions = 1;
  r.good.q = r.good.k = of(SIE_F32);
  r.takes("f32", [](Args *) {});
  r.lacks("q and k of bytes", [](Args *a) { a->q = a->k = of(SIE_U8); });
  r.lacks("two types", [](Args *a) { a->k = of(SIE_BF16); });
  r.takes("no k", [](Args *a) { a->k = {}; });
  for (int32_t rot : {0, 2, 4}) r.takes("rot", [=](Args *a) { a->rot = rot; });
  for (int32_t rot : {-2, 3, 9, 14}) r.denies("rot", [=](Args *a) { a->rot = rot; });
  r.takes("turns", [](Args *a) { a->turns = starts; });
  r.takes("a first position", [](Args *a) { a->first_position = starts; });
  r.denies("turns behind a prefix", [](Args *a) { a->turns = a->first_position = starts; });
}

TEST(host_refuses_other_encodings) {
  auto m = of_entry(&sie_ops::muvera, "muvera");
  m.good.tokens = m.good.seqs = {0, &none};
  m.good.cu_seqlens = starts;
  m.good.c = 1;
  m.good.x = of(SIE_F32);
  m.good.repetitions = 1;
  m.lacks_types("x", &sie_muvera_args::x);
  m.denies("no repetition", [](sie_muvera_args *a) { a->repetitions = 0; });
  for (int32_t bits : {0, 10}) m.takes("bits", [=](sie_muvera_args *a) { a->simhash_bits = bits; });
  for (int32_t bits : {-1, 11}) m.denies("bits", [=](sie_muvera_args *a) { a->simhash_bits = bits; });
  m.without_ref = true;
  m.denies("fewer than no columns", [](sie_muvera_args *a) { a->projected = -1; });
  m.denies("fewer than no dimensions", [](sie_muvera_args *a) { a->final_dims = -1; });
  for (const sie_ops *ops : backends()) {
    if (stream_of(ops) != nullptr) continue;
    sie_op_bounds b = {};
    b.kind = SIE_OP_MUVERA;
    b.c = b.max_len = b.repetitions = 1;
    for (int32_t bits : {-1, 0, 10, 11}) {
      b.simhash_bits = bits;
      const int64_t bytes = ops->scratch_bytes(&b);
      CHECK((bytes > 0) == (bits >= 0 && bits <= 10), "%s: %d bits have %lld bytes of scratch", ops->name,
            bits, static_cast<long long>(bytes));
    }
  }
  auto s = of_entry(&sie_ops::smve, "smve");
  using Args = sie_smve_args;
  s.good.rows = s.good.seqs = {0, &none};
  s.good.cu_seqlens = starts;
  s.good.c = 1;
  s.good.x = of(SIE_F32);
  s.good.repetitions = s.good.width = s.good.top = 1;
  s.lacks_types("x", &Args::x);
  s.denies("no repetition", [](Args *a) { a->repetitions = 0; });
  s.denies("no width", [](Args *a) { a->width = a->top = 0; });
  s.denies("a negative width", [](Args *a) { a->width = -1, a->top = -2; });
  s.denies("none of them", [](Args *a) { a->top = 0; });
  s.denies("more than the width", [](Args *a) { a->top = 2; });
  s.denies("fewer than no columns", [](Args *a) { a->max_nonzeros = -1; });
  s.takes("2³¹ − 1 columns", [](Args *a) { a->width = INT32_MAX; });
  s.takes("2³¹ − 2 columns", [](Args *a) { a->repetitions = 3, a->width = INT32_MAX / 3; });
  s.lacks("2³¹ columns", [](Args *a) { a->repetitions = 2, a->width = 1 << 30; });
}

TEST(host_refuses_other_spans_and_pairs) {
  auto s = of_entry(&sie_ops::spans, "spans");
  using Spans = sie_spans_args;
  s.good.words = s.good.seqs = {0, &none};
  s.good.cu_words = s.good.cu_labels = starts;
  s.good.k = 8;
  s.good.starts = s.good.ends = s.good.labels = of(SIE_F32);
  s.good.widest = 1;
  s.good.found_ld = SIE_FOUND_WORDS;
  s.lacks_types("starts", &Spans::starts);
  s.lacks_types("ends", &Spans::ends);
  s.lacks_types("labels", &Spans::labels);
  s.takes("a bias", [](Spans *a) { a->bias = of(SIE_F32); });
  s.lacks("a bias of bytes", [](Spans *a) { a->bias = of(SIE_U8); });
  s.takes("the widest", [](Spans *a) { a->widest = SIE_MAX_SPAN_WIDTH; });
  s.denies("wider", [](Spans *a) { a->widest = SIE_MAX_SPAN_WIDTH + 1; });
  s.denies("no width", [](Spans *a) { a->widest = 0; });
  auto p = of_entry(&sie_ops::pairs, "pairs");
  using Pairs = sie_pairs_args;
  alignas(64) static float data[1024];
  static const sie_packed weight = {SIE_COMPUTE_F32, 0, 8, 8, data},
                          bytes = {SIE_COMPUTE_INT8, 0, 8, 8, data};
  p.good.words = p.good.seqs = {0, &none};
  p.good.cu_words = p.good.cu_labels = starts;
  p.good.n = p.good.k = 8;
  p.good.words_x = p.good.words_u = p.good.labels_x = p.good.labels_u = of(SIE_F32);
  p.good.w = &weight;
  p.good.n_logits = 1;
  p.good.found_ld = SIE_FOUND_WORDS;
  for (sie_tensor Pairs::*which : {&Pairs::words_x, &Pairs::words_u, &Pairs::labels_x, &Pairs::labels_u})
    p.lacks_types("rows", which);
  p.lacks("a weight of int8", [](Pairs *a) { a->w = &bytes; });
  p.takes("three logits", [](Pairs *a) { a->n_logits = 3; });
  for (int32_t logits : {0, 4}) p.denies("logits", [=](Pairs *a) { a->n_logits = logits; });
}

// Every sequence's item is looked at, and none behind them.
TEST(host_refuses_other_found_items) {
  static const int32_t two = 2, cu[] = {0, 0, 0};
  sie_out_item items[3] = {};
  for (sie_out_item &item : items) item.dtype = SIE_F32, item.dims = 1;
  auto s = of_entry(&sie_ops::spans, "spans");
  s.good.words = {0, &none}, s.good.seqs = {2, &two};
  s.good.cu_words = s.good.cu_labels = cu;
  s.good.k = 8;
  s.good.starts = s.good.ends = s.good.labels = of(SIE_F32);
  s.good.widest = 1;
  s.good.found_ld = SIE_FOUND_WORDS;
  s.good.items = items;
  auto p = of_entry(&sie_ops::pairs, "pairs");
  alignas(64) static float data[1024];
  static const sie_packed weight = {SIE_COMPUTE_F32, 0, 8, 8, data};
  p.good.words = s.good.words, p.good.seqs = s.good.seqs;
  p.good.cu_words = p.good.cu_labels = cu;
  p.good.n = p.good.k = 8;
  p.good.words_x = p.good.words_u = p.good.labels_x = p.good.labels_u = of(SIE_F32);
  p.good.w = &weight;
  p.good.n_logits = 1;
  p.good.found_ld = SIE_FOUND_WORDS;
  p.good.items = items;
  items[2].dims = 0;
  s.takes("items", [](sie_spans_args *) {});
  p.takes("items", [](sie_pairs_args *) {});
  for (sie_out_item *item : {items, items + 1}) {
    item->dtype = SIE_F16;
    s.lacks("an item of f16", [](sie_spans_args *) {});
    p.lacks("an item of f16", [](sie_pairs_args *) {});
    item->dtype = SIE_F32;
  }
}

TEST(host_refuses_other_attention) {
  auto r = of_entry(&sie_ops::attention, "attention");
  using Args = sie_attention_args;
  r.good.q_rows = r.good.seqs = {0, &none};
  r.good.cu_q = r.good.cu_kv = starts;
  r.good.q = r.good.k = r.good.v = r.good.y = of(SIE_F32);
  r.good.heads = r.good.kv_heads = 1;
  r.good.head_dim = 8;
  r.takes("f32", [](Args *) {});
  r.lacks("bytes", [](Args *a) { a->q = a->k = a->v = of(SIE_U8); });
  r.lacks("bytes alone", [](Args *a) { a->q = a->k = a->v = a->y = of(SIE_U8); });
  r.lacks("k of another type", [](Args *a) { a->k = of(SIE_BF16); });
  r.lacks("v of another type", [](Args *a) { a->v = of(SIE_BF16); });
  r.lacks("y of bytes", [](Args *a) { a->y = of(SIE_U8); });
  r.good.prefix_k = r.good.prefix_v = of(SIE_F32);
  r.good.prefix_keys = r.good.prefix_first = starts;
  r.takes("a prefix", [](Args *) {});
  r.lacks("keys of a prefix of another type", [](Args *a) { a->prefix_k = of(SIE_BF16); });
  r.lacks("values of a prefix of another type", [](Args *a) { a->prefix_v = of(SIE_BF16); });
  r.takes("no prefix of any type",
          [](Args *a) { a->prefix_keys = nullptr, a->prefix_k = a->prefix_v = of(SIE_U8); });
  for (int32_t reach : {0, SIE_MAX_BIAS_REACH}) r.takes("reach", [=](Args *a) { a->bias_reach = reach; });
  for (int32_t reach : {-1, SIE_MAX_BIAS_REACH + 1})
    r.denies("reach", [=](Args *a) { a->bias_reach = reach; });
  r.without_ref = true;
  for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_WINDOW}) r.takes("mask", [=](Args *a) { a->mask = mask; });
  for (int32_t mask : {SIE_MASK_FULL - 1, SIE_MASK_WINDOW + 1})
    r.lacks("mask", [=](Args *a) { a->mask = mask; });
  for (int32_t d : {1, 256}) r.takes("columns of a head", [=](Args *a) { a->head_dim = d; });
  for (int32_t d : {0, 257}) r.lacks("columns of a head", [=](Args *a) { a->head_dim = d; });
  r.lacks("no key head", [](Args *a) { a->kv_heads = 0; });
  r.lacks("heads that do not divide", [](Args *a) { a->heads = 3, a->kv_heads = 2; });
}

TEST(host_refuses_other_buckets) {
  auto r = of_entry(&sie_ops::attention, "attention with buckets");
  using Args = sie_attention_args;
  static const int32_t buckets[] = {0, 0, 1, 7, 7}, falling[] = {1, 0, 1}, negative[] = {-1, 0, 1},
                       beyond[] = {0, 1, 2}, zeros[2 * (SIE_MAX_BIAS_REACH + 1) + 1] = {};
  static const float numbers[8] = {};
  r.good.q_rows = r.good.seqs = {0, &none};
  r.good.cu_q = r.good.cu_kv = starts;
  r.good.q = r.good.k = r.good.v = r.good.y = r.good.pos_key = r.good.pos_query = of(SIE_F32);
  r.good.heads = r.good.kv_heads = 1;
  r.good.head_dim = 8;
  r.good.buckets = buckets;
  r.good.bucket_reach = 1;
  r.good.position_rows = 2;
  r.takes("both tables", [](Args *) {});
  r.takes("keys alone", [](Args *a) { a->pos_query = {}; });
  r.takes("queries alone", [](Args *a) { a->pos_key = {}; });
  r.denies("no table", [](Args *a) { a->pos_key = a->pos_query = {}; });
  r.lacks("a table of bytes", [](Args *a) { a->pos_key = of(SIE_U8); });
  r.lacks("a table of bytes", [](Args *a) { a->pos_query = of(SIE_U8); });
  r.lacks("a mask", [](Args *a) { a->mask = SIE_MASK_CAUSAL; });
  r.lacks("shared keys", [](Args *a) { a->heads = 2; });
  r.lacks("slopes", [](Args *a) { a->alibi_slopes = numbers; });
  r.lacks("a bias", [](Args *a) { a->bias = numbers; });
  r.lacks("a prefix", [](Args *a) {
    a->prefix_k = a->prefix_v = of(SIE_F32);
    a->prefix_keys = a->prefix_first = starts;
  });
  r.takes("one row", [](Args *a) { a->bucket_reach = 0, a->position_rows = 1; });
  r.denies("no row", [](Args *a) { a->position_rows = 0; });
  r.denies("buckets that fall", [](Args *a) { a->buckets = falling; });
  r.denies("a bucket below 0", [](Args *a) { a->buckets = negative; });
  r.denies("a bucket beyond the rows", [](Args *a) { a->buckets = beyond; });
  r.denies("a negative reach", [](Args *a) { a->bucket_reach = -1; });
  r.lacks("k of another type", [](Args *a) { a->k = of(SIE_BF16); });
  r.lacks("v of another type", [](Args *a) { a->v = of(SIE_BF16); });
  r.lacks("bytes", [](Args *a) { a->q = a->k = a->v = a->y = of(SIE_U8); });
  r.ref_only = r.with_avx2 = true;  // others may list the rows of each distance in their scratch
  r.good.buckets = zeros;
  r.takes("the most rows", [](Args *a) { a->position_rows = SIE_MAX_POSITION_ROWS; });
  r.denies("more rows", [](Args *a) { a->position_rows = SIE_MAX_POSITION_ROWS + 1; });
  r.takes("the largest reach", [](Args *a) { a->bucket_reach = SIE_MAX_BIAS_REACH; });
  r.denies("a larger reach", [](Args *a) { a->bucket_reach = SIE_MAX_BIAS_REACH + 1; });
  r.without_ref = true;
  r.lacks("y of another type", [](Args *a) { a->y = of(SIE_BF16); });
  for (int32_t d : {1, 256}) r.takes("columns of a head", [=](Args *a) { a->head_dim = d; });
  for (int32_t d : {0, 257}) r.lacks("columns of a head", [=](Args *a) { a->head_dim = d; });
}

TEST(host_refuses_other_linears) {
  auto r = of_entry(&sie_ops::linear, "linear");
  using Args = sie_linear_args;
  alignas(64) static float data[4096];
  static const sie_packed weight = {SIE_COMPUTE_F32, 0, 12, 8, data}, fp8 = {SIE_COMPUTE_FP8, 0, 12, 8, data},
                          bytes = {SIE_COMPUTE_INT8, 0, 12, 8, data};
  r.good.rows = {0, &none};
  r.good.n = 12, r.good.k = 8;
  r.good.x = r.good.y = of(SIE_F32);
  r.good.w = &weight;
  r.takes("f32", [](Args *) {});
  r.lacks("x of another class", [](Args *a) { a->x = of(SIE_BF16); });
  r.lacks("x of f32 for bytes", [](Args *a) { a->w = &bytes; });
  r.lacks("a residual of bytes", [](Args *a) { a->residual = of(SIE_U8); });
  r.takes("an addend", [](Args *a) { a->addend = of(SIE_F32); });
  r.lacks("an addend of bf16", [](Args *a) { a->addend = of(SIE_BF16); });
  for (int32_t gate : {SIE_GATE_NONE, SIE_GATE_GEGLU_TANH}) r.takes("gate", [=](Args *a) { a->gate = gate; });
  for (int32_t gate : {SIE_GATE_NONE - 1, SIE_GATE_GEGLU_TANH + 1})
    r.lacks("gate", [=](Args *a) { a->gate = gate; });
  r.takes("an activation", [](Args *a) { a->act = SIE_ACT_RELU; });
  r.takes("an odd number of columns", [](Args *a) { a->n = 11; });
  r.denies("a gate and an activation", [](Args *a) { a->gate = SIE_GATE_SWIGLU, a->act = SIE_ACT_RELU; });
  r.denies("a gate of an odd number of columns", [](Args *a) { a->gate = SIE_GATE_SWIGLU, a->n = 9; });
  r.takes("a gate of an even number of columns", [](Args *a) { a->gate = SIE_GATE_SWIGLU, a->n = 8; });
  for (int32_t dtype : {SIE_F32, SIE_BF16, SIE_U8}) r.takes("y", [=](Args *a) { a->y.dtype = dtype; });
  r.lacks("y of int8", [](Args *a) { a->y.dtype = SIE_I8; });
  r.ref_only = true;
  r.takes("y in blocks", [](Args *a) { a->y = of(SIE_F8E4M3, 128); });
  r.lacks("y with a scale a row", [](Args *a) { a->y = of(SIE_F8E4M3, -1); });
  for (int32_t group : {-1, 128}) r.takes("x", [=](Args *a) { a->w = &fp8, a->x = of(SIE_F8E4M3, group); });
  r.lacks("x in other blocks", [](Args *a) { a->w = &fp8, a->x = of(SIE_F8E4M3, 64); });
}

TEST(host_reference_refuses_norms_that_are_not_in_place) {
  auto r = of_entry(&sie_ops::linear_norm, "linear_norm");
  using Args = sie_linear_norm_args;
  alignas(64) static float data[4096];
  static const sie_packed weight = {SIE_COMPUTE_BF16, 0, 12, 8, data},
                          half = {SIE_COMPUTE_F16, 0, 12, 8, data}, wide = {SIE_COMPUTE_F32, 0, 12, 8, data};
  r.ref_only = true;
  r.good.linear.rows = r.good.norm.rows = {0, &none};
  r.good.linear.n = r.good.norm.c = 12, r.good.linear.k = 8;
  r.good.linear.x = r.good.linear.y = r.good.norm.x = r.good.norm.y = of(SIE_BF16);
  r.good.linear.w = &weight;
  r.good.norm.norm = SIE_NORM_LAYER;
  r.takes("class BF16", [](Args *) {});
  r.takes("class F16", [](Args *a) { a->linear.w = &half, a->linear.x.dtype = SIE_F16; });
  r.takes("y in f16", [](Args *a) { a->linear.y = a->norm.x = a->norm.y = of(SIE_F16); });
  r.takes("RMS", [](Args *a) { a->norm.norm = SIE_NORM_RMS; });
  r.takes("half of a gate's columns", [](Args *a) { a->linear.gate = SIE_GATE_GEGLU, a->norm.c = 6; });
  r.lacks("class F32", [](Args *a) { a->linear.w = &wide, a->linear.x.dtype = SIE_F32; });
  r.lacks("y in f32", [](Args *a) { a->linear.y = a->norm.x = a->norm.y = of(SIE_F32); });
  r.lacks("y in bytes", [](Args *a) { a->linear.y = a->norm.x = a->norm.y = of(SIE_U8, -1); });
  r.lacks("x of another type", [](Args *a) { a->linear.x.dtype = SIE_F16; });
  r.denies("no norm", [](Args *a) { a->norm.norm = SIE_NORM_NONE; });
  r.denies("other rows", [](Args *a) { a->norm.rows.n = starts; });
  r.denies("other columns", [](Args *a) { a->norm.c = 11; });
  r.denies("all columns of a gate", [](Args *a) { a->linear.gate = SIE_GATE_GEGLU; });
  for (sie_tensor sie_layernorm_args::*which : {&sie_layernorm_args::x, &sie_layernorm_args::y}) {
    r.denies("elsewhere", [=](Args *a) { (a->norm.*which).p = data; });
    r.denies("another stride", [=](Args *a) { (a->norm.*which).ld++; });
    r.denies("another type", [=](Args *a) { (a->norm.*which).dtype = SIE_F16; });
  }
  r.denies("quantised rows", [](Args *a) { a->norm.yq = of(SIE_U8, -1); });
  r.denies("a bias of the norm", [](Args *a) { a->norm.bias = data; });
  r.denies("a residual of the norm", [](Args *a) { a->norm.residual = of(SIE_BF16); });
  r.denies("a sum", [](Args *a) { a->norm.sum = of(SIE_BF16); });
}
