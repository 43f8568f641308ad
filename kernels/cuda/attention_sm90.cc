// attention_sm90.cc — which attention has the wide form, and the launches of its parts.
#include "cuda/attention_sm90.h"

namespace sie_cuda {

namespace {

// Starts the narrow kernel for the items that `params` name, of at most max_kv keys.
sie_status launch_part(const sie_attention_args *a, AttentionParams params, int64_t max_kv, int64_t ctas,
                       const sie_stream *on) {
  const AttentionShape shape = attention_shape(a->head_dim, max_kv, on->sm);
  params.resident_blocks = shape.resident_blocks;
  params.warp_units = shape.warp_units;
  if (params.bias != nullptr) {
    return a->head_dim == 64 ? attention_launch_part_bias<64>(a->q.dtype, shape, ctas, on, params)
                             : attention_launch_part_bias<128>(a->q.dtype, shape, ctas, on, params);
  }
  if (a->head_dim == 256) return attention_launch_part<256>(a->q.dtype, shape, ctas, on, params);
  return a->head_dim == 64 ? attention_launch_part<64>(a->q.dtype, shape, ctas, on, params)
                           : attention_launch_part<128>(a->q.dtype, shape, ctas, on, params);
}

}  // namespace

bool attention_has_wide(const sie_attention_args *a, int sm) {
  return sm == 90 && attention_lists_wide(a) && a->buckets == nullptr &&
         (a->alibi_slopes == nullptr || (a->bias == nullptr && a->head_dim <= 128));
}

sie_status attention_launch_wide(const sie_attention_args *a, const AttentionParams &params,
                                 const sie_stream *on) {
  if (a->alibi_slopes != nullptr) {
    return a->head_dim == 64 ? attention_launch_wide_slopes<64>(a, params, on)
                             : attention_launch_wide_slopes<128>(a, params, on);
  }
  if (a->bias != nullptr) {
    return a->head_dim == 64 ? attention_launch_wide_bias<64>(a, params, on)
                             : attention_launch_wide_bias<128>(a, params, on);
  }
  if (a->head_dim == 256) return attention_launch_wide<256>(a, params, on);
  return a->head_dim == 64 ? attention_launch_wide<64>(a, params, on)
                           : attention_launch_wide<128>(a, params, on);
}

sie_status attention_in_parts(const sie_attention_args *a, const AttentionParams &params, int64_t ctas,
                              const sie_stream *on) {
  const int64_t narrow = attention_narrow_keys(a->head_dim, a->mask);
  if (a->max_kv > narrow) {
    const sie_status status = attention_launch_wide(a, params, on);
    if (status != SIE_OK) return status;
  }
  AttentionParams part = params;
  part.first = &params.work->wide_items;
  part.range = &params.work->tall_end;
  const sie_status status = launch_part(a, part, a->max_kv < narrow ? a->max_kv : narrow, ctas, on);
  if (status != SIE_OK) return status;
  part.first = &params.work->tall_end;
  part.range = &params.work->cta_items;
  return launch_part(a, part, attention_short_keys(a->head_dim), ctas, on);
}

}  // namespace sie_cuda
