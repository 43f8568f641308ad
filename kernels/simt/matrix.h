// matrix.h — the arithmetic of the tensor core instructions.
#ifndef SIE_KERNELS_SIMT_MATRIX_H
#define SIE_KERNELS_SIMT_MATRIX_H

#include <stdint.h>

#include "simt/simt.h"

namespace simt {

// Writes the elements of a register, 2 or 4 of them (lowest bits first), to out[0], out[step], …
void unpack(Element type, uint32_t bits, float *out, int32_t step);

// d[m, n] += Σ a[m, k]·b[k, n], k ascending, each product and each sum rounded to f32. mma and
// wgmma of every width share this arithmetic. (The hardware's order and inner precision differ
// within the tolerance of the tests.)
void multiply(int32_t m, int32_t n, int32_t k, const float *a, const float *b, float *d);

}  // namespace simt

#endif  // SIE_KERNELS_SIMT_MATRIX_H
