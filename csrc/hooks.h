// hooks.h — the places where a test may hold or schedule a thread: each step of a wait word, each
// meeting of a team, each ticket, each block; and the machine and the GPU that it may make up.
//
// Only csrc_tests has them: it compiles csrc again with SIE_TEST_HOOKS. In the library Watched is
// std::atomic and the functions are empty.
#ifndef SIE_CSRC_HOOKS_H
#define SIE_CSRC_HOOKS_H

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace sie::hooks {

// A made-up machine in place of the real one.
struct Machine {
  const char *root;     // holds /sys and /proc
  const int32_t *cpus;  // [n] of the affinity mask, ascending
  int32_t n;
  // In place of the system call, of whose bits the kernel reads one less; returns 0 or an errno.
  int (*mbind)(void *p, size_t bytes, int mode, const unsigned long *nodes, unsigned long bits);
  // A thread on the node at `place` touches p, so that the kernel takes its page there.
  void (*touch)(int32_t place, const void *p);
};

#ifndef SIE_TEST_HOOKS

template <class T>
using Watched = std::atomic<T>;

constexpr bool scheduled() { return false; }
inline bool sleeps(const std::atomic<uint32_t> *, uint32_t) { return false; }
inline bool wakes(const std::atomic<uint32_t> *, int) { return false; }
inline void takes_ticket(int32_t, int32_t) {}
inline void arrives(const void *) {}
inline void leaves(const void *) {}
inline void runs_block(int32_t, int64_t) {}
inline void touches(int32_t, const void *) {}
inline const Machine *machine() { return nullptr; }
constexpr bool skips_self_tests() { return false; }
constexpr int64_t gpu_input_bytes() { return 0; }

#else

// A test's functions. Each runs on the thread that reaches its place; a null one is skipped.
struct Hooks {
  // Before every operation on a Watched word.
  void (*step)();
  // In place of the futex calls; the waiter may return early, as from the kernel.
  void (*sleep)(const std::atomic<uint32_t> *word, uint32_t value);
  void (*wake)(const std::atomic<uint32_t> *word, int waiters);
  // A thread begins a ticket as this member of a slab's team; arrives at a barrier; leaves the
  // barrier.
  void (*ticket)(int32_t slab, int32_t member);
  void (*arrive)(const void *barrier);
  void (*leave)(const void *barrier);
  // A member of a long slab's team begins its block `number` of the planned operation.
  void (*block)(int32_t operation, int64_t number);
};

// A test sets them while no other thread is in csrc. Null: no hooks, and the real machine.
inline std::atomic<const Hooks *> installed{nullptr};
inline std::atomic<const Machine *> made_up{nullptr};
// For a test that opens thousands of devices: they offer their classes without the start-up test,
// which other tests see.
inline std::atomic<bool> no_self_tests{false};
// Programs of a made-up GPU end, and need so many bytes for a batch's inputs. 0: there is no GPU.
inline std::atomic<int64_t> gpu_inputs{0};

inline const Hooks *now() { return installed.load(std::memory_order_acquire); }

inline const Machine *machine() { return made_up.load(std::memory_order_acquire); }

inline bool skips_self_tests() { return no_self_tests.load(std::memory_order_acquire); }

inline int64_t gpu_input_bytes() { return gpu_inputs.load(std::memory_order_acquire); }

inline void touches(int32_t place, const void *p) {
  if (const Machine *made = machine()) made->touch(place, p);
}

inline void step() {
  const Hooks *h = now();
  if (h != nullptr && h->step != nullptr) h->step();
}

template <class T>
class Watched : public std::atomic<T> {
  using Base = std::atomic<T>;

 public:
  using Base::Base;
  T load(std::memory_order order = std::memory_order_seq_cst) const {
    step();
    return Base::load(order);
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    step();
    Base::store(value, order);
  }
  T fetch_add(T value, std::memory_order order = std::memory_order_seq_cst) {
    step();
    return Base::fetch_add(value, order);
  }
  T fetch_sub(T value, std::memory_order order = std::memory_order_seq_cst) {
    step();
    return Base::fetch_sub(value, order);
  }
  bool compare_exchange_weak(T &expected, T value, std::memory_order success, std::memory_order failure) {
    step();
    return Base::compare_exchange_weak(expected, value, success, failure);
  }
};

// Whether a test decides which thread runs; then no thread spins.
inline bool scheduled() {
  const Hooks *h = now();
  return h != nullptr && h->step != nullptr;
}
// Each returns true if the test has done the call's work.
inline bool sleeps(const std::atomic<uint32_t> *word, uint32_t value) {
  const Hooks *h = now();
  if (h == nullptr || h->sleep == nullptr) return false;
  h->sleep(word, value);
  return true;
}
inline bool wakes(const std::atomic<uint32_t> *word, int waiters) {
  const Hooks *h = now();
  if (h == nullptr || h->wake == nullptr) return false;
  h->wake(word, waiters);
  return true;
}
inline void takes_ticket(int32_t slab, int32_t member) {
  const Hooks *h = now();
  if (h != nullptr && h->ticket != nullptr) h->ticket(slab, member);
}
inline void arrives(const void *barrier) {
  const Hooks *h = now();
  if (h != nullptr && h->arrive != nullptr) h->arrive(barrier);
}
inline void leaves(const void *barrier) {
  const Hooks *h = now();
  if (h != nullptr && h->leave != nullptr) h->leave(barrier);
}
inline void runs_block(int32_t operation, int64_t number) {
  const Hooks *h = now();
  if (h != nullptr && h->block != nullptr) h->block(operation, number);
}

#endif

}  // namespace sie::hooks

#endif  // SIE_CSRC_HOOKS_H
