/* kernels_bf16.h — class BF16 of the operation table (kernels/ops.h) on the CPU: one packed layout
 * for tiles and vectors.
 *
 *   weights, activations  bf16
 *   product               y = act(Σ x·w + bias + addend) + residual, exact products, f32 sums
 *
 * The two units add in orders of their own: results of one table are the same in any company, those
 * of two tables differ by rounding. Any number of threads may call at once. */
#ifndef SIE_KERNELS_CPU_KERNELS_BF16_H
#define SIE_KERNELS_CPU_KERNELS_BF16_H

#include "ops.h"

namespace sie_cpu {

/* Bytes of a packed bf16 weight [n, k] (bf16_linear.h gives the layout). */
int64_t bf16_packed_bytes(int64_t n, int64_t k);

/* Packs rows [n0, n0 + rows) of W (f32, row stride ld) into dst, which the caller zeroed; the
 * contract is sie_ops.pack. Rounds to nearest even. */
void bf16_pack(int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld, void *dst);

/* Linear in class BF16: x bf16; y f32 or bf16; residual f32 or bf16. A share takes whole column
 * panels, or blocks of rows of some where panels are few. */
sie_status linear_bf16_amx(const sie_linear_args *a, const sie_share *share);
sie_status linear_bf16_avx512bf16(const sie_linear_args *a, const sie_share *share);

/* Scratch of either. */
int64_t linear_bf16_scratch(const sie_op_bounds *bounds);

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_KERNELS_BF16_H */
