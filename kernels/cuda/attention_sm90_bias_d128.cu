// attention_sm90_bias_d128.cu — the instances of head dimension 128 with a relative bias for the parts of
// a list.
#include "cuda/attention_part.cuh"
#include "cuda/attention_sm90.cuh"

namespace sie_cuda {

template <>
sie_status attention_launch_wide_bias<128>(const sie_attention_args *a, const AttentionParams &params,
                                           const sie_stream *on) {
  return attention_start_wide<128, Beside::bias>(a, params, on);
}

template <>
sie_status attention_launch_part_bias<128>(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                           const sie_stream *on, const AttentionParams &params) {
  return attention_start_part_with<128, With::bias>(dtype, shape, ctas, on, params);
}

}  // namespace sie_cuda
