// simt_test.h — the code that the emulator's tests share.
//
// Every expectation is computed from the definitions of the PTX ISA (which element of a matrix lies
// in which register of which lane, which byte of a box at which address), written out again
// independently of the emulator's own code.
#ifndef SIE_KERNELS_SIMT_TESTS_SIMT_TEST_H
#define SIE_KERNELS_SIMT_TESTS_SIMT_TEST_H

#include <math.h>
#include <stdlib.h>

#include <vector>

#include "cuda/ptx/cluster_store.h"
#include "cuda/ptx/convert.h"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/fast_math.h"
#include "cuda/ptx/fence.h"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/launch.h"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/named_barrier.h"
#include "cuda/ptx/registers.h"
#include "cuda/ptx/tma.h"
#include "cuda/ptx/vector.h"
#include "cuda/ptx/warp.h"
#include "cuda/ptx/wgmma.h"
#include "tests/check.h"

namespace simt_test {

inline const sie_stream on_sm80 = {nullptr, 80, 2, 0, 0};
inline const sie_stream on_sm89 = {nullptr, 89, 2, 0, 0};
inline const sie_stream on_sm90 = {nullptr, 90, 2, 0, 0};

class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed * 2654435761u + 1) {}
  uint32_t bits() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }
  int32_t below(int32_t n) { return static_cast<int32_t>(bits() % static_cast<uint32_t>(n)); }

 private:
  uint32_t state_;
};

// n elements from a 1024-byte boundary on.
template <class T>
class Aligned {
 public:
  explicit Aligned(size_t n) : bytes_(n * sizeof(T) + 1024), n_(n) {
    uintptr_t start = (reinterpret_cast<uintptr_t>(bytes_.data()) + 1023) / 1024 * 1024;
    data_ = reinterpret_cast<T *>(start);
  }
  T *data() { return data_; }
  T &operator[](size_t i) { return data_[i]; }
  size_t size() const { return n_; }
  T *begin() { return data_; }
  T *end() { return data_ + n_; }

 private:
  std::vector<uint8_t> bytes_;
  size_t n_;
  T *data_;
};

// Small integers as an operand element of T, and back: every product and sum of them is exact.
inline uint32_t element_of(ptx::Operand type, int32_t x) {
  float f = static_cast<float>(x);
  switch (type) {
    case ptx::Operand::bf16:
      return ptx::to_bf16(f);
    case ptx::Operand::f16:
      return ptx::to_f16(f);
    default:
      return ptx::to_e4m3(f);
  }
}
inline int32_t bytes_of(ptx::Operand type) { return type == ptx::Operand::e4m3 ? 1 : 2; }

inline void put(void *to, int32_t bytes, uint32_t element) {
  memcpy(to, &element, static_cast<size_t>(bytes));
}

}  // namespace simt_test

#endif  // SIE_KERNELS_SIMT_TESTS_SIMT_TEST_H
