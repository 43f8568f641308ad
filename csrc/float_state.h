// float_state.h — the floating-point state that every thread computes in.
//
// Results must not depend on who opened the device: a thread inherits its creator's control
// register, and a host program may have set that to flush denormals or to round differently.
#ifndef SIE_CSRC_FLOAT_STATE_H
#define SIE_CSRC_FLOAT_STATE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sie {

// The control register of this thread's floating point, and its default in the machine's ABI: to
// nearest, denormals kept, every exception masked.
#if defined(__x86_64__)
constexpr uint64_t plain_float_state = 0x1f80;
inline uint64_t read_float_state() { return _mm_getcsr(); }
inline void write_float_state(uint64_t state) { _mm_setcsr(static_cast<unsigned int>(state)); }
#elif defined(__aarch64__)
constexpr uint64_t plain_float_state = 0;
inline uint64_t read_float_state() {
  uint64_t state;
  __asm__ __volatile__("mrs %0, fpcr" : "=r"(state));
  return state;
}
inline void write_float_state(uint64_t state) {
  // Arithmetic must not move across this: it depends on the register, and no compiler knows.
  __asm__ __volatile__("msr fpcr, %0" : : "r"(state) : "memory");
}
#else
constexpr uint64_t plain_float_state = 0;
inline uint64_t read_float_state() { return 0; }
inline void write_float_state(uint64_t) {}
#endif

// Sets the plain state for its lifetime; the destructor restores the thread's former one.
class FloatState {
 public:
  FloatState() : former_(read_float_state()) { write_float_state(plain_float_state); }
  ~FloatState() { write_float_state(former_); }
  FloatState(const FloatState &) = delete;
  FloatState &operator=(const FloatState &) = delete;

 private:
  uint64_t former_;
};

}  // namespace sie

#endif  // SIE_CSRC_FLOAT_STATE_H
