// run_long.cc — how executors run a long slab: step by step, with other runs' tickets in between,
// and as many of them as have nothing else to do.
#include "cut.h"
#include "long_team.h"
#include "replay_parts.h"
#include "run_parts.h"

namespace sie {

namespace {

// Lets the executor of a long slab do tickets of other runs.
class Others final : public Pause {
 public:
  Others(Executors *executors, int32_t executor) : executors_(executors), executor_(executor) {}
  void take() override { executors_->do_others(executor_); }

 private:
  Executors *executors_;
  int32_t executor_;
};

LongTeam *team_of(sie_slot *slot, int32_t slab) { return static_cast<LongTeam *>(slot->teams.p) + slab; }

// The rows that go through a stage; 1 where its operations are not cut into rows.
int64_t rows_through(const Replay &replay, int32_t stage) {
  return replay.program->plan[stage].cut == Cut::rows ? rows_of_stage(replay, stage) : 1;
}

// Goes on to the next stage that has rows, from `stage` on; false if there is none.
bool enter(const Replay &replay, int32_t stage, LongStep *at) {
  const auto &plan = replay.program->plan;
  int32_t ops = static_cast<int32_t>(plan.size());
  while (stage < ops && rows_through(replay, stage) == 0) stage = plan[stage].stage_end;
  at->stage = at->op = stage;
  at->row = 0;
  return stage < ops;
}

// Goes on to the step after this one; false if it was the last.
bool advance(const Replay &replay, LongStep *at) {
  at->number++;
  int32_t end = replay.program->plan[at->stage].stage_end;
  if (++at->op < end) return true;
  at->op = at->stage;
  at->row += replay.stage_cap;
  return at->row < rows_through(replay, at->stage) || enter(replay, end, at);
}

// Runs a member's part of the steps from `at` on. Members meet after each step. All leave after the
// first step at which one of them failed.
void run_steps(sie_slot *slot, LongTeam *team, Replay *replay, int32_t executor, LongStep at) {
  Executors &executors = slot->device->executors;
  Others others(&executors, executor);
  for (bool more = true; more;) {
    int64_t rows = rows_through(*replay, at.stage);
    replay->share.parts = team->members();
    replay->stage_first = at.row;
    replay->stage_n = rows - at.row < replay->stage_cap ? rows - at.row : replay->stage_cap;
    sie_status status = replay_blocks(*replay, at.op, &others);
    if (status != SIE_OK) note_team_failure(slot, team, {at.op, at.number}, status);
    int32_t done = at.number;
    more = advance(*replay, &at);
    executors.meet(&team->barrier, team->members(), executor,
                   [team, &at, more, done] { return more && !has_failed(*team, done) && team->admit(at); });
    others.take();
    if (has_failed(*team, done)) return;
  }
}

// The slab's values lie in the region; the executor's whole lane is scratch.
Replay replay_of(sie_slot *slot, int32_t slab, int32_t member, int32_t executor) {
  const sie_arena *arena = slot->arena;
  Replay replay = make_replay(slot, slab, member, executor);
  replay.values = arena->memory.at(arena->region + replay.slab->place);
  replay.long_cap = long_cap(replay.slab->max_len);
  replay.stage_cap = stage_cap(slot->program, replay.slab->max_len);
  for (int32_t s = 1; s <= max_spaces; s++) {
    replay.rows[s].cap = s == slot->program->seqs ? 1 : replay.long_cap;
  }
  replay.share.scratch_bytes = arena->lane_stride;
  return replay;
}

// Asks the long slab with the smallest team; among equal ones the most expensive, which comes
// first. Returns its number, or -1 if no team takes another member.
int32_t join_smallest(sie_slot *slot, int32_t *member) {
  for (;;) {
    int32_t smallest = -1, asked = max_team - 1;
    for (int32_t s = 0; s < slot->n_long; s++) {
      const LongTeam &team = *team_of(slot, s);
      if (team.closed() || team.asked() >= asked) continue;
      smallest = s;
      asked = team.asked();
    }
    if (smallest < 0 || team_of(slot, smallest)->ask(member)) return smallest;
  }
}

}  // namespace

void lead_long(sie_slot *slot, int32_t slab, int32_t executor) {
  Executors &executors = slot->device->executors;
  sie_arena *arena = slot->arena;
  LongTeam *team = team_of(slot, slab);
  Replay replay = replay_of(slot, slab, 0, executor);
  executors.wait_for(executor, [slot, arena, &replay] {
    return arena->long_done.load(std::memory_order_acquire) == slot->long_turn &&
           slot->n_long - slot->long_left.load(std::memory_order_acquire) >= replay.slab->after;
  });
  LongStep first = {};
  if (enter(replay, 0, &first)) run_steps(slot, team, &replay, executor, first);
  // After the last meeting no member reads the values any more.
  team->close();
  if (slot->long_left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    arena->long_done.fetch_add(1, std::memory_order_release);
  }
  executors.notify();
}

void help_long(sie_slot *slot, int32_t executor) {
  int32_t member;
  for (int32_t slab; (slab = join_smallest(slot, &member)) >= 0;) {
    LongTeam *team = team_of(slot, slab);
    slot->device->executors.wait_for(executor,
                                     [team, member] { return team->has(member) || team->closed(); });
    if (!team->has(member)) continue;
    hooks::takes_ticket(slab, member);
    Replay replay = replay_of(slot, slab, member, executor);
    run_steps(slot, team, &replay, executor, team->next());
  }
}

}  // namespace sie
