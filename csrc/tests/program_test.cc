// program_test.cc — whole programs: the CPU compared with the reference, and the promises about
// batches.
#include <math.h>
#include <string.h>

#include <vector>

#include "compare.h"
#include "device.h"
#include "model.h"
#include "paths.h"
#include "program.h"
#include "tests/check.h"
#include "weight.h"

using model::Batch;
using model::Model;
using model::Path;
using model::Result;
using model::Shape;

namespace {

Batch ragged_batch(const Shape &shape) {
  Batch batch;
  int number = 0;
  for (int length : {1, 7, 31, 64, 0, 65, 130, 33, 2, 300, 32, 1, 63, 640, 12})
    batch.add(shape, number++, length);
  return batch;
}

bool same_results(const Result &a, const Result &b) {
  return same_bits(a.rows, b.rows) && same_bits(a.values, b.values);
}

// Whether row b of a whole batch's result equals the only row of its sequence run alone.
bool same_row(const Result &all, const Result &alone, const Batch &batch, int64_t b, int hidden) {
  if (memcmp(&all.rows[static_cast<size_t>(b * hidden)], alone.rows.data(),
             static_cast<size_t>(hidden) * 4) != 0) {
    return false;
  }
  if (alone.values.empty()) return true;
  return memcmp(&all.values[static_cast<size_t>(batch.cu[static_cast<size_t>(b)] * hidden)],
                alone.values.data(), alone.values.size() * sizeof(float)) == 0;
}

}  // namespace

TEST(program_agrees_with_the_reference) {
  // Tolerances by class over two layers of unit-variance rows: f32 rounding; bf16 storage of every
  // activation (2⁻⁹ each, some tens of them); u8 rows and s8 weights (2⁻⁸ of the largest).
  const double tolerance[] = {0, 2e-5, 0.06, 0.25};
  const double least_cosine[] = {0, 0.9999999, 0.9995, 0.99};
  for (bool prune : {false, true}) {
    Shape shape;
    shape.prune = prune;
    Model reference;
    CHECK(reference.open(SIE_DEVICE_REF, 0, 0, SIE_COMPUTE_F32, shape) == SIE_OK, "ref: %s",
          reference.err.message);
    Batch batch = ragged_batch(shape);
    Result expected = run(&reference, batch);
    CHECK(expected.status == SIE_OK, "reference status %d", expected.status);
    for (const Path &path : model::machine_paths()) {
      Model m;
      CHECK(m.open(SIE_DEVICE_CPU, path.isa, 2, path.compute, shape) == SIE_OK, "%s: %s", path.name,
            m.err.message);
      if (m.program == nullptr || m.arena == nullptr) continue;
      Result got = run(&m, batch);
      CHECK(got.status == SIE_OK, "%s: status %d", path.name, got.status);
      double worst =
          fmax(largest_difference(got.rows, expected.rows), largest_difference(got.values, expected.values));
      CHECK(worst <= tolerance[path.compute], "%s prune=%d: largest difference %g", path.name, prune, worst);
      for (int64_t b = 0; b < batch.seqs(); b++) {
        size_t at = static_cast<size_t>(b * m.hidden);
        double c = cosine(&got.rows[at], &expected.rows[at], m.hidden);
        CHECK(c >= least_cosine[path.compute], "%s prune=%d: cosine %.6f of sequence %d", path.name, prune, c,
              static_cast<int>(b));
      }
    }
  }
}

TEST(program_results_do_not_depend_on_the_batch) {
  for (const Path &path : model::machine_paths()) {
    for (bool prune : {false, true}) {
      Shape shape;
      shape.prune = prune;
      Model m;
      CHECK(m.open(SIE_DEVICE_CPU, path.isa, 1, path.compute, shape) == SIE_OK, "%s: %s", path.name,
            m.err.message);
      if (m.arena == nullptr) continue;
      Batch batch = ragged_batch(shape);
      Result together = run(&m, batch);
      for (int64_t b = 0; b < batch.seqs(); b++) {
        Batch one;
        one.add(shape, static_cast<int>(b),
                batch.cu[static_cast<size_t>(b) + 1] - batch.cu[static_cast<size_t>(b)]);
        Result alone = run(&m, one);
        CHECK(same_row(together, alone, batch, b, m.hidden),
              "%s prune=%d: sequence %d of %d tokens differs alone", path.name, prune, static_cast<int>(b),
              static_cast<int>(one.tokens()));
      }
    }
  }
}

TEST(program_teams_give_the_bits_of_one_executor) {
  for (const Path &path : model::machine_paths()) {
    Shape shape;
    Model solo;
    CHECK(solo.open(SIE_DEVICE_CPU, path.isa, 1, path.compute, shape) == SIE_OK, "%s: %s", path.name,
          solo.err.message);
    if (solo.arena == nullptr) continue;
    std::vector<Batch> batches(4);
    batches[0].add(shape, 1, 12);
    batches[1].add(shape, 2, 640);
    for (int i = 0; i < 3; i++) batches[2].add(shape, i, 40 + 13 * i);
    batches[3] = ragged_batch(shape);
    for (int threads : {2, 3, 5, 18}) {
      Model team;
      CHECK(team.open(SIE_DEVICE_CPU, path.isa, threads, path.compute, shape) == SIE_OK, "%s: %s", path.name,
            team.err.message);
      if (team.arena == nullptr) continue;
      for (size_t i = 0; i < batches.size(); i++) {
        Result expected = run(&solo, batches[i]), got = run(&team, batches[i]);
        CHECK(got.status == SIE_OK, "%s: status %d", path.name, got.status);
        CHECK(same_results(expected, got), "%s: batch %zu differs with %d executors", path.name, i, threads);
      }
    }
  }
}

TEST(program_two_runs_in_flight) {
  Shape shape;
  Model m, other;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 3, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  if (m.arena == nullptr) return;
  std::vector<Batch> batches;
  std::vector<Result> expected;
  model::Random random(5);
  for (int i = 0; i < 12; i++) {
    Batch batch;
    int seqs = random.below(20);
    for (int s = 0; s < seqs; s++) batch.add(shape, random.below(50), random.below(150));
    expected.push_back(run(&m, batch));
    batches.push_back(batch);
  }
  for (int round = 0; round < 6; round++) {
    int first = 0, next = 0, count = static_cast<int>(batches.size());
    while (first < count) {
      while (next < count && next < first + 2) {
        sie_status status = submit(&m, next % 2, batches[static_cast<size_t>(next)]);
        CHECK(status == SIE_OK, "submit %d: %s", next, m.err.message);
        next++;
      }
      Result got = wait(&m, first % 2, batches[static_cast<size_t>(first)]);
      CHECK(got.status == SIE_OK && same_results(got, expected[static_cast<size_t>(first)]),
            "batch %d differs", first);
      first++;
    }
  }
}

TEST(program_describes_itself) {
  Model m;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 2, SIE_COMPUTE_F32) == SIE_OK, "%s", m.err.message);
  if (m.program == nullptr) return;
  size_t need = sie_program_describe(m.program, nullptr, 0);
  std::vector<char> text(need + 1);
  CHECK(sie_program_describe(m.program, text.data(), text.size()) == need, "two lengths");
  CHECK(strlen(text.data()) == need, "text of %zu, %zu promised", strlen(text.data()), need);
  for (const char *part : {"embed_layernorm", "attention", "2 heads over 2 of 32", "gelu", "in place", "pool",
                           "space tokens: at most 4096 rows, 640 a sequence", "input ids: i32[tokens]",
                           "input type_ids: i32[tokens], else 0", "output o1: values of tokens, 64 columns",
                           "by ids", "to o1"}) {
    CHECK(strstr(text.data(), part) != nullptr, "no \"%s\" in:\n%s", part, text.data());
  }
  char small[40];
  CHECK(sie_program_describe(m.program, small, sizeof small) == need, "a short buffer changes the length");
  CHECK(strlen(small) == sizeof small - 1, "a short buffer is filled and terminated");
}

TEST(program_memory_is_reused) {
  // Eight layers need no more memory than two: values that are no longer read make room.
  Shape two, eight;
  eight.layers = 8;
  Model a, b;
  CHECK(a.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, two) == SIE_OK, "%s", a.err.message);
  CHECK(b.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, eight) == SIE_OK, "%s", b.err.message);
  CHECK(sie_arena_bytes(a.arena) == sie_arena_bytes(b.arena), "%lld bytes for two layers, %lld for eight",
        static_cast<long long>(sie_arena_bytes(a.arena)), static_cast<long long>(sie_arena_bytes(b.arena)));
}

TEST(program_refuses_the_batch_of_a_freed_one) {
  // A program at the address of a freed one must not run the batch that the slot holds for the
  // freed one.
  Model m;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32) == SIE_OK, "%s", m.err.message);
  if (m.slots[0] == nullptr) return;
  Batch batch;
  batch.add(m.shape, 1, 20);
  record::Batch packed;
  packed.n_seqs = batch.seqs();
  packed.ids = batch.ids.data();
  packed.cu_seqlens = batch.cu.data();
  packed.items[0] = batch.items[0].data();
  CHECK(record::load(m.slots[0], m.program, &packed, &m.err) == SIE_OK, "%s", m.err.message);
  // Act as if this were the next program, at the same address.
  m.program->serial = ++m.device->programs;
  CHECK(sie_program_submit(m.program, m.arena, m.slots[0], nullptr, &m.err) == SIE_INVALID_ARGUMENT,
        "a stale batch runs");
  CHECK(record::load(m.slots[0], m.program, &packed, &m.err) == SIE_OK, "%s", m.err.message);
  CHECK(sie_program_submit(m.program, m.arena, m.slots[0], nullptr, &m.err) == SIE_OK, "%s", m.err.message);
  CHECK(sie_slot_wait(m.slots[0], &m.err) == SIE_OK, "%s", m.err.message);
}

TEST(program_weighs_attention_by_its_own_shape) {
  // Two layers, hidden size 64, feed-forward 160: a layer multiplies 4·64² + 2·64·160 times a token
  // in linears and 2·64 times a key in attention.
  Shape shape;
  Model m;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  if (m.program == nullptr) return;
  CHECK(m.program->balance == (4 * 64 * 64 + 2 * 64 * 160) / (2 * 64), "balance %lld",
        static_cast<long long>(m.program->balance));
}

TEST(program_keeps_nan_in_its_own_item) {
  // A NaN in one row of the word table reaches, in every class, the result of the text with that
  // word, and no other's.
  for (const Path &path : model::machine_paths()) {
    Model m;
    CHECK(m.open(SIE_DEVICE_CPU, path.isa, 2, path.compute) == SIE_OK, "%s: %s", path.name, m.err.message);
    if (m.slots[0] == nullptr) continue;
    Batch batch;
    for (int i = 0; i < 6; i++) {
      batch.add(m.shape, i, 40 + i);
      for (int t = batch.cu[static_cast<size_t>(i)]; t < batch.cu[static_cast<size_t>(i) + 1]; t++) {
        batch.ids[static_cast<size_t>(t)] = batch.ids[static_cast<size_t>(t)] % 50;
      }
    }
    Result clean = run(&m, batch);
    batch.ids[static_cast<size_t>(batch.cu[3] + 7)] = 60;
    sie_weight *word = m.weights[0];
    if (word->table.dtype == SIE_F32) {
      static_cast<float *>(word->table.p)[60 * word->table.ld + 5] = NAN;
    } else {
      static_cast<uint16_t *>(word->table.p)[60 * word->table.ld + 5] = 0x7fc0;
    }
    Result got = run(&m, batch);
    CHECK(got.status == SIE_OK, "%s: status %d", path.name, got.status);
    for (int64_t b = 0; b < batch.seqs(); b++) {
      const float *row = &got.rows[static_cast<size_t>(b * m.hidden)];
      bool nan = true;
      for (int c = 0; c < m.hidden; c++) nan = nan && isnan(row[c]);
      if (b == 3) CHECK(nan, "%s: a NaN gave a plausible vector", path.name);
      if (b != 3) {
        CHECK(memcmp(row, &clean.rows[static_cast<size_t>(b * m.hidden)],
                     static_cast<size_t>(m.hidden) * 4) == 0,
              "%s: text %lld sees the NaN of text 3", path.name, static_cast<long long>(b));
      }
    }
  }
}
