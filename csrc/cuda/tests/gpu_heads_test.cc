// gpu_heads_test.cc — programs with heads on an emulated GPU: compared with the reference, alone
// and in batches, and as graphs.
#include <math.h>
#include <string.h>

#include "card.h"
#include "compare.h"
#include "device.h"
#include "heads.h"
#include "model.h"
#include "program.h"

using card::name_of;
using card::Path;
using card::paths;
using card::StandInCard;
using heads::Head;
using model::Batch;
using model::Model;
using model::Result;
using model::Shape;

namespace {

Shape shape_of(const Head &head) {
  Shape shape;
  shape.layers = 1;
  shape.ffn = 192;
  shape.positions = 300;
  shape.tail = head.tail;
  return shape;
}

// False if the card has no kernel for the head; then recording must return SIE_UNSUPPORTED.
bool open(Model *m, const Head &head, StandInCard *card, const Path &path) {
  sie_status status = m->open_on(card, path.compute, shape_of(head));
  if (m->device == nullptr || head.has(m->device->ops)) {
    CHECK(status == SIE_OK, "%s %s: %s", head.name, name_of(path), m->err.message);
    return status == SIE_OK;
  }
  CHECK(status == SIE_UNSUPPORTED && strstr(m->err.message, "has no ") != nullptr, "%s %s: status %d, %s",
        head.name, name_of(path), status, m->err.message);
  return false;
}

const std::vector<int> numbers = {0, 1, 2, 4, 5, 7, 11};

// The distance of output o from the reference's: the largest difference, or, for outputs that jump,
// how far the direction turns.
double distance(const Head &head, const Batch &batch, const Result &got, const Result &expected, int o) {
  double worst = 0;
  for (int b = 0; b < static_cast<int>(batch.seqs()); b++) {
    std::vector<float> x = heads::numbers_of(head, batch, got, o, b);
    std::vector<float> y = heads::numbers_of(head, batch, expected, o, b);
    bool turns = head.jumps && head.outputs[o].kind != heads::Kind::values && x.size() == y.size();
    double d = turns ? 1 - cosine(x.data(), y.data(), static_cast<int>(x.size())) : largest_difference(x, y);
    worst = fmax(worst, d);
  }
  return worst;
}

}  // namespace

TEST_LIST(gpu_heads_agree_with_the_reference) {
  for (int i = 0; i < heads::count; i++) {
    if (!check::in_shard(i)) continue;
    const Head &head = heads::all[i];
    Model reference;
    sie_status status = reference.open(SIE_DEVICE_REF, 0, 0, SIE_COMPUTE_F32, shape_of(head));
    if (status == SIE_UNSUPPORTED) continue;
    CHECK(status == SIE_OK, "%s: %s", head.name, reference.err.message);
    Batch batch = heads::batch_of(head, reference.shape, numbers, false);
    Result expected = run(&reference, batch);
    for (const Path &path : paths) {
      StandInCard card(path.major, path.minor, true);
      Model m;
      if (!open(&m, head, &card, path)) continue;
      Result got = run(&m, batch);
      CHECK(got.status == SIE_OK, "%s %s: %s", head.name, name_of(path), m.err.message);
      for (int o = 0; o < 4 && head.outputs[o].kind != heads::Kind::none; o++) {
        // A flipped sign or order moves a row to another partition, or its weight to another
        // column.
        bool jumps = head.jumps && head.outputs[o].kind != heads::Kind::values;
        double worst = distance(head, batch, got, expected, o);
        double bound = jumps ? (path.compute == SIE_COMPUTE_FP8 ? 0.5 : 0.25)
                             : path.tolerance * (head.jumps ? 1 : head.tolerance);
        CHECK(worst <= bound, "%s %s: output %d differs by %g", head.name, name_of(path), o, worst);
      }
    }
  }
}

// A stream is f32 in every class: sums with rows of the class's type are exact to the bit, and most
// values are not of that type. Operations that need the type share one rounded copy.
TEST(gpu_streams_are_f32) {
  const Head &head = heads::named("stream");
  for (const Path &path : paths) {
    StandInCard card(path.major, path.minor, true);
    Model m;
    if (!open(&m, head, &card, path)) continue;
    Batch batch = heads::batch_of(head, m.shape, numbers, false);
    Result got = run(&m, batch);
    CHECK(got.status == SIE_OK, "%s: %s", name_of(path), m.err.message);
    size_t wide = 0, all = 0;
    for (int b = 0; b < static_cast<int>(batch.seqs()); b++) {
      std::vector<float> first = heads::numbers_of(head, batch, got, 0, b),
                         branch = heads::numbers_of(head, batch, got, 1, b),
                         sum = heads::numbers_of(head, batch, got, 2, b);
      for (size_t i = 0; i < sum.size(); i++) {
        uint32_t bits;
        memcpy(&bits, &first[i], 4);
        all++;
        wide += (bits & 0x1fff) != 0 ? 1 : 0;  // f16 and bf16 leave these bits 0
        CHECK(sum[i] == branch[i] + first[i], "%s: element %zu of sequence %d", name_of(path), i, b);
      }
    }
    CHECK(wide > all * 9 / 10, "%s: %zu of %zu values need more bits than the class has", name_of(path), wide,
          all);
    std::vector<char> text(sie_program_describe(m.program, nullptr, 0) + 1);
    sie_program_describe(m.program, text.data(), text.size());
    int rounded = 0;
    for (const char *p = text.data(); (p = strstr(p, "rounded v")) != nullptr; p++) rounded++;
    // The linear's result for attention, and for the first matrix if that is not quantised; kept
    // rows for a matrix, if that is not.
    int want = path.compute == SIE_COMPUTE_FP8 ? 1 : 2;
    CHECK(rounded == want, "%s: %d values are rounded:\n%s", name_of(path), rounded, text.data());
  }
}

// An embedding that is scaled by 1.7 is a stream: most values are not of the class's type.
TEST(gpu_embeddings_can_be_streams) {
  const Head &head = heads::named("stream rows");
  for (const Path &path : paths) {
    StandInCard card(path.major, path.minor, true);
    Model m;
    if (!open(&m, head, &card, path)) continue;
    Batch batch = heads::batch_of(head, m.shape, numbers, false);
    Result got = run(&m, batch);
    size_t wide = 0, all = 0;
    for (int b = 0; b < static_cast<int>(batch.seqs()); b++) {
      for (float x : heads::numbers_of(head, batch, got, 0, b)) {
        uint32_t bits;
        memcpy(&bits, &x, 4);
        all++;
        wide += (bits & 0x1fff) != 0 ? 1 : 0;
      }
    }
    CHECK(got.status == SIE_OK && all > 0 && wide > all / 2, "%s: %zu of %zu values need f32", name_of(path),
          wide, all);
  }
}

TEST(gpu_one_query_has_the_bits_it_has_among_all) {
  const Head &head = heads::named("one query");
  for (const Path &path : paths) {
    StandInCard card(path.major, path.minor, true);
    Model m;
    if (!open(&m, head, &card, path)) continue;
    Batch batch = heads::batch_of(head, m.shape, numbers, false);
    Result got = run(&m, batch);
    CHECK(got.status == SIE_OK, "%s: %s", name_of(path), m.err.message);
    for (int o : {0, 2})
      CHECK(got.bytes[o] == got.bytes[o + 1], "%s: outputs %d and %d", name_of(path), o, o + 1);
    CHECK(got.bytes[0] != got.bytes[2], "%s: the first rows are the last", name_of(path));
  }
}

TEST_LIST(gpu_heads_do_not_depend_on_the_batch_or_the_graph) {
  for (int i = 0; i < heads::count; i++) {
    if (!check::in_shard(i)) continue;
    const Head &head = heads::all[i];
    for (const Path &path : card::some_paths(i)) {
      StandInCard card(path.major, path.minor, true);
      Model m;
      if (!open(&m, head, &card, path)) continue;
      Batch all = heads::batch_of(head, m.shape, numbers, true);
      Result together = run(&m, all);
      CHECK(together.status == SIE_OK, "%s %s: %s", head.name, name_of(path), m.err.message);
      // The batches of a bucket run one after another in the same graph.
      for (int time = 0; time < 2; time++) {
        for (size_t b = 0; b < numbers.size(); b++) {
          Batch one = heads::batch_of(head, m.shape, {numbers[b]}, true);
          Result alone = run(&m, one);
          for (int o = 0; o < 4 && head.outputs[o].kind != heads::Kind::none; o++) {
            CHECK(alone.status == SIE_OK && heads::part(head, one, alone, o, 0) ==
                                                heads::part(head, all, together, o, static_cast<int>(b)),
                  "%s %s: output %d of sequence %d differs alone, time %d", head.name, name_of(path), o,
                  numbers[b], time);
          }
        }
      }
    }
  }
}

// A sequence without an adapter has the same bits beside others with one as in a program without
// adapters.
TEST_LIST(gpu_sequences_without_an_adapter_do_not_depend_on_adapters) {
  const Head &head = heads::named("lora");
  Head without = head;
  without.tail = heads::lora_tail_without_adapters;
  for (const Path &path : paths) {
    if (!check::in_shard(card::index_of(path))) continue;
    std::vector<uint8_t> expected[3][2];
    for (bool plain : {true, false}) {
      StandInCard card(path.major, path.minor, true);
      Model m;
      if (!open(&m, plain ? without : head, &card, path)) continue;
      Batch batch = heads::batch_of(
          head, m.shape, plain ? std::vector<int>{1, 3, 6} : std::vector<int>{1, 2, 3, 5, 6}, false);
      batch.adapter = plain ? std::vector<int32_t>{} : std::vector<int32_t>{-1, 0, -1, 2, -1};
      Result got = run(&m, batch);
      CHECK(got.status == SIE_OK, "%s: %s", name_of(path), m.err.message);
      for (int b = 0; b < 3; b++) {
        for (int o = 0; o < 2; o++) {
          std::vector<uint8_t> bytes = heads::part(head, batch, got, o, plain ? b : 2 * b);
          if (plain) expected[b][o] = bytes;
          CHECK(!bytes.empty() && bytes == expected[b][o],
                "%s: output %d of sequence %d differs beside sequences with adapters", name_of(path), o, b);
        }
      }
    }
  }
}

// A graph must read the batch's choices from the batch, not from its capture: runs two batches of
// one bucket that differ only in choices.
TEST(gpu_graphs_read_a_batchs_choices) {
  for (const char *name : {"keep", "lora", "maxsim of kept rows"}) {
    const Head &head = heads::named(name);
    StandInCard card(9, 0, true);
    Model m;
    if (!open(&m, head, &card, paths[3])) continue;
    Batch batch = heads::batch_of(head, m.shape, {1, 9, 3}, false);
    Result expected = run(&m, batch);
    for (int time = 0; time < 2; time++) (void)run(&m, batch);
    Batch other = batch;
    for (size_t i = 0; i < other.keep.size(); i++) other.keep[i] = i % 5 == 0 ? 1 : 0;
    for (int32_t &a : other.adapter) a = (a + 2) % heads::n_adapters;
    for (int32_t &p : other.partner) p = p < 0 ? 0 : -1;
    Result changed = run(&m, other);
    CHECK(changed.status == SIE_OK, "%s: %s", name, m.err.message);
    CHECK(changed.bytes[0] != expected.bytes[0], "%s: other choices, the same result", name);
    Result again = run(&m, batch);
    for (int b = 0; b < 3; b++) {
      CHECK(heads::part(head, batch, again, 0, b) == heads::part(head, batch, expected, 0, b),
            "%s: sequence %d differs after another batch", name, b);
    }
  }
}

namespace {

// How many operations of this kind a program runs.
int count_of(const Model &m, uint32_t kind) {
  int count = 0;
  for (const sie::PlannedOp &planned : m.program->plan) count += planned.op.kind == kind ? 1 : 0;
  return count;
}

}  // namespace

// With the norms behind linears in one operation with them a program is shorter and gives the same bits, for many
// texts and for one alone.
TEST_LIST(gpu_norms_of_linears_change_no_bits) {
  for (int i = 0; i < heads::count; i++) {
    if (!check::in_shard(i)) continue;
    const Head &head = heads::all[i];
    for (const Path &path : card::some_paths(i)) {
      StandInCard card(path.major, path.minor, true);
      Model two, one;
      two.norms_pay = 0, one.norms_pay = 1;
      if (!open(&two, head, &card, path) || !open(&one, head, &card, path)) continue;
      const int joined = count_of(one, SIE_OP_LINEAR_NORM);
      // Both norms of the layer, where nobody wants their rows quantised.
      CHECK(joined >= 2 || path.compute == SIE_COMPUTE_FP8, "%s %s: %d joined", head.name, name_of(path),
            joined);
      CHECK(count_of(two, SIE_OP_LINEAR_NORM) == 0, "%s %s: joined without pay", head.name, name_of(path));
      CHECK(count_of(two, SIE_OP_LAYERNORM) == count_of(one, SIE_OP_LAYERNORM) + joined &&
                two.program->plan.size() == one.program->plan.size() + joined,
            "%s %s: other operations", head.name, name_of(path));
      const Batch all = heads::batch_of(head, one.shape, numbers, true);
      const Result expected = run(&two, all), got = run(&one, all);
      CHECK(expected.status == SIE_OK && got.status == SIE_OK, "%s %s: %s", head.name, name_of(path),
            one.err.message);
      CHECK(got.nonfinite == expected.nonfinite, "%s %s: other flags", head.name, name_of(path));
      for (size_t b = 0; b <= 3; b++) {
        const bool is_all = b == 3;
        const Batch some = is_all ? all : heads::batch_of(head, one.shape, {numbers[b]}, true);
        const Result result = is_all ? got : run(&one, some);
        for (int o = 0; o < 4 && head.outputs[o].kind != heads::Kind::none; o++) {
          const bool same = is_all ? result.bytes[o] == expected.bytes[o]
                                   : heads::part(head, some, result, o, 0) ==
                                         heads::part(head, all, expected, o, static_cast<int>(b));
          CHECK(result.status == SIE_OK && same, "%s %s: output %d differs, sequence %zu alone", head.name,
                name_of(path), o, b);
        }
      }
    }
  }
}

// A width for which sm_90 has one kernel: few rows and many, alone and with others, have the bits that two operations
// give. Other cards have no such operation.
TEST(gpu_norms_of_linears_in_one_kernel) {
  Shape shape;
  shape.layers = 1;
  shape.heads = 12, shape.head_dim = 64;
  shape.ffn = 128;
  for (const Path &path : {Path{8, 0, SIE_COMPUTE_BF16, 0, 0}, Path{9, 0, SIE_COMPUTE_BF16, 0, 0},
                           Path{9, 0, SIE_COMPUTE_F16, 0, 0}}) {
    StandInCard card(path.major, path.minor, true);
    Model two, one;
    two.norms_pay = 0;
    CHECK(two.open_on(&card, path.compute, shape) == SIE_OK &&
              one.open_on(&card, path.compute, shape) == SIE_OK,
          "%s: %s%s", name_of(path), two.err.message, one.err.message);
    if (two.slots[0] == nullptr || one.slots[0] == nullptr) return;
    CHECK(count_of(one, SIE_OP_LINEAR_NORM) == (path.major == 9 ? 2 : 0), "%s: %d norms are joined",
          name_of(path), count_of(one, SIE_OP_LINEAR_NORM));
    if (path.major != 9) continue;
    Batch all, first;
    for (int length : {3, 1, 60, 21}) all.add(shape, length, length);
    first.add(shape, 3, 3);
    const Result expected = run(&two, all), got = run(&one, all), alone = run(&one, first);
    CHECK(got.status == SIE_OK && got.values == expected.values && got.rows == expected.rows,
          "%s: other bits in one kernel", name_of(path));
    CHECK(alone.status == SIE_OK &&
              memcmp(alone.values.data(), expected.values.data(), 3 * 768 * sizeof(float)) == 0,
          "%s: other bits alone", name_of(path));
  }
}

namespace {

// Pooled rows of which outputs read a part, and all. On a GPU the kernel that writes an output may
// do the pooling, but only of whole rows.
sie_status view_tail(Model *m, sie_value x) {
  sie_value pooled, view;
  sie_status status = record::pool(m->program, x, SIE_POOL_MEAN, &pooled, &m->err);
  if (status == SIE_OK) status = record::columns(m->program, pooled, 16, 32, &view, &m->err);
  if (status == SIE_OK) status = record::output_rows(m->program, view, 0, &m->err);
  return status == SIE_OK ? record::output_rows(m->program, pooled, 1, &m->err) : status;
}

sie_status only_view_tail(Model *m, sie_value x) {
  sie_value pooled, view;
  sie_status status = record::pool(m->program, x, SIE_POOL_CLS, &pooled, &m->err);
  if (status == SIE_OK) status = record::columns(m->program, pooled, 16, 32, &view, &m->err);
  return status == SIE_OK ? record::output_rows(m->program, view, 0, &m->err) : status;
}

}  // namespace

TEST(gpu_outputs_of_a_part_of_pooled_rows) {
  const Head views[] = {
      {"view", view_tail, nullptr, {{heads::Kind::rows, 32}, {heads::Kind::rows, 64}, {}, {}}, 1, false},
      {"only view", only_view_tail, nullptr, {{heads::Kind::rows, 32}, {}, {}, {}}, 1, false},
  };
  for (const Head &head : views) {
    Model reference;
    CHECK(reference.open(SIE_DEVICE_REF, 0, 0, SIE_COMPUTE_F32, shape_of(head)) == SIE_OK, "%s",
          reference.err.message);
    Batch batch = heads::batch_of(head, reference.shape, {1, 2, 5}, false);
    Result expected = run(&reference, batch);
    const Path &path = paths[3];
    StandInCard card(path.major, path.minor, false);
    Model m;
    CHECK(m.open_on(&card, path.compute, shape_of(head)) == SIE_OK, "%s: %s", head.name, m.err.message);
    if (m.slots[0] == nullptr) return;
    Result got = run(&m, batch);
    for (int o = 0; o < 4 && head.outputs[o].kind != heads::Kind::none; o++) {
      double worst = distance(head, batch, got, expected, o);
      CHECK(worst <= path.tolerance, "%s: output %d differs by %g", head.name, o, worst);
    }
  }
}
