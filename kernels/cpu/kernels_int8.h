/* kernels_int8.h — class INT8 of the operation table (kernels/ops.h) on the CPU: one packed layout
 * for all instruction sets. All form the same s32 sums exactly.
 *
 *   weights      s8, one scale per output channel: s_w = max|w|/127, w_q = rint(w/s_w)
 *   activations  u8, one scale and zero point per row, and one outlier where the rows have them
 *                (sie_tensor)
 *   product      y = act(s_x·s_w·(Σ x_q·w_q + excess·w_q[column] − zero·Σ w_q) + bias) + residual
 *
 * Any number of threads may call at once. */
#ifndef SIE_KERNELS_CPU_KERNELS_INT8_H
#define SIE_KERNELS_CPU_KERNELS_INT8_H

#include "ops.h"

namespace sie_cpu {

/* Bytes of a packed int8 weight [n, k] (int8_linear.h gives the layout). */
int64_t int8_packed_bytes(int64_t n, int64_t k);

/* Packs rows [n0, n0 + rows) of W (f32, row stride ld) into dst, which the caller zeroed; the
 * contract is sie_ops.pack. */
void int8_pack(int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld, void *dst);

/* Linear in class INT8: x u8 with scale and zero per row; y f32, bf16, or u8 with scale and zero
 * per row; residual f32 or bf16. A share takes whole column panels, or whole row blocks when y is
 * u8. */
sie_status linear_int8_amx(const sie_linear_args *a, const sie_share *share);
sie_status linear_int8_vnni(const sie_linear_args *a, const sie_share *share);
sie_status linear_int8_avx2(const sie_linear_args *a, const sie_share *share);
sie_status linear_int8_neon(const sie_linear_args *a, const sie_share *share);
sie_status linear_int8_dot(const sie_linear_args *a, const sie_share *share);

/* Scratch of any of them. */
int64_t linear_int8_scratch(const sie_op_bounds *bounds);

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_KERNELS_INT8_H */
