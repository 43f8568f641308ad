// attention_sm90_slopes_d64.cu — the wide form's instances of head dimension 64 with ALiBi.
#include "cuda/attention_sm90.cuh"

namespace sie_cuda {

template <>
sie_status attention_launch_wide_slopes<64>(const sie_attention_args *a, const AttentionParams &params,
                                            const sie_stream *on) {
  return attention_start_wide<64, Beside::slopes>(a, params, on);
}

}  // namespace sie_cuda
