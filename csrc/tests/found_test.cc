// found_test.cc — outputs of scores above thresholds: spans of tokens, and pairs of a token and a
// label, of a program with two ROWS spaces.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <functional>

#include "common/dtype.h"
#include "heads.h"
#include "paths.h"
#include "program.h"
#include "refused.h"

using heads::Kind;
using model::Batch;
using model::Model;
using model::Path;
using model::Result;

namespace {

constexpr int hidden = 64, span_k = 40, pair_k = 24, pair_n = 33, widest = 4, logits = 3;
// Columns of the projected tokens: starts, ends, words, word_terms; of the labels: labels, bias,
// labels, label_terms.
constexpr int token_columns = 2 * span_k + pair_k + pair_n, label_columns = span_k + 1 + pair_k + pair_n;

#define TRY(call)                          \
  do {                                     \
    sie_status status_ = (call);           \
    if (status_ != SIE_OK) return status_; \
  } while (0)

std::vector<float> pair_weight() { return heads::reals(811, pair_n * pair_k, 0.3f); }
std::vector<float> pair_head() { return heads::reals(812, logits * pair_n, 0.5f); }
std::vector<float> pair_bias() { return heads::reals(813, logits, 0.5f); }

sie_status linear_weight(Model *m, uint32_t compute, sie_weight **w) {
  const std::vector<float> values = pair_weight();
  sie_weight_desc d = sized<sie_weight_desc>();
  d.kind = SIE_WEIGHT_LINEAR;
  d.compute = compute;
  d.dtype = SIE_F32;
  d.n_parts = 1;
  d.n = pair_n;
  d.k = pair_k;
  d.parts[0] = {values.data(), pair_n, 0};
  TRY(sie_weight_create(m->device, &d, w, &m->err));
  m->weights.push_back(*w);
  return SIE_OK;
}

// The class of the pairs' weight: that of the model, where it may be.
uint32_t pair_class(const Model *m) {
  return m->compute() == SIE_COMPUTE_BF16 ? SIE_COMPUTE_BF16 : SIE_COMPUTE_F32;
}

struct Operands {
  sie_output_spans_params spans;
  sie_output_pairs_params pairs;
  sie_value tokens, labels;  // all columns
};

// given: the labels are rows that the batch brings, with as many columns as its own would have.
sie_status make_operands(Model *m, sie_value x, Operands *o, bool given = false) {
  sie_value rows;
  sie_program *p = m->program;
  *o = {sized<sie_output_spans_params>(), sized<sie_output_pairs_params>(), 0, 0};
  TRY(heads::embed_labels(m, &rows));
  TRY(heads::project(m, x, token_columns, hidden, &o->tokens));
  TRY(heads::project(m, rows, label_columns, hidden, &o->labels));
  if (given) {
    TRY(record::given_rows(p, label_columns, &o->labels, &m->err));
    o->spans.partner = o->pairs.partner = record::partner;
  }
  int64_t at = 0;
  auto view = [&](sie_value of, int64_t width, sie_value *y) {
    at += width;
    return record::columns(p, of, at - width, width, y, &m->err);
  };
  TRY(view(o->tokens, span_k, &o->spans.starts));
  TRY(view(o->tokens, span_k, &o->spans.ends));
  TRY(view(o->tokens, pair_k, &o->pairs.words));
  TRY(view(o->tokens, pair_n, &o->pairs.word_terms));
  at = 0;
  TRY(view(o->labels, span_k, &o->spans.labels));
  TRY(view(o->labels, 1, &o->spans.bias));
  TRY(view(o->labels, pair_k, &o->pairs.labels));
  TRY(view(o->labels, pair_n, &o->pairs.label_terms));
  o->spans.widest = widest;
  o->spans.name = "spans";
  o->pairs.name = "pairs";
  sie_weight *w, *head, *bias;
  TRY(linear_weight(m, pair_class(m), &w));
  TRY(m->data(SIE_F32, logits, pair_n, pair_head().data(), &head));
  TRY(m->vector(pair_bias(), &bias));
  o->pairs.w = w;
  o->pairs.head = head;
  o->pairs.bias = bias;
  return SIE_OK;
}

sie_status found_tail(Model *m, sie_value x) {
  Operands o;
  TRY(make_operands(m, x, &o));
  TRY(record::add(m->program, SIE_OUTPUT_SPANS, o.spans, &m->err));
  TRY(record::add(m->program, SIE_OUTPUT_PAIRS, o.pairs, &m->err));
  TRY(record::output_values(m->program, o.tokens, 2, &m->err));
  return record::output_values(m->program, o.labels, 3, &m->err);
}

sie_status given_tail(Model *m, sie_value x) {
  Operands o;
  TRY(make_operands(m, x, &o, true));
  TRY(record::add(m->program, SIE_OUTPUT_SPANS, o.spans, &m->err));
  return record::add(m->program, SIE_OUTPUT_PAIRS, o.pairs, &m->err);
}

sie_status spans_tail(Model *m, sie_value x) {
  Operands o;
  TRY(make_operands(m, x, &o));
  return record::add(m->program, SIE_OUTPUT_SPANS, o.spans, &m->err);
}

sie_status pairs_tail(Model *m, sie_value x) {
  Operands o;
  TRY(make_operands(m, x, &o));
  return record::add(m->program, SIE_OUTPUT_PAIRS, o.pairs, &m->err);
}

// The outputs that heads.h packs and reads; the others are packed here.
const heads::Head found = {
    "found", found_tail,
    nullptr, {{}, {}, {Kind::values, token_columns}, {Kind::values, label_columns, false, false, true}},
    1,       false};

bool open(Model *m, uint32_t kind, uint32_t isa, int threads, uint32_t compute,
          sie_status (*tail)(Model *, sie_value) = found_tail) {
  model::Shape shape;
  shape.layers = 1;
  shape.tail = tail;
  sie_status status = m->open(kind, isa, threads, compute, shape);
  CHECK(status == SIE_OK, "%s", m->err.message);
  return status == SIE_OK;
}

constexpr int record_words[] = {4, 2 + logits};

// A sequence's item depends on its number alone.
Batch batch_of(const model::Shape &shape, const std::vector<int> &numbers, int32_t room) {
  static const float thresholds[] = {4.0f, 1.5f, INFINITY, 2.5f, -INFINITY};
  Batch batch = heads::batch_of(found, shape, numbers, false);
  for (int o = 0; o < 2; o++) {
    int64_t end = 0;
    for (int number : numbers) {
      // All scores of long sequences would be too many.
      const int turn = number % 5 == 4 && number >= 500 ? 0 : number % 5;
      batch.items[o].push_back({SIE_F32, room, 0, thresholds[turn], end});
      end += (16 + int64_t{room} * record_words[o] * 4 + 15) / 16 * 16;
    }
    batch.bytes[o] = end;
  }
  return batch;
}

// The words of an item: count, then the records that it has.
std::vector<int32_t> item(const Batch &batch, const Result &result, int o, int b) {
  const sie_out_item &item = batch.items[o][static_cast<size_t>(b)];
  const int32_t *from = reinterpret_cast<const int32_t *>(result.bytes[o].data() + item.offset);
  const int64_t records = std::min(from[0], item.dims);
  std::vector<int32_t> words = {from[0]};
  words.insert(words.end(), from + 4, from + 4 + records * record_words[o]);
  return words;
}

float float_of(int32_t word) {
  float x;
  memcpy(&x, &word, sizeof x);
  return x;
}

// The scores of one sequence, in double, from the rows that the program gave.
struct Scores {
  std::vector<float> tokens, labels;
  bool bf16;
  std::vector<float> w = pair_weight(), head = pair_head(), bias = pair_bias();

  double token(int64_t i, int64_t c) const {
    return static_cast<double>(tokens[static_cast<size_t>(i * token_columns + c)]);
  }
  double label(int64_t i, int64_t c) const {
    return static_cast<double>(labels[static_cast<size_t>(i * label_columns + c)]);
  }
  int64_t words() const { return static_cast<int64_t>(tokens.size()) / token_columns; }
  int64_t n_labels() const { return static_cast<int64_t>(labels.size()) / label_columns; }
  double rounded(double x) const {
    const float f = static_cast<float>(x);
    return static_cast<double>(bf16 ? sie_f32_from_bf16(sie_bf16_from_f32(f)) : f);
  }

  double span(int64_t i, int64_t width, int64_t c) const {
    double sum = label(c, span_k);
    for (int64_t k = 0; k < span_k; k++)
      sum += fmax(0, token(i, k) + token(i + width, span_k + k)) * label(c, k);
    return sum;
  }
  void pair(int64_t i, int64_t c, double *y) const {
    for (int o = 0; o < logits; o++) y[o] = static_cast<double>(bias[static_cast<size_t>(o)]);
    for (int64_t n = 0; n < pair_n; n++) {
      double h = token(i, 2 * span_k + pair_k + n) + label(c, span_k + 1 + pair_k + n);
      for (int64_t k = 0; k < pair_k; k++) {
        h += rounded(token(i, 2 * span_k + k) * label(c, span_k + 1 + k)) *
             rounded(static_cast<double>(w[static_cast<size_t>(n * pair_k + k)]));
      }
      for (int o = 0; o < logits; o++)
        y[o] += fmax(0, h) * static_cast<double>(head[static_cast<size_t>(o * pair_n + n)]);
    }
  }
};

// Checks the records of one item against every score: in order, and none missing or too many.
void check_item(const char *what, const Scores &s, int o, const std::vector<int32_t> &got, double threshold) {
  constexpr double close = 2e-4;
  const size_t size = static_cast<size_t>(record_words[o]);
  size_t at = 1;
  int64_t least = 0, most = 0;
  for (int64_t i = 0; i < s.words(); i++) {
    for (int64_t width = 0; width < (o == 0 ? widest : 1) && i + width < s.words(); width++) {
      for (int64_t c = 0; c < s.n_labels(); c++) {
        double y[logits];
        if (o == 0) y[0] = s.span(i, width, c);
        if (o == 1) s.pair(i, c, y);
        const int scores = o == 0 ? 1 : logits;
        const double largest = *std::max_element(y, y + scores);
        least += largest > threshold + close ? 1 : 0;
        most += largest > threshold - close ? 1 : 0;
        std::vector<int32_t> numbers = {static_cast<int32_t>(i), static_cast<int32_t>(width),
                                        static_cast<int32_t>(c)};
        if (o == 1) numbers = {static_cast<int32_t>(i), static_cast<int32_t>(c)};
        const bool here = at + size <= got.size() &&
                          std::equal(numbers.begin(), numbers.end(), got.begin() + static_cast<int64_t>(at));
        if (!here) {
          CHECK(!(largest > threshold + close) || at >= got.size(),
                "%s, output %d: %lld, %lld, %lld is missing", what, o, static_cast<long long>(i),
                static_cast<long long>(width), static_cast<long long>(c));
          continue;
        }
        for (int j = 0; j < scores; j++) {
          const double value =
              static_cast<double>(float_of(got[at + numbers.size() + static_cast<size_t>(j)]));
          CHECK(fabs(value - y[j]) <= close, "%s, output %d: logit %d of %lld, %lld is %g, %g expected", what,
                o, j, static_cast<long long>(i), static_cast<long long>(c), value, y[j]);
        }
        at += size;
      }
    }
  }
  CHECK(at == got.size(), "%s, output %d: %zu words of %zu are expected", what, o, at, got.size());
  CHECK(got[0] >= least && got[0] <= most, "%s, output %d: %d counted, %lld to %lld expected", what, o,
        got[0], static_cast<long long>(least), static_cast<long long>(most));
}

const std::vector<int> mixed = {3, 1002, 500, 4, 1, 12, 0, 5, 9, 14};

}  // namespace

TEST(found_are_the_scores_above) {
  const Path ref = {0, SIE_COMPUTE_F32, "ref"};
  std::vector<Path> paths = model::machine_paths();
  paths.push_back(ref);
  for (const Path &path : paths) {
    Model m;
    const bool is_ref = path.name == ref.name;
    if (!open(&m, is_ref ? SIE_DEVICE_REF : SIE_DEVICE_CPU, path.isa, 2, path.compute)) return;
    const std::vector<int> numbers = is_ref ? std::vector<int>{3, 4, 1, 0} : mixed;
    for (int32_t room : {5000, 3}) {
      Batch batch = batch_of(m.shape, numbers, room);
      Result result = run(&m, batch);
      CHECK(result.status == SIE_OK, "%s: status %d", path.name, result.status);
      for (int b = 0; b < static_cast<int>(numbers.size()); b++) {
        Scores s = {heads::numbers_of(found, batch, result, 2, b),
                    heads::numbers_of(found, batch, result, 3, b), pair_class(&m) == SIE_COMPUTE_BF16};
        for (int o = 0; o < 2; o++) {
          check_item(path.name, s, o, item(batch, result, o, b),
                     static_cast<double>(batch.items[o][static_cast<size_t>(b)].threshold));
        }
      }
    }
  }
}

TEST(found_change_no_bits) {
  for (const Path &path : model::machine_paths()) {
    std::vector<std::vector<int32_t>> want;
    for (int threads : {1, 2, 5}) {
      for (double flops : {sie::max_block_flops, 1.0}) {
        Model m;
        if (!open(&m, SIE_DEVICE_CPU, path.isa, threads, path.compute)) return;
        m.program->block_flops = flops;
        Batch batch = batch_of(m.shape, mixed, 50);
        Result got = run(&m, batch);
        CHECK(got.status == SIE_OK, "%s: status %d", path.name, got.status);
        std::vector<std::vector<int32_t>> items;
        for (int b = 0; b < static_cast<int>(mixed.size()); b++) {
          Batch one = batch_of(m.shape, {mixed[static_cast<size_t>(b)]}, 50);
          Result alone = run(&m, one);
          for (int o = 0; o < 2; o++) {
            items.push_back(item(batch, got, o, b));
            CHECK(item(one, alone, o, 0) == items.back(), "%s: output %d of %d alone", path.name, o, b);
          }
        }
        if (want.empty()) want = items;
        CHECK(items == want, "%s, %d executors, %g flops: other bits", path.name, threads, flops);
      }
    }
  }
}

// Sequences of the same number have the same labels, which are given once; those of number 1 have none,
// and one sequence is given none.
TEST(found_with_given_labels_are_those_with_own_ones) {
  constexpr size_t without = 8;
  const Path ref = {0, SIE_COMPUTE_F32, "ref"};
  std::vector<Path> paths = model::machine_paths();
  paths.push_back(ref);
  for (const Path &path : paths) {
    const uint32_t kind = path.name == ref.name ? SIE_DEVICE_REF : SIE_DEVICE_CPU;
    const int longest = kind == SIE_DEVICE_REF ? 4 : 1005;
    const std::vector<int> numbers = {3, 12, 4, longest, 3, 1, 0, 12, 5, longest};
    for (int threads : {1, 3}) {
      Model own, given;
      if (!open(&own, kind, path.isa, threads, path.compute)) return;
      if (!open(&given, kind, path.isa, threads, path.compute, given_tail)) return;
      if (threads > 1) given.program->block_flops = 1.0;
      Batch batch = batch_of(own.shape, numbers, 50);
      const Result want = run(&own, batch);
      CHECK(want.status == SIE_OK, "%s: status %d", path.name, want.status);
      Batch shared = batch;
      shared.queries.clear();
      shared.cu_queries = {0};
      shared.partner.clear();
      for (size_t b = 0; b < numbers.size(); b++) {
        const size_t first =
            static_cast<size_t>(std::find(numbers.begin(), numbers.end(), numbers[b]) - numbers.begin());
        if (b == without) {
          shared.partner.push_back(-1);
        } else if (first < b) {
          shared.partner.push_back(shared.partner[first]);
        } else {
          const std::vector<float> rows = heads::numbers_of(found, batch, want, 3, static_cast<int>(b));
          shared.partner.push_back(static_cast<int32_t>(shared.cu_queries.size()) - 1);
          shared.queries.insert(shared.queries.end(), rows.begin(), rows.end());
          shared.cu_queries.push_back(static_cast<int32_t>(shared.queries.size() / label_columns));
        }
      }
      const Result got = run(&given, shared);
      CHECK(got.status == SIE_OK, "%s: status %d, %s", path.name, got.status, given.err.message);
      for (size_t b = 0; b < numbers.size(); b++) {
        for (int o = 0; o < 2; o++) {
          const int at = static_cast<int>(b);
          const std::vector<int32_t> expected =
              b == without ? std::vector<int32_t>{0} : item(batch, want, o, at);
          CHECK(item(shared, got, o, at) == expected, "%s, %d executors: output %d of %d differs", path.name,
                threads, o, at);
        }
      }
    }
  }
}

// Each output alone: others would flag the same rows.
TEST(found_scores_flag_what_is_not_finite) {
  for (const auto tail : {spans_tail, pairs_tail}) {
    model::Shape shape;
    shape.layers = 1;
    shape.tail = tail;
    Model m;
    CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
    if (m.slots[0] == nullptr) return;
    Batch batch = batch_of(m.shape, {3, 12, 0}, 8);
    if (tail == pairs_tail) batch.items[0] = batch.items[1];
    // A word that nothing has yet.
    const int32_t word = m.shape.vocabulary - 1;
    for (std::vector<int32_t> *ids : {&batch.ids, &batch.label_ids}) {
      for (int32_t &id : *ids) id = id == word ? 1 : id;
    }
    m.plant(word, 3, NAN);
    const size_t token = static_cast<size_t>(batch.cu[3]) - 1,
                 label = static_cast<size_t>(batch.cu_labels[2]) - 1;
    CHECK(batch.cu_labels[2] > batch.cu_labels[1], "sequence 1 has no label");
    CHECK(run(&m, batch).nonfinite == std::vector<int32_t>({0, 0, 0}), "flagged without cause");
    batch.label_ids[label] = word;
    CHECK(run(&m, batch).nonfinite == std::vector<int32_t>({0, 1, 0}), "a label that is not finite");
    batch.ids[token] = word;
    CHECK(run(&m, batch).nonfinite == std::vector<int32_t>({0, 1, 1}), "a token that is not finite");
  }
}

TEST(found_bad_arguments) {
  Model m;
  if (!open(&m, SIE_DEVICE_REF, 0, 1, SIE_COMPUTE_F32)) return;
  sie_program *p = nullptr;
  record::Caps caps;
  caps.max_tokens = caps.max_len = 64;
  caps.max_seqs = 4;
  caps.max_query_rows = 16;
  CHECK(record::begin(m.device, caps, &p, &m.err) == SIE_OK, "%s", m.err.message);
  sie_program *own = m.program;
  m.program = p;
  sie_value x = 0, pooled = 0;
  Operands o;
  auto ok = [&](sie_status status) { CHECK(status == SIE_OK, "%s", m.err.message); };
  ok(record::embed_layernorm(p, m.weights[0], nullptr, nullptr, m.weights[3], nullptr, 0, 0, &x, &m.err));
  ok(make_operands(&m, x, &o));
  ok(record::pool(p, x, SIE_POOL_MEAN, &pooled, &m.err));
  auto spans = [&](const char *what, const std::function<void(sie_output_spans_params *)> &change) {
    sie_output_spans_params bad = o.spans;
    change(&bad);
    sie_error err = {};
    const sie_status status = record::add(p, SIE_OUTPUT_SPANS, bad, &err);
    refused(what, status, err);
  };
  spans("no words", [](sie_output_spans_params *s) { s->widest = 0; });
  spans("too wide", [](sie_output_spans_params *s) { s->widest = SIE_MAX_SPAN_WIDTH + 1; });
  spans("no starts", [](sie_output_spans_params *s) { s->starts = 0; });
  spans("ends of labels", [](sie_output_spans_params *s) { s->ends = s->labels; });
  spans("ends of other columns", [&](sie_output_spans_params *s) { s->ends = o.tokens; });
  spans("labels of other columns", [&](sie_output_spans_params *s) { s->labels = o.pairs.labels; });
  spans("a bias of several columns", [&](sie_output_spans_params *s) { s->bias = s->labels; });
  spans("a bias of words", [&](sie_output_spans_params *s) { s->bias = s->starts; });
  spans("labels of sequences", [&](sie_output_spans_params *s) { s->labels = pooled; });
  spans("words of sequences", [&](sie_output_spans_params *s) { s->starts = s->ends = pooled; });
  spans("no name", [](sie_output_spans_params *s) { s->name = nullptr; });
  spans("a reserved field", [](sie_output_spans_params *s) { s->reserved = 1; });
  spans("a partner of own labels", [](sie_output_spans_params *s) { s->partner = record::partner; });
  sie_value given = 0, view = 0, y = 0;
  ok(record::given_rows(p, label_columns, &given, &m.err));
  ok(record::columns(p, given, 0, span_k, &view, &m.err));
  spans("given labels without a partner", [&](sie_output_spans_params *s) { s->labels = view; });
  spans("a partner of tokens", [&](sie_output_spans_params *s) {
    s->labels = view;
    s->bias = 0;
    s->partner = record::type_ids;
  });
  spans("a bias of its own of given labels", [&](sie_output_spans_params *s) {
    s->labels = view;
    s->partner = record::partner;
  });
  auto given_refused = [&](const char *what, int32_t columns, sie_input input) {
    sie_given_rows_params g = sized<sie_given_rows_params>();
    g.y = record::next(p);
    g.input = input;
    g.columns = columns;
    sie_error err = {};
    const sie_status status = record::add(p, SIE_GIVEN_ROWS, g, &err);
    refused(what, status, err);
  };
  given_refused("no columns", 0, record::queries);
  given_refused("other columns than before", label_columns + 1, record::queries);
  given_refused("rows of ids", 1, record::ids);
  given_refused("rows of no input", 1, 99);
  sie_error given_err = {};
  refused("a pool of given rows", record::pool(p, given, SIE_POOL_MEAN, &y, &given_err), given_err);
  refused("an output of given rows", record::output_values(p, view, 3, &given_err), given_err);
  auto pairs = [&](const char *what, const std::function<void(sie_output_pairs_params *)> &change,
                   sie_status want = SIE_INVALID_ARGUMENT) {
    sie_output_pairs_params bad = o.pairs;
    change(&bad);
    sie_error err = {};
    const sie_status status = record::add(p, SIE_OUTPUT_PAIRS, bad, &err);
    refused(what, status, err, want);
  };
  pairs("a partner of own labels", [](sie_output_pairs_params *s) { s->partner = record::partner; });
  pairs("no weight", [](sie_output_pairs_params *s) { s->w = nullptr; });
  pairs("no head", [](sie_output_pairs_params *s) { s->head = nullptr; });
  pairs("words of other columns", [&](sie_output_pairs_params *s) { s->words = s->word_terms; });
  pairs("terms of other columns", [&](sie_output_pairs_params *s) { s->label_terms = s->labels; });
  pairs("terms of labels", [&](sie_output_pairs_params *s) { s->word_terms = s->label_terms; });
  pairs("labels of sequences", [&](sie_output_pairs_params *s) { s->labels = pooled; });
  sie_weight *w = nullptr;
  ok(m.data(SIE_F32, 4, pair_n, std::vector<float>(4 * pair_n).data(), &w));
  pairs("four logits", [&](sie_output_pairs_params *s) { s->head = w; });
  pairs("a bias of other length", [&](sie_output_pairs_params *s) { s->bias = m.weights[3]; });
  ok(linear_weight(&m, SIE_COMPUTE_INT8, &w));
  pairs("an int8 weight", [&](sie_output_pairs_params *s) { s->w = w; }, SIE_UNSUPPORTED);
  sie_program_free(p);
  m.program = own;

  auto item = [&](const char *what, const std::function<void(sie_out_item *)> &change,
                  sie_status want = SIE_INVALID_ARGUMENT) {
    Batch batch = batch_of(m.shape, {3, 1}, 8);
    change(&batch.items[0][1]);
    m.err = {};
    refused(what, submit(&m, 0, batch), m.err, want);
  };
  item("f16", [](sie_out_item *i) { i->dtype = SIE_F16; }, SIE_UNSUPPORTED);
  item("no room", [](sie_out_item *i) { i->dims = 0; });
  item("a norm", [](sie_out_item *i) { i->normalize = 1; });
  item("a threshold that is no number", [](sie_out_item *i) { i->threshold = NAN; });
  item("an odd offset", [](sie_out_item *i) { i->offset += 4; });
  item("more room than there is", [](sie_out_item *i) { i->dims = 1 << 28; });
}
