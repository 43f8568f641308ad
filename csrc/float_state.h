// float_state.h — the floating-point state that every thread computes in.
//
// Results must not depend on who opened the device: a thread inherits its creator's control
// register, and a host program may have set that to flush denormals or to round differently.
#ifndef SIE_CSRC_FLOAT_STATE_H
#define SIE_CSRC_FLOAT_STATE_H

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sie {

// The default of the psABI: to nearest, denormals kept, every exception masked.
constexpr unsigned int plain_mxcsr = 0x1f80;

// Sets the plain state for its lifetime; the destructor restores the thread's former one.
class FloatState {
 public:
#if defined(__x86_64__)
  FloatState() : former_(_mm_getcsr()) { _mm_setcsr(plain_mxcsr); }
  ~FloatState() { _mm_setcsr(former_); }
#endif
  FloatState(const FloatState &) = delete;
  FloatState &operator=(const FloatState &) = delete;
#if !defined(__x86_64__)
  FloatState() {}
  ~FloatState() {}
#else

 private:
  unsigned int former_;
#endif
};

}  // namespace sie

#endif  // SIE_CSRC_FLOAT_STATE_H
