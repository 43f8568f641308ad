// wrapped.h — calls of csrc that the test binary's --wrap redirects to alloc_failure_test.cc.
#ifndef SIE_CSRC_TESTS_WRAPPED_H
#define SIE_CSRC_TESTS_WRAPPED_H

#include <atomic>

namespace wrapped {

// Where the next mapping that may be anywhere is asked for; null: where the kernel likes.
inline std::atomic<void *> next_mapping{nullptr};

}  // namespace wrapped

#endif  // SIE_CSRC_TESTS_WRAPPED_H
