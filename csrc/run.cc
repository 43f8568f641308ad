// run.cc — arenas, and a loaded batch's way through the executors.
#include "gpu.h"
#include "slot.h"
#include "status.h"

using namespace sie;

namespace {

void note_failure(sie_slot *slot, int32_t op, sie_status status) {
  int32_t none = -1;
  if (slot->failed_op.compare_exchange_strong(none, op, std::memory_order_relaxed)) slot->failure = status;
}

Replay make_replay(sie_slot *slot, int32_t slab, int32_t member, int32_t executor) {
  const sie_arena *arena = slot->arena;
  Replay replay = {};
  replay.program = slot->program;
  replay.slab = static_cast<const Slab *>(slot->slabs.p) + slab;
  replay.tokens = {slot->program->slab_tokens, &replay.slab->n_tokens};
  replay.kept = {slot->program->slab_tokens, &replay.slab->n_kept};
  replay.seqs = {slot->program->slab_seqs, &replay.slab->n_seqs};
  replay.lora_pairs = slot->program->lora_pairs.begin();
  replay.one_row_each = static_cast<const int32_t *>(slot->program->one_row_each.p);
  replay.share = {member, slot->team, arena->memory.at(executor * arena->lane_stride),
                  slot->program->scratch_bytes, nullptr};
  for (uint32_t i = 0; i < slot->caps.n_outputs; i++) replay.outputs[i] = slot->outputs[i].p;
  return replay;
}

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

// One member's part. After every operation all members meet, so each sees what the others wrote; the last
// meeting keeps the lane until nobody reads it any more.
void run_in_team(sie_slot *slot, int32_t slab, int32_t member, int32_t executor) {
  Team &team = static_cast<Team *>(slot->teams.p)[slab];
  Replay replay = make_replay(slot, slab, member, executor);
  if (member == 0) team.lane.store(executor, std::memory_order_relaxed);
  team.barrier.arrive_and_wait(slot->team);
  replay.values = lane_values(slot, team.lane.load(std::memory_order_relaxed));
  int32_t ops = static_cast<int32_t>(slot->program->plan.size());
  for (int32_t i = 0; i < ops; i++) {
    sie_status status = replay_op(replay, i);
    if (status != SIE_OK) {
      note_failure(slot, i, status);
      int32_t first = team.failed_op.load(std::memory_order_relaxed);
      while (i < first && !team.failed_op.compare_exchange_weak(first, i, std::memory_order_relaxed))
        continue;
    }
    team.barrier.arrive_and_wait(slot->team);
    // A member may be ahead and have failed later: all leave at the same operation.
    if (team.failed_op.load(std::memory_order_relaxed) <= i) return;
  }
}

void run_ticket(Run *run, int32_t slab, int32_t member, int32_t executor) {
  sie_slot *slot = static_cast<sie_slot *>(run);
  if (slot->team == 1) {
    run_alone(slot, slab, executor);
  } else {
    run_in_team(slot, slab, member, executor);
  }
}

// Executors that share one slab when there are fewer slabs than executors.
int32_t team_size(const sie_slot *slot) {
  if (slot->n_slabs == 0) return 1;
  int32_t members = slot->device->threads / slot->n_slabs;
  return members < 1 ? 1 : (members < max_team ? members : max_team);
}

}  // namespace

sie_status sie_arena_create(sie_device *device, size_t workspace, sie_arena **arena, sie_error *err) {
  SIE_FAIL_IF(arena == nullptr, SIE_INVALID_ARGUMENT, err, "arena is NULL");
  *arena = nullptr;
  SIE_FAIL_IF(device == nullptr, SIE_INVALID_ARGUMENT, err, "device is NULL");
  size_t lanes = static_cast<size_t>(device->threads);
  SIE_FAIL_IF(workspace < lanes * 64, SIE_INVALID_ARGUMENT, err, "a workspace of %zu bytes; at least %zu",
              workspace, lanes * 64);
  sie_arena *a = new_object<sie_arena>();
  SIE_FAIL_IF(a == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for an arena");
  if (!device->is_gpu() && !allocate(workspace, &a->memory)) {
    destroy_object(a);
    return fail(err, SIE_OUT_OF_MEMORY, "no memory for an arena of %zu bytes", workspace);
  }
  a->device = device;
  a->bytes = static_cast<int64_t>(device->is_gpu() ? workspace : a->memory.bytes);
  a->lane_stride = static_cast<int64_t>(workspace / lanes / 64 * 64);
  *arena = a;
  return SIE_OK;
}

void sie_arena_free(sie_arena *arena) {
  if (arena == nullptr) return;
  release(&arena->memory);
  destroy_object(arena);
}

int64_t sie_arena_bytes(const sie_arena *arena) { return arena != nullptr ? arena->bytes : 0; }

sie_status sie_arena_place(sie_arena *arena, void *memory, void *const outputs[4],
                           const int64_t output_bytes[4], sie_error *err) {
  SIE_FAIL_IF(arena == nullptr || memory == nullptr || outputs == nullptr || output_bytes == nullptr,
              SIE_INVALID_ARGUMENT, err, "arena, memory, outputs or output_bytes is NULL");
  SIE_FAIL_IF(!arena->device->is_gpu(), SIE_INVALID_ARGUMENT, err, "only arenas of a GPU are placed");
  SIE_FAIL_IF(reinterpret_cast<uintptr_t>(memory) % 256 != 0, SIE_INVALID_ARGUMENT, err,
              "memory is not aligned to 256 bytes");
  for (int32_t i = 0; i < max_outputs; i++) {
    SIE_FAIL_IF(reinterpret_cast<uintptr_t>(outputs[i]) % 256 != 0, SIE_INVALID_ARGUMENT, err,
                "the memory of output %d is not aligned to 256 bytes", i);
    SIE_FAIL_IF(output_bytes[i] < 0 || (output_bytes[i] > 0 && outputs[i] == nullptr), SIE_INVALID_ARGUMENT,
                err, "output %d has %lld bytes at NULL", i, static_cast<long long>(output_bytes[i]));
  }
  arena->placed = static_cast<char *>(memory);
  for (int32_t i = 0; i < max_outputs; i++) {
    arena->outputs[i] = outputs[i];
    arena->output_bytes[i] = output_bytes[i];
  }
  arena->number = ++arena->device->arenas;
  return SIE_OK;
}

sie_status sie_program_submit(sie_program *program, sie_arena *arena, sie_slot *slot, sie_error *err) {
  SIE_FAIL_IF(program == nullptr || arena == nullptr || slot == nullptr, SIE_INVALID_ARGUMENT, err,
              "program, arena or slot is NULL");
  SIE_FAIL_IF(program->device != slot->device || program->device != arena->device, SIE_INVALID_ARGUMENT, err,
              "program, arena and slot are not of one device");
  SIE_FAIL_IF(slot->state.load(std::memory_order_acquire) != run_loaded || slot->program_serial != program->serial,
              SIE_INVALID_ARGUMENT, err, "the slot is not loaded with a batch for this program");
  if (slot->device->is_gpu()) {
    SIE_TRY(gpu_submit(program, arena, slot, err));
    slot->state.store(run_started, std::memory_order_release);
    return SIE_OK;
  }
  SIE_FAIL_IF(arena->lane_stride < lane_bytes(program), SIE_INVALID_ARGUMENT, err,
              "the arena has %lld bytes an executor; the program needs %lld",
              static_cast<long long>(arena->lane_stride), static_cast<long long>(lane_bytes(program)));
  slot->arena = arena;
  slot->failed_op.store(-1, std::memory_order_relaxed);
  slot->failure = SIE_OK;
  slot->work = run_ticket;
  slot->team = team_size(slot);
  slot->tickets = slot->n_slabs * slot->team;
  for (int32_t s = 0; slot->team > 1 && s < slot->n_slabs; s++)
    new (static_cast<Team *>(slot->teams.p) + s) Team();
  SIE_FAIL_IF(!slot->device->executors.submit(slot), SIE_INVALID_ARGUMENT, err,
              "%d runs are in flight; wait for one of their slots", max_runs);
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
  slot->state.store(run_idle, std::memory_order_release);
  SIE_FAIL_IF(op >= 0, failure, err, "operation %d (%s) failed with status %d", op,
              op_name(program->plan[op].op.kind), static_cast<int>(failure));
  return SIE_OK;
}
