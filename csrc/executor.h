// executor.h — the threads of a CPU device, and how they share a batch.
//
// A run is a list of slabs. A team of executors, usually of one, computes each slab. A ticket is one
// place in one team. Executors take tickets in order, from the oldest run that has any. So a run may
// start while the last slabs of the run before are still being computed.
//
// A run that yields has long slabs. Its tickets are taken when no other run has any. Between two
// blocks, and wherever they wait, its executors look for tickets of other runs, do them and come
// back (do_others, wait_for). Its teams are of one; executors that find no slab left join those
// that are at work (LongTeam), with the tickets behind the slabs'.
//
// Nodes. On a machine of several nodes a run may have a list of tickets for each. An executor first
// takes one of the run's tickets, whichever it will be, and then a place in its node's list; if
// that is empty, in the list of the next node, and so on around. A list only shrinks, and together
// the lists hold a place for each ticket that was taken and has no place yet. So one look at each
// list is enough, and no executor is idle while a slab waits anywhere. Runs that yield have no
// lists: their order matters.
//
// Progress. A run with teams has at most as many tickets as there are executors, and an executor
// holds at most one ticket of a run. An executor that waits in a run that does not yield waits for
// members that are at work or whose tickets are still to be taken. Suppose such a ticket is never
// taken. Then no executor ever looks for tickets again, so each waits in a team of such a run.
// Tickets of the older run are taken first. So either all executors wait in the older run, which
// then has more tickets than there are executors; or all of its tickets are taken, and its members
// meet. Both contradict the assumption, so runs that do not yield always end. A yielding executor
// that waits takes their tickets. Otherwise it waits for members of its own slab, each of which is
// at work in it; or, to become one, for the end of their step; or for a slab with an earlier ticket
// of its own run or of an older yielding run. So it never waits for a ticket that is still to be
// taken.
//
// Arena lanes. Executor i owns lane i. A slab's values lie in the lane of its member 0, which takes
// no other ticket before the slab's last barrier. Each member uses the scratch of its own lane. A
// long slab's values lie in the arena's region; there a lane is its executor's scratch within a
// block only, and its contents are lost between two blocks.
#ifndef SIE_CSRC_EXECUTOR_H
#define SIE_CSRC_EXECUTOR_H

#include <pthread.h>
#include <stdint.h>

#include <atomic>

#include "futex.h"
#include "memory.h"
#include "sie.h"
#include "topology.h"

namespace sie {

constexpr int32_t max_team = 64;
constexpr int32_t max_runs = 2;  // in flight on one device

// How long an executor spins before it sleeps: about the cost of a sleep and a wake-up on a virtual
// machine. Members of a team sometimes differ by this much. A longer wait means that another
// process has the other member's core.
constexpr int64_t spin_ns = 30000;

// A barrier of a team's members: all arrive, then all go on.
class Barrier {
 public:
  // The two halves of arrive_and_wait, for a caller that does other work meanwhile. arrive returns
  // whether all members have arrived; the last one calls last() before any goes on. passed says
  // whether the phase in which the caller arrived is over.
  template <class Last>
  bool arrive(int32_t members, uint32_t *phase, const Last &last) {
    *phase = phase_.load();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) != members - 1) return false;
    arrived_.store(0, std::memory_order_relaxed);
    last();
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

// What the members of one slab share. Teams of one do not use it.
struct Team {
  Barrier barrier;
  std::atomic<int32_t> lane{0};                 // written by member 0 before the first barrier
  std::atomic<int32_t> failed_step{INT32_MAX};  // the first step at which a member failed
};

struct Run;

// A place in the team of a slab.
struct Ticket {
  int32_t slab, member;
};

// The tickets of one node's slabs, and how many of them are left.
struct TicketList {
  const Ticket *tickets;  // [n]
  int32_t n;
  alignas(64) hooks::Watched<int32_t> left;
};

// Does one ticket. Returns nothing: a failure is noted in the run.
using Work = void (*)(Run *run, int32_t slab, int32_t member, int32_t executor);

// One batch in flight; lives in its slot.
struct Run {
  Work work;
  int32_t tickets;  // in a run that yields, also those of executors that join
  const Ticket *ticket_of =
      nullptr;  // [tickets], where there are no lists; null: ticket t is member 0 of slab t
  bool yields = false;
  int32_t done_fd = 0;            // an eventfd that learns when the run is done; 0: none
  int32_t lists = 0;              // 0: tickets are taken in their order
  std::atomic<int32_t> left;      // tickets not done
  std::atomic<uint32_t> state;    // RunState
  TicketList of_node[max_nodes];  // [lists] by the places of nodes in Seats
};
enum RunState : uint32_t { run_idle = 0, run_loaded = 1, run_started = 2, run_done = 3 };

class Executors {
 public:
  // Starts `count` threads; on failure none is left. If seats is not null, it says where they run;
  // it is kept until stop. A thread without a CPU of its own is often woken on the core of another
  // member of its team, and stays there.
  sie_status start(int32_t count, const Seats *seats, sie_error *err);
  // Sets the seats alone, for tests whose own threads call loop.
  void seat(const Seats *seats) { seats_ = seats; }
  // Waits for the runs in flight, then ends the threads. Does nothing if not started.
  void stop();
  // Queues a run whose fields are set; false if max_runs are in flight. Its state becomes
  // run_started, then run_done; a run without tickets is done at once.
  bool submit(Run *run);
  // Blocks while the run is in flight.
  void wait(const Run *run);

  // What an executor's thread runs: does tickets, first those of runs that do not yield, sleeps
  // when there are none, and returns after stop.
  void loop(int32_t executor);

  // The functions below are for executors that do a ticket of a yielding run.

  // Does one ticket of a run that does not yield; false if there is none.
  bool do_other(int32_t executor) { return take(false, executor, nullptr); }
  // Does tickets of the first run that does not yield and has any, until it has none. A run that is
  // submitted meanwhile waits. So a yielding run does at least one block between two other runs, on
  // each of its executors.
  void do_others(int32_t executor) {
    uint32_t run = 0;
    while (take(false, executor, &run)) continue;
  }
  // Returns when ready() holds; does other runs' tickets until then. The thread that makes it hold
  // calls notify afterwards.
  template <class Ready>
  void wait_for(int32_t executor, const Ready &ready) {
    for (;;) {
      uint32_t seen = events_.load();
      if (ready()) return;
      if (!do_other(executor)) events_.wait_while(seen, spin_ns);
    }
  }
  void notify() { events_.advance(); }
  // Waits at the barrier of a yielding run's team. The last of the members that arrives calls
  // last() before any goes on; last returns whether somebody else waits for what it did.
  template <class Last>
  void meet(Barrier *barrier, int32_t members, int32_t executor, const Last &last) {
    uint32_t phase;
    bool awaited = members > 1;
    hooks::arrives(barrier);
    if (!barrier->arrive(members, &phase, [&last, &awaited] { awaited = last() || awaited; })) {
      wait_for(executor, [barrier, phase] { return barrier->passed(phase); });
    } else if (awaited) {
      notify();
    }
    hooks::leaves(barrier);
  }

 private:
  struct Entry {
    // High half: the run's number; low half: the tickets not yet taken, and whether the run yields.
    alignas(64) hooks::Watched<uint64_t> tickets{0};
    hooks::Watched<Run *> run{nullptr};
  };
  struct Thread {
    Executors *owner;
    int32_t index;
    pthread_t id;
  };

  static void *entry(void *thread);
  bool take(bool yielding, int32_t executor, uint32_t *only);
  bool take_from(Entry *entry, uint64_t tickets, int32_t executor);
  void sit(int32_t executor) const;
  int32_t node_of(int32_t executor) const { return seats_ != nullptr ? seats_->places[executor] : 0; }
  void finish(Run *run);

  Block threads_ = {};
  const Seats *seats_ = nullptr;
  int32_t count_ = 0;
  std::atomic<bool> stopping_{false};
  hooks::Watched<int32_t> in_flight_{0}, yielding_{0};
  Entry entries_[max_runs];
  uint32_t submitted_ = 0;          // runs so far; only the submitting thread uses it
  alignas(64) WaitWord events_;     // changes whenever there may be work
  alignas(64) WaitWord completed_;  // changes after every finished run
};

}  // namespace sie

#endif  // SIE_CSRC_EXECUTOR_H
