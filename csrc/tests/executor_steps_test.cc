// executor_steps_test.cc — which member a ticket stands for, where threads are kept, whose tickets an
// executor does between blocks, whom a run wakes, and that waiting threads sleep.
#include <limits.h>
#include <sched.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "affinity.h"
#include "executor.h"
#include "hooks.h"
#include "long_team.h"
#include "tests/check.h"
#include "tickets.h"

namespace {

thread_local int32_t told = -1;
void note_member(int32_t, int32_t member) { told = member; }
const sie::hooks::Hooks naming = {nullptr, nullptr, nullptr, note_member, nullptr, nullptr, nullptr};

// A run of two teams of three.
struct Mixed : sie::Run {
  static constexpr int32_t teams = 2, members = 3;
  std::atomic<int> done[teams][members] = {};
  std::atomic<int> misnamed{0};
  const std::vector<sie::Ticket> list = tickets::of({members, members});

  Mixed() {
    work = run;
    tickets = teams * members;
    ticket_of = list.data();
  }
  static void run(sie::Run *r, int32_t slab, int32_t member, int32_t) {
    Mixed *mixed = static_cast<Mixed *>(r);
    mixed->done[slab][member]++;
    if (told != member) mixed->misnamed++;
  }
};

// A run of one ticket that ends when the thread that waits for it sleeps, or has read the word a
// thousand times.
struct Gated : sie::Run {
  std::atomic<bool> open{false};
  Gated() {
    work = run;
    tickets = 1;
  }
  static void run(sie::Run *r, int32_t, int32_t, int32_t) {
    while (!static_cast<Gated *>(r)->open.load()) sched_yield();
  }
};
Gated *gate = nullptr;
thread_local bool is_watched = false;
int looks = 0, sleeps = 0;

void look() {
  if (is_watched && ++looks >= 1000) gate->open.store(true);
}
void sleep_on(const std::atomic<uint32_t> *, uint32_t) {
  if (is_watched) {
    sleeps++;
    gate->open.store(true);
  }
  sched_yield();
}
void wake(const std::atomic<uint32_t> *, int) {}
const sie::hooks::Hooks watching = {look, sleep_on, wake, nullptr, nullptr, nullptr, nullptr};

// Counts the steps and the sleeps of executors that have nothing to do.
std::atomic<int> idle_looks{0}, idle_sleeps{0};
void idle_look() { idle_looks++; }
void idle_sleep(const std::atomic<uint32_t> *, uint32_t) {
  idle_sleeps++;
  sched_yield();
}
const sie::hooks::Hooks idling = {idle_look, idle_sleep, wake, nullptr, nullptr, nullptr, nullptr};

// A run of two tickets that notes when each begins; the first waits until it is released.
struct Noted : sie::Run {
  static inline std::atomic<int> begun{0};
  std::atomic<int> place[2] = {{-1}, {-1}};
  std::atomic<bool> open{false};
  Noted() {
    work = run;
    tickets = 2;
  }
  static void run(sie::Run *r, int32_t slab, int32_t, int32_t) {
    Noted *noted = static_cast<Noted *>(r);
    noted->place[slab].store(begun++);
    while (slab == 0 && !noted->open.load()) sched_yield();
  }
  void wait_for_first() const {
    while (place[0].load() < 0) sched_yield();
  }
};

// A run whose tickets count, and wait while it is shut.
struct Shut : sie::Run {
  std::atomic<int> begun{0};
  std::atomic<bool> open{true};
  explicit Shut(int count, bool yielding = false) {
    work = run;
    tickets = count;
    yields = yielding;
  }
  static void run(sie::Run *r, int32_t, int32_t, int32_t) {
    Shut *shut = static_cast<Shut *>(r);
    shut->begun++;
    while (!shut->open.load()) sched_yield();
  }
};

// Of the word on which executors sleep: the sleeps so far, and how many sleepers each change wakes.
std::atomic<const void *> their_word{nullptr};
std::atomic<int> their_sleeps{0};
std::vector<int> woken;  // only the test's thread wakes executors
thread_local bool is_executor = true;

void sleep_as_executor(const std::atomic<uint32_t> *word, uint32_t value) {
  if (is_executor) {
    their_word.store(word);
    if (word->load() == value) their_sleeps++;
  }
  sched_yield();
}
void note_wake(const std::atomic<uint32_t> *word, int waiters) {
  if (!is_executor && word == their_word.load()) woken.push_back(waiters);
}
const sie::hooks::Hooks waking = {nullptr, sleep_as_executor, note_wake, nullptr, nullptr, nullptr, nullptr};

// Until an executor sleeps that nothing has woken since.
void wait_until_one_sleeps() {
  const int before = their_sleeps.load();
  while (their_sleeps.load() == before) sched_yield();
}

template <class Wait>
void sleeps_during(const char *what, const Wait &wait) {
  Gated gated;
  gate = &gated;
  looks = sleeps = 0;
  sie::hooks::installed.store(&watching);
  sie::Executors executors;
  CHECK(executors.start(1, nullptr, nullptr) == SIE_OK, "cannot start");
  CHECK(executors.submit(&gated), "refused");
  is_watched = true;
  wait(&executors, &gated);
  is_watched = false;
  executors.stop();
  sie::hooks::installed.store(nullptr);
  CHECK(sleeps > 0, "%s looked %d times and never slept", what, looks);
}

}  // namespace

TEST(executors_name_the_member_of_each_ticket) {
  sie::Executors executors;
  sie::hooks::installed.store(&naming);
  CHECK(executors.start(2, nullptr, nullptr) == SIE_OK, "cannot start");
  Mixed mixed;
  CHECK(executors.submit(&mixed), "refused");
  executors.wait(&mixed);
  executors.stop();
  sie::hooks::installed.store(nullptr);
  CHECK(mixed.misnamed.load() == 0, "%d tickets under another member's number", mixed.misnamed.load());
  for (int slab = 0; slab < Mixed::teams; slab++) {
    for (int member = 0; member < Mixed::members; member++) {
      const int got = mixed.done[slab][member].load();
      CHECK(got == 1, "slab %d, member %d: done %d times", slab, member, got);
    }
  }
}

TEST(executors_are_waited_for_asleep) {
  sleeps_during("wait", [](sie::Executors *executors, const sie::Run *run) { executors->wait(run); });
  sleeps_during("stop", [](sie::Executors *executors, const sie::Run *) { executors->stop(); });
}

TEST(executors_sleep_when_there_is_nothing_to_do) {
  idle_looks.store(0);
  idle_sleeps.store(0);
  sie::hooks::installed.store(&idling);
  sie::Executors executors;
  CHECK(executors.start(2, nullptr, nullptr) == SIE_OK, "cannot start");
  while (idle_sleeps.load() == 0 && idle_looks.load() < 100000) sched_yield();
  executors.stop();
  sie::hooks::installed.store(nullptr);
  CHECK(idle_sleeps.load() > 0, "looked %d times and never slept", idle_looks.load());
}

// Two runs whose tickets all wait: the older one begins first, whether it is in the first or the
// second entry.
TEST(executors_begin_the_older_run_first) {
  sie::Executors executors;
  CHECK(executors.start(1, nullptr, nullptr) == SIE_OK, "cannot start");
  Noted first, second, third;
  CHECK(executors.submit(&first), "refused");
  first.wait_for_first();
  CHECK(executors.submit(&second), "refused");
  first.open.store(true);
  executors.wait(&first);
  second.wait_for_first();
  CHECK(executors.submit(&third), "refused");
  third.open.store(true);
  second.open.store(true);
  executors.wait(&second);
  executors.wait(&third);
  executors.stop();
  CHECK(first.place[1].load() == 1 && second.place[0].load() == 2 && second.place[1].load() == 3 &&
            third.place[0].load() == 4,
        "begun as %d, %d, %d and %d", first.place[1].load(), second.place[0].load(), second.place[1].load(),
        third.place[0].load());
}

// A run wakes one sleeper for each ticket. While a run that yields is in flight all are woken: one that
// waits in it may go on there instead of taking a ticket.
TEST(executors_are_woken_for_each_ticket) {
  is_executor = false;
  woken.clear();
  sie::hooks::installed.store(&waking);
  sie::Executors executors;
  CHECK(executors.start(3, nullptr, nullptr) == SIE_OK, "cannot start");
  auto submit = [&executors](sie::Run *run, int waiters, const char *what) {
    wait_until_one_sleeps();
    CHECK(executors.submit(run), "refused");
    CHECK(!woken.empty() && woken.back() == waiters, "%s: %d are woken", what,
          woken.empty() ? 0 : woken.back());
  };
  Shut first(2), long_one(1, true), beside(2), last(2);
  submit(&first, 2, "a run of two tickets");
  executors.wait(&first);
  long_one.open.store(false);
  submit(&long_one, INT_MAX, "a run that yields");
  while (long_one.begun.load() == 0) sched_yield();
  submit(&beside, INT_MAX, "a run beside it");
  executors.wait(&beside);
  long_one.open.store(true);
  executors.wait(&long_one);
  submit(&last, 2, "a run after it");
  executors.wait(&last);
  CHECK(woken.size() == 4, "%zu changes, four runs", woken.size());
  executors.stop();
  sie::hooks::installed.store(nullptr);
}

// Between two blocks an executor does the tickets of one run, which is the older one, and none of a run
// that yields. No thread is started: this one does them all.
TEST(executors_do_the_tickets_of_one_other_run) {
  sie::Executors executors;
  Shut first(3), second(2), long_one(1, true);
  executors.do_others(0);
  CHECK(executors.submit(&first) && executors.submit(&second), "refused");
  executors.do_others(0);
  CHECK(first.begun.load() == 3 && second.begun.load() == 0, "%d tickets of the older run, %d of the other",
        first.begun.load(), second.begun.load());
  CHECK(executors.submit(&long_one), "refused, though a run has ended");
  executors.do_others(0);
  CHECK(second.begun.load() == 2 && long_one.begun.load() == 0,
        "%d tickets of the other run, %d of a long one", second.begun.load(), long_one.begun.load());
  executors.do_others(0);
  CHECK(!executors.do_other(0) && long_one.begun.load() == 0, "a ticket of a long run");
  CHECK(executors.start(1, nullptr, nullptr) == SIE_OK, "cannot start");
  executors.wait(&long_one);
  executors.stop();
}

// Each thread stays on its CPU, or on those of its node, or where the kernel puts it.
TEST(executors_sit_where_their_seats_are) {
  const auto seats = std::make_unique<sie::Seats>();
  auto kept = [](const sie::Seats *where) {
    affinity::Made made({0});
    sie::Executors executors;
    CHECK(executors.start(3, where, nullptr) == SIE_OK, "cannot start");
    Shut run(3);
    CHECK(executors.submit(&run), "refused");
    executors.wait(&run);
    executors.stop();
    return made.kept();
  };
  using Masks = std::vector<affinity::Mask>;
  CHECK(kept(nullptr).empty() && kept(seats.get()).empty(), "threads without seats are kept somewhere");
  auto sorted = [](Masks masks) {
    std::sort(masks.begin(), masks.end());
    return masks;
  };
  seats->pinned = true;
  seats->cpus[0] = 5, seats->cpus[1] = 64, seats->cpus[2] = 70;
  CHECK(
      kept(seats.get()) == sorted({affinity::mask_of({5}), affinity::mask_of({64}), affinity::mask_of({70})}),
      "threads are pinned elsewhere");
  seats->by_node = true;  // a CPU of one's own comes first
  CHECK(kept(seats.get()).size() == 3 && kept(seats.get())[0] == affinity::mask_of({64}),
        "pinned threads are kept on nodes");
  seats->pinned = false;
  sie::Topology &on = seats->on;
  on.n = 4, on.nodes = 2;
  on.numbers[0] = seats->numbers[0] = 4, on.numbers[1] = seats->numbers[1] = 9;
  const int32_t cpus[] = {1, 2, 65, 66};
  for (int i = 0; i < 4; i++) on.cpus[i] = cpus[i], on.places[i] = i / 2;
  seats->nodes = 2;
  seats->places[0] = 0, seats->places[1] = seats->places[2] = 1;
  const affinity::Mask first = affinity::mask_of({1, 2}), second = affinity::mask_of({65, 66});
  CHECK(kept(seats.get()) == sorted({first, second, second}), "threads are kept on other nodes");
}

// A long slab's team takes 63 members besides its leader. Who has asked is a member once it is admitted and
// the meeting that admits it is over.
TEST(executors_join_a_long_team_in_turn) {
  sie::LongTeam team;
  sie::LongStep step = {};
  int32_t member = -1;
  CHECK(team.members() == 1 && team.asked() == 0 && !team.closed(), "a new team has %d members",
        team.members());
  CHECK(!team.admit(step), "nobody has asked");
  for (int32_t i = 1; i <= 3; i++) CHECK(team.ask(&member) && member == i, "member %d asks as %d", i, member);
  CHECK(team.asked() == 3 && team.members() == 1 && !team.has(1), "a member before it is admitted");
  // After step 0: the leader alone meets, and admits them to step 1.
  step.number = 1, step.op = 7, step.row = 99;
  uint32_t phase;
  auto admitting = [&] {
    CHECK(team.admit(step), "who has asked is not admitted");
    CHECK(team.members() == 4 && !team.has(1) && !team.has(3), "a member before the meeting is over");
  };
  CHECK(team.barrier.arrive(1, &phase, admitting), "the last member waits");
  CHECK(team.has(1) && team.has(3) && !team.has(4), "not those who were admitted");
  CHECK(team.next().number == 1 && team.next().op == 7 && team.next().row == 99, "another step");
  CHECK(!team.admit(step) && team.members() == 4, "admitted twice");
  for (int32_t i = 4; i <= 63; i++)
    CHECK(team.ask(&member) && member == i, "member %d asks as %d", i, member);
  CHECK(!team.ask(&member) && member == 63 && team.asked() == 63, "a member too many");
  CHECK(team.admit(step) && team.members() == 64, "%d members", team.members());
  sie::LongTeam done;
  done.close();
  CHECK(done.closed() && !done.ask(&member) && done.asked() == 0, "a team that is done takes a member");
}
