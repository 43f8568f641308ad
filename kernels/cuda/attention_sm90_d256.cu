// attention_sm90_d256.cu — the instances of head dimension 256 for the parts of a list.
#include "cuda/attention_part.cuh"
#include "cuda/attention_sm90.cuh"

namespace sie_cuda {

template <>
sie_status attention_launch_wide<256>(const sie_attention_args *a, const AttentionParams &params,
                                      const sie_stream *on) {
  return attention_start_wide<256, Beside::nothing>(a, params, on);
}

template <>
sie_status attention_launch_part<256>(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                      const sie_stream *on, const AttentionParams &params) {
  return attention_start_part<256>(dtype, shape, ctas, on, params);
}

}  // namespace sie_cuda
