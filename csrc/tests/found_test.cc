// found_test.cc — outputs of scores above thresholds on CPUs (found.h): against all scores, cut in
// other ways, flagged, refused.
#include "found.h"

#include <math.h>

#include <functional>

#include "paths.h"
#include "program.h"
#include "refused.h"

using found::batch_of;
using found::item;
using found::linear_weight;
using found::make_operands;
using found::mixed;
using found::Operands;
using model::Batch;
using model::Model;
using model::Path;
using model::Result;

namespace {

bool open(Model *m, uint32_t kind, uint32_t isa, int threads, uint32_t compute,
          sie_status (*tail)(Model *, sie_value) = found::both_tail) {
  model::Shape shape;
  shape.layers = 1;
  shape.tail = tail;
  sie_status status = m->open(kind, isa, threads, compute, shape);
  CHECK(status == SIE_OK, "%s", m->err.message);
  return status == SIE_OK;
}

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
        for (int o = 0; o < 2; o++) found::check_item(path.name, m, batch, result, o, b);
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
      if (!open(&given, kind, path.isa, threads, path.compute, found::given_tail)) return;
      if (threads > 1) given.program->block_flops = 1.0;
      const Batch batch = batch_of(own.shape, numbers, 50);
      const Result want = run(&own, batch);
      CHECK(want.status == SIE_OK, "%s: status %d", path.name, want.status);
      const Batch shared = found::with_given_labels(batch, want, numbers, without);
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
  for (const bool pairs : {false, true}) {
    model::Shape shape;
    shape.layers = 1;
    shape.tail = pairs ? found::pairs_tail : found::spans_tail;
    Model m;
    CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
    if (m.slots[0] != nullptr) found::check_flags("cpu", &m, pairs);
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
  ok(record::given_rows(p, found::label_columns, &given, &m.err));
  ok(record::columns(p, given, 0, found::span_k, &view, &m.err));
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
  given_refused("other columns than before", found::label_columns + 1, record::queries);
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
  ok(m.data(SIE_F32, 4, found::pair_n, std::vector<float>(4 * found::pair_n).data(), &w));
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
