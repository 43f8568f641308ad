// run.cc — arenas, and how executors run a loaded batch.
#include <algorithm>

#include "gpu.h"
#include "node_memory.h"
#include "run_parts.h"
#include "status.h"

namespace sie {

namespace {

void note_failure(sie_slot *slot, int32_t op, sie_status status) {
  int32_t none = -1;
  if (slot->failed_op.compare_exchange_strong(none, op, std::memory_order_relaxed)) slot->failure = status;
}

}  // namespace

Replay make_replay(sie_slot *slot, int32_t slab, int32_t member, int32_t executor) {
  const sie_arena *arena = slot->arena;
  Replay replay = {};
  replay.program = slot->program;
  replay.slab = static_cast<const Slab *>(slot->slabs.p) + slab;
  for (int32_t s = 1; s <= max_spaces; s++) {
    int64_t cap = s == slot->program->seqs ? slot->program->slab_seqs : slot->program->slab_tokens;
    replay.rows[s] = {cap, &replay.slab->spaces[s].n};
  }
  replay.lora_pairs = slot->program->lora_pairs.begin();
  replay.one_row_each = static_cast<const int32_t *>(slot->program->one_row_each.p);
  replay.share = {member, shares_of(slot)[slab].members, arena->memory.at(executor * arena->lane_stride),
                  slot->program->scratch_bytes, nullptr};
  replay.node = slot->device->seats.places[executor];
  for (uint32_t i = 0; i < slot->caps.n_outputs; i++) replay.outputs[i] = slot->outputs[i].p;
  replay.nonfinite = static_cast<int32_t *>(slot->nonfinite.p);
  if (slot->kept != nullptr) {
    replay.state = slot->kept->base();
    replay.state_rows = slot->kept_cap;
  }
  return replay;
}

void note_team_failure(sie_slot *slot, Team *team, Step step, sie_status status) {
  note_failure(slot, step.op, status);
  int32_t first = team->failed_step.load(std::memory_order_relaxed);
  while (step.number < first &&
         !team->failed_step.compare_exchange_weak(first, step.number, std::memory_order_relaxed)) {
    continue;
  }
}

bool has_failed(const Team &team, int32_t step) {
  return team.failed_step.load(std::memory_order_relaxed) <= step;
}

}  // namespace sie

using namespace sie;

namespace {

char *lane_values(const sie_slot *slot, int32_t lane) {
  return slot->arena->memory.at(lane * slot->arena->lane_stride + slot->program->scratch_bytes);
}

void run_alone(sie_slot *slot, int32_t slab, int32_t executor) {
  Replay replay = make_replay(slot, slab, 0, executor);
  replay.values = lane_values(slot, executor);
  int32_t ops = static_cast<int32_t>(slot->program->plan.size());
  for (int32_t i = 0; i < ops; i++) {
    sie_status status = replay_op(replay, i);
    if (status != SIE_OK) return note_failure(slot, i, status);
  }
}

// Runs a member's part of a late operation. A member that fails goes on to every meeting, as the others do.
sie_status run_late(const Replay &replay, int32_t index, Team *team) {
  const int64_t group = late_rows(replay, index);
  const PlannedOp &planned = replay.program->plan[index];
  const int64_t rows = *replay.rows[replay.program->values[planned.op.out].space].n;
  sie_status status = SIE_OK;
  for (int64_t first = 0; first < rows; first += group) {
    const int32_t count = static_cast<int32_t>(std::min(group, rows - first));
    if (first > 0) team->barrier.arrive_and_wait(replay.share.parts);
    const sie_status columns = replay_columns(replay, index, first, count);
    team->barrier.arrive_and_wait(replay.share.parts);
    const sie_status levels = replay_levels(replay, index, first, count);
    if (status == SIE_OK) status = columns != SIE_OK ? columns : levels;
  }
  return status;
}

// Runs one member's part. After every operation all members meet, so each sees what the others
// wrote. The last meeting keeps member 0's arena lane until no member reads it any more.
void run_in_team(sie_slot *slot, int32_t slab, int32_t member, int32_t executor) {
  Team &team = static_cast<LongTeam *>(slot->teams.p)[slab];
  const int32_t members = shares_of(slot)[slab].members;
  Replay replay = make_replay(slot, slab, member, executor);
  if (member == 0) team.lane.store(executor, std::memory_order_relaxed);
  team.barrier.arrive_and_wait(members);
  replay.values = lane_values(slot, team.lane.load(std::memory_order_relaxed));
  if (slot->program->late_bytes > 0) {
    replay.late = reinterpret_cast<float *>(replay.values + slot->program->values_bytes);
  }
  int32_t ops = static_cast<int32_t>(slot->program->plan.size());
  for (int32_t i = 0; i < ops; i++) {
    sie_status status = quantises_late(replay, i) ? run_late(replay, i, &team) : replay_op(replay, i);
    if (status != SIE_OK) note_team_failure(slot, &team, {i, i}, status);
    team.barrier.arrive_and_wait(members);
    if (has_failed(team, i)) return;
  }
}

void run_ticket(Run *run, int32_t slab, int32_t member, int32_t executor) {
  sie_slot *slot = static_cast<sie_slot *>(run);
  if (slab < slot->n_long) {
    lead_long(slot, slab, executor);
  } else if (slab >= slot->n_slabs) {
    help_long(slot, executor);
  } else if (shares_of(slot)[slab].members == 1) {
    run_alone(slot, slab, executor);
  } else {
    run_in_team(slot, slab, member, executor);
  }
}

// Asks for each node's lanes on the node, and for the region, which all executors use, on the nodes
// in turn. A refusal costs only speed: executors touch their lanes first.
void place_arena(const sie_arena &arena) {
  const Seats &seats = arena.device->seats;
  if (!has_nodes(seats) || !arena.memory.mapped) return;  // a GPU's has no memory here
  int64_t begin = 0;
  for (int32_t node = 0; node < seats.nodes; node++) {
    int64_t bytes = arena.lane_stride * arena.device->node_executors[node];
    place_pages(arena.memory.at(begin), static_cast<size_t>(bytes), seats.numbers + node, 1);
    begin += bytes;
  }
  place_pages(arena.memory.at(begin), static_cast<size_t>(arena.region_bytes), seats.numbers, seats.nodes);
}

}  // namespace

sie_status sie_arena_create(sie_device *device, const sie_workspace *workspace, sie_arena **arena,
                            sie_error *err) {
  SIE_FAIL_IF(arena == nullptr, SIE_INVALID_ARGUMENT, err, "arena is NULL");
  *arena = nullptr;
  SIE_FAIL_IF(device == nullptr || workspace == nullptr, SIE_INVALID_ARGUMENT, err,
              "device or workspace is NULL");
  constexpr int64_t most = int64_t{1} << 46;
  SIE_FAIL_IF(
      workspace->lane < 64 || workspace->lane > most || workspace->region < 0 || workspace->region > most,
      SIE_INVALID_ARGUMENT, err, "a workspace of %lld bytes a lane and %lld in the region; at least 64 and 0",
      static_cast<long long>(workspace->lane), static_cast<long long>(workspace->region));
  int64_t stride = round_up(workspace->lane, 64),
          bytes = stride * device->threads + round_up(workspace->region, 64);
  sie_arena *a = new_object<sie_arena>();
  SIE_FAIL_IF(a == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for an arena");
  if (!device->is_gpu() && !allocate(static_cast<size_t>(bytes), &a->memory)) {
    destroy_object(a);
    return fail(err, SIE_OUT_OF_MEMORY, "no memory for an arena of %lld bytes",
                static_cast<long long>(bytes));
  }
  a->device = device;
  a->bytes = device->is_gpu() ? bytes : static_cast<int64_t>(a->memory.bytes);
  a->lane_stride = stride;
  a->region = stride * device->threads;
  a->region_bytes = round_up(workspace->region, 64);
  place_arena(*a);
  *arena = a;
  return SIE_OK;
}

void sie_arena_free(sie_arena *arena) {
  if (arena == nullptr) return;
  release(&arena->memory);
  destroy_object(arena);
}

int64_t sie_arena_bytes(const sie_arena *arena) { return arena != nullptr ? arena->bytes : 0; }

sie_status sie_arena_place(sie_arena *arena, void *memory, uint32_t n_outputs, void *const *outputs,
                           const int64_t *output_bytes, sie_error *err) {
  bool lists = n_outputs == 0 || (outputs != nullptr && output_bytes != nullptr);
  SIE_FAIL_IF(arena == nullptr || memory == nullptr || !lists, SIE_INVALID_ARGUMENT, err,
              "arena, memory, outputs or output_bytes is NULL");
  SIE_FAIL_IF(n_outputs > max_outputs, SIE_INVALID_ARGUMENT, err, "%u outputs; at most %d are possible",
              n_outputs, max_outputs);
  SIE_FAIL_IF(!arena->device->is_gpu(), SIE_INVALID_ARGUMENT, err, "only arenas of a GPU are placed");
  SIE_FAIL_IF(reinterpret_cast<uintptr_t>(memory) % 256 != 0, SIE_INVALID_ARGUMENT, err,
              "memory is not aligned to 256 bytes");
  for (uint32_t i = 0; i < n_outputs; i++) {
    SIE_FAIL_IF(reinterpret_cast<uintptr_t>(outputs[i]) % 256 != 0, SIE_INVALID_ARGUMENT, err,
                "the memory of output %u is not aligned to 256 bytes", i);
    SIE_FAIL_IF(output_bytes[i] < 0 || (output_bytes[i] > 0 && outputs[i] == nullptr), SIE_INVALID_ARGUMENT,
                err, "output %u has %lld bytes at NULL", i, static_cast<long long>(output_bytes[i]));
  }
  arena->placed = static_cast<char *>(memory);
  for (uint32_t i = 0; i < max_outputs; i++) {
    arena->outputs[i] = i < n_outputs ? outputs[i] : nullptr;
    arena->output_bytes[i] = i < n_outputs ? output_bytes[i] : 0;
  }
  arena->number = ++arena->device->arenas;
  return SIE_OK;
}

sie_status sie_program_submit(sie_program *program, sie_arena *arena, sie_slot *slot, sie_state *state,
                              sie_error *err) {
  SIE_FAIL_IF(program == nullptr || arena == nullptr || slot == nullptr, SIE_INVALID_ARGUMENT, err,
              "program, arena or slot is NULL");
  SIE_FAIL_IF(program->device != slot->device || program->device != arena->device, SIE_INVALID_ARGUMENT, err,
              "program, arena and slot are not of one device");
  SIE_FAIL_IF(state != nullptr && state->device != slot->device, SIE_INVALID_ARGUMENT, err,
              "the state is of another device");
  SIE_FAIL_IF(
      slot->state.load(std::memory_order_acquire) != run_loaded || slot->program_serial != program->serial,
      SIE_INVALID_ARGUMENT, err, "the slot is not loaded with a batch for this program");
  SIE_TRY(take_state(slot, program, state, err));
  if (slot->device->is_gpu()) {
    SIE_TRY(gpu_submit(program, arena, slot, err));
    slot->state.store(run_started, std::memory_order_release);
    return SIE_OK;
  }
  SIE_FAIL_IF(arena->lane_stride < lane_bytes(program) || arena->region_bytes < region_bytes(program),
              SIE_INVALID_ARGUMENT, err,
              "the arena has lanes of %lld bytes and a region of %lld; the program needs %lld and %lld",
              static_cast<long long>(arena->lane_stride), static_cast<long long>(arena->region_bytes),
              static_cast<long long>(lane_bytes(program)), static_cast<long long>(region_bytes(program)));
  slot->arena = arena;
  slot->failed_op.store(-1, std::memory_order_relaxed);
  slot->failure = SIE_OK;
  slot->work = run_ticket;
  plan_run(slot);
  const StateWrite write = write_of(slot);
  const int64_t rows = begin_write(write);
  if (!slot->device->executors.submit(slot)) {
    if (write.state != nullptr) write.state->rows = rows;
    return fail(err, SIE_INVALID_ARGUMENT, "%d runs are in flight; wait for one of their slots", max_runs);
  }
  if (slot->yields) arena->long_runs++;
  return SIE_OK;
}

sie_status sie_slot_wait(sie_slot *slot, sie_error *err) {
  SIE_FAIL_IF(slot == nullptr, SIE_INVALID_ARGUMENT, err, "slot is NULL");
  uint32_t state = slot->state.load(std::memory_order_acquire);
  SIE_FAIL_IF(state != run_started && state != run_done, SIE_INVALID_ARGUMENT, err,
              "the slot has no run to wait for");
  if (slot->device->is_gpu()) {
    slot->state.store(run_idle, std::memory_order_release);
    return SIE_OK;
  }
  slot->device->executors.wait(slot);
  const sie_program *program = slot->program;
  int32_t op = slot->failed_op.load(std::memory_order_relaxed);
  sie_status failure = slot->failure;
  const StateWrite write = write_of(slot);
  uint32_t done = run_done;
  SIE_FAIL_IF(!slot->state.compare_exchange_strong(done, run_idle, std::memory_order_acq_rel),
              SIE_INVALID_ARGUMENT, err, "another thread has waited for the slot's run");
  SIE_FAIL_IF(op >= 0, failure, err, "operation %d (%s) failed with status %d", op,
              op_name(program->plan[op].op.kind), static_cast<int>(failure));
  end_write(write);
  return SIE_OK;
}
