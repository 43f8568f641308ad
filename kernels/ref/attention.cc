// attention — y = softmax(scale·q·kᵀ − slope·distance + bias)·v, per sequence and head.
//   s_j = scale·Σ q·k_j − slope_h·|position − j| + bias_h[j − position],  p_j = e^(s_j − max s)/Σ,
//   y = Σ p_j·v_j
//   over the keys j that the mask lets through; bias_h has the distances −reach … reach, and those
//   beyond count as its ends. Disentangled: q·k_j + q·K_b + k_j·Q_b for q·k_j, with rows b of the
//   tables by distance.
// Shapes   q, y [Rq, H·D], k, v [Rkv, Hkv·D], prefix_k, prefix_v [Rp, Hkv·D], row strides ≥ columns;
//          cu_q, cu_kv [B+1]; prefix_first, prefix_keys [B] or absent; head h reads key head
//          h·Hkv/H. The Lkv keys of a sequence are its prefix's, then its own. Query i of Lq stands
//          at position i + Lkv − Lq, or at i with queries_first. Without keys, y is zero.
// Types    q, k, v, prefix_k, prefix_v f32 | bf16 | f16, all one type; y, pos_key, pos_query f32 |
//          bf16 | f16.
// Alias    none.
// Share    sequences.
// Scratch  max_kv·(2·D + 1) + D doubles.
// Source   Vaswani 2017 §3.2.1, arXiv:1706.03762; the slopes: Press 2021 §3, arXiv:2108.12409; the
//          bias: Raffel 2020 §2.1, arXiv:1910.10683; the tables: He 2021 §3, arXiv:2006.03654
#include "rows.h"

namespace sie_ref {

namespace {

// The keys [first, last) that the query at `position` may see.
Range visible(const sie_attention_args *a, int64_t position, int64_t keys) {
  Range range = {0, keys};
  if (a->mask == SIE_MASK_CAUSAL) range.last = position + 1 < keys ? position + 1 : keys;
  if (a->mask == SIE_MASK_WINDOW) {
    range.first = position - a->window > 0 ? position - a->window : 0;
    range.last = position + a->window + 1 < keys ? position + a->window + 1 : keys;
  }
  return range;
}

// What the relative bias adds to the score of a key that stands `distance` behind its query.
double relative_bias(const sie_attention_args *a, int64_t head, int64_t distance) {
  const int64_t reach = a->bias_reach;
  const int64_t held = distance < -reach ? -reach : (distance > reach ? reach : distance);
  return a->bias != nullptr ? static_cast<double>(a->bias[head * (2 * reach + 1) + held + reach]) : 0;
}

// The row of the tables that belongs to a query and the key `distance` before it.
int64_t bucket_of(const sie_attention_args *a, int64_t distance) {
  const int64_t reach = a->bucket_reach;
  return a->buckets[(distance < -reach ? -reach : (distance > reach ? reach : distance)) + reach];
}

// What the tables add to q·k of head column `column`; q and k have D elements.
double positional(const sie_attention_args *a, int64_t column, const double *q, const double *k,
                  int64_t row) {
  double s = 0;
  for (int64_t i = 0; i < a->head_dim; i++) {
    if (a->pos_key.p != nullptr) s += q[i] * load(a->pos_key, row, column + i);
    if (a->pos_query.p != nullptr) s += k[i] * load(a->pos_query, row, column + i);
  }
  return s;
}

// s[j] = Σ q·k_j, every sum in order; d elements each. Four sums at once, because an addition waits for
// the one before it in its sum alone.
void dots(const double *q, const double *k, int64_t d, int64_t keys, double *s) {
  int64_t j = 0;
  for (; j + 4 <= keys; j += 4, k += 4 * d) {
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (int64_t i = 0; i < d; i++) {
      s0 += q[i] * k[i];
      s1 += q[i] * k[d + i];
      s2 += q[i] * k[2 * d + i];
      s3 += q[i] * k[3 * d + i];
    }
    s[j] = s0, s[j + 1] = s1, s[j + 2] = s2, s[j + 3] = s3;
  }
  for (; j < keys; j++, k += d) {
    s[j] = 0;
    for (int64_t i = 0; i < d; i++) s[j] += q[i] * k[i];
  }
}

// One head of one sequence: its keys and values [keys, D], a query's weights [keys], and the query, in
// whose place its y comes [D].
struct Head {
  const double *k, *v;
  double *p, *row;
};

void attend(const sie_attention_args *a, int64_t query, int64_t position, Range keys, int64_t head,
            const Head &h) {
  const int64_t d = a->head_dim, column = head * d;
  const double slope = a->alibi_slopes != nullptr ? static_cast<double>(a->alibi_slopes[head]) : 0;
  double largest = -INFINITY, sum = 0;
  load_row(a->q, query, column, d, h.row);
  dots(h.row, h.k + keys.first * d, d, keys.last - keys.first, h.p + keys.first);
  for (int64_t j = keys.first; j < keys.last; j++) {
    double s = h.p[j];
    if (a->buckets != nullptr) s += positional(a, column, h.row, h.k + j * d, bucket_of(a, position - j));
    h.p[j] = s * static_cast<double>(a->scale) -
             slope * static_cast<double>(position > j ? position - j : j - position) +
             relative_bias(a, head, j - position);
    if (h.p[j] > largest) largest = h.p[j];
  }
  for (int64_t j = keys.first; j < keys.last; j++) {
    h.p[j] = exp(h.p[j] - largest);
    sum += h.p[j];
  }
  for (int64_t i = 0; i < d; i++) h.row[i] = 0;
  for (int64_t j = keys.first; j < keys.last; j++) {
    for (int64_t i = 0; i < d; i++) h.row[i] += h.p[j] * h.v[j * d + i];
  }
  for (int64_t i = 0; i < d; i++) {
    store(a->y, query, column + i, keys.first < keys.last ? static_cast<float>(h.row[i] / sum) : 0.0f);
  }
}

sie_status check_buckets(const sie_attention_args *a) {
  if (!is_float_or_absent(a->pos_key) || !is_float_or_absent(a->pos_query)) return SIE_UNSUPPORTED;
  if (a->mask != SIE_MASK_FULL || a->kv_heads != a->heads || a->alibi_slopes != nullptr ||
      a->bias != nullptr || a->prefix_keys != nullptr) {
    return SIE_UNSUPPORTED;
  }
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

sie_status attention(const sie_attention_args *a, const sie_share *share) {
  if (!is_float(a->q.dtype) || a->k.dtype != a->q.dtype || a->v.dtype != a->q.dtype ||
      !is_float(a->y.dtype)) {
    return SIE_UNSUPPORTED;
  }
  if (a->prefix_keys != nullptr && (a->prefix_k.dtype != a->q.dtype || a->prefix_v.dtype != a->q.dtype))
    return SIE_UNSUPPORTED;
  if (a->bias_reach < 0 || a->bias_reach > SIE_MAX_BIAS_REACH) return SIE_INVALID_ARGUMENT;
  if (a->buckets != nullptr) {
    const sie_status status = check_buckets(a);
    if (status != SIE_OK) return status;
  }
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    int64_t queries = a->cu_q[b + 1] - a->cu_q[b], d = a->head_dim;
    int64_t prefix = a->prefix_keys != nullptr ? a->prefix_keys[b] : 0;
    int64_t keys = prefix + a->cu_kv[b + 1] - a->cu_kv[b];
    double *k = static_cast<double *>(share->scratch), *v = k + keys * d;
    for (int64_t h = 0; h < a->heads; h++) {
      int64_t column = h * a->kv_heads / a->heads * d;
      for (int64_t j = 0; j < prefix; j++) {
        load_row(a->prefix_k, a->prefix_first[b] + j, column, d, k + j * d);
        load_row(a->prefix_v, a->prefix_first[b] + j, column, d, v + j * d);
      }
      for (int64_t j = prefix; j < keys; j++) {
        load_row(a->k, a->cu_kv[b] + j - prefix, column, d, k + j * d);
        load_row(a->v, a->cu_kv[b] + j - prefix, column, d, v + j * d);
      }
      int64_t last = a->q_last == 0 || a->q_last > queries ? queries : a->q_last;
      for (int64_t i = a->q_last == 0 ? 0 : a->q_first; i < last; i++) {
        int64_t position = a->queries_first ? i : i + keys - queries;
        attend(a, a->cu_q[b] + i, position, visible(a, position, keys), h,
               {k, v, v + keys * d, v + keys * d + keys});
      }
    }
  }
  return SIE_OK;
}

}  // namespace sie_ref
