// schedule.h — runs a few threads one step at a time, in every order within a bound.
//
// A step is one operation on a Watched word or one futex call (csrc/hooks.h). Between steps a
// thread goes on unless the order says otherwise. A change away from a thread that could go on is a
// preemption; the number of preemptions in an order is bounded. Only sequentially consistent
// executions are explored, not the effects of weaker memory orders.
#ifndef SIE_CSRC_TESTS_SCHEDULE_H
#define SIE_CSRC_TESTS_SCHEDULE_H

#include <functional>

namespace schedule {

struct Threads {
  int count;
  int preemptions;
  std::function<void()> prepare;     // before each order, on the caller's thread
  std::function<void(int)> body;     // of each thread, by its number
  std::function<void()> afterwards;  // after each order, on the caller's thread
};

// Runs the threads in every order; returns the number of orders. If all threads sleep, it prints
// the order and ends the program, because no thread could wake them.
long explore(const Threads &threads);

}  // namespace schedule

#endif  // SIE_CSRC_TESTS_SCHEDULE_H
