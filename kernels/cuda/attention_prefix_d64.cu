// attention_prefix_d64.cu — attention's instances of head dimension 64 over keys in two segments.
#include "cuda/attention.cuh"

namespace sie_cuda {

template <>
sie_status attention_launch_prefix<64>(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                       const sie_stream *on, const AttentionParams &params) {
  if (shape.warps == 8) return attention_start_prefix<64, 8>(dtype, shape, ctas, on, params);
  return attention_start_prefix<64, 4>(dtype, shape, ctas, on, params);
}

}  // namespace sie_cuda
