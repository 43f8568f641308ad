// executor.cc — the executors' loop: take a ticket of the oldest run, do it, sleep when there is none.
#include "executor.h"

#include <signal.h>

#include "cpu_limits.h"
#include "float_state.h"
#include "status.h"

namespace sie {

namespace {

// Keeps the calling thread on one CPU; where that is refused it stays free.
void stay_on(int32_t cpu) {
  constexpr size_t bits = 8 * sizeof(unsigned long);
  unsigned long mask[max_cpus / bits] = {};
  mask[static_cast<size_t>(cpu) / bits] = 1ul << (static_cast<size_t>(cpu) % bits);
  syscall(SYS_sched_setaffinity, 0, sizeof mask, mask);
}

}  // namespace

sie_status Executors::start(int32_t count, const int32_t *cpus, sie_error *err) {
  Thread *threads = array_of<Thread>(&threads_, count);
  SIE_FAIL_IF(threads == nullptr, SIE_OUT_OF_MEMORY, err, "no memory for %d executors", count);
  // Signals belong to the host program's threads.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = 0;
  while (count_ < count && failed == 0) {
    threads[count_] = {this, count_, cpus != nullptr ? cpus[count_] : -1, {}};
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
  submitted_.advance();
  Thread *threads = static_cast<Thread *>(threads_.p);
  for (int32_t i = 0; i < count_; i++) pthread_join(threads[i].id, nullptr);
  count_ = 0;
  release(&threads_);
}

bool Executors::submit(Run *run) {
  if (in_flight_.load(std::memory_order_acquire) >= max_runs) return false;
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  run->left.store(run->tickets, std::memory_order_relaxed);
  run->state.store(run_started, std::memory_order_relaxed);
  int32_t tickets = run->tickets;
  if (tickets == 0) {
    finish(run);
    return true;
  }
  // The entry's former run has no ticket left: it is done, or the run after it was started and is done.
  uint32_t number = submitted_.load();
  Entry &entry = entries_[number % max_runs];
  entry.run.store(run, std::memory_order_relaxed);
  entry.tickets.store(uint64_t{number} << 32 | static_cast<uint32_t>(tickets), std::memory_order_release);
  submitted_.advance(tickets);
  return true;
}

void Executors::wait(const Run *run) {
  for (;;) {
    uint32_t seen = completed_.load();
    if (run->state.load(std::memory_order_acquire) == run_done) return;
    // No spinning: the waiting thread would take a core from an executor.
    completed_.wait_while(seen, 0);
  }
}

void Executors::finish(Run *run) {
  in_flight_.fetch_sub(1, std::memory_order_release);
  run->state.store(run_done, std::memory_order_release);
  // From here on the run may be freed.
  completed_.advance();
}

// Takes one ticket of run `number` and does it; false when none is left.
bool Executors::take(uint32_t number, int32_t executor) {
  Entry &entry = entries_[number % max_runs];
  uint64_t tickets = entry.tickets.load(std::memory_order_acquire);
  Run *run;
  do {
    uint32_t left = static_cast<uint32_t>(tickets);
    if (static_cast<uint32_t>(tickets >> 32) != number || left == 0) return false;
    // Read before the ticket is taken: an entry with tickets is never handed to another run.
    run = entry.run.load(std::memory_order_relaxed);
  } while (!entry.tickets.compare_exchange_weak(tickets, tickets - 1, std::memory_order_acq_rel,
                                                std::memory_order_acquire));
  int32_t ticket = run->tickets - static_cast<int32_t>(static_cast<uint32_t>(tickets));
  hooks::takes_ticket(ticket % run->team);
  run->work(run, ticket / run->team, ticket % run->team, executor);
  if (run->left.fetch_sub(1, std::memory_order_acq_rel) == 1) finish(run);
  return true;
}

void Executors::loop(int32_t executor) {
  for (;;) {
    uint32_t next = submitted_.load();
    if (take(next - 2, executor) || take(next - 1, executor)) continue;
    if (stopping_.load()) return;
    submitted_.wait_while(next, spin_ns);
  }
}

void *Executors::entry(void *argument) {
  Thread *thread = static_cast<Thread *>(argument);
  FloatState plain;
  if (thread->cpu >= 0) stay_on(thread->cpu);
  thread->owner->loop(thread->index);
  return nullptr;
}

}  // namespace sie
