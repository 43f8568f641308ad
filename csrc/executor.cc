// executor.cc — the executors' loop: takes a ticket of the oldest run and does it; sleeps when
// there is none.
#include "executor.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include <initializer_list>

#include "float_state.h"
#include "status.h"

namespace sie {

namespace {

// The parts of Entry::tickets.
constexpr uint64_t yields_bit = uint64_t{1} << 31;
uint32_t left_of(uint64_t tickets) { return static_cast<uint32_t>(tickets & (yields_bit - 1)); }
uint32_t number_of(uint64_t tickets) { return static_cast<uint32_t>(tickets >> 32); }

// The next of a run's listed tickets for an executor of the node.
Ticket take_listed(Run *run, int32_t node) {
  for (int32_t i = 0; i < run->lists; i++) {
    TicketList &list = run->of_node[(node + i) % run->lists];
    int32_t left = list.left.load(std::memory_order_relaxed);
    while (left > 0 && !list.left.compare_exchange_weak(left, left - 1, std::memory_order_relaxed,
                                                        std::memory_order_relaxed)) {
      continue;
    }
    if (left != 0) return list.tickets[list.n - left];
  }
  return {};  // never: the lists hold a place for each ticket taken
}

// Wakes who reads from the eventfd.
void add_one(int32_t eventfd) {
  const uint64_t one = 1;
  while (write(eventfd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

}  // namespace

// Keeps the calling thread where its seat is.
void Executors::sit(int32_t executor) const {
  if (seats_ == nullptr) return;
  if (seats_->pinned) {
    CpuMask mask;
    mask.add(seats_->cpus[executor]);
    mask.stay();
  } else if (seats_->by_node) {
    mask_of(*seats_, seats_->places[executor]).stay();
  }
}

sie_status Executors::start(int32_t count, const Seats *seats, sie_error *err) {
  seats_ = seats;
  Thread *threads = array_of<Thread>(&threads_, count);
  SIE_FAIL_IF(threads == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for %d executors", count);
  // Executors take no signals: those belong to the host program's threads.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = 0;
  while (count_ < count && failed == 0) {
    threads[count_] = {this, count_, {}};
    failed = pthread_create(&threads[count_].id, nullptr, entry, &threads[count_]);
    if (failed == 0) count_++;
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (failed != 0) {
    int32_t started = count_;
    stop();
    return fail(err, SIE_OUT_OF_MEMORY,
                "executor %d of %d could not be started (error %d); ask for fewer threads", started + 1,
                count, failed);
  }
  return SIE_OK;
}

void Executors::stop() {
  for (;;) {
    uint32_t seen = completed_.load();
    if (in_flight_.load(std::memory_order_acquire) == 0) break;
    completed_.wait_while(seen, 0);
  }
  stopping_.store(true);
  notify();
  Thread *threads = static_cast<Thread *>(threads_.p);
  for (int32_t i = 0; i < count_; i++) pthread_join(threads[i].id, nullptr);
  count_ = 0;
  release(&threads_);
}

bool Executors::submit(Run *run) {
  if (in_flight_.load(std::memory_order_acquire) >= max_runs) return false;
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  if (run->yields) yielding_.fetch_add(1, std::memory_order_relaxed);
  run->left.store(run->tickets, std::memory_order_relaxed);
  run->state.store(run_started, std::memory_order_relaxed);
  int32_t tickets = run->tickets;
  if (tickets == 0) {
    finish(run);
    return true;
  }
  // At most one of the two entries has tickets: that of the other run in flight.
  Entry &entry =
      left_of(entries_[0].tickets.load(std::memory_order_relaxed)) == 0 ? entries_[0] : entries_[1];
  entry.run.store(run, std::memory_order_relaxed);
  if (++submitted_ == 0) submitted_ = 1;
  uint64_t state =
      uint64_t{submitted_} << 32 | (run->yields ? yields_bit : 0) | static_cast<uint32_t>(tickets);
  entry.tickets.store(state, std::memory_order_release);
  // An executor that waits in a yielding run may go on there instead of taking a ticket. So all are
  // woken while a yielding run is in flight.
  events_.advance(yielding_.load(std::memory_order_relaxed) == 0 ? tickets : INT_MAX);
  return true;
}

void Executors::wait(const Run *run) {
  for (;;) {
    uint32_t seen = completed_.load();
    if (run->state.load(std::memory_order_acquire) != run_started) return;
    // No spinning: the waiting thread would take a core from an executor.
    completed_.wait_while(seen, 0);
  }
}

void Executors::finish(Run *run) {
  if (run->yields) yielding_.fetch_sub(1, std::memory_order_relaxed);
  const int32_t done_fd = run->done_fd;
  in_flight_.fetch_sub(1, std::memory_order_release);
  run->state.store(run_done, std::memory_order_release);
  // From here on the run may be freed; its eventfd may be closed when this has been read from it.
  completed_.advance();
  if (done_fd > 0) add_one(done_fd);
}

// Takes one ticket and does it; false if there is none. The ticket is of the oldest run that has
// any and that yields (`yielding`) or does not. If `only` is given and *only is not 0, the ticket
// must be of the run with that number; if *only is 0, it receives the run's number.
bool Executors::take(bool yielding, int32_t executor, uint32_t *only) {
  // Both entries at one moment. Between two single looks a run could end and two begin, of which
  // only the younger would be seen, and its team would be short of whoever waits in the older
  // one's.
  uint64_t states[max_runs];
  uint64_t first = entries_[0].tickets.load(std::memory_order_acquire);
  do {
    states[0] = first;
    states[1] = entries_[1].tickets.load(std::memory_order_acquire);
    first = entries_[0].tickets.load(std::memory_order_acquire);
  } while (number_of(first) != number_of(states[0]));
  int older = static_cast<int32_t>(number_of(states[0]) - number_of(states[1])) < 0 ? 0 : 1;
  for (int i : {older, 1 - older}) {
    uint32_t number = number_of(states[i]);
    bool wanted = only == nullptr || *only == 0 || *only == number;
    if (((states[i] & yields_bit) != 0) != yielding || !wanted) continue;
    if (!take_from(&entries_[i], states[i], executor)) continue;
    if (only != nullptr) *only = number;
    return true;
  }
  return false;
}

bool Executors::take_from(Entry *entry, uint64_t tickets, int32_t executor) {
  uint32_t number = number_of(tickets);
  Run *run;
  do {
    if (number_of(tickets) != number || left_of(tickets) == 0) return false;
    // Read before the ticket is taken: an entry with tickets is never handed to another run.
    run = entry->run.load(std::memory_order_relaxed);
  } while (!entry->tickets.compare_exchange_weak(tickets, tickets - 1, std::memory_order_acq_rel,
                                                 std::memory_order_acquire));
  int32_t number_in_run = run->tickets - static_cast<int32_t>(left_of(tickets));
  Ticket ticket = {number_in_run, 0};
  if (run->lists > 0) {
    ticket = take_listed(run, node_of(executor));
  } else if (run->ticket_of != nullptr) {
    ticket = run->ticket_of[number_in_run];
  }
  hooks::takes_ticket(ticket.slab, ticket.member);
  run->work(run, ticket.slab, ticket.member, executor);
  if (run->left.fetch_sub(1, std::memory_order_acq_rel) == 1) finish(run);
  return true;
}

void Executors::loop(int32_t executor) {
  for (;;) {
    uint32_t seen = events_.load();
    if (take(false, executor, nullptr) || take(true, executor, nullptr)) continue;
    if (stopping_.load()) return;
    events_.wait_while(seen, spin_ns);
  }
}

void *Executors::entry(void *argument) {
  Thread *thread = static_cast<Thread *>(argument);
  FloatState plain;
  thread->owner->sit(thread->index);
  thread->owner->loop(thread->index);
  return nullptr;
}

}  // namespace sie
