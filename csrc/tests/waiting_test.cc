// waiting_test.cc — wait words and barriers in every order of their steps.
#include <sched.h>

#include <memory>
#include <thread>

#include "device.h"
#include "executor.h"
#include "model.h"
#include "schedule.h"
#include "slot.h"
#include "tests/check.h"

namespace {

// Explores waiters that must see every change of a word, and threads that each change it once.
// Returns the number of orders.
long wait_for_changes(int waiters, int changers, int preemptions, void (*change)(sie::WaitWord *)) {
  std::unique_ptr<sie::WaitWord> word;
  int seen = 0;
  schedule::Threads threads = {};
  threads.count = waiters + changers;
  threads.preemptions = preemptions;
  threads.prepare = [&] {
    word.reset(new sie::WaitWord);
    seen = 0;
  };
  threads.body = [&](int thread) {
    if (thread >= waiters) return change(word.get());
    for (;;) {
      const uint32_t value = word->load();
      if (value == static_cast<uint32_t>(changers)) break;
      word->wait_while(value, 0);
    }
    seen++;
  };
  threads.afterwards = [&] { CHECK(seen == waiters, "%d of %d waiters went on", seen, waiters); };
  return schedule::explore(threads);
}

void store_one(sie::WaitWord *word) { word->store(1); }
void advance(sie::WaitWord *word) { word->advance(); }

}  // namespace

TEST(waiting_sees_every_change) {
  const long one = wait_for_changes(1, 1, 1000, store_one), two = wait_for_changes(2, 1, 2, store_one),
             many = wait_for_changes(1, 2, 2, advance);
  printf("     %ld orders of one waiter, %ld of two, %ld of two changes\n", one, two, many);
  // Fewer orders would mean that the steps are not hooked.
  CHECK(one > 30 && two > 100 && many > 100, "%ld, %ld and %ld orders", one, two, many);
}

// advance(1) wakes one of two waiting threads, and that one wakes the other.
TEST(waiting_wakes_as_many_as_asked) {
  std::unique_ptr<sie::WaitWord> word;
  int through = 0;
  schedule::Threads threads = {};
  threads.count = 3;
  threads.preemptions = 2;
  threads.prepare = [&] {
    word.reset(new sie::WaitWord);
    through = 0;
  };
  threads.body = [&](int thread) {
    if (thread == 2) return word->advance(1);
    word->wait_while(0, 0);
    through++;
    word->advance(1);
  };
  threads.afterwards = [&] { CHECK(through == 2, "%d of 2 went on", through); };
  CHECK(schedule::explore(threads) > 100, "too few orders");
}

TEST(waiting_barriers_hold_everyone) {
  for (int members : {2, 3}) {
    const int rounds = members == 2 ? 3 : 2;
    std::unique_ptr<sie::Barrier> barrier;
    int reached = 0, early = 0;
    schedule::Threads threads = {};
    threads.count = members;
    threads.preemptions = members == 2 ? 2 : 1;
    threads.prepare = [&] {
      barrier.reset(new sie::Barrier);
      reached = early = 0;
    };
    threads.body = [&](int) {
      for (int round = 1; round <= rounds; round++) {
        reached++;
        barrier->arrive_and_wait(members);
        if (reached < round * members) early++;
      }
    };
    threads.afterwards = [&] {
      CHECK(reached == rounds * members, "%d arrivals of %d", reached, rounds * members);
      CHECK(early == 0, "%d of %d members went on too early", early, members);
    };
    const long orders = schedule::explore(threads);
    printf("     %ld orders of %d members\n", orders, members);
    CHECK(orders > 100, "%ld orders", orders);
  }
}

namespace {

// A thread that waits for a run sleeps until the test releases it.
struct Sleeper {
  sie_slot *slot;
  std::atomic<bool> asleep, released, stuck;
};
Sleeper sleeper;
thread_local bool is_sleeper;

void sleep_until_released(const std::atomic<uint32_t> *word, uint32_t value) {
  if (!is_sleeper) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
    return;
  }
  if (sleeper.released.load()) {  // it sleeps again, though the run is over: lets it go
    sleeper.stuck.store(true);
    sleeper.slot->state.store(sie::run_done);
    const_cast<std::atomic<uint32_t> *>(word)->fetch_add(1);
  }
  sleeper.asleep.store(true);
  while (!sleeper.released.load()) sched_yield();
}

void wait_for_the_sleeper(int32_t, int32_t) {
  while (!sleeper.asleep.load()) sched_yield();
}

const sie::hooks::Hooks sleeper_hooks = {
    nullptr, sleep_until_released, nullptr, wait_for_the_sleeper, nullptr, nullptr, nullptr};

}  // namespace

// Two threads wait for one run. The one that wakes up late finds the slot free and must not sleep
// on.
TEST(waiting_twice_for_one_run) {
  model::Model m;
  model::Shape shape;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, shape) == SIE_OK, "%s", m.err.message);
  if (m.slots[0] == nullptr) return;
  model::Batch batch;
  batch.add(shape, 1, 5);
  sleeper.slot = m.slots[0];
  sie::hooks::installed.store(&sleeper_hooks);
  CHECK(submit(&m, 0, batch) == SIE_OK, "%s", m.err.message);
  sie_status late = SIE_OK;
  sie_error err = {};
  std::thread other([&late, &err, &m] {
    is_sleeper = true;
    late = sie_slot_wait(m.slots[0], &err);
  });
  CHECK(wait(&m, 0, batch).status == SIE_OK, "%s", m.err.message);
  sleeper.released.store(true);
  other.join();
  sie::hooks::installed.store(nullptr);
  CHECK(!sleeper.stuck.load(), "the late thread sleeps on");
  CHECK(late == SIE_INVALID_ARGUMENT && err.message[0] != '\0', "status %d, %s", late, err.message);
}
