// attention_d256.cu — attention's instances of head dimension 256.
#include "cuda/attention.cuh"

namespace sie_cuda {

template <>
sie_status attention_launch<256>(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                 const sie_stream *on, const AttentionParams &params) {
  return attention_start<256, 4>(dtype, shape, ctas, on, params);
}

}  // namespace sie_cuda
