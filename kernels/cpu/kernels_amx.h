/* kernels_amx.h — the attention of the AMX table (kernels/ops.h), plain and disentangled, in bf16.
 * The linears on tiles are in kernels_bf16.h and kernels_int8.h.
 *
 * Every function configures the tiles that it needs and releases them before it returns, so no AMX
 * state outlives a call: the threads may belong to another runtime. The process must hold the
 * kernel's AMX permission (sie_cpu_detect asks for it). Any number of threads may call at once. */
#ifndef SIE_KERNELS_CPU_KERNELS_AMX_H
#define SIE_KERNELS_CPU_KERNELS_AMX_H

#include "ops.h"

namespace sie_cpu {

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
