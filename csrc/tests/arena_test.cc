// arena_test.cc — what an arena may be and where a GPU's is placed, and what a run asks of its program,
// arena and slot, on made-up objects.
#include <string.h>

#include <memory>
#include <vector>

#include "fence.h"
#include "says.h"
#include "slot.h"

namespace {

constexpr int64_t most = int64_t{1} << 46;

struct Made {
  sie_device device;
  sie_arena *arena = nullptr;

  Made() {
    device.kind = SIE_DEVICE_CPU;
    device.threads = 3;
  }
  Made(const Made &) = delete;
  Made &operator=(const Made &) = delete;
  ~Made() { sie_arena_free(arena); }
  sie_status create(int64_t lane, int64_t region, sie_error *err) {
    sie_arena_free(arena);
    const sie_workspace workspace = {lane, region};
    return sie_arena_create(&device, &workspace, &arena, err);
  }
};

}  // namespace

TEST(arenas_have_a_lane_for_each_executor_and_a_region) {
  const auto m = std::make_unique<Made>();
  struct {
    int64_t lane, region, stride, room;
  } cases[] = {{64, 0, 64, 0}, {65, 0, 128, 0}, {100, 70, 128, 128}, {128, 64, 128, 64}};
  for (const auto &c : cases) {
    PASSES(m->create(c.lane, c.region, &err));
    const sie_arena &a = *m->arena;
    CHECK(a.lane_stride == c.stride && a.region == 3 * c.stride && a.region_bytes == c.room,
          "lanes of %lld bytes, a region of %lld", static_cast<long long>(a.lane_stride),
          static_cast<long long>(a.region_bytes));
    CHECK(static_cast<int64_t>(a.memory.bytes) == 3 * c.stride + c.room && sie_arena_bytes(&a) == a.bytes &&
              a.bytes == 3 * c.stride + c.room,
          "%zu bytes of memory, %lld counted", a.memory.bytes, static_cast<long long>(a.bytes));
  }
  for (int64_t lane : {INT64_MIN, int64_t{0}, int64_t{63}, most + 1, INT64_MAX})
    SAYS("at least 64 and 0", m->create(lane, 0, &err));
  for (int64_t region : {INT64_MIN, int64_t{-1}, most + 1, INT64_MAX})
    SAYS("at least 64 and 0", m->create(64, region, &err));
  // No machine has as much, but some promise it.
  for (bool lanes : {true, false}) {
    sie_error err = {};
    const sie_status status = m->create(lanes ? most : 64, lanes ? 0 : most, &err);
    CHECK(status == SIE_OUT_OF_MEMORY || status == SIE_OK, "status %d: %s", status, err.message);
  }
  const sie_workspace workspace = {64, 0};
  sie_arena *arena = nullptr;
  SAYS("arena is NULL", sie_arena_create(&m->device, &workspace, nullptr, &err));
  SAYS("device or workspace is NULL", sie_arena_create(nullptr, &workspace, &arena, &err));
  SAYS("device or workspace is NULL", sie_arena_create(&m->device, nullptr, &arena, &err));
  CHECK(sie_arena_bytes(nullptr) == 0, "no arena has bytes");
  sie_arena_free(nullptr);
  SAYS("only arenas of a GPU",
       (m->create(64, 0, nullptr), sie_arena_place(m->arena, m.get(), 0, nullptr, nullptr, &err)));
}

TEST(arenas_of_a_gpu_lie_where_the_caller_says) {
  const auto m = std::make_unique<Made>();
  m->device.kind = SIE_DEVICE_CUDA;
  m->device.threads = 1;
  m->device.arenas = 4;
  PASSES(m->create(1000, 0, &err));
  CHECK(m->arena->memory.p == nullptr && sie_arena_bytes(m->arena) == 1024, "%lld bytes of a GPU",
        static_cast<long long>(sie_arena_bytes(m->arena)));
  Fence fence;
  // 256 · 257 is a multiple of both.
  char *const base = reinterpret_cast<char *>(uintptr_t{256} * 257);
  auto place = [&](void *memory, const std::vector<void *> &outputs, const std::vector<int64_t> &bytes,
                   sie_error *err) {
    return sie_arena_place(m->arena, memory, static_cast<uint32_t>(outputs.size()), fence.behind(outputs),
                           fence.behind(bytes), err);
  };
  SAYS("is NULL", sie_arena_place(nullptr, base, 0, nullptr, nullptr, &err));
  SAYS("is NULL", place(nullptr, {}, {}, &err));
  void *const outputs[] = {base};
  const int64_t bytes[] = {8};
  SAYS("outputs or output_bytes is NULL", sie_arena_place(m->arena, base, 1, nullptr, bytes, &err));
  SAYS("outputs or output_bytes is NULL", sie_arena_place(m->arena, base, 1, outputs, nullptr, &err));
  for (int offset : {128, 257, 1}) SAYS("memory is not aligned", place(base + offset, {}, {}, &err));
  for (int offset : {128, 257, 1})
    SAYS("output 1 is not aligned", place(base, {base, base + offset}, {8, 8}, &err));
  SAYS("output 0 has -1 bytes", place(base, {base}, {-1}, &err));
  SAYS("output 2 has 8 bytes at NULL", place(base, {base, base, nullptr}, {8, 8, 8}, &err));
  SAYS("at most 8 are possible", place(base, std::vector<void *>(9, base), std::vector<int64_t>(9, 8), &err));
  CHECK(m->arena->placed == nullptr && m->arena->number == 0, "a refused place is taken");
  PASSES(sie_arena_place(m->arena, base + 256, 0, nullptr, nullptr, &err));
  CHECK(m->arena->placed == base + 256 && m->arena->number == 5, "another place");
  PASSES(place(base, std::vector<void *>(8, base + 256), std::vector<int64_t>(8, 9), &err));
  PASSES(place(base, {base, nullptr, base + 512}, {7, 0, 1}, &err));
  CHECK(m->arena->placed == base && m->arena->number == 7, "another place");
  void *const want[] = {base, nullptr, base + 512, nullptr, nullptr, nullptr, nullptr, nullptr};
  const int64_t sizes[] = {7, 0, 1, 0, 0, 0, 0, 0};
  for (int i = 0; i < 8; i++)
    CHECK(m->arena->outputs[i] == want[i] && m->arena->output_bytes[i] == sizes[i],
          "output %d lies elsewhere", i);
}

namespace {

// A program without operations whose lanes take 128 bytes, and a batch without sequences for it.
struct Loaded {
  sie_device device;
  sie_program p;
  sie_arena arena;
  sie_slot slot;

  Loaded() {
    device.kind = SIE_DEVICE_CPU;
    device.threads = 2;
    p.device = arena.device = slot.device = &device;
    p.scratch_bytes = 100, p.values_bytes = 28;
    p.serial = slot.program_serial = 5;
    slot.program = &p;
    slot.state.store(sie::run_loaded);
    arena.lane_stride = 128;
  }
  sie_status submit(sie_error *err, sie_state *state = nullptr) {
    return sie_program_submit(&p, &arena, &slot, state, err);
  }
};

}  // namespace

TEST(runs_ask_for_their_program_arena_and_slot) {
  auto m = std::make_unique<Loaded>();
  SAYS("program, arena or slot is NULL", sie_program_submit(nullptr, &m->arena, &m->slot, nullptr, &err));
  SAYS("program, arena or slot is NULL", sie_program_submit(&m->p, nullptr, &m->slot, nullptr, &err));
  SAYS("program, arena or slot is NULL", sie_program_submit(&m->p, &m->arena, nullptr, nullptr, &err));
  sie_device other;
  for (sie_device **of : {&m->p.device, &m->arena.device, &m->slot.device}) {
    *of = &other;
    SAYS("not of one device", m->submit(&err));
    *of = &m->device;
  }
  const auto state = std::make_unique<sie_state>();
  state->device = &other;
  SAYS("the state is of another device", m->submit(&err, state.get()));
  for (uint32_t at : {sie::run_idle, sie::run_started, sie::run_done}) {
    m->slot.state.store(at);
    SAYS("not loaded with a batch for this program", m->submit(&err));
  }
  m->slot.state.store(sie::run_loaded);
  m->slot.program_serial = 6;
  SAYS("not loaded with a batch for this program", m->submit(&err));
  m->slot.program_serial = 5;
  m->arena.lane_stride = 64;
  SAYS("lanes of 64 bytes and a region of 0; the program needs 128 and 0", m->submit(&err));
  m->arena.lane_stride = 128;
  m->p.region_tokens = 64;
  m->p.long_row_bytes = 2;
  SAYS("lanes of 128 bytes and a region of 0; the program needs 128 and 128", m->submit(&err));
  m->arena.region_bytes = 127;
  SAYS("a region of 127", m->submit(&err));
  m->arena.region_bytes = 128;
  state->device = &m->device;
  PASSES(m->submit(&err, state.get()));
  CHECK(m->slot.state.load() == sie::run_done && m->slot.arena == &m->arena && m->arena.long_runs == 0,
        "a run without slabs is in state %u", m->slot.state.load());
  PASSES(sie_slot_wait(&m->slot, &err));
  CHECK(m->slot.state.load() == sie::run_idle, "a slot that was waited for is in state %u",
        m->slot.state.load());
}

TEST(runs_are_waited_for_once) {
  const auto m = std::make_unique<Loaded>();
  SAYS("slot is NULL", sie_slot_wait(nullptr, &err));
  for (uint32_t at : {sie::run_idle, sie::run_loaded}) {
    m->slot.state.store(at);
    SAYS("no run to wait for", sie_slot_wait(&m->slot, &err));
  }
  // The first operation may fail, too.
  sie::PlannedOp planned = {};
  for (uint32_t kind : {SIE_OP_LINEAR, SIE_OP_POOL}) {
    planned.op.kind = kind;
    CHECK(m->p.plan.push(planned), "no memory");
  }
  const char *const words[] = {"operation 0 (linear) failed with status 6",
                               "operation 1 (pool) failed with status 6"};
  for (int32_t op : {0, 1}) {
    m->slot.state.store(sie::run_done);
    m->slot.failed_op.store(op);
    m->slot.failure = SIE_INTERNAL;
    SAYS(words[op], sie_slot_wait(&m->slot, &err), SIE_INTERNAL);
    CHECK(m->slot.state.load() == sie::run_idle, "a failed run keeps its slot");
  }
  // A GPU's run is the caller's to wait for.
  m->device.kind = SIE_DEVICE_CUDA;
  m->slot.state.store(sie::run_started);
  PASSES(sie_slot_wait(&m->slot, &err));
  CHECK(m->slot.state.load() == sie::run_idle, "the slot is in state %u", m->slot.state.load());
}

namespace {

// A run of one ticket that no thread does.
struct Waiting : sie::Run {
  Waiting() { tickets = 1; }
};

}  // namespace

// A refused run leaves a state as it was. A run that is taken leaves it without rows until it has been
// waited for, and for ever where it fails.
TEST(runs_fill_their_state) {
  const auto m = std::make_unique<Loaded>();
  const auto state = std::make_unique<sie_state>();
  state->device = &m->device;
  state->bytes = 800;
  state->rows = 3, state->cap = 4;
  state->segments[2] = {7, SIE_F32, 16, 8};
  m->p.state.declared = true;
  m->p.state.max_rows = 97, m->p.state.row_bytes = 100;
  m->p.state.segments[1] = {16, SIE_F32, 16, 0};
  m->p.state.segments[SIE_MAX_SEGMENTS] = {9, SIE_BF16, 32, 64};
  m->slot.state_rows = 5;
  auto holds = [&state](int64_t rows, int64_t cap, bool old, const char *when) {
    CHECK(state->rows == rows && state->cap == cap, "%s: %lld rows, room for %lld", when,
          static_cast<long long>(state->rows), static_cast<long long>(state->cap));
    const int64_t columns[] = {old ? 0 : 16, old ? 7 : 0, old ? 0 : 9};
    const int32_t numbers[] = {1, 2, SIE_MAX_SEGMENTS};
    for (int i = 0; i < 3; i++)
      CHECK(state->segments[numbers[i]].columns == columns[i], "%s: segment %d has %lld columns", when,
            numbers[i], static_cast<long long>(state->segments[numbers[i]].columns));
  };
  state->bytes = 799;
  SAYS("the state has 799 bytes", m->submit(&err, state.get()));
  holds(3, 4, true, "too small");
  state->bytes = 800;
  m->arena.lane_stride = 64;
  SAYS("lanes of 64 bytes", m->submit(&err, state.get()));
  holds(3, 4, true, "lanes are too small");
  m->arena.lane_stride = 128;
  {
    Waiting first, second;
    CHECK(m->device.executors.submit(&first) && m->device.executors.submit(&second), "refused");
    SAYS("2 runs are in flight", m->submit(&err, state.get()));
    holds(3, 4, true, "no place");
  }
  const auto fresh = std::make_unique<Loaded>();
  state->device = &fresh->device;
  fresh->p.state = m->p.state;
  fresh->slot.state_rows = 5;
  PASSES(fresh->submit(&err, state.get()));
  CHECK(state->rows == 0, "a run that nobody waited for leaves %lld rows",
        static_cast<long long>(state->rows));
  PASSES(sie_slot_wait(&fresh->slot, &err));
  holds(5, 8, false, "waited for");
  // One that reads leaves what it read, whether it fails or not.
  fresh->p.state.rows = 3;
  sie::PlannedOp planned = {};
  planned.op.kind = SIE_OP_LINEAR;
  for (bool fails : {false, true}) {
    fresh->slot.state.store(sie::run_loaded);
    PASSES(fresh->submit(&err, state.get()));
    CHECK(state->rows == 5, "a run that reads leaves %lld rows", static_cast<long long>(state->rows));
    if (fails) {
      CHECK(fresh->p.plan.push(planned), "no memory");
      fresh->slot.failed_op.store(0);
      fresh->slot.failure = SIE_INTERNAL;
      SAYS("operation 0 (linear) failed", sie_slot_wait(&fresh->slot, &err), SIE_INTERNAL);
    } else {
      PASSES(sie_slot_wait(&fresh->slot, &err));
    }
    holds(5, 8, false, "read");
  }
  fresh->p.state.rows = 0;
  fresh->slot.state.store(sie::run_loaded);
  PASSES(fresh->submit(&err, state.get()));
  fresh->slot.failed_op.store(0);
  fresh->slot.failure = SIE_INTERNAL;
  SAYS("operation 0 (linear) failed", sie_slot_wait(&fresh->slot, &err), SIE_INTERNAL);
  CHECK(state->rows == 0, "a run that failed leaves %lld rows", static_cast<long long>(state->rows));
}
