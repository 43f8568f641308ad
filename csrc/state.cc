// state.cc — state that outlives a batch: rows that one program writes and others read.
#include "gpu.h"
#include "grow.h"
#include "memory.h"
#include "slot.h"
#include "status.h"

using namespace sie;

namespace {

using ll = long long;

bool alike(const Segment &a, const Segment &b) { return a.columns == b.columns && a.dtype == b.dtype; }

// A run that writes takes the whole state. A GPU's segments lie where the program's bound on rows
// puts them, so that graphs find them in place.
int64_t cap_to_write(const sie_slot *slot, const sie_program *program) {
  return state_cap(slot->device->is_gpu() ? program->state.max_rows : slot->state_rows);
}

sie_status check_to_write(const sie_slot *slot, const sie_program *program, const sie_state *state,
                          sie_error *err) {
  int64_t cap = cap_to_write(slot, program);
  SIE_FAIL_IF(state == nullptr, SIE_INVALID_ARGUMENT, err, "state is NULL, but the program writes one");
  SIE_FAIL_IF(state->bytes < cap * program->state.row_bytes, SIE_INVALID_ARGUMENT, err,
              "the state has %lld bytes; the program needs %lld", static_cast<ll>(state->bytes),
              static_cast<ll>(cap * program->state.row_bytes));
  return SIE_OK;
}

sie_status check_to_read(const sie_slot *slot, const sie_program *program, const sie_state *state,
                         sie_error *err) {
  SIE_FAIL_IF(state == nullptr, SIE_INVALID_ARGUMENT, err, "state is NULL, but the batch names rows of one");
  SIE_FAIL_IF(slot->state_rows > state->rows, SIE_INVALID_ARGUMENT, err,
              "the batch names %lld rows of the state; %lld are written", static_cast<ll>(slot->state_rows),
              static_cast<ll>(state->rows));
  for (int32_t i = 1; i <= SIE_MAX_SEGMENTS; i++) {
    const Segment &want = program->state.segments[i], &have = state->segments[i];
    if (want.columns == 0) continue;
    SIE_FAIL_IF(!alike(want, have) || want.before != have.before, SIE_INVALID_ARGUMENT, err,
                "segment %d of the state is %s of %lld columns; the program reads %s of %lld, with the same "
                "segments before it",
                i, dtype_name(have.dtype), static_cast<ll>(have.columns), dtype_name(want.dtype),
                static_cast<ll>(want.columns));
  }
  return SIE_OK;
}

}  // namespace

namespace sie {

sie_status take_state(sie_slot *slot, const sie_program *program, sie_state *state, sie_error *err) {
  slot->kept = nullptr;
  slot->kept_cap = 0;
  bool writes = program->state.writes();
  if (!writes && slot->state_rows == 0) return SIE_OK;
  SIE_TRY(writes ? check_to_write(slot, program, state, err) : check_to_read(slot, program, state, err));
  SIE_FAIL_IF(slot->device->is_gpu() && state->placed == nullptr, SIE_INVALID_ARGUMENT, err,
              "the state is not placed");
  slot->kept = state;
  slot->kept_writes = writes;
  slot->kept_cap = writes ? cap_to_write(slot, program) : state->cap;
  return SIE_OK;
}

StateWrite write_of(const sie_slot *slot) {
  return {slot->kept_writes ? slot->kept : nullptr, slot->program, slot->state_rows, slot->kept_cap};
}

int64_t begin_write(const StateWrite &write) {
  if (write.state == nullptr) return 0;
  int64_t rows = write.state->rows;
  write.state->rows = 0;
  return rows;
}

void end_write(const StateWrite &write) {
  sie_state *state = write.state;
  if (state == nullptr) return;
  state->rows = write.rows;
  state->cap = write.cap;
  for (int32_t i = 1; i <= SIE_MAX_SEGMENTS; i++) state->segments[i] = write.program->state.segments[i];
}

}  // namespace sie

sie_status sie_state_create(sie_device *device, const sie_state_desc *desc, sie_state **state,
                            sie_error *err) {
  SIE_FAIL_IF(state == nullptr, SIE_INVALID_ARGUMENT, err, "state is NULL");
  *state = nullptr;
  sie_state_desc known;
  SIE_FAIL_IF(device == nullptr, SIE_INVALID_ARGUMENT, err, "device is NULL");
  SIE_TRY(take(desc, &known, "sie_state_desc", err));
  SIE_FAIL_IF(known.reserved != 0, SIE_INVALID_ARGUMENT, err, "reserved is %u, not 0", known.reserved);
  SIE_FAIL_IF(known.bytes < 0 || known.bytes > int64_t{1} << 46, SIE_INVALID_ARGUMENT, err,
              "bytes is %lld; 0 to %lld is possible", static_cast<ll>(known.bytes),
              static_cast<ll>(int64_t{1} << 46));
  sie_state *s = new_object<sie_state>();
  SIE_FAIL_IF(s == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for a state");
  s->device = device;
  s->bytes = known.bytes;
  if (!device->is_gpu() && !allocate(static_cast<size_t>(known.bytes), &s->memory)) {
    destroy_object(s);
    return fail(err, SIE_OUT_OF_MEMORY, "no memory for a state of %lld bytes", static_cast<ll>(known.bytes));
  }
  *state = s;
  return SIE_OK;
}

void sie_state_free(sie_state *state) {
  if (state == nullptr) return;
  release(&state->memory);
  destroy_object(state);
}

int64_t sie_state_bytes(const sie_state *state) { return state != nullptr ? state->bytes : 0; }

int64_t sie_program_state_bytes(const sie_program *program) {
  if (program == nullptr || !program->ended) return 0;
  return state_cap(program->state.max_rows) * program->state.row_bytes;
}

sie_status sie_state_place(sie_state *state, void *memory, sie_error *err) {
  SIE_FAIL_IF(state == nullptr || memory == nullptr, SIE_INVALID_ARGUMENT, err, "state or memory is NULL");
  SIE_FAIL_IF(!state->device->is_gpu(), SIE_INVALID_ARGUMENT, err, "only states of a GPU are placed");
  SIE_FAIL_IF(reinterpret_cast<uintptr_t>(memory) % 256 != 0, SIE_INVALID_ARGUMENT, err,
              "memory is not aligned to 256 bytes");
  state->placed = static_cast<char *>(memory);
  state->rows = 0;
  state->number = ++state->device->arenas;
  return SIE_OK;
}
