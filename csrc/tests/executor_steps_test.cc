// executor_steps_test.cc — which member a ticket stands for, threads that cannot be started, and
// that waiting threads sleep.
#include <sched.h>
#include <string.h>

#include <atomic>

#include "executor.h"
#include "hooks.h"
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
