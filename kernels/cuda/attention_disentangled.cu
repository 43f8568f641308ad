// attention_disentangled.cu — what disentangled attention's launcher checks and starts
// (attention_disentangled.cuh).
#include "cuda/attention_disentangled.h"

namespace sie_cuda {

namespace {

// CTAs a multiprocessor in the largest grid; they take further items in turns (attention.cu).
constexpr int64_t kCtasPerMultiprocessor = 16;

int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }
int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }

sie_status check_table(const sie_attention_args *a, const sie_tensor &table) {
  if (table.p == nullptr) return SIE_OK;
  if (table.dtype != a->q.dtype) return SIE_UNSUPPORTED;
  if (table.ld < int64_t{a->heads} * a->head_dim) return SIE_INVALID_ARGUMENT;
  // Rows are read 16 bytes at a time.
  if (table.ld % 8 != 0 || reinterpret_cast<uintptr_t>(table.p) % 16 != 0) return SIE_UNSUPPORTED;
  return SIE_OK;
}

PositionTable table_of(const sie_tensor &table) { return {static_cast<const uint16_t *>(table.p), table.ld}; }

}  // namespace

sie_status attention_disentangled_check(const sie_attention_args *a) {
  if (a->head_dim > 128 || a->mask != SIE_MASK_FULL || a->kv_heads != a->heads ||
      a->alibi_slopes != nullptr || a->bias != nullptr || a->prefix_keys != nullptr) {
    return SIE_UNSUPPORTED;
  }
  if (a->pos_key.p == nullptr && a->pos_query.p == nullptr) return SIE_INVALID_ARGUMENT;
  if (a->bucket_reach < 0 || a->bucket_reach > SIE_MAX_BIAS_REACH) return SIE_INVALID_ARGUMENT;
  if (a->position_rows < 1 || a->position_rows > SIE_MAX_POSITION_ROWS) return SIE_INVALID_ARGUMENT;
  const sie_status status = check_table(a, a->pos_key);
  return status == SIE_OK ? check_table(a, a->pos_query) : status;
}

int64_t attention_disentangled_shared(int head_dim, int64_t max_kv) {
  const int64_t keys = attention_block_keys(head_dim), slots = max_kv > keys ? 2 : 1;
  return kDisentangledRows * 2 * int64_t{head_dim} + kDisentangledTermsBytes + slots * 4 * keys * head_dim;
}

sie_status attention_disentangled(const sie_attention_args *a, const AttentionParams &params, int64_t items,
                                  const sie_stream *on) {
  const DisentangledParams all = {params, table_of(a->pos_key), table_of(a->pos_query),
                                  a->buckets + a->bucket_reach, a->bucket_reach};
  const int64_t most = larger(1, on->multiprocessors) * kCtasPerMultiprocessor / a->heads;
  const int64_t ctas = smaller(items, smaller(larger(1, most), 65535));
  const int64_t shared_bytes = attention_disentangled_shared(a->head_dim, a->max_kv);
  if (a->head_dim == 32) return attention_launch_disentangled<32>(a->q.dtype, shared_bytes, ctas, on, all);
  if (a->head_dim == 64) return attention_launch_disentangled<64>(a->q.dtype, shared_bytes, ctas, on, all);
  return attention_launch_disentangled<128>(a->q.dtype, shared_bytes, ctas, on, all);
}

}  // namespace sie_cuda
