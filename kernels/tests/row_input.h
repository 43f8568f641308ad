// row_input.h — inputs of row operations: ordinary ones, and ones that are hard for rounding,
// ranges and sums.
#ifndef SIE_KERNELS_TESTS_ROW_INPUT_H
#define SIE_KERNELS_TESTS_ROW_INPUT_H

#include "harness.h"

namespace harness {

enum Input { plain, outliers, equal_rows, denormals, positive, ties, holes, offset, least_scale, negative };
extern const char *const input_names[];

// A value of row r.
float input_value(Random *random, Input input, int64_t r);
// All of x.
void fill(Rows *x, Random *random, Input input);

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_ROW_INPUT_H
