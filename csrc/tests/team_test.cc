// team_test.cc — whole programs with one member of a team held at each meeting while the next run
// waits for executors.
//
// A late member must find the values that it reads unchanged: no member passes a meeting without
// it, and no executor uses its team's arena lane for other work.
#include <sched.h>
#include <string.h>

#include <algorithm>
#include <atomic>

#include "compare.h"
#include "hooks.h"
#include "model.h"
#include "paths.h"
#include "slot.h"
#include "tests/check.h"

using model::Batch;
using model::Model;
using model::Result;
using model::Shape;

namespace {

constexpr int max_meetings = 2048;

// The held member and the place: before it arrives at a meeting, or after it has left (leaving).
struct Held {
  int member, meeting;
  bool leaving;
};

struct Watch {
  Held held;
  int members;
  std::atomic<bool> next_done;  // the run after the team's
  std::atomic<int> arrived[max_meetings];
  std::atomic<int> last_meeting, times_held;
};
Watch watch;
thread_local int own_member, own_meeting;

void begin_ticket(int32_t, int32_t member) {
  own_member = member;
  own_meeting = 0;
}

// Holds the member until the others can go no further without it: they wait for it at the meeting
// or, if a fault lets them pass, have done all the work.
void hold(int meeting) {
  watch.times_held++;
  while (watch.arrived[meeting].load() < watch.members - 1 && !watch.next_done.load()) sched_yield();
}

void arrive(const void *) {
  const Held &held = watch.held;
  if (own_member == held.member && own_meeting == held.meeting && !held.leaving) hold(own_meeting);
  if (own_member != held.member) watch.arrived[own_meeting]++;
  if (own_meeting > watch.last_meeting.load()) watch.last_meeting.store(own_meeting);
}

void leave(const void *) {
  const Held &held = watch.held;
  own_meeting++;
  if (own_member == held.member && own_meeting == held.meeting + 1 && held.leaving) hold(own_meeting);
}

const sie::hooks::Hooks hooks = {nullptr, nullptr, nullptr, begin_ticket, arrive, leave, nullptr};

bool same_results(const Result &a, const Result &b) {
  return same_bits(a.rows, b.rows) && same_bits(a.values, b.values);
}

// Runs both batches at once with one member held, and gives the results.
void run_held(Model *m, const Batch &first, const Batch &second, const Held &held, int members, Result *a,
              Result *b) {
  watch.held = held;
  watch.members = members;
  watch.next_done.store(false);
  for (std::atomic<int> &n : watch.arrived) n.store(0);
  watch.times_held.store(0);
  sie::hooks::installed.store(&hooks);
  const sie_status one = submit(m, 0, first), two = submit(m, 1, second);
  CHECK(one == SIE_OK && two == SIE_OK, "submit: %s", m->err.message);
  *b = wait(m, 1, second);
  watch.next_done.store(true);
  *a = wait(m, 0, first);
  sie::hooks::installed.store(nullptr);
}

// A team that is held at every meeting, of `tokens` rows.
void hold_everywhere(const model::Path &path, int threads, int tokens) {
  Shape shape;
  Model solo, team;
  CHECK(solo.open(SIE_DEVICE_CPU, path.isa, 1, path.compute, shape) == SIE_OK, "%s", solo.err.message);
  CHECK(team.open(SIE_DEVICE_CPU, path.isa, threads, path.compute, shape) == SIE_OK, "%s", team.err.message);
  if (solo.arena == nullptr || team.arena == nullptr) return;
  team.program->late_limit = 3 * shape.ffn * 4;  // groups of three rows
  // First one sequence, which is one slab for a team; then at least one slab for each executor.
  Batch first, second;
  first.add(shape, 1, tokens);
  for (int i = 0; i < 4; i++) second.add(shape, 10 + i, 80 + 20 * i);
  const Result want_first = run(&solo, first), want_second = run(&solo, second);
  watch.last_meeting.store(0);
  Result a, b;
  run_held(&team, first, second, {-1, 0, false}, threads, &a, &b);
  CHECK(same_results(a, want_first) && same_results(b, want_second), "%s: differs unheld", path.name);
  const int meetings = watch.last_meeting.load() + 1;
  CHECK(meetings > 10 && meetings < max_meetings, "%d meetings", meetings);
  for (int meeting = 0; meeting < meetings; meeting++) {
    for (int member = 0; member < threads; member++) {
      for (bool leaving : {false, true}) {
        run_held(&team, first, second, {member, meeting, leaving}, threads, &a, &b);
        CHECK(watch.times_held.load() == 1, "%s: member %d was held %d times at meeting %d", path.name,
              member, watch.times_held.load(), meeting);
        CHECK(same_results(a, want_first) && same_results(b, want_second),
              "%s: other bits with member %d of %d held %s meeting %d of %d", path.name, member, threads,
              leaving ? "behind" : "before", meeting, meetings);
      }
    }
  }
}

// How often a team meets in a run of one sequence: before the first operation, after each, and in a late
// one twice for a group of rows, but for the last meeting of it.
int meetings_of(const sie_program &p, int64_t tokens, int32_t members, int64_t group) {
  int64_t meetings = 1;
  for (const sie::PlannedOp &planned : p.plan) {
    meetings++;
    if (planned.op.kind != SIE_OP_LINEAR || planned.out.present || !planned.quantised.present) continue;
    if (8 * tokens < planned.op.weights[0]->k * (members - 1))
      meetings += 2 * ((tokens + group - 1) / group) - 1;
  }
  return static_cast<int>(meetings);
}

// Where a lane's late rows lie: behind its scratch and its values, and before the next lane.
char *late_rows_of(const Model &m, int32_t lane) {
  const sie_program &p = *m.program;
  CHECK(p.scratch_bytes + p.values_bytes + p.late_bytes <= m.arena->lane_stride, "lanes overlap");
  return m.arena->memory.at(lane * m.arena->lane_stride + p.scratch_bytes + p.values_bytes);
}

}  // namespace

TEST(teams_wait_for_every_member_everywhere) {
  for (const model::Path &path : model::machine_paths()) {
    if (path.isa != model::least_isa) continue;  // other paths differ only in kernels
    for (int threads : {2, 3}) {
      for (int tokens : {47, 7}) {
        if (model::whole() || (threads == 2) == (tokens == 47)) hold_everywhere(path, threads, tokens);
      }
    }
  }
}

// Few rows beside many columns are computed by columns, in groups; the bits are those of one executor.
TEST(teams_quantise_late) {
  for (const model::Path &path : model::machine_paths()) {
    if (path.compute != SIE_COMPUTE_INT8) continue;
    Shape shape;
    Model solo;
    CHECK(solo.open(SIE_DEVICE_CPU, path.isa, 1, path.compute, shape) == SIE_OK, "%s", solo.err.message);
    CHECK(solo.program->late_bytes == 0, "%lld bytes for an executor that has no team",
          static_cast<long long>(solo.program->late_bytes));
    for (int threads : {2, 3, 5, 18}) {
      Model team;
      CHECK(team.open(SIE_DEVICE_CPU, path.isa, threads, path.compute, shape) == SIE_OK, "%s",
            team.err.message);
      if (solo.arena == nullptr || team.arena == nullptr) return;
      // All 512 rows of a slab fit.
      CHECK(team.program->late_bytes == 512 * shape.ffn * 4, "%lld bytes of late rows",
            static_cast<long long>(team.program->late_bytes));
      const int members = threads < 16 ? threads : 16;
      for (int group : {1, 5, 1000}) {
        team.program->late_limit = int64_t{group} * shape.ffn * 4;
        for (int tokens : {1, 2, 7, 8, 15, 16, 17, 33, 120, 300}) {
          Batch batch;
          batch.add(shape, 1, tokens);
          const Result want = run(&solo, batch);
          const size_t bytes = static_cast<size_t>(team.program->late_bytes);
          for (int32_t lane = 0; lane < threads; lane++) memset(late_rows_of(team, lane), 0xff, bytes);
          sie::hooks::installed.store(&hooks);
          watch.held = {-1, 0, false};
          watch.last_meeting.store(0);
          const Result got = run(&team, batch);
          sie::hooks::installed.store(nullptr);
          CHECK(got.status == SIE_OK && same_results(got, want), "%s: %d tokens differ with %d executors",
                path.name, tokens, threads);
          const int expected = meetings_of(*team.program, tokens, members, group),
                    meetings = watch.last_meeting.load() + 1;
          // All late rows of a group lie there: those of the last one, or of one before it.
          int64_t floats = 0;
          for (int32_t lane = 0; lane < threads; lane++) {
            const uint32_t *const word = reinterpret_cast<const uint32_t *>(late_rows_of(team, lane));
            for (size_t i = 0; i < bytes / 4; i++) floats += word[i] != 0xffffffff;
          }
          const bool late = expected > 1 + team.program->plan.size();
          CHECK(floats == (late ? std::min(group, tokens) * shape.ffn : 0), "%s: %d tokens leave %lld floats",
                path.name, tokens, static_cast<long long>(floats));
          CHECK(meetings == expected, "%s: %d executors meet %d times for %d tokens, not %d", path.name,
                threads, meetings, tokens, expected);
        }
      }
    }
  }
}
