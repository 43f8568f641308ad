// bad_places_test.cc — wrong arguments of the operations on words, markers and spans, and batches
// whose places are wrong.
#include <functional>

#include "heads.h"
#include "refused.h"

using model::Batch;
using model::Model;

namespace {

constexpr int64_t hidden = 64, lstm_hidden = 8;

// A program on a CPU with tokens, words and labels, of which only the embedding is recorded.
struct Recording {
  enum Input { optional_first = record::word_last + 1, of_tokens, bytes };

  Model m;
  sie_program *p = nullptr;
  sie_value x = 0, kept = 0, pooled = 0, own = 0, narrow = 0;
  sie_error none = {};

  Recording() {
    CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, {}) == SIE_OK, "%s", m.err.message);
    record::Caps caps;
    caps.max_tokens = caps.max_len = 64;
    caps.max_seqs = 4;
    const std::vector<sie_weight *> &w = m.weights;
    ok(record::begin(m.device, caps, &p, &none));
    ok(record::declare_space(p, record::words, SIE_SPACE_ROWS, "words", 64, 64, 0, &none));
    ok(record::declare_space(p, record::labels, SIE_SPACE_ROWS, "labels", 64, 64, 0, &none));
    input(record::word_first, "word_first", record::words, SIE_I32, 0);
    input(record::word_last, "word_last", record::words, SIE_I32, 0);
    input(optional_first, "optional", record::words, SIE_I32, 1);
    input(of_tokens, "of_tokens", record::tokens, SIE_I32, 0);
    input(bytes, "bytes", record::words, SIE_U8, 0);
    ok(record::embed_layernorm(p, w[0], w[1], w[2], w[3], w[4], 0, 0, &x, &none));
    ok(record::keep_rows(p, x, &kept, &none));
    ok(record::pool(p, x, SIE_POOL_MEAN, &pooled, &none));
    ok(record::columns(p, x, 0, 32, &narrow, &none));
  }
  ~Recording() { sie_program_free(p); }

  void ok(sie_status status) { CHECK(status == SIE_OK, "%s", none.message); }
  void input(int number, const char *name, sie_space space, uint32_t dtype, uint32_t optional) {
    ok(record::declare_input(p, static_cast<sie_input>(number), name, space, dtype, optional, 0, &none));
  }
  sie_weight *linear(uint32_t compute, int64_t n, int64_t k) {
    sie_weight *w = nullptr;
    CHECK(m.weight(SIE_WEIGHT_LINEAR, compute, n, k, 1, 0, &w) == SIE_OK, "%s", m.err.message);
    return w;
  }
};

}  // namespace

TEST(bad_taken_rows) {
  Recording r;
  sie_take_rows_params good = sized<sie_take_rows_params>();
  good.which = SIE_POOL_MEAN;
  good.to = record::words;
  good.x = r.x;
  good.first = record::word_first;
  good.last = record::word_last;
  auto bad = [&](const char *what, const std::function<void(sie_take_rows_params *)> &change) {
    sie_take_rows_params t = good;
    sie_value y;
    change(&t);
    sie_error err = {};
    const sie_status status = record::result(r.p, SIE_TAKE_ROWS, t, &y, &err);
    refused(what, status, err);
  };
  using Params = sie_take_rows_params;
  bad("no x", [](Params *t) { t->x = 99; });
  bad("a reserved field", [](Params *t) { t->reserved = 1; });
  bad("to no space", [](Params *t) { t->to = 0; });
  bad("to a space behind all", [](Params *t) { t->to = 99; });
  bad("to sequences", [](Params *t) { t->to = record::sequences; });
  bad("to tokens from tokens", [](Params *t) { t->to = record::tokens; });
  bad("from kept rows", [&](Params *t) { t->x = r.kept; });
  bad("no way to take", [](Params *t) { t->which = 0; });
  bad("the largest", [](Params *t) { t->which = SIE_POOL_MAX; });
  bad("no first places", [](Params *t) { t->first = 0; });
  bad("no last places", [](Params *t) { t->last = 0; });
  bad("first places that are optional", [](Params *t) { t->first = Recording::optional_first; });
  bad("first places of tokens", [](Params *t) { t->first = Recording::of_tokens; });
  bad("first places in bytes", [](Params *t) { t->first = Recording::bytes; });
  bad("a range that ends where it begins", [](Params *t) { t->last = t->first; });
  bad("cls with last places", [](Params *t) { t->which = SIE_POOL_CLS; });
  bad("last with first places", [](Params *t) { t->which = SIE_POOL_LAST; });
  bad("one row a sequence with a way", [&](Params *t) { t->x = r.pooled, t->first = t->last = 0; });
  bad("one row a sequence with first places", [&](Params *t) { t->x = r.pooled, t->which = 0, t->last = 0; });
  bad("one row a sequence with last places", [&](Params *t) { t->x = r.pooled, t->which = 0, t->first = 0; });
  sie_value y;
  r.ok(record::result(r.p, SIE_TAKE_ROWS, good, &y, &r.none));
  bad("places of tokens for labels", [&](Params *t) {
    sie_take_rows_params own = sized<sie_take_rows_params>();
    own.to = record::labels;
    own.x = r.pooled;
    r.ok(record::result(r.p, SIE_TAKE_ROWS, own, &t->x, &r.none));
  });
}

TEST(bad_products_of_rows) {
  Recording r;
  sie_value y;
  REFUSED(record::product(r.p, 99, r.x, &y, &err));
  REFUSED(record::product(r.p, r.x, 99, &y, &err));
  REFUSED(record::product(r.p, r.x, r.narrow, &y, &err));
  REFUSED(record::product(r.p, r.x, r.kept, &y, &err));
  REFUSED(record::product(r.p, r.x, r.pooled, &y, &err));
  REFUSED(record::dots(r.p, 99, r.x, &y, &err));
  REFUSED(record::dots(r.p, r.x, r.narrow, &y, &err));
  REFUSED(record::dots(r.p, r.x, r.kept, &y, &err));
  r.ok(record::product(r.p, r.x, r.x, &y, &r.none));
  r.ok(record::dots(r.p, r.kept, r.kept, &y, &r.none));
}

TEST(bad_lstm) {
  Recording r;
  sie_value gates = 0, of_kept = 0, odd = 0, y;
  auto project = [&](sie_value x, int64_t n, sie_value *to) {
    r.ok(record::linear(r.p, x, r.linear(SIE_COMPUTE_F32, n, hidden), nullptr, SIE_ACT_NONE, SIE_NO_VALUE, to,
                        &r.none));
  };
  project(r.x, 8 * lstm_hidden, &gates);
  project(r.kept, 8 * lstm_hidden, &of_kept);
  project(r.x, 8 * lstm_hidden - 4, &odd);
  sie_weight *const w = r.linear(SIE_COMPUTE_F32, 4 * lstm_hidden, lstm_hidden),
                    *const wide = r.linear(SIE_COMPUTE_F32, 8 * lstm_hidden, 2 * lstm_hidden),
                    *const flat = r.linear(SIE_COMPUTE_F32, 4 * lstm_hidden, 2 * lstm_hidden),
                    *const int8 = r.linear(SIE_COMPUTE_INT8, 4 * lstm_hidden, lstm_hidden);
  REFUSED(record::lstm(r.p, 99, w, w, &y, &err));
  REFUSED(record::lstm(r.p, gates, nullptr, nullptr, &y, &err));
  REFUSED(record::lstm(r.p, of_kept, w, w, &y, &err));
  REFUSED(record::lstm(r.p, r.pooled, w, w, &y, &err));
  REFUSED(record::lstm(r.p, odd, w, w, &y, &err));
  REFUSED(record::lstm(r.p, gates, w, nullptr, &y, &err));  // one direction of 16 columns
  REFUSED(record::lstm(r.p, gates, w, wide, &y, &err));
  REFUSED(record::lstm(r.p, gates, flat, w, &y, &err));
  REFUSED(record::lstm(r.p, gates, int8, w, &y, &err));
  REFUSED(record::lstm(r.p, gates, r.m.weights[0], w, &y, &err));  // a table
  r.ok(record::lstm(r.p, gates, w, w, &y, &r.none));
  r.ok(record::lstm(r.p, gates, nullptr, wide, &y, &r.none));
}

// Places that a sequence does not have, ranges that end before they begin, and a half of no place.
TEST(bad_places) {
  const heads::Head &head = heads::named("words");
  Model m;
  model::Shape shape;
  shape.layers = 1;
  shape.tail = head.tail;
  CHECK(m.open(SIE_DEVICE_REF, 0, 0, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  if (m.slots[0] == nullptr) return;
  const Batch good = heads::batch_of(head, m.shape, {4, 5}, false);
  CHECK(good.cu_words[2] - good.cu_words[1] > 1, "sequence 1 has words");
  const size_t word = static_cast<size_t>(good.cu_words[1]);
  const int32_t length = good.cu[2] - good.cu[1];
  auto bad = [&](const char *what, int32_t first, int32_t last) {
    Batch batch = good;
    batch.word_first[word] = first;
    batch.word_last[word] = last;
    m.err = {};
    refused(what, submit(&m, 0, batch), m.err);
  };
  bad("behind the last", length, length);
  bad("a range that ends behind the last", 0, length);
  bad("before the first", -2, 0);
  bad("before no place", -2, -2);
  bad("a range that ends before it begins", 1, 0);
  bad("no first place", -1, 0);
  bad("no last place", 0, -1);
  Batch right = good;
  right.word_first[word] = right.word_last[word] = -1;
  CHECK(run(&m, right).status == SIE_OK, "%s", m.err.message);
  right.word_first[word] = right.word_last[word] = length - 1;
  CHECK(run(&m, right).status == SIE_OK, "%s", m.err.message);
}
