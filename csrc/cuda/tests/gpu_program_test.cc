// gpu_program_test.cc — whole programs on an emulated GPU, with the stand-in driver: compared with
// the reference, alone and in batches, as graphs; and refusals.
#include <math.h>
#include <string.h>

#include "card.h"
#include "compare.h"
#include "model.h"

using card::name_of;
using card::Path;
using card::paths;
using card::StandInCard;
using model::Batch;
using model::Model;
using model::Result;
using model::Shape;

namespace {

Shape small_shape(bool prune, bool head = false) {
  Shape shape;
  shape.prune = prune;
  shape.head = head;
  shape.ffn = 192;
  shape.positions = 300;
  return shape;
}

Batch ragged(const Shape &shape, std::initializer_list<int> lengths) {
  Batch batch;
  int number = 0;
  for (int length : lengths) batch.add(shape, number++, length);
  return batch;
}

}  // namespace

TEST_LIST(gpu_program_agrees_with_the_reference) {
  for (const Shape &shape : {small_shape(false), small_shape(true), small_shape(false, true)}) {
    Batch batch = ragged(shape, {1, 7, 31, 64, 0, 65, 33, 2, 130});
    Model reference;
    CHECK(reference.open(SIE_DEVICE_REF, 0, 0, SIE_COMPUTE_F32, shape) == SIE_OK, "%s",
          reference.err.message);
    Result expected = run(&reference, batch);
    for (const Path &path : paths) {
      if (!check::in_shard(card::index_of(path))) continue;
      StandInCard card(path.major, path.minor, true);
      Model m;
      CHECK(m.open_on(&card, path.compute, shape) == SIE_OK, "%s: %s", name_of(path), m.err.message);
      if (m.arena == nullptr) continue;
      Result got = run(&m, batch);
      CHECK(got.status == SIE_OK, "%s: status %d", name_of(path), got.status);
      double worst =
          fmax(largest_difference(got.rows, expected.rows), largest_difference(got.values, expected.values));
      CHECK(worst <= path.tolerance, "%s prune=%d head=%d: largest difference %g", name_of(path), shape.prune,
            shape.head, worst);
      for (int64_t b = 0; b < batch.seqs(); b++) {
        size_t at = static_cast<size_t>(b * m.hidden);
        double c = cosine(&got.rows[at], &expected.rows[at], m.hidden);
        CHECK(c >= path.cosine, "%s prune=%d head=%d: cosine %.6f of sequence %d", name_of(path), shape.prune,
              shape.head, c, static_cast<int>(b));
      }
    }
  }
}

TEST_LIST(gpu_program_results_do_not_depend_on_the_batch_or_the_graph) {
  for (const Path &path : paths) {
    if (!check::in_shard(card::index_of(path))) continue;
    Shape shape = small_shape(path.minor == 0, true);
    StandInCard card(path.major, path.minor, true);
    Model m;
    CHECK(m.open_on(&card, path.compute, shape) == SIE_OK, "%s: %s", name_of(path), m.err.message);
    if (m.arena == nullptr) continue;
    const std::initializer_list<int> lengths = {12, 1, 40, 0, 33, 65};
    Batch batch = ragged(shape, lengths);
    Result together = run(&m, batch);
    int number = 0;
    for (int length : lengths) {
      Batch one;
      one.add(shape, number, length);
      const size_t at = static_cast<size_t>(number * m.hidden);
      const std::vector<float> row(together.rows.begin() + static_cast<ptrdiff_t>(at),
                                   together.rows.begin() + static_cast<ptrdiff_t>(at) + m.hidden);
      // The bucket's first batch runs kernel by kernel, the second is captured, the third replayed.
      for (int time = 0; time < 3; time++) {
        Result alone = run(&m, one);
        CHECK(alone.status == SIE_OK && same_bits(alone.rows, row),
              "%s: sequence %d of %d tokens differs alone, time %d", name_of(path), number, length, time);
      }
      number++;
    }
    // The same sequences in another order.
    Batch reversed;
    for (int i = number - 1; i >= 0; i--) reversed.add(shape, i, lengths.begin()[i]);
    Result backwards = run(&m, reversed);
    for (int i = 0; i < number; i++) {
      CHECK(memcmp(&backwards.rows[static_cast<size_t>((number - 1 - i) * m.hidden)],
                   &together.rows[static_cast<size_t>(i * m.hidden)], static_cast<size_t>(m.hidden) * 4) == 0,
            "%s: sequence %d differs in another order", name_of(path), i);
    }
  }
}

TEST(gpu_batches_of_a_bucket_are_one_graph) {
  char calls[8192];
  Shape shape = small_shape(false);
  for (bool graphs : {true, false}) {
    StandInCard card(9, 0, graphs);
    Model m;
    CHECK(m.open_on(&card, SIE_COMPUTE_BF16, shape) == SIE_OK, "%s", m.err.message);
    if (m.arena == nullptr) return;
    CHECK(sie_standin_command("reset-calls", calls, sizeof calls) == 0, "%s", calls);
    for (int length : {3, 9, 16, 5})
      CHECK(run(&m, ragged(shape, {length})).status == SIE_OK, "%s", m.err.message);
    CHECK(sie_standin_command("calls", calls, sizeof calls) == 0, "%s", calls);
    bool launched = strstr(calls, "cuGraphLaunch 3") != nullptr;
    bool captured = strstr(calls, "cuStreamBeginCapture_v2 1") != nullptr;
    CHECK(launched == graphs && captured == graphs, "graphs %d:\n%s", graphs, calls);
  }
}

int64_t refused_graphs(const sie_device *device) {
  sie_device_info info = {};
  info.struct_size = sizeof info;
  sie_error err;
  CHECK(sie_device_query(device, &info, &err) == SIE_OK, "%s", err.message);
  return info.graphs_refused;
}

TEST(gpu_graph_that_cannot_be_captured_is_launched) {
  char answer[256];
  Shape shape = small_shape(false);
  StandInCard card(9, 0, true);
  Model m;
  CHECK(m.open_on(&card, SIE_COMPUTE_BF16, shape) == SIE_OK, "%s", m.err.message);
  if (m.arena == nullptr) return;
  Result expected = run(&m, ragged(shape, {9}));
  for (const char *failure : {"fail cuStreamBeginCapture_v2 1 900", "fail cuGraphInstantiateWithFlags 1 2"}) {
    Model other;
    CHECK(other.open_on(&card, SIE_COMPUTE_BF16, shape) == SIE_OK, "%s", other.err.message);
    CHECK(run(&other, ragged(shape, {9})).status == SIE_OK, "%s", other.err.message);
    CHECK(sie_standin_command(failure, answer, sizeof answer) == 0, "%s", answer);
    for (int time = 0; time < 2; time++) {
      Result got = run(&other, ragged(shape, {9}));
      CHECK(got.status == SIE_OK && same_bits(got.rows, expected.rows), "%s: time %d: status %d", failure,
            time, got.status);
    }
    // Once for the bucket, however many batches follow.
    CHECK(refused_graphs(other.device) == 1, "%s: %lld captures are counted", failure,
          static_cast<long long>(refused_graphs(other.device)));
  }
  CHECK(refused_graphs(m.device) == 0, "the other device has none");
}

// A cluster that the card refuses ends the batch, not the process.
TEST(gpu_launch_that_is_refused_is_no_lost_device) {
  char answer[256];
  Shape shape = small_shape(false);
  StandInCard card(9, 0, false);
  Model m;
  CHECK(m.open_on(&card, SIE_COMPUTE_BF16, shape) == SIE_OK, "%s", m.err.message);
  if (m.arena == nullptr) return;
  const Result expected = run(&m, ragged(shape, {9}));
  CHECK(sie_standin_command("fail cuLaunchKernelEx 2 912", answer, sizeof answer) == 0, "%s", answer);
  const Result refused = run(&m, ragged(shape, {9}));
  CHECK(refused.status == SIE_INTERNAL, "status %d: %s", refused.status, m.err.message);
  const Result again = run(&m, ragged(shape, {9}));
  CHECK(again.status == SIE_OK && same_bits(again.rows, expected.rows), "the next batch: %s", m.err.message);
}

// Launches and edges of graphs are programmatic where the card and the options allow it, and the bits
// are the same.
TEST(gpu_kernels_start_early_where_they_may) {
  char answer[256];
  Shape shape = small_shape(false);
  const struct {
    int32_t major, minor;
    sie_overlap overlap;
    bool launches, edges;
  } cases[] = {
      {9, 0, SIE_OVERLAP_ALWAYS, true, true},
      {9, 0, SIE_OVERLAP_LAUNCHES, true, false},
      {9, 0, SIE_OVERLAP_NEVER, false, false},
      {8, 9, SIE_OVERLAP_ALWAYS, false, false},
  };
  std::vector<float> bits;
  for (const auto &c : cases) {
    StandInCard card(c.major, c.minor, true);
    card.gpu.overlap = c.overlap;
    Model m;
    CHECK(m.open_on(&card, SIE_COMPUTE_BF16, shape) == SIE_OK, "%s", m.err.message);
    if (m.arena == nullptr) return;
    CHECK(sie_standin_command("reset-calls", answer, sizeof answer) == 0, "%s", answer);
    Result got;
    for (int time = 0; time < 3; time++) got = run(&m, ragged(shape, {9}));
    CHECK(got.status == SIE_OK, "%s", m.err.message);
    if (c.major == 9 && bits.empty()) bits = got.rows;
    CHECK(c.major != 9 || same_bits(got.rows, bits), "overlap %d has other bits", c.overlap);
    CHECK(sie_standin_command("programmatic", answer, sizeof answer) == 0, "%s", answer);
    int early = 0, launches = 0, edges = 0, kernels = 0;
    CHECK(sscanf(answer, "launches %d of %d edges %d of %d", &early, &launches, &edges, &kernels) == 4, "%s",
          answer);
    CHECK(launches > 0 && kernels == launches, "%s", answer);
    CHECK(early == (c.launches ? launches : 0) && edges == (c.edges ? kernels - 1 : 0),
          "%d.%d, overlap %d: %s", c.major, c.minor, c.overlap, answer);
  }
}

TEST(gpu_refuses) {
  StandInCard card(9, 0, true);
  sie_device *device;
  sie_error err;
  auto open = [&](const sie_gpu *gpu) {
    sie_device_options options = {};
    options.struct_size = sizeof options;
    options.kind = SIE_DEVICE_CUDA;
    options.gpu = gpu;
    return sie_device_open(&options, &device, &err);
  };
  CHECK(open(nullptr) == SIE_INVALID_ARGUMENT, "no card");
  sie_gpu old = card.gpu;
  old.major = 7;
  old.minor = 5;
  CHECK(open(&old) == SIE_UNSUPPORTED && strstr(err.message, "7.5") != nullptr, "%s", err.message);
  sie_gpu no_stream = card.gpu;
  no_stream.stream = nullptr;
  CHECK(open(&no_stream) == SIE_INVALID_ARGUMENT, "%s", err.message);
  sie_gpu odd = card.gpu;
  odd.overlap = 3;
  CHECK(open(&odd) == SIE_INVALID_ARGUMENT && strstr(err.message, "overlap is 3") != nullptr, "%s",
        err.message);
  CHECK(open(&card.gpu) == SIE_OK, "%s", err.message);
  sie_weight_desc desc = {};
  float values[4] = {1, 2, 3, 4};
  desc.struct_size = sizeof desc;
  desc.kind = SIE_WEIGHT_LINEAR;
  desc.dtype = SIE_F32;
  desc.n_parts = 1;
  desc.n = desc.k = 2;
  desc.parts[0] = {values, 2, 0};
  sie_weight *weight;
  desc.compute = SIE_COMPUTE_INT8;
  CHECK(sie_weight_create(device, &desc, &weight, &err) == SIE_UNSUPPORTED, "%s", err.message);
  desc.compute = SIE_COMPUTE_F16;
  values[2] = 70000;
  CHECK(
      sie_weight_create(device, &desc, &weight, &err) == SIE_CORRUPT && strstr(err.message, "f16") != nullptr,
      "%s", err.message);
  values[2] = 3;
  CHECK(sie_weight_create(device, &desc, &weight, &err) == SIE_OK, "%s", err.message);
  CHECK(sie_weight_place(weight, values + 1, &err) == SIE_INVALID_ARGUMENT, "not aligned");
  void *memory = card.allocate(sie_weight_bytes(weight));
  CHECK(sie_weight_place(weight, memory, &err) == SIE_OK, "%s", err.message);
  CHECK(sie_weight_place(weight, memory, &err) == SIE_INVALID_ARGUMENT, "placed twice");
  sie_weight_free(weight);
  card.release(memory);
  sie_device_close(device);
}

// Recording cannot know which heads the kernels have; the rehearsal finds it.
TEST(gpu_refuses_heads_without_a_kernel) {
  StandInCard card(9, 0, true);
  Model m;
  Shape shape = small_shape(false);
  shape.heads = 4;
  shape.head_dim = 16;
  CHECK(m.open_on(&card, SIE_COMPUTE_BF16, shape) == SIE_UNSUPPORTED, "%s", m.err.message);
  CHECK(strstr(m.err.message, "attention of bf16 rows, head_dim 16") != nullptr, "%s", m.err.message);
}

// Class F32 is only for weights behind pooling.
TEST(gpu_refuses_models_in_f32) {
  StandInCard card(9, 0, true);
  Model m;
  CHECK(m.open_on(&card, SIE_COMPUTE_F32, small_shape(false)) == SIE_UNSUPPORTED, "%s", m.err.message);
  CHECK(strstr(m.err.message, "attention of f32 rows") != nullptr, "%s", m.err.message);
  sie_device_info info = {};
  info.struct_size = sizeof info;
  CHECK(sie_device_query(m.device, &info, &m.err) == SIE_OK, "%s", m.err.message);
  CHECK(info.compute_mask == (1u << SIE_COMPUTE_BF16 | 1u << SIE_COMPUTE_F16 | 1u << SIE_COMPUTE_FP8),
        "classes %x", info.compute_mask);
}
