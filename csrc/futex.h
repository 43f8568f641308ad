// futex.h — waiting for a word to change: a short spin, then sleep in the kernel.
#ifndef SIE_CSRC_FUTEX_H
#define SIE_CSRC_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace sie {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

// Sleeps while *word is `value`; may return early.
inline void futex_wait(const std::atomic<uint32_t> *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

inline void futex_wake(const std::atomic<uint32_t> *word, int waiters) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, waiters, nullptr, nullptr, 0);
}

// A word others wait on. Changing it costs a system call only when somebody sleeps.
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

  // Returns when the word is not `value` any more, after at most `spins` pauses asleep.
  void wait_while(uint32_t value, int spins) {
    for (int i = 0; i < spins; i++) {
      if (word_.load(std::memory_order_acquire) != value) return;
      pause_cpu();
    }
    // Counted before the last look: either store sees the sleeper or the sleeper sees the new value.
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (word_.load(std::memory_order_seq_cst) == value) futex_wait(&word_, value);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint32_t> word_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace sie

#endif  // SIE_CSRC_FUTEX_H
