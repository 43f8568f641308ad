// slot_parts_test.cc — what slots may hold, how much memory they take, and the small functions over the
// parts of a batch, at their bounds.
#include <sched.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "hooks.h"
#include "long_team.h"
#include "model.h"
#include "refused.h"
#include "slot.h"

namespace {

// A CPU of so many threads, of which none is started, and the caps of a slot on it.
struct Made {
  sie_device device;
  std::vector<int64_t> output_bytes = std::vector<int64_t>(9, 64);
  sie_slot_caps caps = sized<sie_slot_caps>();
  sie_slot *slot = nullptr;

  Made() {
    device.kind = SIE_DEVICE_CPU;
    device.threads = 3;
    caps.n_outputs = 1;
    caps.output_bytes = output_bytes.data();
    caps.max_tokens = caps.max_seqs = 10;
    caps.input_bytes = 100;
  }
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;
  ~Made() { sie_slot_free(slot); }

  sie_status create(sie_error *err) {
    sie_slot_free(slot);
    return sie_slot_create(&device, &caps, &slot, err);
  }
  // Whether the caps are possible, though there may not be as much memory.
  bool possible() {
    sie_error err = {};
    const sie_status status = create(&err);
    CHECK(status == SIE_OK || status == SIE_OUT_OF_MEMORY || status == SIE_INVALID_ARGUMENT, "status %d: %s",
          status, err.message);
    return status != SIE_INVALID_ARGUMENT;
  }
};

constexpr int64_t tebibyte = int64_t{1} << 40;

}  // namespace

TEST(slots_have_bounds) {
  const auto m = std::make_unique<Made>();
  auto set = [&m](uint32_t outputs, int64_t tokens, int64_t seqs, int64_t inputs, int64_t bytes) {
    m->caps.n_outputs = outputs;
    m->caps.max_tokens = tokens, m->caps.max_seqs = seqs;
    m->caps.input_bytes = inputs;
    // What is behind the caller's list is not read.
    std::fill(m->output_bytes.begin(), m->output_bytes.end(), -5);
    std::fill_n(m->output_bytes.begin(), std::min(outputs, 9u), bytes);
    return m->possible();
  };
  CHECK(set(1, 1, 1, 1, 0), "the least is refused");
  CHECK(set(8, 10, 10, 100, 64), "eight outputs are refused");
  for (uint32_t outputs : {0u, 9u, UINT32_MAX}) CHECK(!set(outputs, 10, 10, 100, 64), "%u outputs", outputs);
  for (int64_t n : {INT64_MIN, int64_t{-1}, int64_t{0}}) {
    CHECK(!set(1, n, 10, 100, 64) && !set(1, 10, n, 100, 64) && !set(1, 10, 10, n, 64), "%lld of something",
          static_cast<long long>(n));
  }
  // A tebibyte of inputs is asked for first: where there is no memory for them, nothing else is.
  CHECK(set(1, 16777216, 4194304, tebibyte, 64), "the most is refused");
  CHECK(!set(1, 16777217, 10, 100, 64) && !set(1, 10, 4194305, 100, 64) && !set(1, 10, 10, tebibyte + 1, 64),
        "more than the most");
  CHECK(set(2, 10, 10, tebibyte, tebibyte), "an output of a tebibyte is refused");
  CHECK(!set(2, 10, 10, 100, tebibyte + 1) && !set(2, 10, 10, 100, -1),
        "more than a tebibyte, or less than nothing");
  sie_error err = {};
  m->output_bytes = {5, tebibyte + 1};
  m->caps.output_bytes = m->output_bytes.data();
  REFUSED(m->create(&err));
  CHECK(m->create(&err) == SIE_INVALID_ARGUMENT &&
            strstr(err.message, "output 1 is 1099511627777; 0 to 1099511627776 is possible") != nullptr,
        "%s", err.message);
  m->caps.output_bytes = nullptr;
  REFUSED(m->create(&err));
  m->caps.output_bytes = m->output_bytes.data();
  sie_slot *slot = nullptr;
  REFUSED(sie_slot_create(nullptr, &m->caps, &slot, &err));
  REFUSED(sie_slot_create(&m->device, nullptr, &slot, &err));
  REFUSED(sie_slot_create(&m->device, &m->caps, nullptr, &err));
  m->device.kind = SIE_DEVICE_CUDA;
  m->caps.n_outputs = 1;
  REFUSED(sie_slot_create(&m->device, &m->caps, &slot, &err), SIE_INTERNAL);  // this build has no GPU
  CHECK(slot == nullptr, "a failed create leaves a handle");
  m->device.kind = SIE_DEVICE_CPU;
}

// Every long slab and every team has a place, and every ticket.
TEST(slots_have_room_for_what_runs_in_them) {
  const auto m = std::make_unique<Made>();
  auto made = [&m](int32_t threads, int64_t tokens, int64_t seqs) {
    m->device.threads = threads;
    m->caps.max_tokens = tokens, m->caps.max_seqs = seqs;
    sie_error err = {};
    CHECK(m->create(&err) == SIE_OK, "%s", err.message);
    return m->slot;
  };
  auto holds = [](const char *what, const sie::Block &block, size_t element, int64_t n) {
    CHECK(block.bytes >= element * static_cast<size_t>(n), "%zu bytes for %lld %s", block.bytes,
          static_cast<long long>(n), what);
  };
  holds("teams", made(3, 20 * 512, 10)->teams, sizeof(sie::LongTeam), 20);
  holds("teams", made(64, 512, 10)->teams, sizeof(sie::LongTeam), 64);
  for (bool many_threads : {true, false}) {
    const int64_t seqs = many_threads ? 2 : 64;
    const sie_slot *slot = made(many_threads ? 64 : 2, 512, seqs);
    holds("tickets", slot->tickets_of_run, sizeof(sie::Ticket), 64);
    holds("shares", slot->shares, sizeof(sie::SlabShare), seqs);
    holds("slabs", slot->slabs, sizeof(sie::Slab), seqs);
    for (const sie::Block *block :
         {&slot->order, &slot->slab_of, &slot->heap, &slot->by_length, &slot->nonfinite})
      holds("numbers", *block, 4, seqs);
    holds("extents", slot->extents, 4, seqs + 1);
  }
}

TEST(slots_give_their_outputs) {
  const auto m = std::make_unique<Made>();
  m->caps.n_outputs = 8;
  for (size_t i = 0; i < 9; i++) m->output_bytes[i] = static_cast<int64_t>(100 * i);
  sie_error err = {};
  CHECK(m->create(&err) == SIE_OK, "%s", err.message);
  std::fill(m->output_bytes.begin(), m->output_bytes.end(), -5);  // copied
  std::vector<const void *> seen;
  for (int32_t i = 0; i < 8; i++) {
    int64_t bytes = -1;
    const void *p = sie_slot_output(m->slot, i, &bytes);
    CHECK(p != nullptr && bytes == 100 * i, "output %d has %lld bytes", i, static_cast<long long>(bytes));
    CHECK(p == sie_slot_output(m->slot, i, nullptr), "output %d is elsewhere the second time", i);
    CHECK(std::find(seen.begin(), seen.end(), p) == seen.end(), "output %d is another's", i);
    seen.push_back(p);
  }
  for (int32_t i : {INT32_MIN, -1, 8, 100, INT32_MAX}) {
    int64_t bytes = -1;
    CHECK(sie_slot_output(m->slot, i, &bytes) == nullptr && bytes == 0, "output %d has %lld bytes", i,
          static_cast<long long>(bytes));
  }
  int64_t bytes = -1;
  CHECK(sie_slot_output(nullptr, 0, &bytes) == nullptr && bytes == 0, "no slot has an output");
  int64_t offset = -1;
  CHECK(sie_slot_nonfinite(m->slot, &offset) == m->slot->nonfinite.p && offset == 0,
        "the flags lie elsewhere");
  CHECK(sie_slot_nonfinite(m->slot, nullptr) == m->slot->nonfinite.p, "the flags lie elsewhere");
  offset = -1;
  CHECK(sie_slot_nonfinite(nullptr, &offset) == nullptr && offset == 0, "no slot has flags");
}

namespace {

std::atomic<bool> freed_asleep{false}, let_go{false};
thread_local bool frees = false;

// The thread that frees the slot sleeps, which lets the executor go on.
void sleep_while_it_runs(const std::atomic<uint32_t> *word, uint32_t value) {
  if (frees) freed_asleep.store(true), let_go.store(true);
  if (word->load() == value) sched_yield();
}
void hold_ticket(int32_t, int32_t) {
  while (!let_go.load()) sched_yield();
}
const sie::hooks::Hooks holding = {nullptr, sleep_while_it_runs, nullptr, hold_ticket, nullptr, nullptr,
                                   nullptr};

}  // namespace

// A slot that is freed while its run is at work is waited for.
TEST(slots_are_freed_when_their_run_is_over) {
  model::Model m;
  model::Shape shape;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  if (m.slots[0] == nullptr) return;
  model::Batch batch;
  batch.add(shape, 1, 5);
  freed_asleep.store(false), let_go.store(false);
  sie::hooks::installed.store(&holding);
  CHECK(submit(&m, 0, batch) == SIE_OK, "%s", m.err.message);
  frees = true;
  sie_slot_free(m.slots[0]);
  frees = false;
  m.slots[0] = nullptr;
  CHECK(freed_asleep.load(), "a slot is freed while its run is at work");
  let_go.store(true);
  sie::hooks::installed.store(nullptr);
}

TEST(slots_list_marked_rows) {
  const uint8_t marks[] = {1, 0, 0, 1, 1, 0, 1, 1};
  int32_t to[8];
  auto listed = [&](const uint8_t *of, bool otherwise, int32_t length, int32_t base) {
    std::fill_n(to, 8, -7);
    const int32_t n = sie::list_marked(of, otherwise, length, base, to);
    CHECK(sie::count_marked(of, otherwise, length) == n, "%d rows are listed, and others counted", n);
    return std::vector<int32_t>(to, to + n);
  };
  using List = std::vector<int32_t>;
  CHECK(listed(marks, false, 7, 100) == (List{100, 103, 104, 106}), "marked rows");
  CHECK(to[4] == -7, "a row behind the last is listed");
  CHECK(listed(marks, true, 3, 0) == (List{0}), "marked rows, whatever others count as");
  CHECK(listed(nullptr, true, 4, 50) == (List{50, 51, 52, 53}), "all rows, without marks");
  CHECK(to[4] == -7, "a row behind the last is listed");
  CHECK(listed(nullptr, false, 4, 50).empty(), "no row, without marks");
  CHECK(listed(marks, true, 0, 50).empty(), "no row of none");
}

TEST(slots_measure_items_and_sequences) {
  struct {
    int32_t dtype, dims;
    int64_t columns, want;
  } cases[] = {{SIE_F32, 0, 10, 40},  {SIE_F32, 3, 10, 12},   {SIE_F16, 0, 10, 20},   {SIE_I8, 7, 10, 7},
               {SIE_BINARY, 0, 8, 1}, {SIE_BINARY, 9, 80, 2}, {SIE_BINARY, 1, 80, 1}, {SIE_BINARY, 0, 64, 8}};
  for (const auto &c : cases) {
    sie_out_item item = {};
    item.dtype = c.dtype, item.dims = c.dims;
    item.offset = 1000;
    const int64_t bytes = sie::item_bytes(item, c.columns);
    CHECK(bytes == c.want, "%d of %lld columns take %lld bytes", c.dims, static_cast<long long>(c.columns),
          static_cast<long long>(bytes));
    std::vector<sie_out_item> rows(4);
    sie::spread_item(item, c.columns, 3, rows.data());
    for (int64_t i = 0; i < 3; i++) {
      const sie_out_item &row = rows[static_cast<size_t>(i)];
      CHECK(row.offset == 1000 + i * c.want && row.dtype == c.dtype && row.dims == c.dims, "row %lld at %lld",
            static_cast<long long>(i), static_cast<long long>(row.offset));
    }
    CHECK(rows[3].dtype == 0, "a row too many");
  }
  // The extent is the most rows in any ROWS space.
  const auto p = std::make_unique<sie_program>();
  p->spaces[1].kind = SIE_SPACE_ROWS, p->spaces[2].kind = SIE_SPACE_SEQS, p->spaces[8].kind = SIE_SPACE_ROWS;
  p->spaces[3].kind = SIE_SPACE_SHARED;
  const int32_t tokens[] = {0, 5, 7, 7}, words[] = {0, 2, 11, 12}, shared[] = {0, 90, 180, 270};
  sie::BatchIn in = {};
  in.offsets[1] = tokens, in.offsets[3] = shared, in.offsets[8] = words;
  const int64_t want[] = {5, 9, 1};
  for (int64_t b = 0; b < 3; b++) {
    const int64_t extent = sie::extent_of(p.get(), in, b);
    CHECK(extent == want[b], "sequence %lld has the extent %lld", static_cast<long long>(b),
          static_cast<long long>(extent));
  }
  // Marks of a sequence begin at its first row.
  const uint8_t marks[] = {0, 1, 0};
  p->spaces[4].kind = SIE_SPACE_SUBSET, p->spaces[4].marks = 2;
  CHECK(sie::marks_of(p.get(), in, 4, 2) == nullptr, "marks that the batch leaves out");
  in.inputs[2] = marks;
  CHECK(sie::marks_of(p.get(), in, 4, 2) == marks + 2, "marks of another row");
}
