// random_program.cc — opens random programs, fills their batches and takes their results apart.
#include "random_program.h"

#include <string.h>

#include "device.h"
#include "program.h"
#include "slot.h"
#include "tests/check.h"
#include "tests/random.h"

namespace random_program {

using harness::Random;

namespace {

int64_t tokens_of(const Texts &texts) {
  size_t sum = 0;
  for (const Text *text : texts) sum += text->ids.size();
  return static_cast<int64_t>(sum);
}

int random_length(Random *random) {
  if (random->below(5) == 0) return 513 + random->below(128);  // a long slab
  if (random->below(6) == 0) return 0;
  return 1 + random->below(random->below(3) != 0 ? 60 : 300);
}

// The bytes that a sparse result of so many columns takes at most.
int64_t sparse_bytes(int64_t columns) { return sie::round_up(16 + columns * 8, 16); }

template <class T>
void append(std::vector<T> *to, const std::vector<T> &values) {
  to->insert(to->end(), values.begin(), values.end());
}

}  // namespace

std::vector<Text> random_texts(uint32_t seed) {
  Random lengths(seed + 77);
  std::vector<Text> texts;
  int64_t total = 0;
  int count = 1 + lengths.below(14);
  for (int i = 0; i < count; i++) {
    int length = random_length(&lengths);
    total += length;
    if (total > max_tokens) break;
    Random random(seed * 1000 + static_cast<uint32_t>(i));
    int mode = random.below(4);  // 0: no token is kept, 1: all are, else some
    Text text;
    for (int j = 0; j < length; j++) {
      text.ids.push_back(random.below(words));
      text.types.push_back(random.below(type_rows));
      text.positions.push_back(random.below(position_rows));
      text.keep.push_back(static_cast<uint8_t>(mode > 1 ? random.below(2) : mode));
    }
    text.adapter = random.below(adapters + 1) - 1;
    text.partner = random.below(query_groups + 1) - 1;
    texts.push_back(text);
  }
  return texts;
}

Program::~Program() {
  for (sie_slot *slot : slots_) sie_slot_free(slot);
  sie_arena_free(arena_);
  sie_program_free(program_);
  for (sie_weight *w : weights_) sie_weight_free(w);
  sie_device_close(device_);
}

bool Program::must(sie_status status, const char *what) {
  if (status == SIE_OK) return true;
  CHECK(failed_, "seed %u: %s: %s", seed_, what, err_.message);
  if (!failed_) {
    for (const std::string &line : log_) fprintf(stderr, "      %s\n", line.c_str());
  }
  failed_ = true;
  return false;
}

bool Program::open(uint32_t kind, uint32_t isa, int threads, uint32_t compute, const Texts &texts) {
  sie_device_options options = record::params<sie_device_options>();
  options.kind = kind;
  options.isa = isa;
  options.threads = threads;
  sie_workspace workspace;
  if (!must(sie_device_open(&options, &device_, &err_), "device") ||
      !must(sie_program_begin(device_, &program_, &err_), "begin") || !record_random(this, seed_, compute) ||
      !must(sie_program_end(program_, &workspace, &err_), "end") ||
      !must(sie_arena_create(device_, &workspace, &arena_, &err_), "arena")) {
    return false;
  }
  if (arena_->memory.p != nullptr) memset(arena_->memory.p, 0xff, static_cast<size_t>(arena_->memory.bytes));
  int64_t bytes[SIE_MAX_OUTPUTS] = {}, n_texts = static_cast<int64_t>(texts.size());
  for (size_t o = 0; o < outputs_.size(); o++) {
    const Output &out = outputs_[o];
    if (out.form == SIE_FORM_SPARSE) {
      bytes[o] = n_texts * sparse_bytes(out.columns);
    } else {
      bytes[o] = (out.space == sequences ? n_texts : tokens_of(texts) + 1) * out.columns * 4;
    }
  }
  sie_slot_caps caps = record::params<sie_slot_caps>();
  caps.n_outputs = static_cast<uint32_t>(outputs_.size());
  caps.max_tokens = max_tokens;
  caps.max_seqs = max_sequences;
  caps.input_bytes = sie_program_input_bytes(program_);
  caps.output_bytes = bytes;
  for (sie_slot *&slot : slots_) {
    if (!must(sie_slot_create(device_, &caps, &slot, &err_), "slot")) return false;
  }
  return true;
}

void Program::declare() {
  auto space = [&](sie_space s, uint32_t kind, const char *name, int64_t rows, int64_t each,
                   sie_input marks) {
    must(record::declare_space(program_, s, kind, name, rows, each, marks, &err_), name);
  };
  auto input = [&](sie_input i, const char *name, sie_space s, uint32_t dtype, bool optional, int otherwise) {
    must(record::declare_input(program_, i, name, s, dtype, optional, otherwise, &err_), name);
  };
  space(tokens, SIE_SPACE_ROWS, "tokens", max_tokens, max_length, 0);
  space(sequences, SIE_SPACE_SEQS, "sequences", max_sequences, 0, 0);
  input(ids, "ids", tokens, SIE_I32, false, 0);
  input(types, "types", tokens, SIE_I32, true, 0);
  input(keep, "keep", tokens, SIE_U8, true, 1);
  input(adapter, "adapter", sequences, SIE_I32, true, -1);
  input(partner, "partner", sequences, SIE_I32, true, -1);
  input(positions, "positions", tokens, SIE_I32, false, 0);
  space(kept, SIE_SPACE_SUBSET, "kept", 0, 0, keep);
  space(shared, SIE_SPACE_SHARED, "shared", max_query_rows, 0, 0);
  input(queries, "queries", shared, SIE_F32, false, 0);
}

sie_weight *Program::weight(uint32_t kind, uint32_t compute, int64_t n, int64_t k,
                            const std::vector<float> &values, uint32_t dtype) {
  sie_weight_desc d = record::params<sie_weight_desc>();
  d.kind = kind;
  d.compute = compute;
  d.dtype = dtype;
  d.n_parts = 1;
  d.n = n;
  d.k = k;
  d.parts[0] = {values.data(), n, 0};
  sie_weight *w = nullptr;
  if (failed_ || !must(sie_weight_create(device_, &d, &w, &err_), "weight")) return nullptr;
  weights_.push_back(w);
  return w;
}

void Program::fill_batch(Batch *b, const Texts &texts) {
  *b = Batch();
  b->starts = {0};
  b->kept_starts = {0};
  b->query_starts = {0, 5, 5, 40};
  // As wide as the operation that reads them wants; one column if none does.
  size_t columns = static_cast<size_t>(query_columns_ > 0 ? query_columns_ : 1);
  b->queries.resize(static_cast<size_t>(b->query_starts.back()) * columns);
  Random random(9);
  for (float &x : b->queries) x = random.real();
  // So that they have addresses where they have no values.
  for (auto *v : {&b->ids, &b->types, &b->positions, &b->adapters, &b->partners}) v->reserve(1);
  b->keep.reserve(1);
  for (const Text *text : texts) {
    append(&b->ids, text->ids);
    append(&b->types, text->types);
    append(&b->positions, text->positions);
    append(&b->keep, text->keep);
    b->adapters.push_back(text->adapter);
    b->partners.push_back(text->partner);
    b->starts.push_back(static_cast<int32_t>(b->ids.size()));
    int64_t n_kept = 0;
    for (uint8_t mark : text->keep) n_kept += mark;
    b->kept_starts.push_back(b->kept_starts.back() + n_kept);
  }
}

// Puts the results of an output one behind the other, and clears the memory they go to.
void Program::place_outputs(Batch *b, int slot) {
  size_t n_texts = b->adapters.size();
  b->items.resize(outputs_.size());
  b->offsets.resize(outputs_.size());
  b->sizes.resize(outputs_.size());
  for (size_t o = 0; o < outputs_.size(); o++) {
    const Output &out = outputs_[o];
    bool sparse = out.form == SIE_FORM_SPARSE;
    int64_t offset = 0;
    for (size_t i = 0; i < n_texts; i++) {
      int64_t rows = 1;
      if (out.space == tokens) rows = b->starts[i + 1] - b->starts[i];
      if (out.space == kept) rows = b->kept_starts[i + 1] - b->kept_starts[i];
      int64_t size = sparse ? sparse_bytes(out.columns) : rows * out.columns * 4;
      b->items[o].push_back({SIE_F32, sparse ? static_cast<int32_t>(out.columns) : 0, 0, 0, offset});
      b->offsets[o].push_back(offset);
      b->sizes[o].push_back(size);
      offset += size;
    }
    void *memory = const_cast<void *>(sie_slot_output(slots_[slot], static_cast<int>(o), nullptr));
    if (offset > 0) memset(memory, 0, static_cast<size_t>(offset));
  }
}

bool Program::submit(int slot, const Texts &texts) {
  Batch *b = &batches_[slot];
  fill_batch(b, texts);
  place_outputs(b, slot);
  const sie_out_item *items[SIE_MAX_OUTPUTS] = {};
  for (size_t o = 0; o < outputs_.size(); o++) {
    if (outputs_[o].form != SIE_FORM_VALUES) items[o] = b->items[o].data();
  }
  const sie_rows_of spaces[] = {{0, b->starts.data()}, {}, {}, {query_groups, b->query_starts.data()}};
  const void *inputs[] = {b->ids.data(),      b->types.data(),   b->keep.data(),     b->adapters.data(),
                          b->partners.data(), b->queries.data(), b->positions.data()};
  sie_batch batch = record::params<sie_batch>();
  batch.n_spaces = shared;
  batch.n_inputs = positions;
  batch.n_outputs = static_cast<uint32_t>(outputs_.size());
  batch.n_seqs = static_cast<int64_t>(texts.size());
  batch.spaces = spaces;
  batch.inputs = inputs;
  batch.items = items;
  return must(sie_slot_load(slots_[slot], program_, &batch, &err_), "load") &&
         must(sie_program_submit(program_, arena_, slots_[slot], nullptr, &err_), "submit");
}

Result Program::finish(int slot) {
  Result result;
  if (!must(sie_slot_wait(slots_[slot], &err_), "wait")) return result;
  const Batch &b = batches_[slot];
  size_t n_texts = b.adapters.size();
  for (size_t i = 0; i < n_texts; i++) {
    for (size_t o = 0; o < outputs_.size(); o++) {
      auto *p = static_cast<const uint8_t *>(sie_slot_output(slots_[slot], static_cast<int>(o), nullptr));
      if (b.sizes[o][i] == 0) {
        result.bytes.emplace_back();
      } else {
        result.bytes.emplace_back(p + b.offsets[o][i], p + b.offsets[o][i] + b.sizes[o][i]);
      }
    }
  }
  const int32_t *marks = sie_slot_nonfinite(slots_[slot], nullptr);
  result.nonfinite.assign(marks, marks + n_texts);
  return result;
}

Result Program::run(const Texts &texts) { return submit(0, texts) ? finish(0) : Result(); }

void Program::explain() {
  for (const std::string &line : log_) fprintf(stderr, "      %s\n", line.c_str());
  std::vector<char> text(1 << 16);
  sie_program_describe(program_, text.data(), text.size());
  fprintf(stderr, "%s\n", text.data());
}

}  // namespace random_program
