// executor_steps_test.cc — which member a ticket is, who could not be started, and that whoever waits for a run sleeps.
#include <sched.h>
#include <string.h>

#include <atomic>

#include "executor.h"
#include "hooks.h"
#include "tests/check.h"

namespace {

thread_local int32_t told = -1;
void note_member(int32_t member) { told = member; }
const sie::hooks::Hooks naming = {nullptr, nullptr, nullptr, note_member, nullptr, nullptr, nullptr};

// Two teams of three, and two slabs of one executor each.
struct Mixed : sie::Run {
  static constexpr int32_t teams = 2, members = 3, alone = 2;
  std::atomic<int> done[teams + alone][members] = {};
  std::atomic<int> misnamed{0};

  Mixed() {
    work = run;
    team = members;
    tickets = teams * members + alone;
    singles = alone;
  }
  static void run(sie::Run *r, int32_t slab, int32_t member, int32_t) {
    Mixed *mixed = static_cast<Mixed *>(r);
    mixed->done[slab][member]++;
    if (told != member) mixed->misnamed++;
  }
};

// A run of one ticket that ends when the thread that waits for it sleeps, or has looked a thousand times.
struct Gated : sie::Run {
  std::atomic<bool> open{false};
  Gated() {
    work = run;
    team = 1;
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
  for (int slab = 0; slab < Mixed::teams + Mixed::alone; slab++) {
    for (int member = 0; member < Mixed::members; member++) {
      const int want = slab < Mixed::teams || member == 0 ? 1 : 0, got = mixed.done[slab][member].load();
      CHECK(got == want, "slab %d, member %d: done %d times", slab, member, got);
    }
  }
}

TEST(executors_are_waited_for_asleep) {
  sleeps_during("wait", [](sie::Executors *executors, const sie::Run *run) { executors->wait(run); });
  sleeps_during("stop", [](sie::Executors *executors, const sie::Run *) { executors->stop(); });
}
