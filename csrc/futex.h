// futex.h — waiting for a word to change: a short spin, then sleep in the kernel.
#ifndef SIE_CSRC_FUTEX_H
#define SIE_CSRC_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "hooks.h"

namespace sie {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

inline int64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// Sleeps while *word is `value`; may return early.
inline void futex_wait(const std::atomic<uint32_t> *word, uint32_t value) {
  if (hooks::sleeps(word, value)) return;
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

inline void futex_wake(const std::atomic<uint32_t> *word, int waiters) {
  if (hooks::wakes(word, waiters)) return;
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, waiters, nullptr, nullptr, 0);
}

// A word that threads wait on. Changing it costs a system call only when a thread sleeps on it.
class WaitWord {
 public:
  uint32_t load() const { return word_.load(std::memory_order_acquire); }

  // Sets the word and wakes up to `waiters` sleepers.
  void store(uint32_t value, int waiters = INT_MAX) {
    word_.store(value, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake(&word_, waiters);
  }

  // Adds one and wakes up to `waiters` sleepers.
  void advance(int waiters = INT_MAX) {
    word_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake(&word_, waiters);
  }

  // Returns once the word is no longer `value`; sleeps if that takes longer than spin_ns.
  void wait_while(uint32_t value, int64_t spin_ns) {
    // The bound is a time, not a number of pauses, because a pause takes 10 to 150 cycles. Most
    // waits end before the clock is first read.
    int64_t end = 0;
    for (int i = 1; spin_ns > 0 && !hooks::scheduled(); i++) {
      if (word_.load(std::memory_order_acquire) != value) return;
      pause_cpu();
      if (i % 32 != 0) continue;
      int64_t now = monotonic_ns();
      if (end == 0) end = now + spin_ns;
      if (now >= end) break;
    }
    // The sleeper is counted before it reads the word for the last time: so either store sees the
    // sleeper, or the sleeper sees the new value.
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (word_.load(std::memory_order_seq_cst) == value) futex_wait(&word_, value);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  hooks::Watched<uint32_t> word_{0};
  hooks::Watched<uint32_t> sleepers_{0};
};

}  // namespace sie

#endif  // SIE_CSRC_FUTEX_H
