// operations.h — instructions as a list, compiled once for emulation and once for the machine, so that
// a test can compare the two.
#ifndef SIE_KERNELS_TESTS_EMULATED_OPERATIONS_H
#define SIE_KERNELS_TESTS_EMULATED_OPERATIONS_H

#include <stdint.h>

struct OperationInput {
  alignas(64) uint8_t a[64], b[64], c[64];
  uint32_t mask;
};

// What the bytes of a result are, and so how alike two of them must be.
enum class OperationResult {
  integers,     // the same bytes
  floats,       // the same bytes, or both a NaN
  doubles,      // the same
  reciprocals,  // finite ones within 2⁻¹³
  sums          // of products, whose order is the chip's: within its error, where they are no NaN
};

struct Operation {
  const char *name;
  uint32_t isa;  // that has it
  OperationResult result;
  void (*run)(const OperationInput *in, uint8_t *out);  // out [64], which begins as c
};

struct Operations {
  const Operation *first;
  int count;
};
Operations operations_emulated();
Operations operations_of_machine();

#endif  // SIE_KERNELS_TESTS_EMULATED_OPERATIONS_H
