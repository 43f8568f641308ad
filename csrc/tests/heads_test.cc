// heads_test.cc — programs with heads, compared with the reference and with the definitions of
// their operations; and each sequence alone, compared with the same sequence in a batch.
#include "heads.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "compare.h"
#include "device.h"
#include "paths.h"
#include "tests/check.h"

using heads::Head;
using model::Batch;
using model::Model;
using model::Path;
using model::Result;
using model::Shape;

namespace {

Shape shape_of(const Head &head) {
  Shape shape;
  shape.layers = 1;
  shape.tail = head.tail;
  return shape;
}

// Opens a model with the head. False if the device has no kernel for it; then recording must return
// SIE_UNSUPPORTED.
bool open(Model *m, const Head &head, uint32_t kind, uint32_t isa, int threads, uint32_t compute) {
  sie_status status = m->open(kind, isa, threads, compute, shape_of(head));
  if (m->device == nullptr || head.has(m->device->ops)) {
    CHECK(status == SIE_OK, "%s: %s", head.name, m->err.message);
    return status == SIE_OK;
  }
  CHECK(status == SIE_UNSUPPORTED && strstr(m->err.message, "has no ") != nullptr, "%s: status %d, %s",
        head.name, status, m->err.message);
  return false;
}

std::vector<int> first_numbers(int n) {
  std::vector<int> numbers;
  for (int i = 0; i < n; i++) numbers.push_back(i);
  return numbers;
}

// Checks that each sequence of `some` has the same bytes as in `all`, where it is sequence at[i].
void check_parts(const Head &head, const Batch &all, const Result &together, const Batch &some,
                 const Result &got, const std::vector<int> &at, const char *what) {
  for (int o = 0; o < 4 && head.outputs[o].kind != heads::Kind::none; o++) {
    for (int b = 0; b < static_cast<int>(some.seqs()); b++) {
      CHECK(heads::part(head, some, got, o, b) ==
                heads::part(head, all, together, o, at[static_cast<size_t>(b)]),
            "%s %s: output %d of sequence %d differs", head.name, what, o, at[static_cast<size_t>(b)]);
    }
  }
}

// Runs a head in F32 on the CPU and gives output o of every sequence.
struct Run {
  Model m;
  Batch batch;
  Result result;
  const Head &head;
  bool ok;

  explicit Run(const char *name) : head(heads::named(name)) {
    ok = open(&m, head, SIE_DEVICE_CPU, 0, 2, SIE_COMPUTE_F32);
    if (!ok) return;
    batch = heads::batch_of(head, m.shape, first_numbers(24), false);
    result = run(&m, batch);
    CHECK(result.status == SIE_OK, "%s: status %d", name, result.status);
  }
  std::vector<float> numbers(int o, int b) const { return heads::numbers_of(head, batch, result, o, b); }
  int seqs() const { return ok ? static_cast<int>(batch.seqs()) : 0; }
};

}  // namespace

TEST(heads_agree_with_the_reference) {
  const double tolerance[] = {0, 3e-5, 0.06, 0.25};
  for (int i = 0; i < heads::count; i++) {
    const Head &head = heads::all[i];
    Model reference;
    if (!open(&reference, head, SIE_DEVICE_REF, 0, 0, SIE_COMPUTE_F32)) continue;
    Batch batch = heads::batch_of(head, reference.shape, first_numbers(24), false);
    Result expected = run(&reference, batch);
    CHECK(expected.status == SIE_OK, "%s: reference status %d", head.name, expected.status);
    for (const Path &path : model::machine_paths()) {
      Model m;
      if (head.jumps && path.compute != SIE_COMPUTE_F32) continue;
      if (!open(&m, head, SIE_DEVICE_CPU, path.isa, 3, path.compute)) continue;
      Result got = run(&m, batch);
      CHECK(got.status == SIE_OK, "%s %s: status %d", head.name, path.name, got.status);
      for (int o = 0; o < 4 && head.outputs[o].kind != heads::Kind::none; o++) {
        double worst = 0;
        for (int b = 0; b < static_cast<int>(batch.seqs()); b++) {
          worst = fmax(worst, largest_difference(heads::numbers_of(head, batch, got, o, b),
                                                 heads::numbers_of(head, batch, expected, o, b)));
        }
        CHECK(worst <= tolerance[path.compute] * head.tolerance, "%s %s: output %d differs by %g", head.name,
              path.name, o, worst);
      }
    }
  }
}

TEST(heads_do_not_depend_on_the_batch_or_the_team) {
  for (int i = 0; i < heads::count; i++) {
    const Head &head = heads::all[i];
    for (const Path &path : model::machine_paths()) {
      Model solo;
      if (!open(&solo, head, SIE_DEVICE_CPU, path.isa, 1, path.compute)) continue;
      std::vector<int> numbers = first_numbers(model::times(40, 8));
      Batch all = heads::batch_of(head, solo.shape, numbers, true);
      Result together = run(&solo, all);
      CHECK(together.status == SIE_OK, "%s %s: status %d", head.name, path.name, together.status);
      for (int number : numbers) {
        Batch one = heads::batch_of(head, solo.shape, {number}, true);
        Result alone = run(&solo, one);
        check_parts(head, all, together, one, alone, {number}, path.name);
      }
      std::vector<int> backwards(numbers.rbegin(), numbers.rend());
      Batch reversed = heads::batch_of(head, solo.shape, backwards, true);
      check_parts(head, all, together, reversed, run(&solo, reversed), backwards, path.name);
      for (int threads : {3, 18}) {
        Model team;
        if (!open(&team, head, SIE_DEVICE_CPU, path.isa, threads, path.compute)) continue;
        check_parts(head, all, together, all, run(&team, all), numbers, "in slabs");
        Batch few = heads::batch_of(head, solo.shape, {6, 3}, true);
        check_parts(head, all, together, few, run(&team, few), {6, 3}, "in teams");
      }
    }
  }
}

// Long sequences included: their attention is cut into blocks of queries.
TEST(heads_one_query_has_the_bits_it_has_among_all) {
  const Head &head = heads::named("one query");
  for (const Path &path : model::machine_paths()) {
    Model m;
    if (!open(&m, head, SIE_DEVICE_CPU, path.isa, 3, path.compute)) continue;
    std::vector<int> numbers = first_numbers(24);
    numbers.insert(numbers.end(), {1000, 1017});
    Batch batch = heads::batch_of(head, m.shape, numbers, false);
    Result got = run(&m, batch);
    CHECK(got.status == SIE_OK, "%s: status %d", path.name, got.status);
    for (int o : {0, 2})
      CHECK(got.bytes[o] == got.bytes[o + 1], "%s: outputs %d and %d", path.name, o, o + 1);
    CHECK(got.bytes[0] != got.bytes[2], "%s: the first rows are the last", path.name);
  }
}

TEST(heads_without_choices_take_the_defaults) {
  // Without the inputs: all rows are kept, and sequences have no adapter and no query.
  for (const char *name : {"keep", "lora", "maxsim of kept rows"}) {
    const Head &head = heads::named(name);
    Model m;
    if (!open(&m, head, SIE_DEVICE_CPU, 0, 2, SIE_COMPUTE_F32)) continue;
    Batch batch = heads::batch_of(head, m.shape, first_numbers(6), false);
    std::fill(batch.keep.begin(), batch.keep.end(), uint8_t{1});
    std::fill(batch.adapter.begin(), batch.adapter.end(), -1);
    std::fill(batch.partner.begin(), batch.partner.end(), -1);
    for (int o = 0; o < 4; o++) {  // room for every row
      int64_t end = 0;
      for (size_t b = 0; b < batch.items[o].size(); b++) {
        batch.items[o][b].offset = end;
        end += (head.outputs[o].kind == heads::Kind::token_rows ? batch.cu[b + 1] - batch.cu[b] : 1) *
               head.outputs[o].columns * 4;
      }
      if (head.outputs[o].kind != heads::Kind::none)
        batch.bytes[o] = batch.tokens() * head.outputs[o].columns * 4;
    }
    Result expected = run(&m, batch);
    batch.keep.clear();
    batch.adapter.clear();
    batch.partner.clear();
    batch.queries.clear();
    batch.cu_queries.clear();
    Result got = run(&m, batch);
    CHECK(got.status == SIE_OK, "%s: %s", name, m.err.message);
    for (int o = 0; o < 4; o++) CHECK(got.bytes[o] == expected.bytes[o], "%s: output %d differs", name, o);
  }
}

TEST(kept_rows_are_the_rows_that_are_kept) {
  Run r("keep");
  for (int b = 0; b < r.seqs(); b++) {
    std::vector<float> tokens = r.numbers(3, b), kept = r.numbers(1, b), expected, mean(64);
    for (int32_t i = r.batch.cu[static_cast<size_t>(b)]; i < r.batch.cu[static_cast<size_t>(b) + 1]; i++) {
      if (r.batch.keep[static_cast<size_t>(i)] == 0) continue;
      auto row = tokens.begin() + (i - r.batch.cu[static_cast<size_t>(b)]) * 64;
      expected.insert(expected.end(), row, row + 64);
    }
    CHECK(same_bits(kept, expected), "sequence %d: %zu values kept, %zu expected", b, kept.size(),
          expected.size());
    for (size_t i = 0; i < expected.size(); i++)
      mean[i % 64] += expected[i] * 64 / static_cast<float>(expected.size());
    double d = largest_difference(r.numbers(2, b), mean);
    CHECK(d <= 1e-5, "sequence %d: the mean of its kept rows differs by %g", b, d);
  }
}

// Rows as wide as this vocabulary leave room for few sequences in an arena lane.
TEST(wide_rows_make_narrow_slabs) {
  constexpr int wide = 100003;
  Shape shape;
  shape.layers = 0;
  shape.tail = [](Model *m, sie_value x) {
    sie_weight *w;
    sie_value y;
    sie_status status = m->weight(SIE_WEIGHT_LINEAR, SIE_COMPUTE_F32, wide, 64, 0.2f, 0, &w);
    if (status == SIE_OK) status = record::splade(m->program, x, w, nullptr, &y, &m->err);
    return status == SIE_OK ? record::output_sparse(m->program, y, SIE_SPARSE_LOG, 0, &m->err) : status;
  };
  Model m;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  if (m.arena == nullptr) return;
  std::vector<char> text(sie_program_describe(m.program, nullptr, 0) + 1);
  sie_program_describe(m.program, text.data(), text.size());
  CHECK(strstr(text.data(), "slabs of at most 512 tokens, 20 sequences") != nullptr, "%s", text.data());
  constexpr int64_t room = 4096, bytes = 16 + room * 8;
  Batch all, one;
  for (int number = 0; number < 50; number++) {
    all.add(shape, number, 1);
    all.items[0].back() = {SIE_F32, room, 0, 0, number * bytes};
  }
  all.bytes[0] = 50 * bytes;
  Result together = run(&m, all);
  CHECK(together.status == SIE_OK, "%s", m.err.message);
  one.bytes[0] = bytes;
  for (int number : {0, 19, 20, 49}) {
    one.ids = {all.ids[static_cast<size_t>(number)]};
    one.types = {all.types[static_cast<size_t>(number)]};
    one.cu = {0, 1};
    one.items[0] = {{SIE_F32, room, 0, 0, 0}};
    Result alone = run(&m, one);
    CHECK(alone.status == SIE_OK &&
              memcmp(alone.bytes[0].data(), together.bytes[0].data() + number * bytes, bytes) == 0,
          "sequence %d differs alone", number);
  }
}

TEST(splade_is_the_largest_logit) {
  Run r("splade");
  for (int b = 0; b < r.seqs(); b++) {
    std::vector<float> logits = r.numbers(2, b), largest(heads::vocabulary), logs(heads::vocabulary);
    for (size_t i = 0; i < logits.size(); i++) {
      float &to = largest[i % heads::vocabulary];
      to = fmaxf(to, logits[i]);
    }
    CHECK(largest_difference(r.numbers(1, b), largest) <= 1e-5, "sequence %d: the maximum", b);
    CHECK(largest_difference(r.numbers(3, b), largest) <= 1e-5, "sequence %d: the sparse maximum", b);
    for (size_t i = 0; i < largest.size(); i++) logs[i] = log1pf(largest[i]);
    CHECK(largest_difference(r.numbers(0, b), logs) <= 1e-5, "sequence %d: its logarithm", b);
  }
}

TEST(maxsim_is_the_sum_of_maxima) {
  const int c = heads::reduced;
  for (const char *name : {"maxsim", "maxsim of kept rows"}) {
    Run r(name);
    bool kept = strcmp(name, "maxsim") != 0;
    for (int b = 0; b < r.seqs(); b++) {
      std::vector<float> rows = r.numbers(kept ? 1 : 2, b);
      int32_t q = r.batch.partner[static_cast<size_t>(b)];
      double unit = 0, plain = 0;
      for (int32_t i = q < 0 ? 0 : r.batch.cu_queries[static_cast<size_t>(q)];
           q >= 0 && !rows.empty() && i < r.batch.cu_queries[static_cast<size_t>(q) + 1]; i++) {
        double best_unit = -INFINITY, best = -INFINITY;
        for (size_t j = 0; j < rows.size(); j += c) {
          double dot = 0, norm = 0;
          for (size_t k = 0; k < c; k++) {
            double x = static_cast<double>(rows[j + k]);
            dot += x * static_cast<double>(r.batch.queries[static_cast<size_t>(i) * c + k]);
            norm += x * x;
          }
          best = fmax(best, dot);
          best_unit = fmax(best_unit, dot / sqrt(norm));
        }
        plain += best;
        unit += best_unit;
      }
      double got = static_cast<double>(r.numbers(0, b)[0]);
      CHECK(fabs(got - unit) <= 1e-4, "%s: sequence %d gives %g, not %g", name, b, got, unit);
      if (kept) continue;
      got = static_cast<double>(r.numbers(1, b)[0]);
      CHECK(fabs(got - plain) <= 1e-4, "%s: sequence %d gives %g, not %g without norm", name, b, got, plain);
    }
  }
}

// Each sequence's result is as if its adapter were the only one, and not as with another adapter.
TEST(lora_takes_each_sequences_adapter) {
  const Head &head = heads::named("lora");
  Run r("lora");
  for (int a = -1; r.ok && a < heads::n_adapters; a++) {
    Batch uniform = r.batch;
    std::fill(uniform.adapter.begin(), uniform.adapter.end(), a);
    Result got = run(&r.m, uniform);
    for (int b = 0; b < r.seqs(); b++) {
      bool same = heads::part(head, uniform, got, 0, b) == heads::part(head, r.batch, r.result, 0, b);
      bool wanted = r.batch.adapter[static_cast<size_t>(b)] == a || r.numbers(0, b).empty();
      CHECK(same == wanted, "sequence %d of adapter %d with all of adapter %d: %s", b,
            r.batch.adapter[static_cast<size_t>(b)], a, same ? "the same" : "differs");
    }
  }
}

// The program's tables reach the reference kernel.
TEST(muvera_and_smve_get_their_tables) {
  const sie_ops *ops = sie_ref_ops();
  Run r("muvera");
  std::vector<float> simhash = heads::simhash(), anchors = heads::anchors(), scratch(1 << 16);
  std::vector<int32_t> ams = heads::ams(), sketch = heads::sketch();
  sie_share share = {0, 1, scratch.data(), static_cast<int64_t>(scratch.size() * 4), nullptr};
  const int32_t one = 1;
  sie_out_item item = {SIE_F32, 0, 0, 0, 0};
  for (int b = 0; b < r.seqs(); b++) {
    std::vector<float> x = r.numbers(2, b), y(heads::encoded), sum(128);
    const int32_t n = static_cast<int32_t>(x.size() / 64), cu[] = {0, n};
    sie_muvera_args a = {};
    a.tokens = {n, &n};
    a.seqs = {1, &one};
    a.cu_seqlens = cu;
    a.c = 64;
    a.x = {x.data(), 64, SIE_F32, 0, nullptr, nullptr, nullptr};
    a.repetitions = heads::repetitions;
    a.simhash_bits = heads::bits;
    a.projected = heads::projected;
    a.final_dims = heads::encoded;
    a.fill_empty = 1;
    a.normalize = 1;
    a.simhash = simhash.data();
    a.ams = ams.data();
    a.sketch = sketch.data();
    a.items = &item;
    a.out = y.data();
    CHECK(ops->muvera(&a, &share) == SIE_OK, "the reference refuses");
    CHECK(largest_difference(r.numbers(0, b), y) <= 1e-4, "sequence %d: the document's encoding", b);
    for (size_t i = 0; i < x.size(); i++) {
      sum[i % 64] += x[i];
      sum[64 + i % 64] += x[i];
    }
    CHECK(largest_difference(r.numbers(3, b), sum) <= 1e-3, "sequence %d: the sum", b);
  }
  Run s("smve");
  for (int b = 0; b < s.seqs(); b++) {
    std::vector<float> x = s.numbers(2, b);
    const int32_t n = static_cast<int32_t>(x.size() / 64), cu[] = {0, n};
    const int columns = heads::repetitions * heads::width;
    std::vector<uint8_t> row(16 + columns * 8);
    sie_out_item room = {SIE_F32, columns, 0, 0, 0};
    sie_smve_args a = {};
    a.rows = {n, &n};
    a.seqs = {1, &one};
    a.cu_seqlens = cu;
    a.c = 64;
    a.x = {x.data(), 64, SIE_F32, 0, nullptr, nullptr, nullptr};
    a.repetitions = heads::repetitions;
    a.width = heads::width;
    a.top = heads::top;
    a.normalize = 1;
    a.anchors = anchors.data();
    a.items = &room;
    a.out = row.data();
    CHECK(ops->smve(&a, &share) == SIE_OK, "the reference refuses");
    Result expected;
    expected.bytes[0] = row;
    Batch alone;
    alone.items[0] = {room};
    double d = largest_difference(s.numbers(0, b), heads::numbers_of(s.head, alone, expected, 0, 0));
    CHECK(d <= 1e-4, "sequence %d: the sparse encoding differs by %g", b, d);
  }
}
