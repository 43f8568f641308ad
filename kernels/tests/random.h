// random.h — the random numbers that tests of kernels and of csrc use.
#ifndef SIE_KERNELS_TESTS_RANDOM_H
#define SIE_KERNELS_TESTS_RANDOM_H

#include <stdint.h>

namespace harness {

// Numbers in −1 … 1, the same on every machine.
class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed * 2654435761u + 1) {}
  uint32_t next() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }
  int32_t below(int32_t n) { return static_cast<int32_t>(next() % static_cast<uint32_t>(n)); }
  float real() { return static_cast<float>(next()) * (2.0f / 16777216.0f) - 1.0f; }

 private:
  uint32_t state_;
};

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_RANDOM_H
