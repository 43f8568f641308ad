// attention_sm90.h — attention on sm_90 where the program has the wide form: which calls have it, and
// the kernels of the parts of their lists.
#ifndef SIE_KERNELS_CUDA_ATTENTION_SM90_H
#define SIE_KERNELS_CUDA_ATTENTION_SM90_H

#include "cuda/attention_launch.h"

namespace sie_cuda {

// The query rows of a warpgroup, and the keys of a block.
constexpr int kWideGroupRows = 64;
constexpr int wide_keys(int head_dim) { return head_dim <= 128 ? 128 : 64; }

// Whether this attention has the wide form on capability sm for sequences of more than
// attention_narrow_keys keys: by what the program says, never by a batch.
bool attention_has_wide(const sie_attention_args *a, int sm);

// Starts a kernel for each class of lengths that the run may have, of a list by attention_work_sm90:
// the wide form; tall items, in CTAs of eight warps; short ones and those of single warps, four. `a`
// is accepted by attention_check and has the wide form; `ctas` are those of the narrow kernels a
// head.
sie_status attention_in_parts(const sie_attention_args *a, const AttentionParams &params, int64_t ctas,
                              const sie_stream *on);

// Starts the wide form for the first items of the list.
sie_status attention_launch_wide(const sie_attention_args *a, const AttentionParams &params,
                                 const sie_stream *on);

// The instances of one head dimension: attention_sm90_d64.cu … attention_sm90_d256.cu; with ALiBi
// attention_sm90_slopes_d64.cu and attention_sm90_slopes_d128.cu, with a relative bias
// attention_sm90_bias_d64.cu and attention_sm90_bias_d128.cu.
template <int D>
sie_status attention_launch_wide(const sie_attention_args *a, const AttentionParams &params,
                                 const sie_stream *on);
template <int D>
sie_status attention_launch_wide_slopes(const sie_attention_args *a, const AttentionParams &params,
                                        const sie_stream *on);
template <int D>
sie_status attention_launch_wide_bias(const sie_attention_args *a, const AttentionParams &params,
                                      const sie_stream *on);
template <int D>
sie_status attention_launch_part_bias(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                      const sie_stream *on, const AttentionParams &params);
template <int D>
sie_status attention_launch_part(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                 const sie_stream *on, const AttentionParams &params);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_SM90_H
