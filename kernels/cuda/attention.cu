// attention.cu — attention's launcher: its checks, and the resources of a multiprocessor that a CTA
// takes.
#include "cuda/attention_disentangled.h"
#include "cuda/attention_sm90.h"

namespace sie_cuda {

namespace {

constexpr int64_t kKiB = 1024;
constexpr float kLog2e = 1.44269504088896340736f;
// CTAs a multiprocessor in the largest grid. CTAs take further work in turns: a graph captured for
// many sequences must not start a CTA for each sequence that a run lacks.
constexpr int64_t kCtasPerMultiprocessor = 16;
// The distance that means "any"; positions stay below kAttentionMaxLength.
constexpr int32_t kFar = 1 << 29;

// Compute capabilities whose multiprocessors have 100 KiB of shared memory; the others have 164 or
// more.
bool has_small_shared(int sm) { return sm == 86 || sm == 89 || sm == 120 || sm == 121; }

int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }
int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }

bool is_aligned(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

AttentionShape attention_shape(int head_dim, int64_t max_kv, int sm) {
  const int64_t keys = attention_block_keys(head_dim), block_bytes = 4 * keys * head_dim;
  AttentionShape shape = {};
  // Over resident keys, two passes of 4 warps by more CTAs hide latencies better than one pass of
  // 8. A ring is read through L2 once a CTA, so there more rows share it. At D = 256 the queries of
  // eight warps would leave no room for the ring.
  shape.warps = head_dim == 256 || max_kv <= attention_short_keys(head_dim) ? 4 : 8;
  int64_t most = larger(2, (has_small_shared(sm) ? 32 : 64) * kKiB / block_bytes);
  shape.resident_blocks = static_cast<int32_t>(smaller(larger(1, (max_kv + keys - 1) / keys), most));
  int64_t cta_bytes = 0;
  if (max_kv > kAttentionWarpKeys)
    cta_bytes = int64_t{shape.warps} * 16 * head_dim * 2 + shape.resident_blocks * block_bytes;
  int64_t unit_bytes = attention_warp_bytes(head_dim);
  shape.warp_units = static_cast<int32_t>(smaller(shape.warps, larger(48 * kKiB, cta_bytes) / unit_bytes));
  shape.shared_bytes = larger(cta_bytes, shape.warp_units * unit_bytes);
  return shape;
}

AttentionParams attention_params(const sie_attention_args *a, const AttentionShape &shape) {
  AttentionParams params = {};
  params.q = static_cast<const uint16_t *>(a->q.p);
  params.k = static_cast<const uint16_t *>(a->k.p);
  params.v = static_cast<const uint16_t *>(a->v.p);
  params.y = static_cast<uint16_t *>(a->y.p);
  params.q_ld = a->q.ld, params.k_ld = a->k.ld, params.v_ld = a->v.ld, params.y_ld = a->y.ld;
  params.work = static_cast<const AttentionWork *>(a->work);
  params.slopes = a->alibi_slopes;
  params.heads = a->heads, params.kv_heads = a->kv_heads;
  int32_t window = static_cast<int32_t>(smaller(a->window, kFar));
  params.left = a->mask == SIE_MASK_WINDOW ? window : kFar;
  params.right = a->mask == SIE_MASK_WINDOW ? window : (a->mask == SIE_MASK_CAUSAL ? 0 : kFar);
  params.resident_blocks = shape.resident_blocks;
  params.warp_units = shape.warp_units;
  params.scale_log2 = a->scale * kLog2e;
  params.inverse_scale = 1 / a->scale;
  params.bias = a->bias;
  params.bias_reach = a->bias_reach;
  if (a->prefix_keys != nullptr) {
    params.prefix_k = static_cast<const uint16_t *>(a->prefix_k.p);
    params.prefix_v = static_cast<const uint16_t *>(a->prefix_v.p);
    params.prefix_k_ld = a->prefix_k.ld, params.prefix_v_ld = a->prefix_v.ld;
  }
  return params;
}

sie_status attention_launch(int32_t dtype, int32_t head_dim, const AttentionShape &shape, int64_t ctas,
                            const sie_stream *on, const AttentionParams &params) {
  if (params.bias != nullptr) {
    if (head_dim == 32) return attention_launch_bias<32>(dtype, shape, ctas, on, params);
    if (head_dim == 64) return attention_launch_bias<64>(dtype, shape, ctas, on, params);
    return attention_launch_bias<128>(dtype, shape, ctas, on, params);
  }
  if (params.prefix_k != nullptr) {
    if (head_dim == 32) return attention_launch_prefix<32>(dtype, shape, ctas, on, params);
    if (head_dim == 64) return attention_launch_prefix<64>(dtype, shape, ctas, on, params);
    if (head_dim == 128) return attention_launch_prefix<128>(dtype, shape, ctas, on, params);
    return attention_launch_prefix<256>(dtype, shape, ctas, on, params);
  }
  switch (head_dim) {
    case 32:
      return attention_launch<32>(dtype, shape, ctas, on, params);
    case 64:
      return attention_launch<64>(dtype, shape, ctas, on, params);
    case 128:
      return attention_launch<128>(dtype, shape, ctas, on, params);
    default:
      return attention_launch<256>(dtype, shape, ctas, on, params);
  }
}

sie_status attention(const sie_attention_args *a, const sie_share *share) {
  if (share->on == nullptr || share->part != 0 || share->parts != 1) return SIE_INVALID_ARGUMENT;
  if (share->on->sm < 80) return SIE_UNSUPPORTED;
  sie_status status = attention_check(a);
  if (status != SIE_OK) return status;
  if (a->seqs.cap == 0 || a->q_rows.cap == 0) return SIE_OK;
  if (a->work == nullptr || a->q.p == nullptr || a->y.p == nullptr) return SIE_INVALID_ARGUMENT;
  if (a->max_kv > 0 && (a->k.p == nullptr || a->v.p == nullptr)) return SIE_INVALID_ARGUMENT;
  if (a->prefix_keys != nullptr) {
    if (a->prefix_k.p == nullptr || a->prefix_v.p == nullptr) return SIE_INVALID_ARGUMENT;
    if (!is_aligned(a->prefix_k.p) || !is_aligned(a->prefix_v.p)) return SIE_UNSUPPORTED;
  }
  if (!is_aligned(a->q.p) || !is_aligned(a->k.p) || !is_aligned(a->v.p) || !is_aligned(a->y.p) ||
      !is_aligned(a->work)) {
    return SIE_UNSUPPORTED;
  }

  const sie_stream *on = share->on;
  const AttentionShape shape = attention_shape(a->head_dim, a->max_kv, on->sm);
  const AttentionParams params = attention_params(a, shape);
  // As many CTAs as the largest list of these bounds could use, and as the GPU could run.
  int64_t items = attention_max_items(a->q_rows.cap, a->seqs.cap);
  if (a->buckets != nullptr) return attention_disentangled(a, params, items, on);
  const int64_t most = larger(1, on->multiprocessors) * kCtasPerMultiprocessor / a->heads;
  const auto ctas = [&](int64_t n) { return smaller(n, smaller(larger(1, most), 65535)); };
  if (attention_has_wide(a, on->sm) && a->max_kv > attention_short_keys(a->head_dim))
    return attention_in_parts(a, params, ctas(items), on);
  if (a->max_kv <= kAttentionWarpKeys) items = (items + shape.warp_units - 1) / shape.warp_units;
  return attention_launch(a->q.dtype, a->head_dim, shape, ctas(items), on, params);
}

}  // namespace sie_cuda
