// nonfinite_test.cc — which sequences a run flags because the model gave a NaN or an infinity for
// them (sie_slot_nonfinite).
#include "nonfinite.h"

#include <math.h>
#include <string.h>

#include "device.h"
#include "paths.h"
#include "weight.h"

using heads::Head;
using model::Batch;
using model::Model;
using model::Path;
using model::Result;
using model::Shape;

namespace {

// One row for each sequence, in every type that an item can have.
sie_status rows_tail(Model *m, sie_value x) {
  sie_value pooled;
  sie_status status = record::pool(m->program, x, SIE_POOL_MEAN, &pooled, &m->err);
  return status == SIE_OK ? record::output_rows(m->program, pooled, 0, &m->err) : status;
}

const Head rows_head = {
    "rows", rows_tail, [](const sie_ops *) { return true; }, {{heads::Kind::rows, 64}, {}, {}, {}}, 1, false};

// Where tests are not whole (paths.h), each head meets one of the values: memory is read in the same way.
void check_heads(uint32_t kind, uint32_t isa, int threads, uint32_t compute, const std::vector<int> &numbers,
                 const char *path) {
  const std::vector<float> values = {NAN, INFINITY, -INFINITY};
  for (int i = -1; i < heads::count; i++) {
    const Head &head = i < 0 ? rows_head : heads::all[i];
    Model m;
    Shape shape;
    shape.layers = 1;
    shape.tail = head.tail;
    sie_status status = m.open(kind, isa, threads, compute, shape);
    if (status == SIE_UNSUPPORTED && !head.has(m.device->ops)) continue;
    CHECK(status == SIE_OK, "%s %s: %s", head.name, path, m.err.message);
    const std::vector<float> one = {values[static_cast<size_t>(i + 1) % 3]};
    if (status == SIE_OK) heads::check_nonfinite(&m, head, numbers, path, model::whole() ? values : one);
  }
}

std::vector<int> numbers_to(int n) {
  std::vector<int> numbers;
  for (int i = 0; i < n; i++) numbers.push_back(i);
  return numbers;
}

}  // namespace

TEST(nonfinite_sequences_are_flagged_in_every_precision_and_output) {
  for (const Path &path : model::machine_paths()) {
    check_heads(SIE_DEVICE_CPU, path.isa, 2, path.compute, numbers_to(20), path.name);
  }
  check_heads(SIE_DEVICE_REF, 0, 0, SIE_COMPUTE_F32, numbers_to(9), "ref");
}

TEST(nonfinite_sequences_are_flagged_in_teams) {
  // Fewer slabs than executors: their members share the sequences.
  for (const Path &path : model::machine_paths()) {
    check_heads(SIE_DEVICE_CPU, path.isa, 5, path.compute, {4, 7, 11}, path.name);
  }
}

TEST(nonfinite_long_sequences_are_flagged) {
  // Flags are in the batch's order, which is not the order of slabs: long slabs come first.
  for (uint32_t compute : {uint32_t{SIE_COMPUTE_F32}, uint32_t{SIE_COMPUTE_INT8}}) {
    check_heads(SIE_DEVICE_CPU, 0, 3, compute, {3, 1044, 6, 7, 1099}, "long");
  }
}

TEST(nonfinite_rows_that_reach_no_output_are_no_fault) {
  for (sie_pooling mode : {SIE_POOL_CLS, SIE_POOL_LAST, SIE_POOL_MEAN, SIE_POOL_MAX}) {
    Model m;
    CHECK(m.open(SIE_DEVICE_CPU, 0, 2, SIE_COMPUTE_F32, heads::pooled_shape(mode)) == SIE_OK, "%s",
          m.err.message);
    if (m.slots[0] != nullptr) heads::check_rows_read(&m, mode, "cpu");
  }
}

TEST(nonfinite_flags_of_no_slot) {
  int64_t offset = 7;
  CHECK(sie_slot_nonfinite(nullptr, &offset) == nullptr && offset == 0, "flags of no slot");
  CHECK(sie_slot_nonfinite(nullptr, nullptr) == nullptr, "flags of no slot");
}

namespace {

// Programs with one output and only one operation that can flag a sequence; others would flag the
// same sequences.
sie_status splade_alone(Model *m, sie_value x) {
  sie_weight *w, *bias;
  sie_value y;
  sie_status status = m->weight(SIE_WEIGHT_LINEAR, m->compute(), heads::vocabulary, m->hidden, 0.2f, 0, &w);
  if (status == SIE_OK)
    status = m->weight(SIE_WEIGHT_VECTOR, m->compute(), heads::vocabulary, 1, 0.5f, 0, &bias);
  if (status == SIE_OK) status = record::splade(m->program, x, w, bias, &y, &m->err);
  return status == SIE_OK ? record::output_sparse(m->program, y, SIE_SPARSE_LOG, 0, &m->err) : status;
}

sie_status maxsim_alone(Model *m, sie_value x) {
  sie_weight *w;
  sie_value y, score;
  sie_status status = m->weight(SIE_WEIGHT_LINEAR, m->compute(), heads::reduced, m->hidden, 0.2f, 0, &w);
  if (status == SIE_OK) {
    status = record::linear(m->program, x, w, nullptr, SIE_ACT_NONE, SIE_NO_VALUE, &y, &m->err);
  }
  if (status == SIE_OK) status = record::maxsim(m->program, y, 1, &score, &m->err);
  return status == SIE_OK ? record::output_values(m->program, score, 0, &m->err) : status;
}

sie_status muvera_alone(Model *m, sie_value x) {
  sie_muvera_params params = {};
  params.struct_size = sizeof params;
  params.repetitions = 1;
  return record::output_muvera(m->program, x, &params, 0, &m->err);
}

sie_status smve_alone(Model *m, sie_value x) {
  sie_smve_params params = {};
  params.struct_size = sizeof params;
  params.repetitions = heads::repetitions;
  params.width = heads::width;
  params.top = heads::top;
  sie_weight *w;
  sie_status status =
      m->data(SIE_F32, heads::repetitions * heads::width, m->hidden, heads::anchors().data(), &w);
  params.anchors = w;
  return status == SIE_OK ? record::output_smve(m->program, x, &params, 0, &m->err) : status;
}

sie_status token_rows_alone(Model *m, sie_value x) {
  return record::output_token_rows(m->program, x, 0, &m->err);
}

sie_status values_alone(Model *m, sie_value x) { return record::output_values(m->program, x, 0, &m->err); }

bool always(const sie_ops *) { return true; }

const Head alone[] = {
    {"splade alone", splade_alone, always, {{heads::Kind::sparse, heads::vocabulary}, {}, {}, {}}, 1, false},
    {"maxsim alone", maxsim_alone, always, {{heads::Kind::values, 1, false, true}, {}, {}, {}}, 1, false},
    {"muvera alone", muvera_alone, always, {{heads::Kind::rows, 64}, {}, {}, {}}, 1, false},
    {"smve alone",
     smve_alone,
     always,
     {{heads::Kind::sparse, heads::repetitions * heads::width}, {}, {}, {}},
     1,
     false},
    {"token rows alone", token_rows_alone, always, {{heads::Kind::token_rows, 64}, {}, {}, {}}, 1, false},
    {"values alone", values_alone, always, {{heads::Kind::values, 64}, {}, {}, {}}, 1, false},
};

}  // namespace

TEST(nonfinite_sequences_are_flagged_by_each_operation_alone) {
  for (const Path &path : model::machine_paths()) {
    for (const Head &head : alone) {
      Model m;
      Shape shape;
      shape.layers = 1;
      shape.tail = head.tail;
      CHECK(m.open(SIE_DEVICE_CPU, path.isa, 2, path.compute, shape) == SIE_OK, "%s %s: %s", head.name,
            path.name, m.err.message);
      if (m.slots[0] != nullptr) heads::check_nonfinite(&m, head, {0, 1, 2, 3, 4, 6, 7}, path.name);
    }
  }
}

TEST(nonfinite_logits_of_finite_rows_are_flagged) {
  // One column of the vocabulary overflows for every text.
  Model m;
  Shape shape;
  shape.layers = 1;
  shape.tail = splade_alone;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 2, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  if (m.slots[0] == nullptr) return;
  Batch batch = heads::batch_of(alone[0], m.shape, {1, 2, 3}, false);
  CHECK(run(&m, batch).nonfinite == (std::vector<int32_t>{0, 0, 0}), "flagged before");
  const_cast<float *>(m.weights.back()->vector())[17] = INFINITY;
  CHECK(run(&m, batch).nonfinite == (std::vector<int32_t>{1, 1, 1}), "an infinite weight of a sparse row");
}
