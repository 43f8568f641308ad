// executor.h — the threads of a device and how a batch is shared among them.
//
// A run is a list of slabs; each slab is worked on by a team of `team` executors, usually one. A
// ticket is one place in one team: ticket t is member t % team of slab t / team. Executors take
// tickets in order from the oldest run that has any, so a run may start while the last slabs of the
// one before are still at work.
//
// A run that yields has long slabs. Its tickets are taken when no other run has any, and its
// executors look for tickets of others between two blocks and wherever they wait (do_others,
// wait_for), do them and come back.
//
// Progress. A run with teams has at most as many tickets as there are executors, and an executor
// has at most one ticket of a run. One that waits in a run which does not yield waits for members
// that are at work or still to be taken. Suppose one is never taken: then no executor ever looks
// for tickets again, so each waits in a team of such a run. Tickets of the older one are taken
// first, so all of those wait in the older one, whose tickets then number more than the executors;
// or all of its tickets are taken, and its members meet. So runs that do not yield always end. A
// yielding executor that waits takes their tickets, and else waits for members of its own run, for
// which the same holds, or for a slab with an earlier ticket of its own or of an older yielding
// run.
//
// Lanes: executor i owns lane i of the arena. A slab uses the values of the lane of its member 0,
// who takes no other ticket before the slab's last barrier; each member uses the scratch of its own
// lane. A long slab's values lie in the arena's region, and a lane is its executor's scratch within
// a block and nobody's between two.
#ifndef SIE_CSRC_EXECUTOR_H
#define SIE_CSRC_EXECUTOR_H

#include <pthread.h>
#include <stdint.h>

#include <atomic>

#include "futex.h"
#include "memory.h"
#include "sie.h"

namespace sie {

constexpr int32_t max_executors = 1024;
constexpr int32_t max_team = 16;
constexpr int32_t max_runs = 2;  // in flight on one device

// How long an executor spins before it sleeps: about what a sleep and a wake-up cost on a virtual
// machine. Members of a team differ by this much now and then; a longer wait means that somebody
// else has the other's core.
constexpr int64_t spin_ns = 30000;

// Where the members of a team meet. All arrive, then all go on.
class Barrier {
 public:
  // The two halves of arrive_and_wait, for who does something else meanwhile: arrive, which says
  // whether all have, and whether the phase in which one arrived has passed.
  bool arrive(int32_t members, uint32_t *phase) {
    *phase = phase_.load();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) != members - 1) return false;
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(*phase + 1);
    return true;
  }
  bool passed(uint32_t phase) const { return phase_.load() != phase; }

  void arrive_and_wait(int32_t members) {
    hooks::arrives(this);
    uint32_t phase = phase_.load();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == members - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1);
    } else {
      phase_.wait_while(phase, spin_ns);
    }
    hooks::leaves(this);
  }

 private:
  alignas(64) hooks::Watched<int32_t> arrived_{0};
  alignas(64) WaitWord phase_;
};

// What the members of one slab share; used by teams of more than one.
struct Team {
  Barrier barrier;
  std::atomic<int32_t> lane{0};               // written by member 0 before the first barrier
  std::atomic<int32_t> failed_op{INT32_MAX};  // the first operation a member failed at
};

struct Run;

// Does one ticket. Must not fail: a failure is noted in the run.
using Work = void (*)(Run *run, int32_t slab, int32_t member, int32_t executor);

// One batch in flight; lives in its slot.
struct Run {
  Work work;
  int32_t team;
  int32_t tickets;  // slabs · team, but for the last `singles` slabs, which have one ticket each
  int32_t singles = 0;
  bool yields = false;
  std::atomic<int32_t> left;    // tickets not done
  std::atomic<uint32_t> state;  // RunState
};
enum RunState : uint32_t { run_idle = 0, run_loaded = 1, run_started = 2, run_done = 3 };

class Executors {
 public:
  // Starts `count` threads; on failure none is left. cpus[count], when not null, is where each of
  // them stays: left to itself the kernel often wakes a team's members on one core, and keeps them
  // there.
  sie_status start(int32_t count, const int32_t *cpus, sie_error *err);
  // Waits for the runs in flight, ends the threads. Harmless when not started.
  void stop();
  // Queues a run whose fields are set; false when max_runs are in flight. The state becomes
  // run_started, then run_done; a run without tickets is done at once.
  bool submit(Run *run);
  // Blocks until the run is done.
  void wait(const Run *run);

  // For executors in tickets of yielding runs.
  // Does one ticket of a run that does not yield; false when none is to be had.
  bool do_other(int32_t executor) { return take(false, executor, nullptr); }
  // Does tickets of such a run, the first that has any, until it has none; says whether there were
  // any. A run that comes meanwhile waits: so a yielding run does at least a block between two
  // others, on every executor of its own.
  bool do_others(int32_t executor) {
    uint32_t run = 0;
    while (take(false, executor, &run)) continue;
    return run != 0;
  }
  // Returns when ready() holds; does other runs' tickets until then. Who makes it hold calls notify
  // afterwards.
  template <class Ready>
  void wait_for(int32_t executor, const Ready &ready) {
    for (;;) {
      uint32_t seen = events_.load();
      if (ready()) return;
      if (!do_other(executor)) events_.wait_while(seen, spin_ns);
    }
  }
  void notify() { events_.advance(); }
  // The barrier of a yielding run's team.
  void meet(Barrier *barrier, int32_t members, int32_t executor) {
    uint32_t phase;
    hooks::arrives(barrier);
    if (barrier->arrive(members, &phase)) {
      notify();
    } else {
      wait_for(executor, [barrier, phase] { return barrier->passed(phase); });
    }
    hooks::leaves(barrier);
  }

 private:
  struct Entry {
    // High half: the run's number; low half: tickets nobody has taken, and whether the run yields.
    alignas(64) std::atomic<uint64_t> tickets{0};
    std::atomic<Run *> run{nullptr};
  };
  struct Thread {
    Executors *owner;
    int32_t index;
    int32_t cpu;  // -1: any
    pthread_t id;
  };

  static void *entry(void *thread);
  void loop(int32_t executor);
  bool take(bool yielding, int32_t executor, uint32_t *only);
  bool take_from(Entry *entry, uint64_t tickets, int32_t executor);
  void finish(Run *run);

  Block threads_ = {};
  int32_t count_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int32_t> in_flight_{0}, yielding_{0};
  Entry entries_[max_runs];
  uint32_t submitted_ = 0;          // runs so far; the submitting thread's
  alignas(64) WaitWord events_;     // changes whenever there may be something to do
  alignas(64) WaitWord completed_;  // changes after every finished run
};

}  // namespace sie

#endif  // SIE_CSRC_EXECUTOR_H
