// memory.h — the memory that kernels are given: the host's own, or memory that a GPU of this
// machine also reads.
#ifndef SIE_KERNELS_TESTS_MEMORY_H
#define SIE_KERNELS_TESTS_MEMORY_H

#include <stddef.h>
#include <stdlib.h>

#include <vector>

#include "ops.h"

namespace harness {

// A program that runs the list on a real GPU puts its own functions here before the first case.
struct Memory {
  void *(*allocate)(size_t bytes);  // aligned to 64 bytes; never NULL
  void (*release)(void *p);
  // Waits for the work that a table has launched on `on`; returns its error.
  sie_status (*finish)(const sie_stream *on);
};
extern Memory memory;

template <typename T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <typename U>
  Allocator(const Allocator<U> &) {}  // NOLINT: containers convert
  T *allocate(size_t n) { return static_cast<T *>(memory.allocate(n * sizeof(T))); }
  void deallocate(T *p, size_t) { memory.release(p); }
  bool operator==(const Allocator &) const { return true; }
  bool operator!=(const Allocator &) const { return false; }
};

// An array for data that a kernel reads or writes outside of Rows.
template <typename T>
using Array = std::vector<T, Allocator<T>>;

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_MEMORY_H
