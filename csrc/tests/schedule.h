// schedule.h — runs a few threads one step at a time, in every order within a bound.
//
// A step is one operation on a Watched word or one futex call (csrc/hooks.h). Between steps a
// thread goes on unless the order says otherwise; a change away from a thread that could go on is a
// preemption, and orders have at most so many. What is explored is sequentially consistent: the
// effects of weaker memory orders are not.
#ifndef SIE_CSRC_TESTS_SCHEDULE_H
#define SIE_CSRC_TESTS_SCHEDULE_H

#include <functional>

namespace schedule {

struct Threads {
  int count;
  int preemptions;
  std::function<void()> prepare;     // before each order, on the caller's thread
  std::function<void(int)> body;     // of each thread
  std::function<void()> afterwards;  // after each order, on the caller's thread
};

// The number of orders that were run. Where all threads sleep, the order is printed and the program
// ends: nobody could stop them.
long explore(const Threads &threads);

}  // namespace schedule

#endif  // SIE_CSRC_TESTS_SCHEDULE_H
