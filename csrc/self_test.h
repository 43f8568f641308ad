// self_test.h — checks that a compute class gives right and batch-invariant results on this
// machine.
#ifndef SIE_CSRC_SELF_TEST_H
#define SIE_CSRC_SELF_TEST_H

#include "ops.h"

namespace sie {

// Runs the class's linear, norm and attention on small ragged shapes: against the reference, and
// each row alone against the same row among others, bit for bit. Returns SIE_OK; SIE_UNSUPPORTED,
// with *problem saying what went wrong (a constant text); or SIE_OUT_OF_MEMORY. Takes some
// milliseconds; allocates and frees about 1 MB.
sie_status self_test(const sie_ops *ops, uint32_t compute, const char **problem);

}  // namespace sie

#endif  // SIE_CSRC_SELF_TEST_H
