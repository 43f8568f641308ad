// long_team.h — the executors of one long slab: one leads it, others join it between two steps.
#ifndef SIE_CSRC_LONG_TEAM_H
#define SIE_CSRC_LONG_TEAM_H

#include <stdint.h>

#include "executor.h"

namespace sie {

// A step of a long slab: an operation on the rows that are in its stage.
struct LongStep {
  int32_t number;  // from 0 on, in the order in which every member takes them
  int32_t stage;   // the stage's first operation
  int32_t op;
  int64_t row;  // the first row in the stage
};

// The members of a long slab's team: the leader, member 0, begins alone. An executor that has no
// slab of its own asks to be a member and waits. The last member that arrives after a step admits
// all who have asked; all begin the next step together. So the number of members changes only while
// every member has arrived, and a member never waits for an executor that is not at work here.
class LongTeam : public Team {
 public:
  // Asks to be a member and gives the number of one; false if the team is full or its slab done.
  bool ask(int32_t *member) {
    int32_t others = asked_.load(std::memory_order_relaxed);
    do {
      if (others == max_team - 1 || closed()) return false;
    } while (!asked_.compare_exchange_weak(others, others + 1, std::memory_order_relaxed,
                                           std::memory_order_relaxed));
    *member = others + 1;
    return true;
  }
  int32_t asked() const { return asked_.load(std::memory_order_relaxed); }

  // Whether the member that asked may begin, at next(). Once the slab is closed, it never may. It is
  // admitted before the meeting that admits it is over, and begins after: else it could arrive at
  // the next meeting in that one's phase, and wait for nobody there.
  bool has(int32_t member) const {
    return admitted_.load(std::memory_order_acquire) >= member && barrier.passed(meeting(next_.number - 1));
  }
  const LongStep &next() const { return next_; }
  int32_t members() const { return admitted_.load(std::memory_order_relaxed) + 1; }

  // For the last member that arrives after a step: admits all who have asked. Returns whether there
  // were any.
  bool admit(const LongStep &next) {
    int32_t others = asked_.load(std::memory_order_relaxed);
    if (others == admitted_.load(std::memory_order_relaxed)) return false;
    next_ = next;
    admitted_.store(others, std::memory_order_release);
    return true;
  }

  // For the leader, after the last step: nobody is admitted any more.
  void close() { closed_.store(1, std::memory_order_release); }
  bool closed() const { return closed_.load(std::memory_order_acquire) != 0; }

 private:
  // The barrier's phase in which the members meet after a step: they meet once after each.
  static uint32_t meeting(int32_t step) { return static_cast<uint32_t>(step); }

  // Members apart from the leader.
  hooks::Watched<int32_t> asked_{0}, admitted_{0};
  hooks::Watched<int32_t> closed_{0};
  LongStep next_ = {};
};

}  // namespace sie

#endif  // SIE_CSRC_LONG_TEAM_H
