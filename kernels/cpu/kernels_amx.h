/* kernels_amx.h — the AMX entries of the operation table (kernels/ops.h): bf16 linear, bf16
 * attention, plain and disentangled, int8 linear. The int8 entry shares its packed layout and its helpers with the other
 * instruction sets (kernels_int8.h).
 *
 * Every function configures the tiles that it needs and releases them before it returns, so no AMX
 * state outlives a call: the threads may belong to another runtime. The process must hold the
 * kernel's AMX permission (sie_cpu_detect asks for it). Any number of threads may call at once. */
#ifndef SIE_KERNELS_CPU_KERNELS_AMX_H
#define SIE_KERNELS_CPU_KERNELS_AMX_H

#include "ops.h"

namespace sie_cpu {

/* Bytes of a packed bf16 weight [n, k]: panels of 32 columns, N and K padded to 32. */
int64_t amx_bf16_packed_bytes(int64_t n, int64_t k);

/* Packs rows [n0, n0 + rows) of W (f32, row stride ld) into dst, which the caller zeroed; the
 * contract is sie_ops.pack. Rounds to nearest even. Plain code: needs no AMX. */
void amx_bf16_pack(int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld, void *dst);

/* Linear in class BF16: x bf16; y f32 or bf16; residual f32 or bf16. A share takes whole column
 * panels. */
sie_status linear_bf16_amx(const sie_linear_args *a, const sie_share *share);
int64_t linear_bf16_amx_scratch(const sie_op_bounds *bounds);

/* Attention over bf16 q, k, v with head_dim 32, 64, 128 or 256; SIE_UNSUPPORTED for any other, and
 * for what the generic kernel refuses (call that one). A share takes (sequence, key head) pairs in
 * turn, or parts of their queries where there are fewer pairs than shares. */
sie_status attention_bf16_amx(const sie_attention_args *a, const sie_share *share);
int64_t attention_bf16_amx_scratch(const sie_op_bounds *bounds);

/* The same for attention with tables by distance, which the other refuses. Tables that skip a row
 * from one distance to the next are SIE_UNSUPPORTED, too. A share takes (head, sequence) pairs in a
 * range. */
sie_status attention_disentangled_amx(const sie_attention_args *a, const sie_share *share);
int64_t attention_disentangled_amx_scratch(const sie_op_bounds *bounds);

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_KERNELS_AMX_H */
