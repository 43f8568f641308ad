// found.cc — records found outputs, and computes their scores again.
#include "found.h"

#include <math.h>
#include <string.h>

#include <algorithm>

#include "common/dtype.h"
#include "refused.h"
#include "tests/check.h"

using heads::Kind;
using model::Batch;
using model::Model;
using model::Result;

namespace found {

#define TRY(call)                          \
  do {                                     \
    sie_status status_ = (call);           \
    if (status_ != SIE_OK) return status_; \
  } while (0)

namespace {

std::vector<float> pair_weight() { return heads::reals(811, pair_n * pair_k, 0.3f); }
std::vector<float> pair_head() { return heads::reals(812, logits * pair_n, 0.5f); }
std::vector<float> pair_bias() { return heads::reals(813, logits, 0.5f); }

constexpr int record_words[] = {4, 2 + logits};

// The class of the pairs' matrix: that of the model, where it may be.
uint32_t pair_class(const Model &m) {
  if (m.compute() == SIE_COMPUTE_BF16 || m.compute() == SIE_COMPUTE_F16) return m.compute();
  return SIE_COMPUTE_F32;
}

float float_of(int32_t word) {
  float x;
  memcpy(&x, &word, sizeof x);
  return x;
}

// The scores of one sequence, in double, from the rows that the program gave.
struct Scores {
  std::vector<float> tokens, labels;
  uint32_t compute;  // of the pairs' matrix
  std::vector<float> w = pair_weight(), of_heads = pair_head(), bias = pair_bias();

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
    if (compute == SIE_COMPUTE_BF16) return static_cast<double>(sie_f32_from_bf16(sie_bf16_from_f32(f)));
    if (compute == SIE_COMPUTE_F16) return static_cast<double>(sie_f32_from_f16(sie_f16_from_f32(f)));
    return static_cast<double>(f);
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
        y[o] += fmax(0, h) * static_cast<double>(of_heads[static_cast<size_t>(o * pair_n + n)]);
    }
  }
};

}  // namespace

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
  return m->create(d, w);
}

sie_status make_operands(Model *m, sie_value x, Operands *o, bool given) {
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
  TRY(linear_weight(m, pair_class(*m), &w));
  TRY(m->data(SIE_F32, logits, pair_n, pair_head().data(), &head));
  TRY(m->vector(pair_bias(), &bias));
  o->pairs.w = w;
  o->pairs.head = head;
  o->pairs.bias = bias;
  return SIE_OK;
}

sie_status both_tail(Model *m, sie_value x) {
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
const heads::Head head = {
    "found",
    both_tail,
    [](const sie_ops *ops) { return ops->spans != nullptr && ops->pairs != nullptr; },
    {{}, {}, {Kind::values, token_columns}, {Kind::values, label_columns, false, false, true}},
    1,
    false};
const std::vector<int> mixed = {3, 1002, 500, 4, 1, 12, 0, 5, 9, 14};

Batch batch_of(const model::Shape &shape, const std::vector<int> &numbers, int32_t room) {
  static const float thresholds[] = {4.0f, 1.5f, INFINITY, 2.5f, -INFINITY};
  Batch batch = heads::batch_of(head, shape, numbers, false);
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

Batch with_given_labels(const Batch &batch, const Result &result, const std::vector<int> &numbers,
                        size_t without) {
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
      const std::vector<float> rows = heads::numbers_of(head, batch, result, 3, static_cast<int>(b));
      shared.partner.push_back(static_cast<int32_t>(shared.cu_queries.size()) - 1);
      shared.queries.insert(shared.queries.end(), rows.begin(), rows.end());
      shared.cu_queries.push_back(static_cast<int32_t>(shared.queries.size() / label_columns));
    }
  }
  return shared;
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

void check_item(const char *what, const Model &m, const Batch &batch, const Result &result, int o, int b) {
  const Scores s = {heads::numbers_of(head, batch, result, 2, b),
                    heads::numbers_of(head, batch, result, 3, b), pair_class(m)};
  const std::vector<int32_t> got = item(batch, result, o, b);
  const double threshold = static_cast<double>(batch.items[o][static_cast<size_t>(b)].threshold);
  constexpr double close = 2e-4;
  const size_t size = static_cast<size_t>(record_words[o]);
  size_t at = 1;
  int64_t least = 0, most = 0;
  for (int64_t i = 0; i < s.words(); i++) {
    for (int64_t width = 0; width < (o == 0 ? widest : 1) && i + width < s.words(); width++) {
      for (int64_t c = 0; c < s.n_labels(); c++) {
        double y[logits] = {};
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

void check_flags(const char *what, Model *m, bool pairs) {
  Batch batch = batch_of(m->shape, {3, 12, 0}, 8);
  if (pairs) batch.items[0] = batch.items[1];
  // A word that nothing has yet.
  const int32_t word = m->shape.vocabulary - 1;
  for (std::vector<int32_t> *ids : {&batch.ids, &batch.label_ids}) {
    for (int32_t &id : *ids) id = id == word ? 1 : id;
  }
  m->plant(word, 3, NAN);
  const size_t token = static_cast<size_t>(batch.cu[3]) - 1,
               label = static_cast<size_t>(batch.cu_labels[2]) - 1;
  CHECK(batch.cu_labels[2] > batch.cu_labels[1], "%s: sequence 1 has no label", what);
  CHECK(run(m, batch).nonfinite == std::vector<int32_t>({0, 0, 0}), "%s: flagged without cause", what);
  batch.label_ids[label] = word;
  CHECK(run(m, batch).nonfinite == std::vector<int32_t>({0, 1, 0}), "%s: a label that is not finite", what);
  batch.ids[token] = word;
  CHECK(run(m, batch).nonfinite == std::vector<int32_t>({0, 1, 1}), "%s: a token that is not finite", what);
}

}  // namespace found
