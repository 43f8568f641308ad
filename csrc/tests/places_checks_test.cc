// places_checks_test.cc — operations on words, and the outputs of what is found: what they take, at their
// bounds, on made-up programs.
#include <float.h>
#include <math.h>
#include <string.h>

#include <functional>
#include <memory>

#include "made_program.h"
#include "record.h"
#include "says.h"

namespace {

constexpr sie_space tokens = 1, sequences = 2, words = 3, queries = 4, subset = 5, labels = 8;
// Values: of 32 columns of class f32, where nothing else is said.
enum Value : sie_value {
  of_tokens = 1,
  of_sequences,
  of_words,
  one_column,  // of words
  stream,      // of tokens, of class bf16
  bf16,        // of words
  of_subset,
  of_labels,
  label_bias,       // one column of labels
  one_of_sequence,  // one column
  gates,            // 64 columns of words
  bf16_of_tokens,
  one_bf16,  // one column of words
  after      // the next number
};

struct Made : made::Bare {
  Made() {
    p.seqs = sequences;
    p.rows = labels;
    space(tokens, SIE_SPACE_ROWS, "tokens");
    space(sequences, SIE_SPACE_SEQS, "sequences");
    space(words, SIE_SPACE_ROWS, "words");
    space(queries, SIE_SPACE_SHARED, "queries");
    space(subset, SIE_SPACE_SUBSET, "subset").marks = 9;
    space(labels, SIE_SPACE_ROWS, "labels");
    const struct {
      sie_space space;
      uint32_t compute;
      int64_t columns;
    } values[] = {
        {tokens, SIE_COMPUTE_F32, 32},   {sequences, SIE_COMPUTE_F32, 32}, {words, SIE_COMPUTE_F32, 32},
        {words, SIE_COMPUTE_F32, 1},     {tokens, SIE_COMPUTE_BF16, 32},   {words, SIE_COMPUTE_BF16, 32},
        {subset, SIE_COMPUTE_F32, 32},   {labels, SIE_COMPUTE_F32, 32},    {labels, SIE_COMPUTE_F32, 1},
        {sequences, SIE_COMPUTE_F32, 1}, {words, SIE_COMPUTE_F32, 64},     {tokens, SIE_COMPUTE_BF16, 32},
        {words, SIE_COMPUTE_BF16, 1}};
    for (const auto &v : values) value(v.space, v.columns, v.compute);
    p.values[stream].stream = true;
    input(1, words, SIE_I32, "one");
    input(2, words, SIE_I32, "two");
    input(3, words, SIE_I32, "three").optional = true;
    input(4, tokens, SIE_I32, "four");
    input(6, sequences, SIE_I32, "six");
    input(7, queries, SIE_F32, "seven");
    input(9, tokens, SIE_U8, "nine");
    input(20, words, SIE_I32, "twenty");
  }

  sie_status take(uint32_t which, sie_value x, sie_space to, sie_input first, sie_input last,
                  sie_error *err) {
    sie_take_rows_params t = sized<sie_take_rows_params>();
    t.which = which, t.to = to;
    t.x = x, t.y = next();
    t.first = first, t.last = last;
    return sie::record_take_rows(&p, &t, err);
  }
  sie_status softmax(sie_value x, float scale, sie_error *err) {
    sie_softmax_params s = sized<sie_softmax_params>();
    s.x = x, s.y = next();
    s.scale = scale;
    return sie::record_softmax(&p, &s, err);
  }
  sie_status product(sie_value a, sie_value b, sie_error *err) {
    sie_product_params m = sized<sie_product_params>();
    m.a = a, m.b = b, m.y = next();
    return sie::record_product(&p, &m, err);
  }
  sie_status dots(sie_value a, sie_value b, sie_error *err) {
    sie_dots_params d = sized<sie_dots_params>();
    d.a = a, d.b = b, d.y = next();
    return sie::record_dots(&p, &d, err);
  }
};

}  // namespace

TEST(places_take_rows_of_another_space) {
  constexpr uint32_t cls = SIE_POOL_CLS, mean = SIE_POOL_MEAN, last = SIE_POOL_LAST;
  auto fresh = [] { return std::make_unique<Made>(); };
  auto m = fresh();
  PASSES(m->take(cls, of_tokens, words, 1, 0, &err));
  CHECK(m->p.inputs[1].read && m->p.inputs[1].places_of == tokens && m->p.inputs[1].from == 0 &&
            !m->p.inputs[0].read && m->p.inputs[0].places_of == 0,
        "the first place is read otherwise");
  CHECK(m->last_value().space == words && m->last_value().columns == 32, "rows of another space");
  PASSES(m->take(last, of_tokens, words, 0, 20, &err));
  CHECK(m->p.inputs[20].read && m->p.inputs[20].places_of == tokens && m->p.inputs[20].from == 0,
        "the last place");
  m = fresh();
  PASSES(m->take(mean, of_tokens, words, 1, 2, &err));
  CHECK(m->p.inputs[1].read && m->p.inputs[2].read && m->p.inputs[2].from == 1 && m->p.inputs[1].from == 0,
        "a range is read otherwise");
  PASSES(m->take(mean, of_tokens, words, 1, 2, &err));  // again
  PASSES(m->take(cls, of_tokens, words, 1, 0, &err));
  SAYS("last is two, which ends a range that begins at one", m->take(mean, of_tokens, words, 20, 2, &err));
  SAYS("last is one, which ends a range that begins at one", m->take(mean, of_tokens, words, 1, 1, &err));
  SAYS("names places of tokens for another operation; x has rows of labels",
       m->take(cls, of_labels, words, 1, 0, &err));
  PASSES(m->take(cls, of_labels, words, 20, 0, &err));
  m = fresh();
  for (uint32_t which : {0u, 4u, UINT32_MAX})
    SAYS("cls, last and mean", m->take(which, of_tokens, words, 1, 2, &err));
  SAYS("first is 0", m->take(cls, of_tokens, words, 0, 0, &err));
  SAYS("last is 0", m->take(last, of_tokens, words, 0, 0, &err));
  SAYS("last is 2; it has no meaning", m->take(cls, of_tokens, words, 1, 2, &err));
  SAYS("first is 1; it has no meaning", m->take(last, of_tokens, words, 1, 2, &err));
  SAYS("first is 0", m->take(mean, of_tokens, words, 0, 2, &err));
  SAYS("last is 0", m->take(mean, of_tokens, words, 1, 0, &err));
  SAYS("first is optional", m->take(cls, of_tokens, words, 3, 0, &err));
  SAYS("first has rows of tokens; y has rows of words", m->take(cls, of_labels, words, 4, 0, &err));
  SAYS("another ROWS space than words", m->take(cls, of_words, words, 1, 0, &err));
  SAYS("x has rows of subset", m->take(cls, of_subset, words, 1, 0, &err));
  for (sie_space to : {INT32_MIN, -1, 0, 2, 4, 5, 6, 9, INT32_MAX})
    SAYS("which is no ROWS space", m->take(cls, of_tokens, to, 1, 0, &err));
  PASSES(m->take(cls, of_words, tokens, 4, 0, &err));
  m->input(20, labels, SIE_I32, "twenty");
  PASSES(m->take(cls, of_tokens, labels, 20, 0, &err));
  // A sequence's own row for each of its rows.
  PASSES(m->take(0, of_sequences, words, 0, 0, &err));
  SAYS("which is 1", m->take(cls, of_sequences, words, 0, 0, &err));
  SAYS("first is 1", m->take(0, of_sequences, words, 1, 0, &err));
  SAYS("last is 2", m->take(0, of_sequences, words, 0, 2, &err));
  // Rows of a stream are f32.
  PASSES(m->take(cls, bf16_of_tokens, words, 1, 0, &err));
  CHECK(m->last_value().compute == SIE_COMPUTE_BF16, "class %u", m->last_value().compute);
  PASSES(m->take(cls, stream, words, 1, 0, &err));
  CHECK(m->last_value().compute == SIE_COMPUTE_F32, "class %u", m->last_value().compute);
}

TEST(places_have_products_and_a_softmax) {
  auto m = std::make_unique<Made>();
  PASSES(m->product(of_words, of_words, &err));
  SAYS("they must agree", m->product(of_words, of_tokens, &err));
  SAYS("they must agree", m->product(of_words, gates, &err));
  SAYS("a is of class f32 and b of bf16", m->product(of_words, bf16, &err));
  PASSES(m->dots(of_words, bf16, &err));
  CHECK(m->last_value().columns == 1 && m->last_value().compute == SIE_COMPUTE_F32 &&
            m->last_value().space == words,
        "one number a row");
  SAYS("they must agree", m->dots(of_words, of_tokens, &err));
  for (float scale : {FLT_MIN, 1.0f, FLT_MAX}) PASSES(m->softmax(one_column, scale, &err));
  for (float scale : {0.0f, -1.0f, NAN, INFINITY, -INFINITY})
    SAYS("a finite number above 0 is needed", m->softmax(one_column, scale, &err));
  SAYS("x has 32 columns of class f32; one of class f32", m->softmax(of_words, 1, &err));
  SAYS("x has 1 columns of class bf16; one of class f32", m->softmax(one_bf16, 1, &err));
  SAYS("those of a ROWS space are needed", m->softmax(one_of_sequence, 1, &err));
  // What a table lacks.
  m->ops.take_rows = nullptr, m->ops.product = nullptr, m->ops.dots = nullptr, m->ops.softmax = nullptr;
  SAYS("has no take_rows", m->take(SIE_POOL_CLS, of_tokens, words, 1, 0, &err), SIE_UNSUPPORTED);
  SAYS("has no product", m->product(of_words, of_words, &err), SIE_UNSUPPORTED);
  SAYS("has no dots", m->dots(of_words, of_words, &err), SIE_UNSUPPORTED);
  SAYS("has no softmax", m->softmax(one_column, 1, &err), SIE_UNSUPPORTED);
}

TEST(places_have_an_lstm) {
  auto m = std::make_unique<Made>();
  float memory[1] = {};
  auto weight = [&](int64_t n, int64_t k, uint32_t compute = SIE_COMPUTE_F32) {
    auto w = std::make_unique<sie_weight>();
    w->device = &m->device;
    w->kind = SIE_WEIGHT_LINEAR;
    w->n = n, w->k = k;
    w->packed.compute = compute;
    w->table.p = memory;
    return w;
  };
  auto lstm = [&](sie_value of, const sie_weight *w, const sie_weight *reverse, sie_error *err) {
    sie_lstm_params l = sized<sie_lstm_params>();
    l.gates = of, l.y = static_cast<sie_value>(m->p.values.size());
    l.w = w, l.w_reverse = reverse;
    return sie::record_lstm(&m->p, &l, err);
  };
  const auto w16 = weight(64, 16), w8 = weight(32, 8);
  PASSES(lstm(gates, w16.get(), nullptr, &err));
  CHECK(m->last_value().columns == 16 && m->last_value().space == words, "%lld columns",
        static_cast<long long>(m->last_value().columns));
  PASSES(lstm(gates, nullptr, w16.get(), &err));
  CHECK(m->last_value().columns == 16, "%lld columns", static_cast<long long>(m->last_value().columns));
  PASSES(lstm(gates, w8.get(), w8.get(), &err));
  CHECK(m->last_value().columns == 16, "%lld columns of two directions",
        static_cast<long long>(m->last_value().columns));
  SAYS("an LSTM has a direction", lstm(gates, nullptr, nullptr, &err));
  SAYS("w is [64, 16] of class f32; [32, 8] of class f32", lstm(gates, w16.get(), w8.get(), &err));
  SAYS("w_reverse is [64, 16] of class f32; [32, 8]", lstm(gates, w8.get(), w16.get(), &err));
  SAYS("[60, 16] of class f32; [64, 16]", lstm(gates, weight(60, 16).get(), nullptr, &err));
  SAYS("[80, 16] of class f32; [64, 16]", lstm(gates, weight(80, 16).get(), nullptr, &err));
  SAYS("[64, 15] of class f32; [64, 16]", lstm(gates, weight(64, 15).get(), nullptr, &err));
  SAYS("[64, 16] of class bf16; [64, 16]",
       lstm(gates, weight(64, 16, SIE_COMPUTE_BF16).get(), nullptr, &err));
  SAYS("gates has rows of sequences", lstm(of_sequences, w8.get(), nullptr, &err));
  // An odd number of hidden columns in either direction.
  m->p.values[gates].columns = 60;
  const auto w15 = weight(60, 15);
  PASSES(lstm(gates, w15.get(), nullptr, &err));
  PASSES(lstm(gates, nullptr, w15.get(), &err));
  SAYS("a multiple of 8", lstm(gates, w15.get(), w15.get(), &err));
  m->p.values[gates].columns = 66;
  SAYS("a multiple of 4", lstm(gates, w16.get(), nullptr, &err));
  m->p.values[gates].columns = 65;
  SAYS("a multiple of 4", lstm(gates, w16.get(), nullptr, &err));
  // A GPU holds up to 768.
  const auto most = weight(4 * 768, 768), more = weight(4 * 769, 769);
  for (uint32_t kind : {SIE_DEVICE_CPU, SIE_DEVICE_CUDA}) {
    m->device.kind = kind;
    m->p.values[gates].columns = 4 * 768;
    PASSES(lstm(gates, most.get(), nullptr, &err));
    m->p.values[gates].columns = 4 * 769;
    if (kind == SIE_DEVICE_CPU) {
      PASSES(lstm(gates, more.get(), nullptr, &err));
    } else {
      SAYS("an LSTM of 769 hidden columns", lstm(gates, more.get(), nullptr, &err), SIE_UNSUPPORTED);
    }
  }
  m->ops.lstm = nullptr;
  SAYS("has no lstm", lstm(gates, most.get(), nullptr, &err), SIE_UNSUPPORTED);
}

TEST(places_take_rows_that_batches_give) {
  auto give = [](sie_input input, int32_t columns, const char *words, int32_t declared = 0) {
    auto m = std::make_unique<Made>();
    m->input(1, queries, SIE_F32, "one");
    m->input(20, queries, SIE_F32, "twenty");
    for (sie_input i : {1, 7, 20}) m->p.inputs[i].columns = declared;
    sie_given_rows_params g = sized<sie_given_rows_params>();
    g.y = after;
    g.input = input, g.columns = columns;
    if (words != nullptr) {
      SAYS(words, sie::record_given_rows(&m->p, &g, &err));
      CHECK(m->p.values.size() == after, "refused rows are a value");
      return;
    }
    PASSES(sie::record_given_rows(&m->p, &g, &err));
    const sie::Value &v = m->last_value();
    CHECK(v.given == input && v.columns == columns && v.space == queries && v.base == after &&
              m->p.inputs[input].columns == columns && m->p.inputs[input].read,
          "rows of input %d are another value", input);
  };
  for (sie_input input : {1, 7, 20}) give(input, 5, nullptr);
  for (sie_input input : {INT32_MIN, -1, 0, 2, 5, 21, INT32_MAX}) give(input, 5, "which is no f32 input");
  for (int32_t columns : {1, 1048576}) give(7, columns, nullptr), give(7, columns, nullptr, columns);
  for (int32_t columns : {-1, 0, 1048577}) give(7, columns, "1 to 1048576 is possible");
  give(7, 5, "columns is 5; seven has 6", 6);
}

TEST(places_find_spans_and_pairs) {
  auto spans = [](const std::function<void(Made *, sie_output_spans_params *)> &change, const char *words,
                  sie_status want = SIE_INVALID_ARGUMENT) {
    auto m = std::make_unique<Made>();
    sie_output_spans_params s = sized<sie_output_spans_params>();
    s.name = "found";
    s.starts = s.ends = of_words;
    s.labels = of_labels;
    s.widest = 12;
    change(m.get(), &s);
    if (words != nullptr) {
      SAYS(words, sie::record_output_spans(&m->p, &s, &err), want);
      CHECK(m->p.n_outputs == 0, "a refused output is recorded");
    } else {
      PASSES(sie::record_output_spans(&m->p, &s, &err));
      CHECK(m->p.n_outputs == 1 && m->p.outputs[0].columns == 4, "%lld words a record",
            static_cast<long long>(m->p.outputs[0].columns));
    }
    return m;
  };
  using Spans = sie_output_spans_params;
  auto m = spans([](Made *, Spans *) {}, nullptr);
  CHECK(!m->p.inputs[0].read && m->p.inputs[0].groups_of == 0 && !m->p.inputs[6].read,
        "own labels read a partner");
  for (int32_t widest : {1, 256}) spans([widest](Made *, Spans *s) { s->widest = widest; }, nullptr);
  for (int32_t widest : {-1, 0, 257})
    spans([widest](Made *, Spans *s) { s->widest = widest; }, "1 to 256 is possible");
  spans([](Made *, Spans *s) { s->bias = label_bias; }, nullptr);
  spans([](Made *, Spans *s) { s->bias = of_labels; }, "bias has 32 columns in rows of labels; 1 columns");
  spans([](Made *, Spans *s) { s->bias = one_column; },
        "bias has 1 columns in rows of words; 1 columns in rows of labels");
  spans([](Made *, Spans *s) { s->ends = of_tokens; },
        "ends has 32 columns in rows of tokens; 32 columns in rows of words");
  spans([](Made *, Spans *s) { s->ends = gates; }, "ends has 64 columns in rows of words");
  spans([](Made *, Spans *s) { s->labels = label_bias; }, "labels has 1 columns");
  spans([](Made *, Spans *s) { s->labels = of_sequences; }, "several rows a sequence");
  spans([](Made *, Spans *s) { s->starts = s->ends = of_sequences; }, "starts has rows of sequences");
  spans([](Made *, Spans *s) { s->partner = 6; }, "partner is 6; it has no meaning");
  spans([](Made *m, Spans *) { m->ops.spans = nullptr; }, "has no spans", SIE_UNSUPPORTED);
  // Codes are numbers of 31 bits.
  auto labels_of = [&](int32_t widest, int64_t most, const char *words) {
    spans(
        [widest, most](Made *made_up, Spans *s) {
          s->widest = widest;
          made_up->p.spaces[labels].max_each = most;
        },
        words);
  };
  labels_of(1, INT32_MAX, nullptr);
  labels_of(1, int64_t{INT32_MAX} + 1, "their product may be at most");
  labels_of(2, (int64_t{1} << 30) - 1, nullptr);
  labels_of(2, int64_t{1} << 30, "their product may be at most");
  // Given labels are those of a partner's group.
  auto given = [](Made *made_up, Spans *s) {
    sie_given_rows_params g = sized<sie_given_rows_params>();
    g.y = after, g.input = 7, g.columns = 32;
    PASSES(sie::record_given_rows(&made_up->p, &g, &err));
    s->labels = after;
    s->partner = 6;
  };
  m = spans(given, nullptr);
  CHECK(m->p.inputs[6].read && m->p.inputs[6].groups_of == queries && m->p.inputs[6].least == -1,
        "given labels read no partner");
  spans(
      [&](Made *made_up, Spans *s) {
        given(made_up, s);
        s->partner = 0;
      },
      "partner is 0, which is no input");

  struct Weights {
    sie_weight w, head, bias;
  };
  float memory[1] = {};
  using Pairs = sie_output_pairs_params;
  auto pairs = [&](const std::function<void(Made *, Pairs *, Weights *)> &change, const char *words,
                   sie_status want = SIE_INVALID_ARGUMENT) {
    auto made_up = std::make_unique<Made>();
    auto weights = std::make_unique<Weights>();
    for (sie_weight *w : {&weights->w, &weights->head, &weights->bias}) {
      w->device = &made_up->device;
      w->table.p = memory;
    }
    weights->w.kind = SIE_WEIGHT_LINEAR, weights->w.compute = SIE_COMPUTE_F32;
    weights->w.n = weights->w.k = 32;
    weights->head.kind = SIE_WEIGHT_DATA, weights->head.table.dtype = SIE_F32;
    weights->head.n = 3, weights->head.k = 32;
    weights->bias.kind = SIE_WEIGHT_VECTOR, weights->bias.n = 3;
    Pairs s = sized<Pairs>();
    s.name = "found";
    s.words = s.word_terms = of_words;
    s.labels = s.label_terms = of_labels;
    s.w = &weights->w;
    s.head = &weights->head;
    change(made_up.get(), &s, weights.get());
    if (words != nullptr) {
      SAYS(words, sie::record_output_pairs(&made_up->p, &s, &err), want);
    } else {
      PASSES(sie::record_output_pairs(&made_up->p, &s, &err));
      CHECK(made_up->p.outputs[0].columns == 2 + weights->head.n, "%lld words a record",
            static_cast<long long>(made_up->p.outputs[0].columns));
    }
  };
  for (int64_t n : {1, 2, 3}) pairs([n](Made *, Pairs *, Weights *w) { w->head.n = n; }, nullptr);
  for (int64_t n : {0, 4}) pairs([n](Made *, Pairs *, Weights *w) { w->head.n = n; }, "1 to 3 are possible");
  pairs([](Made *, Pairs *s, Weights *w) { s->bias = &w->bias; }, nullptr);
  pairs([](Made *, Pairs *s, Weights *w) { s->bias = &w->bias, w->bias.n = 2; }, "bias has 2 elements; 3");
  pairs([](Made *, Pairs *, Weights *w) { w->w.compute = SIE_COMPUTE_INT8; },
        "f32, bf16 and f16 are possible", SIE_UNSUPPORTED);
  pairs([](Made *made_up, Pairs *, Weights *) { made_up->ops.pairs = nullptr; }, "has no pairs",
        SIE_UNSUPPORTED);
  pairs([](Made *, Pairs *s, Weights *) { s->word_terms = of_tokens; },
        "word_terms has 32 columns in rows of tokens");
  pairs([](Made *, Pairs *s, Weights *) { s->label_terms = label_bias; }, "label_terms has 1 columns");
  pairs([](Made *made_up, Pairs *, Weights *) { made_up->p.spaces[labels].max_each = INT32_MAX; }, nullptr);
  pairs(
      [](Made *made_up, Pairs *, Weights *) { made_up->p.spaces[labels].max_each = int64_t{INT32_MAX} + 1; },
      "their product may be at most");
}
