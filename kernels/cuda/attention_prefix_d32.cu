// attention_prefix_d32.cu — attention's instances of head dimension 32 over keys in two segments.
#include "cuda/attention.cuh"

namespace sie_cuda {

template <>
sie_status attention_launch_prefix<32>(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                       const sie_stream *on, const AttentionParams &params) {
  if (shape.warps == 8) return attention_start_prefix<32, 8>(dtype, shape, ctas, on, params);
  return attention_start_prefix<32, 4>(dtype, shape, ctas, on, params);
}

}  // namespace sie_cuda
