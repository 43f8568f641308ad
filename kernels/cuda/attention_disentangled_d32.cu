// attention_disentangled_d32.cu — disentangled attention's instances of head dimension 32.
#include "cuda/attention_disentangled.cuh"

namespace sie_cuda {

template <>
sie_status attention_launch_disentangled<32>(int32_t dtype, int64_t shared_bytes, int64_t ctas,
                                             const sie_stream *on, const DisentangledParams &params) {
  return attention_start_disentangled<32>(dtype, shared_bytes, ctas, on, params);
}

}  // namespace sie_cuda
