// waiting_test.cc — wait words and barriers in every order of their steps.
#include <memory>

#include "executor.h"
#include "schedule.h"
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
