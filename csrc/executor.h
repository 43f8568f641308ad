// executor.h — the threads of a device and how a batch is shared among them.
//
// A run is a list of slabs; each slab is worked on by a team of `team` executors, usually one. A ticket is
// one place in one team: ticket t is member t % team of slab t / team. Executors take tickets in order from
// the oldest run that has any, so a run may start while the last slabs of the one before are still at work.
// Since every ticket before a taken one is taken too, a member that waits for its team waits only for
// executors that make progress.
//
// Lanes: executor i owns lane i of the arena. A slab uses the values of the lane of its member 0, who takes
// no other ticket before the slab's last barrier; each member uses the scratch of its own lane.
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

// How long an executor spins before it sleeps: about what a sleep and a wake-up cost on a virtual machine.
// Members of a team differ by this much now and then; a longer wait means that somebody else has the other's
// core.
constexpr int64_t spin_ns = 30000;

// Where the members of a team meet. All arrive, then all go on.
class Barrier {
 public:
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
  int32_t tickets;              // slabs · team
  std::atomic<int32_t> left;    // tickets not done
  std::atomic<uint32_t> state;  // RunState
};
enum RunState : uint32_t { run_idle = 0, run_loaded = 1, run_started = 2, run_done = 3 };

class Executors {
 public:
  // Starts `count` threads; on failure none is left. cpus[count], when not null, is where each of them stays:
  // left to itself the kernel often wakes a team's members on one core, and keeps them there.
  sie_status start(int32_t count, const int32_t *cpus, sie_error *err);
  // Waits for the runs in flight, ends the threads. Harmless when not started.
  void stop();
  // Queues a run whose fields are set; false when max_runs are in flight. The state becomes run_started, then
  // run_done; a run without tickets is done at once.
  bool submit(Run *run);
  // Blocks until the run is done.
  void wait(const Run *run);

 private:
  struct Entry {
    // High half: the run's number; low half: tickets nobody has taken.
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
  bool take(uint32_t number, int32_t executor);
  void finish(Run *run);

  Block threads_ = {};
  int32_t count_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int32_t> in_flight_{0};
  Entry entries_[max_runs];
  alignas(64) WaitWord submitted_;  // number of the next run
  alignas(64) WaitWord completed_;  // changes after every finished run
};

}  // namespace sie

#endif  // SIE_CSRC_EXECUTOR_H
