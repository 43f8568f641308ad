// attention_prefix_d128.cu — attention's instances of head dimension 128 over keys in two segments.
#include "cuda/attention.cuh"

namespace sie_cuda {

template <>
sie_status attention_launch_prefix<128>(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                        const sie_stream *on, const AttentionParams &params) {
  if (shape.warps == 8) return attention_start_prefix<128, 8>(dtype, shape, ctas, on, params);
  return attention_start_prefix<128, 4>(dtype, shape, ctas, on, params);
}

}  // namespace sie_cuda
