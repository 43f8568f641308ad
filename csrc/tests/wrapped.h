// wrapped.h — calls of csrc that the test binary's --wrap redirects to tests: those for memory and threads
// to alloc_failure_test.cc, those about the processor to device_test.cc.
#ifndef SIE_CSRC_TESTS_WRAPPED_H
#define SIE_CSRC_TESTS_WRAPPED_H

#include <atomic>

namespace wrapped {

// Where the next mapping that may be anywhere is asked for; null: where the kernel likes.
inline std::atomic<void *> next_mapping{nullptr};

// The calls for memory and threads that succeed before one that fails; −1: none fails.
inline std::atomic<int> calls_left{-1};

}  // namespace wrapped

#endif  // SIE_CSRC_TESTS_WRAPPED_H
