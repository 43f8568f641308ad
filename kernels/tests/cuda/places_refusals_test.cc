// places_refusals_test.cc — what the GPU tables refuse of the operations on words, markers and
// spans, before they write anything, and items that they leave alone.
#include <math.h>

#include <algorithm>

#include "cuda/gemm_pack.h"
#include "tests/cuda/operands.h"

using namespace calls;

namespace {

// Operands of spans and pairs: a label for each of the two sequences, and what is found.
struct FoundOperands : Operands {
  Array<int32_t> cu_labels = {0, 1, 2}, found = Array<int32_t>(rows * SIE_FOUND_WORDS, 0);
  Array<float> head = Array<float>(3 * columns, 1.0f);
  Array<uint8_t> data;
  sie_packed w = {SIE_COMPUTE_BF16, 0, columns, columns, nullptr};

  FoundOperands()
      : data(static_cast<size_t>(sie_cuda::gemm_packed_bytes(SIE_COMPUTE_BF16, columns, columns))) {
    w.data = data.data();
    items = {{SIE_F32, 2, 0, -1, 0}, {SIE_F32, 2, 0, -1, 128}};
  }
  int32_t *found_here() { return reinterpret_cast<int32_t *>(out.data()); }
};

template <class Args>
void fill(FoundOperands *o, Args *a) {
  a->words = o->tokens();
  a->seqs = o->seqs();
  a->cu_words = o->cu.data();
  a->cu_labels = o->cu_labels.data();
  a->k = columns;
  a->found = o->found_here();
  a->found_ld = SIE_FOUND_WORDS;
  a->items = o->items.data();
}

// What both refuse alike.
template <class Args>
std::vector<Spoiled<Args>> found_refusals() {
  return {
      {"no columns", invalid, [](Args *b) { b->k = 0; }},
      {"no sequences' count", invalid, [](Args *b) { b->seqs.n = nullptr; }},
      {"fewer sequences than none", invalid, [](Args *b) { b->seqs.cap = -1; }},
      {"more sequences than int32", unsupported, [](Args *b) { b->seqs.cap = int64_t{1} << 31; }},
      {"more sequences than int32 to write", unsupported,
       [](Args *b) { b->write = 1, b->out = b->found, b->seqs.cap = int64_t{1} << 31; }},
      {"no words of as many as int32", SIE_OK, [](Args *b) { b->words.cap = 0, b->seqs.cap = INT32_MAX; }},
      {"no words of sequences", invalid, [](Args *b) { b->cu_words = nullptr; }},
      {"no labels of sequences", invalid, [](Args *b) { b->cu_labels = nullptr; }},
      {"no room for what is found", invalid, [](Args *b) { b->found = nullptr; }},
      {"a stride of found below its words", invalid, [](Args *b) { b->found_ld = SIE_FOUND_WORDS - 1; }},
      {"no items", invalid, [](Args *b) { b->items = nullptr; }},
      {"no words and no items", invalid, [](Args *b) { b->words.cap = 0, b->items = nullptr; }},
      {"words of no sequences and no items", invalid, [](Args *b) { b->seqs.cap = 0, b->items = nullptr; }},
      {"a pass before the first", invalid, [](Args *b) { b->write = -1, b->out = b->found; }},
      {"a third pass", invalid, [](Args *b) { b->write = 2, b->out = b->found; }},
      {"more headers than can be launched here", too_large_to_emulate,
       [](Args *b) { b->write = 1, b->out = b->found, b->seqs.cap = INT32_MAX; }},
      {"no output to write", invalid, [](Args *b) { b->write = 1, b->out = nullptr; }},
  };
}

template <class Args>
std::vector<Spoiled<Args>> both(std::vector<Spoiled<Args>> list, const std::vector<Spoiled<Args>> &own) {
  list.insert(list.end(), own.begin(), own.end());
  return list;
}

// Writes what is found of two sequences, of which the first has an item that may not be written.
template <class Args>
void check_bad_items(const char *name, sie_status (*const sie_ops::*entry)(const Args *, const sie_share *),
                     FoundOperands *o, Args a) {
  const sie_out_item right = {SIE_F32, 2, 0, -1, 0};
  const struct {
    const char *what;
    sie_out_item item;
  } bad[] = {{"of float16", {SIE_F16, 2, 0, -1, 0}},
             {"without room", {SIE_F32, 0, 0, -1, 0}},
             {"to be normalised", {SIE_F32, 2, 1, -1, 0}},
             {"without a threshold", {SIE_F32, 2, 0, NAN, 0}}};
  Array<uint8_t> out(256, 0xff);
  a.found = o->found.data();
  for (const Gpu &gpu : gpus()) {
    const sie_share whole = {0, 1, nullptr, 0, &gpu.on};
    auto run = [&](int32_t write, const sie_out_item &first) {
      a.write = write;
      a.out = out.data();
      o->items[0] = first;
      return (gpu.ops->*entry)(&a, &whole) == SIE_OK && memory.finish(&gpu.on) == SIE_OK;
    };
    for (const auto &[what, item] : bad) {
      std::fill(out.begin(), out.end(), uint8_t{0xff});
      CHECK(run(0, right) && run(1, item), "%s %s: refused", gpu.ops->name, name);
      const bool same = std::all_of(out.begin(), out.begin() + 128, [](uint8_t v) { return v == 0xff; });
      CHECK(same && out[128] == 3, "%s %s: an item %s is %s, the one behind it has %d records", gpu.ops->name,
            name, what, same ? "left" : "written", out[128]);
    }
  }
}

}  // namespace

TEST(take_rows_refuses) {
  Operands o;
  Array<int32_t> places = {0, 0, 1, 0};
  sie_take_rows_args a = {};
  a.rows = o.tokens();
  a.seqs = o.seqs();
  a.cu_seqlens = a.cu_x = o.cu.data();
  a.which = SIE_POOL_MEAN;
  a.first = a.last = places.data();
  a.c = columns;
  a.x = o.in();
  a.y = o.to();
  using Args = sie_take_rows_args;
  check_refusals<Args>(
      "take_rows", &sie_ops::take_rows, a, &Args::rows, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"too many columns", unsupported, [](Args *b) { b->c = b->x.ld = b->y.ld = too_wide; }},
          {"no rows of the widest", SIE_OK,
           [](Args *b) { b->rows.cap = 0, b->c = b->x.ld = b->y.ld = widest; }},
          {"no x", invalid, [](Args *b) { b->x.p = nullptr; }},
          {"no y", invalid, [](Args *b) { b->y.p = nullptr; }},
          {"no sequences' count", invalid, [](Args *b) { b->seqs.n = nullptr; }},
          {"no sequences", invalid, [](Args *b) { b->cu_seqlens = nullptr; }},
          {"no first places", invalid, [](Args *b) { b->first = nullptr; }},
          {"no last places", invalid, [](Args *b) { b->last = nullptr; }},
          {"cls without first places", invalid, [](Args *b) { b->which = SIE_POOL_CLS, b->first = nullptr; }},
          {"last without last places", invalid, [](Args *b) { b->which = SIE_POOL_LAST, b->last = nullptr; }},
          {"the largest", unsupported, [](Args *b) { b->which = SIE_POOL_MAX; }},
          {"a stride of x below its columns", invalid, [](Args *b) { b->x.ld = columns - 1; }},
          {"a stride of y below its columns", invalid, [](Args *b) { b->y.ld = columns - 1; }},
          {"two types", unsupported, [](Args *b) { b->y.dtype = SIE_F16; }},
          {"bytes", unsupported, [](Args *b) { b->x.dtype = b->y.dtype = SIE_U8; }},
          {"no rows and no memory", SIE_OK,
           [](Args *b) {
             b->rows = b->seqs = {0, nullptr};
             b->cu_seqlens = b->cu_x = b->first = b->last = nullptr;
             b->x.p = b->y.p = nullptr;
           }},
      },
      {{" of cls", SIE_OK, [](Args *b) { b->which = SIE_POOL_CLS, b->last = nullptr; }},
       {" of last", SIE_OK, [](Args *b) { b->which = SIE_POOL_LAST, b->first = nullptr; }},
       {" of sequences", SIE_OK,
        [](Args *b) { b->cu_x = b->first = b->last = nullptr, b->which = SIE_POOL_MAX; }}});
}

TEST(product_refuses) {
  Operands o;
  sie_product_args a = {};
  a.rows = o.tokens();
  a.c = columns;
  a.a = a.b = o.in();
  a.y = o.to();
  using Args = sie_product_args;
  check_refusals<Args>(
      "product", &sie_ops::product, a, &Args::rows, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"too many columns", unsupported, [](Args *b) { b->c = b->a.ld = b->b.ld = b->y.ld = too_wide; }},
          {"no rows of the widest", SIE_OK,
           [](Args *b) { b->rows.cap = 0, b->c = b->a.ld = b->b.ld = b->y.ld = widest; }},
          {"no a", invalid, [](Args *b) { b->a.p = nullptr; }},
          {"no b", invalid, [](Args *b) { b->b.p = nullptr; }},
          {"no y", invalid, [](Args *b) { b->y.p = nullptr; }},
          {"a stride of a below its columns", invalid, [](Args *b) { b->a.ld = columns - 1; }},
          {"a stride of b below its columns", invalid, [](Args *b) { b->b.ld = columns - 1; }},
          {"a stride of y below its columns", invalid, [](Args *b) { b->y.ld = columns - 1; }},
          {"a of bytes", unsupported, [](Args *b) { b->a.dtype = SIE_U8; }},
          {"b of bytes", unsupported, [](Args *b) { b->b.dtype = SIE_U8; }},
          {"y of bytes", unsupported, [](Args *b) { b->y.dtype = SIE_U8; }},
          {"no rows and no memory", SIE_OK,
           [](Args *b) { b->rows = {0, nullptr}, b->a.p = b->b.p = b->y.p = nullptr; }},
      },
      {});
}

TEST(dots_refuses) {
  Operands o;
  sie_dots_args a = {};
  a.rows = o.tokens();
  a.c = columns;
  a.a = a.b = o.in();
  a.y = {o.out.data(), 1, SIE_F32, 0, nullptr, nullptr, nullptr};
  using Args = sie_dots_args;
  check_refusals<Args>(
      "dots", &sie_ops::dots, a, &Args::rows, &o,
      {
          {"no columns", invalid, [](Args *b) { b->c = 0; }},
          {"too many columns", unsupported, [](Args *b) { b->c = b->a.ld = b->b.ld = too_wide; }},
          {"no rows of the widest", SIE_OK,
           [](Args *b) { b->rows.cap = 0, b->c = b->a.ld = b->b.ld = widest; }},
          {"no a", invalid, [](Args *b) { b->a.p = nullptr; }},
          {"no b", invalid, [](Args *b) { b->b.p = nullptr; }},
          {"no y", invalid, [](Args *b) { b->y.p = nullptr; }},
          {"a stride of a below its columns", invalid, [](Args *b) { b->a.ld = columns - 1; }},
          {"a stride of b below its columns", invalid, [](Args *b) { b->b.ld = columns - 1; }},
          {"no stride of y", invalid, [](Args *b) { b->y.ld = 0; }},
          {"a of bytes", unsupported, [](Args *b) { b->a.dtype = SIE_U8; }},
          {"b of bytes", unsupported, [](Args *b) { b->b.dtype = SIE_U8; }},
          {"y of bf16", unsupported, [](Args *b) { b->y.dtype = SIE_BF16; }},
          {"no rows and no memory", SIE_OK,
           [](Args *b) { b->rows = {0, nullptr}, b->a.p = b->b.p = b->y.p = nullptr; }},
      },
      {});
}

TEST(lstm_refuses) {
  constexpr int64_t hidden = 4;
  Operands o;
  Array<uint8_t> data(static_cast<size_t>(sie_cuda::gemm_packed_bytes(SIE_COMPUTE_F32, 4 * hidden, hidden)));
  static sie_packed w, wide, widest_w, tall, flat, none, absent;
  w = {SIE_COMPUTE_F32, 0, 4 * hidden, hidden, data.data()};
  wide = {SIE_COMPUTE_F32, 0, 4 * (SIE_MAX_GPU_LSTM + 1), SIE_MAX_GPU_LSTM + 1, data.data()};
  widest_w = {SIE_COMPUTE_F32, 0, 4 * SIE_MAX_GPU_LSTM, SIE_MAX_GPU_LSTM, data.data()};
  tall = flat = absent = w;
  tall.n++, flat.k--, absent.data = nullptr;
  none = {SIE_COMPUTE_F32, 0, 0, 0, data.data()};
  sie_lstm_args a = {};
  a.rows = o.tokens();
  a.seqs = o.seqs();
  a.cu_seqlens = o.cu.data();
  a.h = hidden;
  a.w = a.w_reverse = &w;
  a.gates = o.in();
  a.y = o.to();
  using Args = sie_lstm_args;
  check_refusals<Args>(
      "lstm", &sie_ops::lstm, a, &Args::seqs, &o,
      {
          {"no hidden columns", invalid, [](Args *b) { b->h = 0, b->w = b->w_reverse = &none; }},
          {"a matrix with another row", invalid, [](Args *b) { b->w = &tall; }},
          {"a matrix without a column", invalid, [](Args *b) { b->w_reverse = &flat; }},
          {"a matrix without data", invalid, [](Args *b) { b->w = &absent; }},
          {"another number of them", invalid, [](Args *b) { b->h = hidden + 1; }},
          {"too many of them", unsupported,
           [](Args *b) {
             b->h = SIE_MAX_GPU_LSTM + 1;
             b->w = b->w_reverse = &wide;
             b->gates.ld = b->y.ld = 8 * b->h;
           }},
          {"no rows of the widest", SIE_OK,
           [](Args *b) {
             b->rows.cap = 0, b->h = SIE_MAX_GPU_LSTM;
             b->w = b->w_reverse = &widest_w;
             b->gates.ld = 8 * b->h, b->y.ld = 2 * b->h;
           }},
          {"no rows of as many as int32", SIE_OK, [](Args *b) { b->seqs.cap = 0, b->rows.cap = INT32_MAX; }},
          {"no direction", invalid, [](Args *b) { b->w = b->w_reverse = nullptr; }},
          {"no sequences", invalid, [](Args *b) { b->cu_seqlens = nullptr; }},
          {"fewer rows than none", invalid, [](Args *b) { b->rows.cap = -1; }},
          {"more rows than int32", unsupported, [](Args *b) { b->rows.cap = int64_t{1} << 31; }},
          {"no gates", invalid, [](Args *b) { b->gates.p = nullptr; }},
          {"no y", invalid, [](Args *b) { b->y.p = nullptr; }},
          {"a stride of the gates below their columns", invalid,
           [](Args *b) { b->gates.ld = 8 * hidden - 1; }},
          {"a stride of y below its columns", invalid, [](Args *b) { b->y.ld = 2 * hidden - 1; }},
          {"gates of bytes", unsupported, [](Args *b) { b->gates.dtype = SIE_U8; }},
          {"y of bytes", unsupported, [](Args *b) { b->y.dtype = SIE_U8; }},
          {"no rows and no memory", SIE_OK,
           [](Args *b) { b->rows = {0, nullptr}, b->gates.p = b->y.p = nullptr; }},
      },
      {{" forward", SIE_OK, [](Args *b) { b->w_reverse = nullptr; }},
       {" in reverse", SIE_OK, [](Args *b) { b->w = nullptr; }}});
  w.compute = SIE_COMPUTE_BF16;
  for (const Gpu &gpu : gpus()) {
    const sie_share whole = {0, 1, nullptr, 0, &gpu.on};
    CHECK(gpu.ops->lstm(&a, &whole) == invalid, "%s: a matrix of class bf16", gpu.ops->name);
  }
  CHECK(o.untouched(), "refused, but wrote");
}

// An SM of sm_120 has no room for an eighth of this matrix: a CTA does without a cluster.
TEST(lstm_on_sm_120) {
  constexpr int64_t hidden = 256;
  Array<uint8_t> data(static_cast<size_t>(sie_cuda::gemm_packed_bytes(SIE_COMPUTE_F32, 4 * hidden, hidden)));
  const sie_packed w = {SIE_COMPUTE_F32, 0, 4 * hidden, hidden, data.data()};
  Array<float> gates(4 * hidden, 1.0f), y(hidden, 0.0f);
  Array<int32_t> cu = {0, 1}, one = {1};
  sie_lstm_args a = {};
  a.rows = a.seqs = {1, one.data()};
  a.cu_seqlens = cu.data();
  a.h = hidden;
  a.w = &w;
  a.gates = {gates.data(), 4 * hidden, SIE_F32, 0, nullptr, nullptr, nullptr};
  a.y = {y.data(), hidden, SIE_F32, 0, nullptr, nullptr, nullptr};
  for (const Gpu &gpu : gpus()) {
    sie_stream on = gpu.on;
    on.sm = 120;
    const sie_share whole = {0, 1, nullptr, 0, &on};
    CHECK(gpu.ops->lstm(&a, &whole) == SIE_OK && memory.finish(&on) == SIE_OK, "%s: refused", gpu.ops->name);
    CHECK(y[0] > 0 && y[hidden - 1] == y[0], "%s: y is %g to %g", gpu.ops->name, static_cast<double>(y[0]),
          static_cast<double>(y[hidden - 1]));
    std::fill(y.begin(), y.end(), 0.0f);
  }
}

TEST(spans_refuses) {
  FoundOperands o;
  sie_spans_args a = {};
  fill(&o, &a);
  a.starts = a.ends = a.labels = o.in();
  a.widest = 2;
  using Args = sie_spans_args;
  static const sie_tensor bias = {nullptr, 1, SIE_F32, 0, nullptr, nullptr, nullptr};
  check_refusals<Args>(
      "spans", &sie_ops::spans, a, &Args::words, &o,
      both<Args>(
          found_refusals<Args>(),
          {
              {"too many columns", unsupported,
               [](Args *b) { b->k = b->starts.ld = b->ends.ld = b->labels.ld = too_wide; }},
              {"no words of the widest", SIE_OK,
               [](Args *b) { b->words.cap = 0, b->k = b->starts.ld = b->ends.ld = b->labels.ld = widest; }},
              {"no width", invalid, [](Args *b) { b->widest = 0; }},
              {"too wide", invalid, [](Args *b) { b->widest = SIE_MAX_SPAN_WIDTH + 1; }},
              {"no starts", invalid, [](Args *b) { b->starts.p = nullptr; }},
              {"no ends", invalid, [](Args *b) { b->ends.p = nullptr; }},
              {"a stride of starts below its columns", invalid, [](Args *b) { b->starts.ld--; }},
              {"a stride of ends below its columns", invalid, [](Args *b) { b->ends.ld--; }},
              {"a stride of labels below its columns", invalid, [](Args *b) { b->labels.ld--; }},
              {"no stride of the bias", invalid, [](Args *b) { b->bias = b->labels, b->bias.ld = 0; }},
              {"starts of bytes", unsupported, [](Args *b) { b->starts.dtype = SIE_U8; }},
              {"ends of bytes", unsupported, [](Args *b) { b->ends.dtype = SIE_U8; }},
              {"labels of bytes", unsupported, [](Args *b) { b->labels.dtype = SIE_U8; }},
              {"a bias of bytes", unsupported, [](Args *b) { b->bias = b->labels, b->bias.dtype = SIE_U8; }},
              {"no words and no memory", SIE_OK,
               [](Args *b) {
                 b->words = b->seqs = {0, nullptr};
                 b->cu_words = b->cu_labels = nullptr, b->found = nullptr, b->items = nullptr;
                 b->starts.p = b->ends.p = b->labels.p = nullptr, b->bias = bias;
               }},
          }),
      {{" with a bias", SIE_OK, [](Args *b) { b->bias = b->labels; }}});
}

TEST(pairs_refuses) {
  static FoundOperands o;
  static sie_packed other, wide, absent, flat, narrow;
  other = wide = absent = flat = narrow = o.w;
  flat.n = narrow.k = 0;
  other.compute = SIE_COMPUTE_FP8;
  absent.data = nullptr;
  sie_pairs_args a = {};
  fill(&o, &a);
  a.n = columns;
  a.words_x = a.words_u = a.labels_x = a.labels_u = o.in();
  a.w = &o.w;
  a.head = o.head.data();
  a.n_logits = 3;
  using Args = sie_pairs_args;
  check_refusals<Args>(
      "pairs", &sie_ops::pairs, a, &Args::words, &o,
      both<Args>(found_refusals<Args>(),
                 {
                     {"no rows of the matrix", invalid, [](Args *b) { b->n = 0; }},
                     {"nor one with a row", invalid, [](Args *b) { b->n = 0, b->w = &flat; }},
                     {"nor one with a column", invalid, [](Args *b) { b->k = 0, b->w = &narrow; }},
                     {"other rows than its own", invalid, [](Args *b) { b->n--; }},
                     {"other columns than its own", invalid, [](Args *b) { b->k--; }},
                     {"no matrix", invalid, [](Args *b) { b->w = nullptr; }},
                     {"a matrix of class fp8", unsupported, [](Args *b) { b->w = &other; }},
                     {"a matrix without data", invalid, [](Args *b) { b->w = &absent; }},
                     {"too many columns", unsupported,
                      [](Args *b) {
                        b->k = wide.k = b->words_x.ld = b->labels_x.ld = too_wide;
                        wide.n = b->n, b->w = &wide;
                      }},
                     {"too many rows of the matrix", unsupported,
                      [](Args *b) {
                        b->n = wide.n = b->words_u.ld = b->labels_u.ld = too_wide;
                        wide.k = b->k, b->w = &wide;
                      }},
                     {"no words of the widest", SIE_OK,
                      [](Args *b) {
                        b->words.cap = 0, b->n = b->k = wide.n = wide.k = widest, b->w = &wide;
                        b->words_x.ld = b->words_u.ld = b->labels_x.ld = b->labels_u.ld = widest;
                      }},
                     {"no head", invalid, [](Args *b) { b->head = nullptr; }},
                     {"no logits", invalid, [](Args *b) { b->n_logits = 0; }},
                     {"four logits", invalid, [](Args *b) { b->n_logits = 4; }},
                     {"no words", invalid, [](Args *b) { b->words_x.p = nullptr; }},
                     {"no terms of words", invalid, [](Args *b) { b->words_u.p = nullptr; }},
                     {"a stride of words below its columns", invalid, [](Args *b) { b->words_x.ld--; }},
                     {"a stride of their terms below it", invalid, [](Args *b) { b->words_u.ld--; }},
                     {"a stride of labels below its columns", invalid, [](Args *b) { b->labels_x.ld--; }},
                     {"a stride of the labels' terms below it", invalid, [](Args *b) { b->labels_u.ld--; }},
                     {"words of bytes", unsupported, [](Args *b) { b->words_x.dtype = SIE_U8; }},
                     {"terms of bytes", unsupported, [](Args *b) { b->words_u.dtype = SIE_U8; }},
                     {"labels of bytes", unsupported, [](Args *b) { b->labels_x.dtype = SIE_U8; }},
                     {"the labels' terms of bytes", unsupported, [](Args *b) { b->labels_u.dtype = SIE_U8; }},
                 }),
      {{" with two logits", SIE_OK, [](Args *b) { b->n_logits = 2; }}});
}

TEST(spans_and_pairs_leave_bad_items) {
  FoundOperands o;
  sie_spans_args spans = {};
  fill(&o, &spans);
  spans.starts = spans.ends = spans.labels = o.in();
  spans.widest = 1;
  check_bad_items("spans", &sie_ops::spans, &o, spans);
  sie_pairs_args pairs = {};
  fill(&o, &pairs);
  pairs.n = columns;
  pairs.words_x = pairs.words_u = pairs.labels_x = pairs.labels_u = o.in();
  pairs.w = &o.w;
  pairs.head = o.head.data();
  pairs.n_logits = 1;
  check_bad_items("pairs", &sie_ops::pairs, &o, pairs);
}
