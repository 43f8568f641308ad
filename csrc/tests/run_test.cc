// run_test.cc — what executors do with the tickets of a short slab, alone and in a team, and which failure
// counts: the tickets of a made-up run, done by the test's own threads.
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <thread>
#include <vector>

#include "hooks.h"
#include "machine.h"
#include "made_program.h"
#include "record.h"
#include "run_parts.h"
#include "says.h"

namespace {

constexpr sie_space tokens = 1, sequences = 2, last = 8;
constexpr int64_t stride = 1 << 16, scratch = 1024, values = 4096;

// What a thread has done.
struct Call {
  bool levels;  // quantise_rows, else linear
  int32_t rows;
  const void *y, *x;
  sie_share share;
};
thread_local std::vector<Call> calls;
thread_local int arrivals = 0;
// The call of the thread that is this member which fails, and how.
int failing_member = -1, failing_call = -1;
sie_status failing_status = SIE_OK;

sie_status note(const Call &call) {
  calls.push_back(call);
  const int number = static_cast<int>(calls.size()) - 1;
  return call.share.part == failing_member && number == failing_call ? failing_status : SIE_OK;
}

void count_arrival(const void *) { arrivals++; }
const sie::hooks::Hooks counting = {nullptr, nullptr, nullptr, nullptr, count_arrival, nullptr, nullptr};

// Three linears, the second of which is late where there is a place for its rows; two slabs; three executors.
struct Made : made::Bare {
  sie_weight w;
  sie_arena *arena = nullptr;
  sie_slot *slot = nullptr;

  explicit Made(int32_t rows, bool late) {
    ops.linear = [](const sie_linear_args *a, const sie_share *s) {
      return note({false, *a->rows.n, a->y.p, a->x.p, *s});
    };
    ops.quantise_rows = [](const sie_quantise_rows_args *a, const sie_share *s) {
      return note({true, *a->rows.n, a->y.p, a->x.p, *s});
    };
    device.threads = 3;
    device.node_executors[0] = 3;
    device.seats.places[0] = 5, device.seats.places[1] = 6, device.seats.places[2] = 7;
    p.serial = 77;
    p.seqs = sequences;
    p.spaces[tokens].kind = SIE_SPACE_ROWS, p.spaces[sequences].kind = SIE_SPACE_SEQS;
    p.slab_tokens = 30, p.slab_seqs = 4;
    p.scratch_bytes = scratch, p.values_bytes = values;
    p.late_bytes = late ? 4096 : 0;
    p.late_limit = 3 * 100 * 4;  // three rows
    value(tokens, 100, SIE_COMPUTE_INT8), value(tokens, 100, SIE_COMPUTE_INT8);
    w.n = 100, w.k = 1000;
    w.packed.compute = SIE_COMPUTE_INT8;
    sie::Buffer b = {};
    CHECK(p.buffers.push(b), "no memory");
    for (int i = 0; i < 3; i++) {
      sie::PlannedOp planned = {};
      planned.op = sie::new_op(SIE_OP_LINEAR);
      planned.op.in[0] = 1, planned.op.out = 2;
      planned.op.weights[0] = &w;
      planned.work = -1;
      planned.in[0].present = true;
      sie::Operand &out = i == 1 ? planned.quantised : planned.out;
      out.present = true;
      out.offset = 64 * (i + 1);
      out.dtype = i == 1 ? SIE_U8 : SIE_F32;
      out.ld = 100;
      CHECK(p.plan.push(planned), "no memory");
    }
    const sie_workspace workspace = {stride, 0};
    PASSES(sie_arena_create(&device, &workspace, &arena, &err));
    sie_slot_caps caps = sized<sie_slot_caps>();
    const int64_t bytes[] = {100, 100};
    caps.n_outputs = 2, caps.output_bytes = bytes;
    caps.max_tokens = 100, caps.max_seqs = 10, caps.input_bytes = 100;
    PASSES(sie_slot_create(&device, &caps, &slot, &err));
    slot->program = &p;
    slot->program_serial = p.serial;
    slot->n_slabs = 2;
    sie::Slab *slabs = static_cast<sie::Slab *>(slot->slabs.p);
    for (int s = 0; s < 2; s++) {
      for (sie_space space = 1; space <= last; space++) slabs[s].spaces[space].n = rows + s;
      sie::shares_of(slot)[s].cost = 1;
      sie::shares_of(slot)[s].tokens = rows;
    }
    slot->state.store(sie::run_loaded);
    PASSES(sie_program_submit(&p, arena, slot, nullptr, &err));
    failing_member = failing_call = -1;
  }
  ~Made() {
    slot->state.store(sie::run_idle);  // no executor has ended the run
    sie_slot_free(slot);
    sie_arena_free(arena);
  }
  char *lane(int32_t executor) const { return arena->memory.at(executor * stride); }

  // The tickets of slab 1, member m on executor m + 1; what each member did, and how often it met the others.
  struct Done {
    std::vector<Call> calls;
    int arrivals;
  };
  std::vector<Done> team(int32_t members) {
    sie::shares_of(slot)[1].members = members;
    sie::LongTeam *teams = static_cast<sie::LongTeam *>(slot->teams.p);
    new (teams + 1) sie::LongTeam;
    std::vector<Done> done(static_cast<size_t>(members));
    std::vector<std::thread> threads;
    sie::hooks::installed.store(&counting);
    for (int32_t member = 0; member < members; member++) {
      threads.emplace_back([this, member, &done] {
        slot->work(slot, 1, member, member + 1);
        done[static_cast<size_t>(member)] = {calls, arrivals};
      });
    }
    for (std::thread &thread : threads) thread.join();
    sie::hooks::installed.store(nullptr);
    return done;
  }
};

}  // namespace

TEST(tickets_have_a_replay) {
  const auto m = std::make_unique<Made>(6, true);
  m->slot->outputs[2].p = m.get();  // of no output
  sie_state state;
  state.device = &m->device;
  state.memory.p = m.get();
  for (bool kept : {false, true}) {
    m->slot->kept = kept ? &state : nullptr;
    m->slot->kept_cap = kept ? 12 : 0;
    sie::shares_of(m->slot)[1].members = 4;
    const sie::Replay r = sie::make_replay(m->slot, 1, 3, 2);
    const sie::Slab *slab = static_cast<const sie::Slab *>(m->slot->slabs.p) + 1;
    CHECK(r.program == &m->p && r.slab == slab && r.node == 7 && r.nonfinite == m->slot->nonfinite.p,
          "another slab");
    for (sie_space s = 1; s <= last; s++) {
      CHECK(r.rows[s].cap == (s == sequences ? 4 : 30) && r.rows[s].n == &slab->spaces[s].n,
            "space %d has %lld rows", s, static_cast<long long>(r.rows[s].cap));
    }
    CHECK(r.share.part == 3 && r.share.parts == 4 && r.share.scratch == m->lane(2) &&
              r.share.scratch_bytes == scratch && r.share.on == nullptr,
          "share %d of %d", r.share.part, r.share.parts);
    for (size_t i = 0; i < 8; i++)
      CHECK(r.outputs[i] == (i < 2 ? m->slot->outputs[i].p : nullptr), "output %zu is elsewhere", i);
    CHECK(r.state == (kept ? static_cast<void *>(m.get()) : nullptr) && r.state_rows == (kept ? 12 : 0),
          "a state");
  }
  m->slot->outputs[2].p = nullptr;
  m->slot->kept = nullptr;
}

// The first failure of a run counts, and the first step at which a member of a team failed.
TEST(tickets_note_the_first_failure) {
  const auto m = std::make_unique<Made>(6, true);
  sie::Team team;
  CHECK(!sie::has_failed(team, 0) && !sie::has_failed(team, INT32_MAX - 1), "a new team has failed");
  sie::note_team_failure(m->slot, &team, {2, 5}, SIE_INTERNAL);
  CHECK(m->slot->failed_op.load() == 2 && m->slot->failure == SIE_INTERNAL && team.failed_step.load() == 5,
        "operation %d, step %d", m->slot->failed_op.load(), team.failed_step.load());
  CHECK(!sie::has_failed(team, 4) && sie::has_failed(team, 5) && sie::has_failed(team, 6), "other steps");
  sie::note_team_failure(m->slot, &team, {1, 3}, SIE_UNSUPPORTED);
  CHECK(team.failed_step.load() == 3, "step %d", team.failed_step.load());
  sie::note_team_failure(m->slot, &team, {0, 4}, SIE_UNSUPPORTED);
  CHECK(team.failed_step.load() == 3 && sie::has_failed(team, 3) && !sie::has_failed(team, 2), "step %d",
        team.failed_step.load());
  CHECK(m->slot->failed_op.load() == 2 && m->slot->failure == SIE_INTERNAL, "operation %d",
        m->slot->failed_op.load());
}

// Alone: every operation in the executor's own lane, until one fails.
TEST(tickets_of_slabs_that_run_alone) {
  for (int fails : {-1, 0, 1, 2}) {
    const auto m = std::make_unique<Made>(6, true);
    for (int s : {0, 1}) sie::shares_of(m->slot)[s].members = 1;
    failing_member = 0, failing_call = fails, failing_status = SIE_INTERNAL;
    calls.clear();
    m->slot->work(m->slot, 1, 0, 2);
    const size_t count = fails < 0 ? 3 : static_cast<size_t>(fails) + 1;
    CHECK(calls.size() == count, "%zu operations", calls.size());
    for (size_t i = 0; i < calls.size(); i++) {
      CHECK(!calls[i].levels && calls[i].rows == 7 && calls[i].y == m->lane(2) + scratch + 64 * (i + 1) &&
                calls[i].share.scratch == m->lane(2) && calls[i].share.parts == 1,
            "operation %zu writes elsewhere", i);
    }
    CHECK(m->slot->failed_op.load() == fails && m->slot->failure == (fails < 0 ? SIE_OK : SIE_INTERNAL),
          "operation %d", m->slot->failed_op.load());
  }
}

// In a team: values lie in the first member's lane, all meet before the first operation and after each, and in a
// late one around each group's two steps.
TEST(tickets_of_teams) {
  for (bool late : {false, true}) {
    for (int32_t rows : {1, 2, 3, 4, 6, 7}) {
      const auto m = std::make_unique<Made>(rows - 1, late);  // slab 1 has one more
      const std::vector<Made::Done> done = m->team(2);
      const int32_t groups = (rows + 2) / 3;
      for (const Made::Done &member : done) {
        const int32_t number = static_cast<int32_t>(&member - done.data());
        std::vector<Call> want;
        char *const at = m->lane(1) + scratch;
        want.push_back({false, rows, at + 64, nullptr, {}});
        for (int32_t first = 0; late && first < rows; first += 3) {
          const int32_t count = std::min(3, rows - first);
          want.push_back({false, count, at + values, nullptr, {}});
          want.push_back({true, count, at + 128 + first * 100, at + values, {}});
        }
        if (!late) want.push_back({false, rows, at + 128, nullptr, {}});
        want.push_back({false, rows, at + 192, nullptr, {}});
        CHECK(member.calls.size() == want.size(), "member %d has %zu calls of %d rows, %zu expected", number,
              member.calls.size(), rows, want.size());
        for (size_t i = 0; i < std::min(want.size(), member.calls.size()); i++) {
          const Call &got = member.calls[i];
          CHECK(got.levels == want[i].levels && got.rows == want[i].rows && got.y == want[i].y &&
                    (want[i].x == nullptr || got.x == want[i].x),
                "call %zu of member %d is of %d rows", i, number, got.rows);
          CHECK(got.share.part == number && got.share.parts == 2 && got.share.scratch == m->lane(number + 1),
                "share %d of %d", got.share.part, got.share.parts);
        }
        // Before the first, after each of three, and around the groups: one between two steps, one between two groups.
        const int meetings = 4 + (late ? 2 * groups - 1 : 0);
        CHECK(member.arrivals == meetings, "member %d meets %d times with %d rows, %d expected", number,
              member.arrivals, rows, meetings);
      }
      CHECK(m->slot->failed_op.load() == -1, "operation %d fails", m->slot->failed_op.load());
    }
  }
}

// Whichever step of whichever group fails, the member goes on to every meeting of the operation, and all leave
// behind it.
TEST(tickets_of_teams_that_fail) {
  for (int32_t member : {0, 1}) {
    for (int call = 0; call < 8; call++) {
      const auto m = std::make_unique<Made>(6, true);  // slab 1: 7 rows, three groups
      failing_member = member, failing_call = call;
      failing_status = call % 2 == 0 ? SIE_UNSUPPORTED : SIE_INTERNAL;
      const std::vector<Made::Done> done = m->team(2);
      const int32_t op = call == 0 ? 0 : call < 7 ? 1 : 2;
      CHECK(m->slot->failed_op.load() == op && m->slot->failure == failing_status, "operation %d, status %d",
            m->slot->failed_op.load(), m->slot->failure);
      for (const Made::Done &each : done) {
        const size_t calls_of[] = {1, 7, 8};
        const int meetings[] = {2, 8, 9};
        CHECK(each.calls.size() == calls_of[op] && each.arrivals == meetings[op], "%zu calls, %d meetings",
              each.calls.size(), each.arrivals);
      }
    }
  }
}

// Of an arena that is mapped, each node's lanes are asked for there, and the region on all; of others nothing is.
TEST(arenas_are_placed_by_node) {
  MadeUpMachine machine(1, 1);
  auto &placed = MadeUpMachine::calls();
  for (int32_t nodes : {0, 1, 2, 64}) {  // 0: it is not known which
    for (int64_t lane : {int64_t{1} << 14, int64_t{1} << 22}) {
      for (uint32_t kind : {SIE_DEVICE_CPU, SIE_DEVICE_CUDA}) {
        const auto device = std::make_unique<sie_device>();
        device->kind = kind;
        device->seats.nodes = std::max(nodes, 1);
        device->threads = 0;
        for (int32_t k = 0; k < device->seats.nodes; k++) {
          device->seats.numbers[k] = nodes == 0 ? -1 : k;
          device->node_executors[k] = nodes == 64 ? 1 : k + 1;
          device->threads += device->node_executors[k];
        }
        if (nodes == 64 && lane > 1 << 16) lane = 1 << 16;
        placed.clear();
        const sie_workspace workspace = {lane, 1 << 15};
        sie_arena *arena = nullptr;
        PASSES(sie_arena_create(device.get(), &workspace, &arena, &err));
        if (!arena->memory.mapped || nodes == 0) {  // sanitizers map nothing
          CHECK(placed.empty(), "%zu parts are placed on %d nodes", placed.size(), nodes);
        } else {
          CHECK(placed.size() == static_cast<size_t>(nodes) + 1, "%zu parts are placed on %d nodes",
                placed.size(), nodes);
          char *at = arena->memory.at(0);
          for (size_t k = 0; k < placed.size(); k++) {
            const bool region = k == static_cast<size_t>(nodes);
            const size_t bytes =
                region ? size_t{1} << 15 : static_cast<size_t>(lane * device->node_executors[k]);
            CHECK(placed[k].p == at && placed[k].bytes == bytes, "part %zu has %zu bytes", k,
                  placed[k].bytes);
            CHECK(placed[k].nodes.size() == (region ? static_cast<size_t>(nodes) : 1) &&
                      (region || placed[k].nodes[0] == static_cast<int32_t>(k)),
                  "part %zu is on %zu nodes", k, placed[k].nodes.size());
            at += bytes;
          }
        }
        sie_arena_free(arena);
      }
    }
  }
}
