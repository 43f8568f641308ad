// attention_launch.h — the parameters that attention's launcher passes to the kernel, and the
// choice of the instance.
#ifndef SIE_KERNELS_CUDA_ATTENTION_LAUNCH_H
#define SIE_KERNELS_CUDA_ATTENTION_LAUNCH_H

#include "cuda/attention_work.h"

namespace sie_cuda {

struct AttentionParams {
  const uint16_t *q, *k, *v;
  uint16_t *y;
  int64_t q_ld, k_ld, v_ld, y_ld;
  const AttentionWork *work;
  const float *slopes;  // [heads] or NULL
  int32_t heads, kv_heads;
  int32_t left, right;      // keys seen before and after a query's own position
  int32_t resident_blocks;  // that shared memory has room for; at least 2 where a sequence has more than 1
  int32_t warp_units;       // warp-form units that shared memory has room for, at most the CTA's warps
  float scale_log2, inverse_scale;  // scale·log₂e, 1/scale
  const float *bias;                // [heads, 2·bias_reach + 1] or NULL
  int32_t bias_reach;
  const uint16_t *prefix_k, *prefix_v;  // NULL: no item has a prefix
  int64_t prefix_k_ld, prefix_v_ld;
  // For a kernel of a part of the list, in its head: the number of the first CTA item, and the pair
  // of their end and the number of warp items.
  const int32_t *first, *range;
};

// The shared memory of a warp-form unit: keys, values and queries of 32 rows.
constexpr uint32_t attention_warp_bytes(int head_dim) {
  return 3u * kAttentionWarpKeys * static_cast<uint32_t>(head_dim) * 2u;
}

struct AttentionShape {
  int warps;  // a CTA: 4 or 8 (4 at head dimension 256)
  int32_t resident_blocks, warp_units;
  int64_t shared_bytes;
};

// The instance and its shared memory for key sequences of at most max_kv, on compute capability sm.
// The choice changes no result.
AttentionShape attention_shape(int head_dim, int64_t max_kv, int sm);

// The parameters for arguments that attention and attention_check accepted.
AttentionParams attention_params(const sie_attention_args *a, const AttentionShape &shape);

// Starts attention_kernel with `ctas` (1 … 65535) CTAs for each head.
sie_status attention_launch(int32_t dtype, int32_t head_dim, const AttentionShape &shape, int64_t ctas,
                            const sie_stream *on, const AttentionParams &params);

// The same for one head dimension: attention_d32.cu … attention_d256.cu hold the instances.
template <int D>
sie_status attention_launch(int32_t dtype, const AttentionShape &shape, int64_t ctas, const sie_stream *on,
                            const AttentionParams &params);

// The same with a relative bias: attention_bias_d32.cu, _d64.cu and _d128.cu.
template <int D>
sie_status attention_launch_bias(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                 const sie_stream *on, const AttentionParams &params);

// The same over keys in two segments: attention_prefix_d32.cu … attention_prefix_d256.cu.
template <int D>
sie_status attention_launch_prefix(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                   const sie_stream *on, const AttentionParams &params);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_LAUNCH_H
