// long_turns_test.cc — which tickets executors take while long slabs run: short ones first, between
// any two blocks. The tests hold one thread at a chosen place.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <vector>

#include "compare.h"
#include "executor.h"
#include "heads.h"
#include "hooks.h"
#include "long_team.h"
#include "model.h"
#include "paths.h"
#include "slot.h"
#include "tests/check.h"

using model::Batch;
using model::Model;
using model::Result;
using model::Shape;

namespace {

bool same_results(const Result &a, const Result &b) {
  return a.status == SIE_OK && b.status == SIE_OK && same_bits(a.rows, b.rows) &&
         same_bits(a.values, b.values);
}

// A run whose tickets note when they are done; each waits until the test releases it.
struct Noted : sie::Run {
  char name;
  std::vector<char> *order;
  std::atomic<int> begun{0}, let_go{0};
  Noted(char called, int count, bool long_slabs, std::vector<char> *noted) : name(called), order(noted) {
    tickets = count;
    yields = long_slabs;
    work = run;
  }
  static void run(sie::Run *r, int32_t, int32_t, int32_t) {
    Noted *job = static_cast<Noted *>(r);
    int number = job->begun.fetch_add(1);
    while (job->let_go.load() <= number) sched_yield();
    job->order->push_back(job->name);
  }
};

}  // namespace

TEST(long_tickets_are_taken_last) {
  // One executor is in a ticket of the long run, which is older. Then it does the short run's
  // tickets, then the rest of the long run's.
  sie::Executors executors;
  CHECK(executors.start(1, nullptr, nullptr) == SIE_OK, "cannot start");
  std::vector<char> order;
  Noted longer('L', 3, true, &order), other('s', 2, false, &order);
  CHECK(executors.submit(&longer), "refused");
  while (longer.begun.load() == 0) sched_yield();
  other.let_go.store(2);
  CHECK(executors.submit(&other), "refused");
  longer.let_go.store(3);
  executors.wait(&other);
  executors.wait(&longer);
  CHECK(order == (std::vector<char>{'L', 's', 's', 'L', 'L'}), "in the order %.5s", order.data());
  executors.stop();
}

namespace {

// Holds the executor in block `number` of operation `at` while a short batch is submitted.
struct Look {
  int32_t at;
  int64_t number;
  std::atomic<bool> there, go_on, in_short;
  std::atomic<int> blocks_after;  // that began after the hold and before the short batch's ticket
  std::atomic<int> in_operation;  // blocks of the operation
  std::atomic<int32_t> last;      // operation
};
Look look;

void look_at_ticket(int32_t, int32_t) {
  if (look.there.load()) look.in_short.store(true);
}

void look_at_block(int32_t operation, int64_t number) {
  if (operation > look.last.load()) look.last.store(operation);
  if (operation == look.at) look.in_operation++;
  if (look.there.load()) {
    if (!look.in_short.load()) look.blocks_after++;
  } else if (operation == look.at && number == look.number) {
    look.there.store(true);
    while (!look.go_on.load()) sched_yield();
  }
}

const sie::hooks::Hooks look_hooks = {nullptr, nullptr, nullptr,      look_at_ticket,
                                      nullptr, nullptr, look_at_block};

// Runs a long batch, held there, and a short one submitted meanwhile. False if the operation has no
// such block.
bool run_looked(Model *m, const Batch &longer, const Batch &other, int32_t at, int64_t number, Result *a,
                Result *b) {
  look.at = at;
  look.number = number;
  look.blocks_after = look.in_operation = 0;
  look.last = -1;
  look.there = look.go_on = look.in_short = false;
  sie::hooks::installed.store(&look_hooks);
  CHECK(submit(m, 0, longer) == SIE_OK, "%s", m->err.message);
  const std::atomic<uint32_t> &state = m->slots[0]->state;
  while (!look.there.load() && state.load() == sie::run_started) sched_yield();
  bool held = look.there.load();
  if (held) {
    CHECK(submit(m, 1, other) == SIE_OK, "%s", m->err.message);
    look.go_on.store(true);
    *b = wait(m, 1, other);
  }
  *a = wait(m, 0, longer);
  sie::hooks::installed.store(nullptr);
  return held;
}

}  // namespace

TEST(long_slabs_look_for_others_between_any_two_blocks) {
  // Operations cut into many blocks of rows, queries and shares, and operations of one block.
  struct {
    const char *head;
    double flops;
  } const cases[] = {{nullptr, sie::max_block_flops}, {nullptr, 1.0}, {"splade", 1e5}};
  for (const auto &c : cases) {
    Shape shape;
    shape.layers = 1;
    if (c.head != nullptr) shape.tail = heads::named(c.head).tail;
    Model m;
    CHECK(m.open(SIE_DEVICE_CPU, model::least_isa, 1, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
    if (m.slots[1] == nullptr) return;
    m.program->block_flops = c.flops;
    Batch longer, other;
    if (c.head != nullptr) {
      longer = heads::batch_of(heads::named(c.head), shape, {1040}, false);
      other = heads::batch_of(heads::named(c.head), shape, {1}, false);
    } else {
      longer.add(shape, 1, 640);
      other.add(shape, 2, 9);
    }
    Result want_longer = run(&m, longer), want_other = run(&m, other), a, b;
    int held = 0, many = 0;
    for (int32_t op = 0; op < m.program->plan.size(); op++) {
      for (int64_t block : {0, 1}) {
        if (!run_looked(&m, longer, other, op, block, &a, &b)) continue;
        held++;
        if (look.in_operation.load() > 1) many++;
        bool end = op == look.last.load() && look.in_operation.load() == block + 1;
        CHECK(look.in_short.load() && (look.blocks_after.load() == 0 || end),
              "%g flops: %d blocks after block %lld of operation %d before the short batch", c.flops,
              look.blocks_after.load(), static_cast<long long>(block), op);
        if (c.head == nullptr) {
          CHECK(same_results(a, want_longer) && same_results(b, want_other),
                "other bits, held in operation %d", op);
        } else {
          const heads::Head &head = heads::named(c.head);
          for (int o : {0, 1}) {
            CHECK(heads::part(head, longer, a, o, 0) == heads::part(head, longer, want_longer, o, 0) &&
                      heads::part(head, other, b, o, 0) == heads::part(head, other, want_other, o, 0),
                  "other bits of output %d, held in operation %d", o, op);
          }
        }
      }
    }
    CHECK(held >= m.program->plan.size() && (c.flops == sie::max_block_flops || many > 0),
          "held %d times, %d in many", held, many);
  }
}

namespace {

constexpr int max_meetings = 256;

// Holds a member of the first long slab at a meeting until its partner waits there, or until the
// next slab is far along in the region that they share.
struct HeldLong {
  const sie::LongTeam *team;   // the first slab's
  const void *first, *second;  // the slabs' barriers
  int member, meeting;
  bool leaving;
  std::atomic<int> arrived[max_meetings];  // other members of the first slab
  std::atomic<int> second_arrived, last_meeting, times_held, strangers, joined;
  std::atomic<bool> asked, done;
};
HeldLong held_long;
thread_local int own_member, own_meeting;

void long_ticket(int32_t, int32_t member) {
  own_member = member;
  own_meeting = member == 0 ? 0 : held_long.team->next().number;
}

// The leader does not go on before another executor has asked to be a member.
void long_block(int32_t, int64_t) {
  if (held_long.asked.exchange(true)) return;
  while (held_long.team->asked() == 0) sched_yield();
}

void hold_long(int meeting) {
  held_long.times_held++;
  while (held_long.arrived[meeting].load() == 0 && held_long.second_arrived.load() < 8 &&
         !held_long.done.load()) {
    sched_yield();
  }
}

void long_arrives(const void *barrier) {
  HeldLong &h = held_long;
  if (barrier == h.second) h.second_arrived++;
  if (barrier != h.first) {
    if (barrier != h.second) h.strangers++;
    return;
  }
  if (own_member == h.member && own_meeting == h.meeting && !h.leaving) hold_long(own_meeting);
  if (own_member == 1) h.joined++;
  if (own_member != h.member) h.arrived[own_meeting]++;
  if (own_meeting > h.last_meeting.load()) h.last_meeting.store(own_meeting);
}

void long_leaves(const void *barrier) {
  HeldLong &h = held_long;
  if (barrier != h.first) return;
  own_meeting++;
  if (own_member == h.member && own_meeting == h.meeting + 1 && h.leaving) hold_long(own_meeting);
}

const sie::hooks::Hooks held_hooks = {nullptr,      nullptr,     nullptr,   long_ticket,
                                      long_arrives, long_leaves, long_block};

Result run_held_long(Model *m, const Batch &batch, int member, int meeting, bool leaving) {
  HeldLong &h = held_long;
  h.member = member;
  h.meeting = meeting;
  h.leaving = leaving;
  for (std::atomic<int> &n : h.arrived) n.store(0);
  h.second_arrived = h.times_held = h.strangers = h.joined = 0;
  h.asked = h.done = false;
  const sie::LongTeam *teams = static_cast<const sie::LongTeam *>(m->slots[0]->teams.p);
  h.team = &teams[0];
  h.first = &teams[0].barrier;
  h.second = &teams[1].barrier;
  sie::hooks::installed.store(&held_hooks);
  CHECK(submit(m, 0, batch) == SIE_OK, "%s", m->err.message);
  Result result = wait(m, 0, batch);
  h.done.store(true);
  sie::hooks::installed.store(nullptr);
  return result;
}

}  // namespace

TEST(long_teams_wait_for_every_member_everywhere) {
  // Two long slabs in a region with room for one. A third executor joins the first slab after its
  // first step; the second slab waits until no member reads the first's values.
  Shape shape;
  shape.layers = 1;
  Model m;
  CHECK(m.open(SIE_DEVICE_CPU, model::least_isa, 3, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  if (m.slots[0] == nullptr) return;
  Batch batch;
  batch.add(shape, 1, 640);
  batch.add(shape, 2, 601);
  Result want = run(&m, batch);
  m.program->region_tokens = 640;
  held_long.last_meeting = 0;
  CHECK(same_results(run_held_long(&m, batch, -1, 0, false), want), "other bits, nobody held");
  const int meetings = held_long.last_meeting.load() + 1;
  // Operations of a stage run once for each stage_rows of the 640 rows.
  int64_t steps = 0, times = (640 + m.program->stage_rows - 1) / m.program->stage_rows;
  for (const sie::PlannedOp &planned : m.program->plan) steps += planned.cut == sie::Cut::rows ? times : 1;
  CHECK(times == 3 && meetings == steps, "%d meetings for %lld steps", meetings,
        static_cast<long long>(steps));
  CHECK(m.slots[0]->n_long == 2 && held_long.joined.load() == meetings - 1,
        "%d long slabs; the other member came to %d of %d meetings", m.slots[0]->n_long,
        held_long.joined.load(), meetings);
  for (int meeting = 0; meeting < meetings; meeting++) {
    for (int member : {0, 1}) {
      for (bool leaving : {false, true}) {
        // The leader is alone at the first meeting.
        if (meeting == 0 && !(member == 0 && leaving)) continue;
        // After the last meeting, member 0 lets the second slab begin.
        if (member == 0 && leaving && meeting == meetings - 1) continue;
        Result got = run_held_long(&m, batch, member, meeting, leaving);
        CHECK(held_long.times_held.load() == 1 && same_results(got, want),
              "other bits, or held %d times: member %d %s meeting %d of %d", held_long.times_held.load(),
              member, leaving ? "behind" : "before", meeting, meetings);
      }
    }
  }
}

namespace {

// Holds the executor that has no slab until the leader is at step `at`, and the leader there until
// the other has asked to be a member.
struct Late {
  const sie::LongTeam *team;
  int at;
  std::atomic<int> steps, joined;  // taken by the leader, and by the other
  std::atomic<bool> there;
};
Late late;

void late_ticket(int32_t slab, int32_t member) {
  own_member = member;
  while (slab == 1 && !late.there.load()) sched_yield();  // the ticket of who joins
}
void late_block(int32_t, int64_t) {
  if (own_member != 0 || late.steps.load() != late.at || late.there.exchange(true)) return;
  while (late.team->asked() == 0) sched_yield();
}
void late_arrives(const void *) { (own_member == 0 ? late.steps : late.joined)++; }
const sie::hooks::Hooks late_hooks = {nullptr,      nullptr, nullptr,   late_ticket,
                                      late_arrives, nullptr, late_block};

}  // namespace

TEST(long_slabs_are_joined_after_any_step) {
  for (const model::Path &path : model::machine_paths()) {
    Shape shape;
    shape.layers = 1;
    Model m;
    CHECK(m.open(SIE_DEVICE_CPU, path.isa, 2, path.compute, shape) == SIE_OK, "%s", m.err.message);
    if (m.slots[0] == nullptr) return;
    Batch batch;
    batch.add(shape, 1, 640);
    m.program->stage_rows = 144;
    const Result want = run(&m, batch);
    late.team = static_cast<const sie::LongTeam *>(m.slots[0]->teams.p);
    int steps = 1;
    for (late.at = 0; late.at < steps; late.at++) {
      late.steps = late.joined = 0;
      late.there = false;
      sie::hooks::installed.store(&late_hooks);
      const Result got = run(&m, batch);
      sie::hooks::installed.store(nullptr);
      steps = late.steps.load();
      CHECK(same_results(got, want), "%s: other bits, joined after step %d of %d", path.name, late.at, steps);
      CHECK(late.joined.load() == steps - late.at - 1, "%s: joined after step %d of %d, took %d", path.name,
            late.at, steps, late.joined.load());
    }
    CHECK(steps > 20, "%d steps", steps);
  }
}

namespace {

const sie_ops *real_ops;
// Fails in the step in which another executor asks to be a member.
sie_status failing_linear(const sie_linear_args *a, const sie_share *share) {
  return late.there.load() ? SIE_INTERNAL : real_ops->linear(a, share);
}

}  // namespace

// All leave after a step that failed: whoever was admitted behind it would wait for them forever.
TEST(long_slabs_admit_nobody_after_a_failure) {
  Shape shape;
  shape.layers = 1;
  Model m;
  CHECK(m.open(SIE_DEVICE_CPU, model::least_isa, 2, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  if (m.slots[0] == nullptr) return;
  Batch batch;
  batch.add(shape, 1, 640);
  const Result want = run(&m, batch);
  real_ops = m.device->ops;
  sie_ops faulty = *real_ops;
  faulty.linear = failing_linear;
  late.team = static_cast<const sie::LongTeam *>(m.slots[0]->teams.p);
  int failed = 0;
  for (late.at = 0; late.at < 20; late.at++) {
    late.steps = late.joined = 0;
    late.there = false;
    m.device->ops = &faulty;
    sie::hooks::installed.store(&late_hooks);
    const Result got = run(&m, batch);
    sie::hooks::installed.store(nullptr);
    m.device->ops = real_ops;
    CHECK(got.status == SIE_INTERNAL, "status %d, held in step %d", got.status, late.at);
    if (late.steps.load() == late.at + 1) failed++;
  }
  CHECK(failed > 3, "%d steps failed at once", failed);
  CHECK(same_results(run(&m, batch), want), "other bits after failures");
}

TEST(long_teams_are_bounded) {
  sie::LongTeam team;
  int32_t member = 0;
  for (int i = 1; i < sie::max_team; i++)
    CHECK(team.ask(&member) && member == i, "%d is member %d", i, member);
  CHECK(!team.ask(&member), "one member too many");
  sie::LongTeam done;
  done.close();
  CHECK(!done.ask(&member), "a member of a team that is done");
}

namespace {

// A short slab in a batch with long ones has no team: at a barrier it would wait forever.
const void *only_barrier;
void alone_arrives(const void *barrier) {
  if (barrier == only_barrier) return;
  fputs("a short slab beside a long one was begun by a team\n", stderr);
  abort();
}
const sie::hooks::Hooks alone_hooks = {nullptr, nullptr, nullptr, nullptr, alone_arrives, nullptr, nullptr};

}  // namespace

TEST(short_slabs_beside_long_ones_run_alone) {
  Shape shape;
  shape.layers = 1;
  for (int threads : {4, 6, 8}) {
    Model m;
    CHECK(m.open(SIE_DEVICE_CPU, model::least_isa, threads, SIE_COMPUTE_F32, shape) == SIE_OK, "%s",
          m.err.message);
    if (m.slots[0] == nullptr) return;
    Batch batch, one, two;
    batch.add(shape, 1, 60);
    batch.add(shape, 2, 640);
    one.add(shape, 1, 60);
    two.add(shape, 2, 640);
    Result want_one = run(&m, one), want_two = run(&m, two);
    only_barrier = &static_cast<const sie::Team *>(m.slots[0]->teams.p)[0].barrier;
    sie::hooks::installed.store(&alone_hooks);
    Result got = run(&m, batch);
    sie::hooks::installed.store(nullptr);
    const sie_slot &slot = *m.slots[0];
    CHECK(
        slot.n_long == 1 && slot.n_slabs == 2 && slot.ticket_of == nullptr && slot.tickets == 2 + threads - 1,
        "%d of %d slabs are long, %d tickets%s", slot.n_long, slot.n_slabs, slot.tickets,
        slot.ticket_of != nullptr ? ", teams" : "");
    size_t row = static_cast<size_t>(m.hidden);
    CHECK(got.status == SIE_OK && memcmp(got.rows.data(), want_one.rows.data(), row * 4) == 0 &&
              memcmp(got.rows.data() + row, want_two.rows.data(), row * 4) == 0,
          "other bits beside each other");
  }
}

namespace {

// Runs short batches one right after another: each is submitted before the executor looks for work
// after the previous one.
struct Stream {
  const sie_slot *slot;            // the slot of the short batches
  std::atomic<bool> armed, ended;  // hold at the next end of a short batch; it has ended
  std::atomic<bool> go_on;
  std::atomic<bool> in_long, both;  // the long slab's first block waits; a short batch is there
  std::atomic<int> blocks;          // of the long slab, since a short batch began
  std::atomic<int> starved, begun;
};
Stream stream;
thread_local bool is_executor;

void stream_ticket(int32_t, int32_t) {
  is_executor = true;
  if (stream.slot->state.load() != sie::run_started) return;
  if (stream.begun++ > 0 && stream.blocks.load() == 0) stream.starved++;
  stream.blocks.store(0);
}

void stream_block(int32_t, int64_t) {
  stream.in_long.store(true);
  while (!stream.both.load()) sched_yield();
  stream.blocks++;
}

// The first step of an executor after a short batch is done.
void stream_step() {
  if (!is_executor || !stream.armed.load() || stream.slot->state.load() != sie::run_done) return;
  stream.armed.store(false);
  stream.ended.store(true);
  while (!stream.go_on.load()) sched_yield();
  stream.go_on.store(false);
}

const sie::hooks::Hooks stream_hooks = {stream_step, nullptr, nullptr,     stream_ticket,
                                        nullptr,     nullptr, stream_block};

}  // namespace

TEST(long_slabs_go_on_between_any_two_short_batches) {
  Shape shape;
  shape.layers = 1;
  Model m;
  CHECK(m.open(SIE_DEVICE_CPU, model::least_isa, 1, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  if (m.slots[1] == nullptr) return;
  m.program->block_flops = 1;
  Batch longer, other;
  longer.add(shape, 1, 640);
  other.add(shape, 2, 9);
  Result want_longer = run(&m, longer), want_other = run(&m, other);
  stream.slot = m.slots[1];
  stream.armed = true;
  stream.ended = stream.go_on = stream.in_long = stream.both = false;
  stream.blocks = stream.starved = stream.begun = 0;
  sie::hooks::installed.store(&stream_hooks);
  CHECK(submit(&m, 0, longer) == SIE_OK, "%s", m.err.message);
  while (!stream.in_long.load()) sched_yield();
  CHECK(submit(&m, 1, other) == SIE_OK, "%s", m.err.message);
  stream.both.store(true);
  const int batches = 12;
  for (int i = 0; i < batches; i++) {
    while (!stream.ended.load()) sched_yield();
    stream.ended.store(false);
    CHECK(same_results(wait(&m, 1, other), want_other), "a short batch differs");
    if (i + 1 < batches) {
      CHECK(submit(&m, 1, other) == SIE_OK, "%s", m.err.message);
      stream.armed.store(true);
    }
    stream.go_on.store(true);
  }
  CHECK(same_results(wait(&m, 0, longer), want_longer), "the long batch differs");
  sie::hooks::installed.store(nullptr);
  CHECK(stream.begun.load() == batches && stream.starved.load() == 0,
        "%d short batches, %d of them with no block of the long one before", stream.begun.load(),
        stream.starved.load());
}
