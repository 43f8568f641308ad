// run_long_test.cc — the steps of a long slab, stage by stage, and who joins its team, on made-up slots whose
// tickets the test's own threads do.
#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <memory>
#include <thread>
#include <vector>

#include "cut.h"
#include "hooks.h"
#include "made_program.h"
#include "record.h"
#include "run_parts.h"
#include "says.h"

namespace {

using sie::Cut;

constexpr sie_space tokens = 1, sequences = 2, words = 3, last = 8;
constexpr int64_t stride = 1 << 16;

struct Step {
  int32_t op, rows;
  int64_t row;
  int32_t parts;
};
bool operator==(const Step &a, const Step &b) {
  return a.op == b.op && a.rows == b.rows && a.row == b.row && a.parts == b.parts;
}

thread_local std::vector<Step> steps;
thread_local int32_t current = -1;
thread_local int meetings = 0;
int32_t fails_at = -1;  // the operation that fails

void begin_block(int32_t operation, int64_t) { current = operation; }
void count_meeting(const void *) { meetings++; }
// A thread that finds its word unchanged comes here.
std::atomic<bool> slept{false};
void note_sleep(const std::atomic<uint32_t> *, uint32_t) {
  slept.store(true);
  std::this_thread::yield();
}
const sie::hooks::Hooks noting = {nullptr, note_sleep, nullptr, nullptr, count_meeting, nullptr, begin_block};

// A program of these operations, by how they are cut and the space of their rows; a slot with long slabs.
struct Planned {
  Cut cut;
  sie_space of;
};
struct Made : made::Bare {
  sie_weight w;
  sie_arena *arena = nullptr;
  sie_slot *slot = nullptr;

  Made(std::initializer_list<Planned> plan, int32_t rows, int32_t of_words, int32_t slabs = 1) {
    ops.linear = [](const sie_linear_args *a, const sie_share *s) {
      steps.push_back({current, *a->rows.n, reinterpret_cast<intptr_t>(a->y.p), s->parts});
      return current == fails_at ? SIE_INTERNAL : SIE_OK;
    };
    device.threads = 4;
    p.seqs = sequences;
    p.spaces[tokens].kind = p.spaces[words].kind = SIE_SPACE_ROWS;
    p.spaces[sequences].kind = SIE_SPACE_SEQS;
    p.slab_tokens = 512, p.slab_seqs = 8;
    p.region_tokens = 4096;
    p.long_row_bytes = 64;
    p.stage_rows = 288;
    p.block_flops = 1e12;
    value(tokens, 4), value(words, 4);
    sie::Buffer b = {};
    b.dtype = SIE_F32;
    b.columns = 4, b.ld = 16;
    CHECK(p.buffers.push(b), "no memory");
    w.n = w.k = 4;
    for (const Planned &each : plan) {
      sie::PlannedOp planned = {};
      planned.op = sie::new_op(SIE_OP_LINEAR);
      planned.op.in[0] = planned.op.out = each.of == tokens ? 1 : 2;
      planned.op.weights[0] = &w;
      planned.work = -1;
      planned.out.present = true;
      planned.out.dtype = SIE_F32;
      planned.cut = each.cut;
      planned.row_flops = 1;
      CHECK(p.plan.push(planned), "no memory");
    }
    // Stages, as cut.cc finds them.
    int32_t end = static_cast<int32_t>(p.plan.size());
    for (int32_t i = end - 1; i >= 0; i--) {
      const bool joins = i + 1 < p.plan.size() && p.plan[i].cut == Cut::rows &&
                         p.plan[i + 1].cut == Cut::rows && p.plan[i].op.out == p.plan[i + 1].op.out;
      if (!joins) end = i + 1;
      p.plan[i].stage_end = end;
    }
    // What a longer plan has left behind its end: a stage without rows, behind which the plan would begin again.
    sie::PlannedOp behind = p.plan[0];
    behind.cut = Cut::rows;
    behind.op.in[0] = behind.op.out = 2;
    behind.stage_end = 0;
    CHECK(p.plan.push(behind), "no memory");
    p.plan.pop();
    const sie_workspace workspace = {stride, 1 << 20};
    PASSES(sie_arena_create(&device, &workspace, &arena, &err));
    sie_slot_caps caps = sized<sie_slot_caps>();
    const int64_t bytes[] = {100};
    caps.n_outputs = 1, caps.output_bytes = bytes;
    caps.max_tokens = 8192, caps.max_seqs = 10, caps.input_bytes = 100;
    PASSES(sie_slot_create(&device, &caps, &slot, &err));
    slot->program = &p;
    slot->arena = arena;
    slot->n_slabs = slot->n_long = slabs;
    slot->long_left.store(slabs);
    for (int32_t s = 0; s < slabs; s++) {
      sie::Slab &slab = static_cast<sie::Slab *>(slot->slabs.p)[s];
      slab = {};
      slab.max_len = std::max(rows, of_words);
      slab.place = 0;
      slab.spaces[tokens].n = rows, slab.spaces[words].n = of_words;
      sie::shares_of(slot)[s].members = 1;
      new (static_cast<sie::LongTeam *>(slot->teams.p) + s) sie::LongTeam;
    }
    fails_at = -1;
  }
  ~Made() {
    sie_slot_free(slot);
    sie_arena_free(arena);
  }
  sie::LongTeam &team(int32_t slab) { return static_cast<sie::LongTeam *>(slot->teams.p)[slab]; }

  // What a leader that is alone does: each step with its rows, and the first of them.
  std::vector<Step> led(int32_t executor = 0) {
    steps.clear();
    meetings = 0;
    sie::hooks::installed.store(&noting);
    sie::lead_long(slot, 0, executor);
    sie::hooks::installed.store(nullptr);
    CHECK(meetings == static_cast<int>(steps.size()), "%d meetings after %zu steps", meetings, steps.size());
    const intptr_t values = reinterpret_cast<intptr_t>(arena->memory.at(arena->region));
    for (Step &step : steps) step.row = (step.row - values) / 64;
    return steps;
  }
};

void same(const std::vector<Step> &got, const std::vector<Step> &want) {
  CHECK(got.size() == want.size(), "%zu steps, %zu expected", got.size(), want.size());
  for (size_t i = 0; i < std::min(got.size(), want.size()); i++) {
    CHECK(got[i] == want[i], "step %zu: operation %d, %d rows from %lld", i, got[i].op, got[i].rows,
          static_cast<long long>(got[i].row));
  }
}

}  // namespace

// Rows go through a stage 288 at a time; operations that are not cut into rows are one step; a stage without rows
// is passed over, wherever it is.
TEST(long_steps_are_those_of_the_stages) {
  const Planned r = {Cut::rows, tokens}, n = {Cut::none, tokens}, o = {Cut::rows, words};
  same(Made({r}, 600, 0).led(), {{0, 288, 0, 1}, {0, 288, 288, 1}, {0, 24, 576, 1}});
  same(Made({r}, 576, 0).led(), {{0, 288, 0, 1}, {0, 288, 288, 1}});
  same(Made({r, r, n, r}, 300, 0).led(), {{0, 288, 0, 1},
                                          {1, 288, 0, 1},
                                          {0, 12, 288, 1},
                                          {1, 12, 288, 1},
                                          {2, 300, 0, 1},
                                          {3, 288, 0, 1},
                                          {3, 12, 288, 1}});
  same(Made({r, o, n}, 100, 300).led(), {{0, 100, 0, 1}, {1, 288, 0, 1}, {1, 12, 288, 1}, {2, 100, 0, 1}});
  same(Made({r, o, n}, 100, 0).led(), {{0, 100, 0, 1}, {2, 100, 0, 1}});
  same(Made({o, r}, 100, 0).led(), {{1, 100, 0, 1}});
  same(Made({r, o}, 100, 0).led(), {{0, 100, 0, 1}});
  same(Made({r, o, r, o, o}, 100, 0).led(), {{0, 100, 0, 1}, {2, 100, 0, 1}});
  same(Made({o}, 100, 0).led(), {});
}

// A slab is done once: its team is closed, and the arena counts the run when its last long slab is done.
TEST(long_slabs_are_counted_when_they_are_done) {
  Made m({{Cut::rows, tokens}}, 100, 0, 2);
  m.led();
  CHECK(m.team(0).closed() && !m.team(1).closed() && m.slot->long_left.load() == 1 &&
            m.arena->long_done.load() == 0,
        "%d slabs are left", m.slot->long_left.load());
  sie::lead_long(m.slot, 1, 0);
  CHECK(m.team(1).closed() && m.slot->long_left.load() == 0 && m.arena->long_done.load() == 1,
        "%d slabs are left", m.slot->long_left.load());
  // One that fails is done, too, behind the step that failed.
  Made failing({{Cut::rows, tokens}, {Cut::none, tokens}, {Cut::none, tokens}}, 100, 0);
  fails_at = 1;
  same(failing.led(), {{0, 100, 0, 1}, {1, 100, 0, 1}});
  CHECK(failing.slot->failed_op.load() == 1 && failing.slot->failure == SIE_INTERNAL &&
            failing.team(0).closed() && failing.arena->long_done.load() == 1,
        "operation %d fails", failing.slot->failed_op.load());
}

// A block has the room of its slab, of one sequence; scratch is the executor's whole lane.
TEST(long_slabs_have_room) {
  Made m({{Cut::none, tokens}}, 700, 0);
  static sie_rows rows[last + 1];
  static sie_share share;
  static int64_t seen = 0;
  seen = 0;
  // Every space, by a linear whose rows are of it.
  for (sie_space of = 1; of <= last; of++) {
    m.p.values[1].space = of;
    m.p.spaces[of].kind = of == sequences ? SIE_SPACE_SEQS : SIE_SPACE_ROWS;
    static_cast<sie::Slab *>(m.slot->slabs.p)[0].spaces[of].n = of;
    new (&m.team(0)) sie::LongTeam;
    m.slot->long_turn = m.arena->long_done.load();
    m.slot->long_left.store(1);
    static sie_space now;
    now = of;
    m.ops.linear = [](const sie_linear_args *a, const sie_share *s) {
      rows[now] = a->rows;
      share = *s;
      seen++;
      CHECK(*a->rows.n == now, "%d rows of space %d", *a->rows.n, now);
      return SIE_OK;
    };
    sie::lead_long(m.slot, 0, 3);
    CHECK(rows[of].cap == (of == sequences ? 1 : 704), "space %d has room for %lld rows", of,
          static_cast<long long>(rows[of].cap));
    CHECK(
        share.scratch == m.arena->memory.at(3 * stride) && share.scratch_bytes == stride && share.parts == 1,
        "%lld bytes of scratch", static_cast<long long>(share.scratch_bytes));
  }
  CHECK(seen == last, "%lld spaces", static_cast<long long>(seen));
}

// A leader waits for the runs before it and for the slabs whose place it takes; a ticket of another run is done
// meanwhile.
TEST(long_slabs_wait_for_their_turn) {
  for (int reason : {0, 1}) {
    Made m({{Cut::rows, tokens}}, 100, 0, 3);
    sie::Slab &slab = static_cast<sie::Slab *>(m.slot->slabs.p)[0];
    if (reason == 0) m.slot->long_turn = 1;
    if (reason == 1) slab.after = 2;
    std::atomic<bool> done{false};
    std::thread leader([&m, &done] {
      m.led();
      done.store(true);
    });
    // It looks, and sleeps; and again where one of two slabs is done.
    for (int32_t left : {3, 2}) {
      if (reason == 1) m.slot->long_left.store(left);
      slept.store(false);
      m.device.executors.notify();
      while (!slept.load() && !done.load()) std::this_thread::yield();
      CHECK(!done.load(), "a slab does not wait (%d)", reason);
    }
    if (reason == 0) m.arena->long_done.store(1);
    if (reason == 1) m.slot->long_left.store(1);
    m.device.executors.notify();
    leader.join();
    CHECK(m.team(0).closed(), "a slab is not done");
  }
}

// An executor without a slab joins the smallest team, of equal ones the first, and none that is done or full.
TEST(long_slabs_are_joined_where_fewest_are) {
  const struct {
    int asked[3];
    bool closed[3];
    int32_t slab;
  } cases[] = {{{0, 0, 0}, {false, false, false}, 0},    {{1, 0, 0}, {false, false, false}, 1},
               {{2, 1, 0}, {false, false, false}, 2},    {{0, 0, 0}, {true, false, false}, 1},
               {{1, 1, 1}, {false, false, false}, 0},    {{63, 63, 62}, {false, false, false}, 2},
               {{62, 63, 63}, {false, false, false}, 0}, {{63, 63, 63}, {false, false, false}, -1},
               {{0, 0, 0}, {true, true, true}, -1},      {{3, 2, 2}, {false, true, false}, 2}};
  for (const auto &t : cases) {
    Made m({{Cut::rows, tokens}}, 100, 0, 3);
    int32_t member = 0;
    for (int s = 0; s < 3; s++) {
      for (int i = 0; i < t.asked[s]; i++) CHECK(m.team(s).ask(&member), "a team is full");
      if (t.closed[s]) m.team(s).close();
    }
    // Once it has asked, the teams are closed, so that it ends.
    std::thread helper([&m] { sie::help_long(m.slot, 2); });
    if (t.slab >= 0) {
      while (m.team(t.slab).asked() == t.asked[t.slab]) std::this_thread::yield();
      for (int s = 0; s < 3; s++) {
        CHECK(m.team(s).asked() == t.asked[s] + (s == t.slab ? 1 : 0), "%d have asked slab %d",
              m.team(s).asked(), s);
      }
    }
    for (int s = 0; s < 3; s++) m.team(s).close();
    m.device.executors.notify();
    helper.join();
  }
}
