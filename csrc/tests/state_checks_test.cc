// state_checks_test.cc — what a run asks of a state, and what a program may declare of one, at their
// bounds, on made-up objects.
#include <string.h>

#include <memory>
#include <string>

#include "record.h"
#include "says.h"
#include "slot.h"

namespace {

constexpr int32_t last_segment = SIE_MAX_SEGMENTS;

// A batch with `rows` rows for a program that writes a state of 100 bytes a row, or reads one.
struct Made {
  sie_device device;
  sie_program p;
  sie_slot slot;
  sie_state state;

  Made() {
    device.kind = SIE_DEVICE_CPU;
    p.device = slot.device = state.device = &device;
    slot.program = &p;
    p.state.declared = true;
    p.state.max_rows = 97;
    p.state.row_bytes = 100;
    p.state.segments[1] = {16, SIE_F32, 16, 0};
    p.state.segments[last_segment] = {9, SIE_BF16, 32, 64};
    slot.state_rows = 5;
    state.bytes = 800;
  }
  sie_status take(sie_error *err, bool with_state = true) {
    return sie::take_state(&slot, &p, with_state ? &state : nullptr, err);
  }
  // What a run does that is taken and ends well. Returns the rows that the state had.
  int64_t write() {
    const sie::StateWrite write = sie::write_of(&slot);
    const int64_t rows = sie::begin_write(write);
    CHECK(write.state == nullptr || state.rows == 0, "%lld rows while a run writes",
          static_cast<long long>(state.rows));
    sie::end_write(write);
    return rows;
  }
};

}  // namespace

// 5 rows take the room of 8.
TEST(states_take_what_is_written) {
  const auto m = std::make_unique<Made>();
  m->state.rows = 3, m->state.cap = 4;
  PASSES(m->take(&err));
  CHECK(m->slot.kept == &m->state && m->slot.kept_cap == 8, "room for %lld",
        static_cast<long long>(m->slot.kept_cap));
  CHECK(m->state.rows == 3 && m->state.cap == 4 && m->state.segments[1].columns == 0,
        "a state that is taken has %lld rows", static_cast<long long>(m->state.rows));
  CHECK(m->write() == 3, "other rows than it had");
  CHECK(m->state.rows == 5 && m->state.cap == 8, "%lld rows, room for %lld",
        static_cast<long long>(m->state.rows), static_cast<long long>(m->state.cap));
  for (int32_t i : {1, 2, last_segment}) {
    const sie::Segment &got = m->state.segments[i], &want = m->p.state.segments[i];
    CHECK(got.columns == want.columns && got.dtype == want.dtype && got.ld == want.ld &&
              got.before == want.before,
          "segment %d is not the program's", i);
  }
  m->state.bytes = 799;
  SAYS("the state has 799 bytes; the program needs 800", m->take(&err));
  CHECK(m->slot.kept == nullptr && m->slot.kept_cap == 0, "a refused state is kept");
  CHECK(m->write() == 0 && m->state.rows == 5, "a refused run leaves %lld rows",
        static_cast<long long>(m->state.rows));
  SAYS("state is NULL, but the program writes one", m->take(&err, false));
  m->slot.state_rows = 0;
  SAYS("state is NULL, but the program writes one", m->take(&err, false));
  PASSES(m->take(&err));
  m->write();
  CHECK(m->slot.kept == &m->state && m->state.rows == 0, "a run that writes nothing leaves %lld rows",
        static_cast<long long>(m->state.rows));
}

// On a GPU the room is the program's, not the batch's, and the state is placed first.
TEST(states_of_a_gpu_are_placed) {
  const auto m = std::make_unique<Made>();
  m->device.kind = SIE_DEVICE_CUDA;
  SAYS("the state has 800 bytes; the program needs 10000", m->take(&err));
  m->state.bytes = 10000;
  SAYS("not placed", m->take(&err));
  char memory[1];
  m->state.placed = memory;
  PASSES(m->take(&err));
  CHECK(m->slot.kept_cap == 100 && m->state.base() == memory, "room for %lld",
        static_cast<long long>(m->slot.kept_cap));
  m->device.kind = SIE_DEVICE_CPU;
  m->state.memory.p = &m->state;
  CHECK(m->state.base() == reinterpret_cast<char *>(&m->state), "a state of a CPU lies in its own memory");
  m->state.memory.p = nullptr;
}

TEST(states_are_read_as_far_as_they_are_written) {
  const auto m = std::make_unique<Made>();
  PASSES(m->take(&err));
  m->write();
  m->p.state.rows = 3;
  m->slot.state_rows = 4;
  PASSES(m->take(&err));
  CHECK(m->slot.kept == &m->state && m->slot.kept_cap == 8, "room for %lld",
        static_cast<long long>(m->slot.kept_cap));
  CHECK(m->write() == 0 && m->state.rows == 5, "a run that reads leaves %lld rows",
        static_cast<long long>(m->state.rows));
  m->slot.state_rows = 5;
  PASSES(m->take(&err));
  m->slot.state_rows = 6;
  SAYS("names 6 rows of the state; 5 are written", m->take(&err));
  SAYS("state is NULL, but the batch names rows of one", m->take(&err, false));
  m->slot.state_rows = 0;
  PASSES(m->take(&err, false));
  CHECK(m->slot.kept == nullptr, "a batch without prefixes keeps a state");
  m->slot.state_rows = 5;
  // A segment that the program does not read may be any; one that it reads is as it was written.
  m->state.segments[2] = {7, SIE_F32, 16, 0};
  PASSES(m->take(&err));
  auto differs = [&m](int32_t segment, sie::Segment change) {
    const sie::Segment was = m->state.segments[segment];
    m->state.segments[segment] = change;
    const std::string words = "segment " + std::to_string(segment) + " of the state is";
    SAYS(words.c_str(), m->take(&err));
    m->state.segments[segment] = was;
    PASSES(m->take(&err));
  };
  differs(1, {17, SIE_F32, 16, 0});
  differs(1, {16, SIE_BF16, 16, 0});
  differs(1, {16, SIE_F32, 16, 4});
  differs(last_segment, {10, SIE_BF16, 32, 64});
}

TEST(states_have_a_size) {
  const auto m = std::make_unique<Made>();
  sie_state_desc desc = sized<sie_state_desc>();
  sie_state *state = nullptr;
  auto create = [&](int64_t bytes, sie_error *err) {
    desc.bytes = bytes;
    return sie_state_create(&m->device, &desc, &state, err);
  };
  PASSES(create(0, &err));
  CHECK(sie_state_bytes(state) == 0 && state->memory.p != nullptr, "a state of no bytes");
  sie_state_free(state);
  PASSES(create(1000, &err));
  CHECK(sie_state_bytes(state) == 1000, "%lld bytes", static_cast<long long>(sie_state_bytes(state)));
  SAYS("only states of a GPU", sie_state_place(state, &desc, &err));
  sie_state_free(state);
  SAYS("0 to 70368744177664 is possible", create(-1, &err));
  SAYS("0 to 70368744177664 is possible", create((int64_t{1} << 46) + 1, &err));
  sie_error err = {};
  // No machine has it, but some promise it.
  const sie_status most = create(int64_t{1} << 46, &err);
  CHECK(most == SIE_OUT_OF_MEMORY || most == SIE_OK, "2^46 bytes: status %d: %s", most, err.message);
  sie_state_free(most == SIE_OK ? state : nullptr);
  desc.reserved = 1;
  SAYS("reserved is 1", create(1000, &err));
  desc.reserved = 0;
  SAYS("state is NULL", sie_state_create(&m->device, &desc, nullptr, &err));
  SAYS("device is NULL", sie_state_create(nullptr, &desc, &state, &err));
  CHECK(sie_state_bytes(nullptr) == 0, "no state has bytes");
  sie_state_free(nullptr);
  // A GPU's memory is the caller's.
  m->device.kind = SIE_DEVICE_CUDA;
  m->device.arenas = 6;
  PASSES(create(1000, &err));
  CHECK(state->memory.p == nullptr, "a GPU's state has memory of its own");
  state->rows = 8;
  char *const memory = reinterpret_cast<char *>(uintptr_t{256} * 257);
  SAYS("state or memory is NULL", sie_state_place(nullptr, memory, &err));
  SAYS("state or memory is NULL", sie_state_place(state, nullptr, &err));
  SAYS("not aligned to 256", sie_state_place(state, memory + 128, &err));
  SAYS("not aligned to 256", sie_state_place(state, memory + 257, &err));
  CHECK(state->rows == 8 && state->placed == nullptr, "a refused place changes the state");
  for (char *at : {memory, memory + 256}) {
    PASSES(sie_state_place(state, at, &err));
    CHECK(state->placed == at && state->rows == 0, "another place");
  }
  CHECK(state->number == 8, "the placement has the number %llu",
        static_cast<unsigned long long>(state->number));
  sie_state_free(state);
  // What a program needs.
  CHECK(sie_program_state_bytes(nullptr) == 0 && sie_program_state_bytes(&m->p) == 0, "not ended");
  m->p.ended = true;
  CHECK(sie_program_state_bytes(&m->p) == 100 * 100, "%lld bytes",
        static_cast<long long>(sie_program_state_bytes(&m->p)));
}

namespace {

// A program of up to 50 rows that has declared its spaces and two inputs of sequences.
struct Recording {
  sie_device device;
  sie_program p;
  sie_state_params params = sized<sie_state_params>();

  Recording() {
    device.kind = SIE_DEVICE_CPU;
    p.device = &device;
    p.rows = 1, p.seqs = 2;
    p.caps.max_rows = 50;
    p.spaces[1].kind = SIE_SPACE_ROWS, p.spaces[2].kind = SIE_SPACE_SEQS;
    for (sie_input i : {4, 5, 6}) {
      p.inputs[i].space = i == 6 ? 1 : 2;
      p.inputs[i].dtype = SIE_I32;
      p.inputs[i].optional = true;
      p.inputs[i].bound = int64_t{1} << 40;
      p.inputs[i].least = INT32_MIN;
    }
    CHECK(sie::reserve_value(&p, SIE_NO_VALUE), "no memory");
  }
  sie_status declare(int64_t max_rows, sie_input first, sie_input rows, sie_error *err) {
    params.max_rows = max_rows;
    params.first = first, params.rows = rows;
    p.state = {};
    return sie::record_state(&p, &params, err);
  }
};

}  // namespace

TEST(states_are_declared_within_bounds) {
  const auto m = std::make_unique<Recording>();
  constexpr int64_t most = 16777216;
  // A program that writes has room for each of its batches; one that reads may have less.
  PASSES(m->declare(50, 0, 0, &err));
  CHECK(m->p.state.declared && m->p.state.max_rows == 50 && m->p.state.writes() && !m->p.inputs[4].read,
        "declared otherwise");
  PASSES(m->declare(most, 0, 0, &err));
  SAYS("writes up to 50", m->declare(49, 0, 0, &err));
  for (int64_t rows : {int64_t{-1}, int64_t{0}, most + 1, int64_t{1} << 40}) {
    SAYS("1 to 16777216 is possible", m->declare(rows, 0, 0, &err));
    SAYS("1 to 16777216 is possible", m->declare(rows, 4, 5, &err));
  }
  CHECK(!m->p.state.declared && !m->p.inputs[4].read && !m->p.inputs[5].read, "a refused state is declared");
  PASSES(m->declare(most, 4, 5, &err));
  PASSES(m->declare(1, 4, 5, &err));
  CHECK(m->p.state.first == 4 && m->p.state.rows == 5 && m->p.state.reads(), "declared otherwise");
  for (sie_input i : {4, 5}) {
    CHECK(m->p.inputs[i].read && m->p.inputs[i].least == 0 && m->p.inputs[i].bound == 2,
          "input %d: %lld to %lld", i, static_cast<long long>(m->p.inputs[i].least),
          static_cast<long long>(m->p.inputs[i].bound));
  }
  SAYS("declared its state already", sie::record_state(&m->p, &m->params, &err));
  // Both inputs or none, two of sequences, whose values where they are left out are possible.
  SAYS("needs both inputs", m->declare(60, 4, 0, &err));
  SAYS("needs both inputs", m->declare(60, 0, 5, &err));
  SAYS("both input 4", m->declare(60, 4, 4, &err));
  SAYS("first is ", m->declare(60, 6, 5, &err));
  SAYS("rows is ", m->declare(60, 4, 6, &err));
  for (sie_input i : {4, 5}) {
    m->p.inputs[i].otherwise = 60;
    PASSES(m->declare(60, 4, 5, &err));
    m->p.inputs[i].otherwise = 61;
    SAYS("0 to 60 are possible", m->declare(60, 4, 5, &err));
    m->p.inputs[i].otherwise = 0;
  }
  auto unsupported = [&m](const char *words) {
    sie_error err = {};
    CHECK(m->declare(60, 0, 0, &err) == SIE_UNSUPPORTED && strstr(err.message, words) != nullptr, "%s",
          err.message);
  };
  m->p.many = true;
  unsupported("has more than one ROWS space");
  m->p.many = false, m->p.rows = 0;
  unsupported("has no ROWS space");
}

TEST(states_have_256_segments) {
  const auto m = std::make_unique<Recording>();
  for (bool writes : {true, false}) {
    SAYS("declares no state", sie::check_segment(&m->p, 1, writes, &err));
    PASSES(m->declare(60, writes ? 0 : 4, writes ? 0 : 5, &err));
    for (int32_t segment : {1, 2, 256}) PASSES(sie::check_segment(&m->p, segment, writes, &err));
    for (int32_t segment : {INT32_MIN, -1, 0, 257})
      SAYS("1 to 256 is possible", sie::check_segment(&m->p, segment, writes, &err));
    SAYS(writes ? "no state that it reads" : "no state that it writes",
         sie::check_segment(&m->p, 1, !writes, &err));
    m->p.state = {};
  }
  // Rows of the ROWS space, once a segment.
  PASSES(m->declare(60, 0, 0, &err));
  for (sie_value v : {1, 2}) {
    sie::Op op = sie::new_op(SIE_OP_LINEAR);
    op.out = v;
    PASSES(sie::append(&m->p, op, v, SIE_COMPUTE_F32, 16 * v, &err));
  }
  sie_state_rows_params rows = sized<sie_state_rows_params>();
  auto write = [&](sie_value x, int32_t segment, sie_error *err) {
    rows.x = x, rows.segment = segment;
    return sie::record_state_rows(&m->p, &rows, err);
  };
  SAYS("those of the ROWS space", write(2, 1, &err));
  SAYS("x is 3", write(3, 1, &err));
  SAYS("1 to 256", write(1, 257, &err));
  for (int32_t segment : {1, 256}) {
    PASSES(write(1, segment, &err));
    CHECK(m->p.state.segments[segment].columns == 16, "%lld columns",
          static_cast<long long>(m->p.state.segments[segment].columns));
    SAYS("is written already", write(1, segment, &err));
  }
  CHECK(m->p.ops.size() == 4 && m->p.ops[3].kind == sie::op_state_rows && m->p.ops[3].in[0] == 1 &&
            m->p.ops[3].segment == 256,
        "%lld operations", static_cast<long long>(m->p.ops.size()));
  rows.reserved = 1;
  SAYS("reserved", write(1, 3, &err));
}
