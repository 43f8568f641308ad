// attention_disentangled — y = softmax(scale·(q·kᵀ + q·K_b + k·Q_b))·v per sequence and head, b the
// row of the tables K and Q by distance.
// Shapes   as attention's; K, Q [position_rows, H·D], one of them may be absent; buckets
//          [2·reach + 1], never falling. 1 ≤ D ≤ 256; a key head for each head.
// Types    q, k, v, y f32 | bf16, all one type; K, Q f32; computed in f32.
// Mask     full.
// Alias    none.
// Align    element.
// Share    (sequence, head) pairs in turn.
// Scratch  one score a key.
// Plan     query by query: a slow form.
// Source   He 2021 §3, arXiv:2006.03654
#include "math.h"
#include "rows.h"

namespace sie_cpu {
namespace SIE_ISA_NS {

namespace {

template <typename T>
SIE_INLINE float dot(const T *x, const float *y, int64_t d) {
  Vec sum = vset(0.0f);
  for (int64_t c = 0; c < d; c += kLanes) sum = vfma(vload_row(x, c, d), vload_row(y, c, d), sum);
  return vsum(sum);
}

template <typename T>
void attend(const sie_attention_args *a, int64_t b, int64_t head, float *s) {
  const int64_t d = a->head_dim, column = head * d, keys = a->cu_kv[b + 1] - a->cu_kv[b],
                queries = a->cu_q[b + 1] - a->cu_q[b], reach = a->bucket_reach;
  const Range range = queries_of(a, queries);
  for (int64_t i = range.first; i < range.last; i++) {
    const T *q = row_of<const T>(a->q, a->cu_q[b] + i) + column;
    T *y = row_of<T>(a->y, a->cu_q[b] + i) + column;
    const int64_t position = a->queries_first ? i : i + keys - queries;
    alignas(64) float query[256], out[256] = {};
    for (int64_t c = 0; c < d; c += kLanes) vstore_row(query, c, d, vload_row(q, c, d));
    float most = -__builtin_inff(), total = 0;
    for (int64_t j = 0; j < keys; j++) {
      const T *k = row_of<const T>(a->k, a->cu_kv[b] + j) + column;
      int64_t distance = position - j;
      distance = distance < -reach ? -reach : (distance > reach ? reach : distance);
      const int64_t row = a->buckets[distance + reach];
      s[j] = dot(k, query, d);
      if (a->pos_key.p != nullptr) s[j] += dot(q, row_of<const float>(a->pos_key, row) + column, d);
      if (a->pos_query.p != nullptr) s[j] += dot(k, row_of<const float>(a->pos_query, row) + column, d);
      s[j] *= a->scale * 1.44269504f;
      if (s[j] > most) most = s[j];
    }
    for (int64_t j = 0; j < keys; j++) {
      const Vec p = vpow2_weight(vset(s[j] - most));
      total += vfirst(p);
      const T *v = row_of<const T>(a->v, a->cu_kv[b] + j) + column;
      for (int64_t c = 0; c < d; c += kLanes)
        vstore_row(out, c, d, vfma(p, vload_row(v, c, d), vload_row(out, c, d)));
    }
    const Vec factor = vset(keys > 0 ? 1.0f / total : 0.0f);
    for (int64_t c = 0; c < d; c += kLanes) vstore_row(y, c, d, vload_row(out, c, d) * factor);
  }
}

sie_status check(const sie_attention_args *a) {
  if (!is_float(a->q.dtype) || a->k.dtype != a->q.dtype || a->v.dtype != a->q.dtype ||
      a->y.dtype != a->q.dtype) {
    return SIE_UNSUPPORTED;
  }
  if (a->mask != SIE_MASK_FULL || a->kv_heads != a->heads || a->alibi_slopes != nullptr ||
      a->bias != nullptr || a->prefix_keys != nullptr) {
    return SIE_UNSUPPORTED;
  }
  if (a->head_dim < 1 || a->head_dim > 256) return SIE_UNSUPPORTED;
  if (a->pos_key.p != nullptr && a->pos_key.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (a->pos_query.p != nullptr && a->pos_query.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (a->pos_key.p == nullptr && a->pos_query.p == nullptr) return SIE_INVALID_ARGUMENT;
  if (a->bucket_reach < 0 || a->bucket_reach > SIE_MAX_BIAS_REACH) return SIE_INVALID_ARGUMENT;
  if (a->position_rows < 1 || a->position_rows > SIE_MAX_POSITION_ROWS) return SIE_INVALID_ARGUMENT;
  for (int64_t i = 0, least = 0; i <= 2 * int64_t{a->bucket_reach}; i++) {
    if (a->buckets[i] < least || a->buckets[i] >= a->position_rows) return SIE_INVALID_ARGUMENT;
    least = a->buckets[i];
  }
  return SIE_OK;
}

}  // namespace

sie_status attention_disentangled(const sie_attention_args *a, const sie_share *share) {
  const sie_status status = check(a);
  if (status != SIE_OK) return status;
  for (int64_t unit = share->part; unit < *a->seqs.n * int64_t{a->heads}; unit += share->parts) {
    float *const scores = static_cast<float *>(share->scratch);
    if (a->q.dtype == SIE_F32) {
      attend<float>(a, unit / a->heads, unit % a->heads, scores);
    } else {
      attend<Bf16>(a, unit / a->heads, unit % a->heads, scores);
    }
  }
  return SIE_OK;
}

int64_t attention_disentangled_scratch(const sie_op_bounds *bounds) {
  return bounds->max_len * static_cast<int64_t>(sizeof(float));
}

}  // namespace SIE_ISA_NS
}  // namespace sie_cpu
