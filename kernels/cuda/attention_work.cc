// attention_work.cc — lists on the host what attention's kernel does in one run.
//   form    by the sequence's own key count alone: ≤ 32 keys one warp, else a CTA; on sm_90, where
//           the head dimension has it, the wide form for more than attention_narrow_keys
//   rows    of an item: 32 (warp form); otherwise as many as share one reading of the keys, halved
//           until the run has enough CTAs for a GPU. Rows never see each other, so this changes no
//           bits.
//   order   costliest first within a form, tall items apart (attention_work.h); equals by their rows.
//           O(n log n), in place, no allocation.
#include "cuda/attention_work.h"

#include "cuda/attention_disentangled.h"

namespace sie_cuda {

namespace {

// The number of CTAs below which a run uses shorter items: four for each of an H100's 132
// multiprocessors. It is a constant, not the device's own count, so that the list is the same on
// every machine.
constexpr int64_t kWantedCtas = 528;
constexpr int32_t kFewestRows = 64;
// The same of the wide form, whose CTAs have a multiprocessor each: up to half of an H100's, items
// of one warpgroup's rows use twice as many.
constexpr int64_t kFewWideCtas = 66;
constexpr int32_t kWideRows = 128;

bool is_warp_form(int64_t keys) { return keys <= kAttentionWarpKeys; }

int32_t prefix_of(const sie_attention_args *a, int32_t b) {
  return a->prefix_keys != nullptr ? a->prefix_keys[b] : 0;
}

// The keys of sequence b, those of its prefix included.
int64_t keys_of(const sie_attention_args *a, int32_t b) {
  return int64_t{prefix_of(a, b)} + a->cu_kv[b + 1] - a->cu_kv[b];
}

// The rows that share one reading of the keys: a few rounds of a CTA with resident keys, else one
// round.
int32_t most_rows(int32_t head_dim, int64_t keys) {
  if (head_dim > 128) return 64;  // four warps' accumulators fill the register file
  int32_t resident = attention_short_keys(head_dim);
  if (keys > resident) return 128;
  return resident < 256 ? resident : 256;
}

int32_t clamped(int32_t most, int32_t limit) { return most < limit ? most : limit; }

int64_t items_of(int64_t queries, int64_t rows) { return (queries + rows - 1) / rows; }

// The classes of a list's items in their order. Without a wide form there are two.
enum Class { wide_class, tall_class, short_class, warp_class };

// Which class a number of keys has.
struct Classes {
  int32_t head_dim;
  bool wide;  // whether there is a wide form
  int32_t mask;
  Class of(int64_t keys) const {
    if (is_warp_form(keys)) return warp_class;
    if (!wide || keys <= attention_short_keys(head_dim)) return short_class;
    return keys > attention_narrow_keys(head_dim, mask) ? wide_class : tall_class;
  }
};

// The rows of the wide form's items: fewer where the run has few of them.
int32_t choose_wide_rows(const sie_attention_args *a, int32_t seqs, const Classes &classes) {
  int64_t ctas = 0;
  for (int32_t b = 0; b < seqs; b++) {
    if (classes.of(keys_of(a, b)) == wide_class)
      ctas += items_of(a->cu_q[b + 1] - a->cu_q[b], kWideRows) * a->heads;
  }
  return ctas > kFewWideCtas ? kWideRows : kFewestRows;
}

// The limit on the other items' rows with which the run has enough CTAs.
int32_t choose_limit(const sie_attention_args *a, int32_t seqs, const Classes &classes) {
  int32_t limit = 256;
  for (; limit > kFewestRows; limit /= 2) {
    int64_t ctas = 0;
    for (int32_t b = 0; b < seqs; b++) {
      int64_t queries = a->cu_q[b + 1] - a->cu_q[b], keys = keys_of(a, b);
      const Class own = classes.of(keys);
      if (own == warp_class || own == wide_class) continue;
      ctas += items_of(queries, clamped(most_rows(a->head_dim, keys), limit)) * a->heads;
    }
    if (ctas >= kWantedCtas) break;
  }
  return limit;
}

bool goes_before(const AttentionItem &x, const AttentionItem &y, const Classes &classes) {
  const Class x_class = classes.of(x.keys), y_class = classes.of(y.keys);
  if (x_class != y_class) return x_class < y_class;
  int64_t x_cost = int64_t{x.q_rows} * x.keys, y_cost = int64_t{y.q_rows} * y.keys;
  if (x_cost != y_cost) return x_cost > y_cost;
  return x.q_row < y.q_row;
}

// Restores the heap below `root`: no item goes before its children.
void sift(AttentionItem *items, int64_t root, int64_t n, const Classes &classes) {
  AttentionItem moved = items[root];
  for (int64_t child; (child = 2 * root + 1) < n; root = child) {
    if (child + 1 < n && goes_before(items[child], items[child + 1], classes)) child++;
    if (!goes_before(moved, items[child], classes)) break;
    items[root] = items[child];
  }
  items[root] = moved;
}

void sort(AttentionItem *items, int64_t n, const Classes &classes) {
  for (int64_t root = n / 2 - 1; root >= 0; root--) sift(items, root, n, classes);
  for (int64_t last = n - 1; last > 0; last--) {
    AttentionItem first = items[0];
    items[0] = items[last];
    items[last] = first;
    sift(items, 0, last, classes);
  }
}

// Checks that offsets ascend from zero or more, that prefixes have rows, that sequences are no
// longer than stated, and that rows end within their count.
sie_status check_offsets(const sie_attention_args *a, int32_t seqs) {
  if (seqs < 0 || seqs > a->seqs.cap) return SIE_INVALID_ARGUMENT;
  if (seqs == 0) return SIE_OK;
  if (a->cu_q == nullptr || a->cu_kv == nullptr) return SIE_INVALID_ARGUMENT;
  if (a->cu_q[0] < 0 || a->cu_kv[0] < 0) return SIE_INVALID_ARGUMENT;
  for (int32_t b = 0; b < seqs; b++) {
    if (a->cu_q[b + 1] < a->cu_q[b] || a->cu_kv[b + 1] < a->cu_kv[b]) return SIE_INVALID_ARGUMENT;
    if (prefix_of(a, b) < 0 || (prefix_of(a, b) > 0 && a->prefix_first[b] < 0)) return SIE_INVALID_ARGUMENT;
    int64_t queries = a->cu_q[b + 1] - a->cu_q[b];
    if (keys_of(a, b) > a->max_kv) return SIE_INVALID_ARGUMENT;
    if (queries > kAttentionMaxLength) return SIE_UNSUPPORTED;
  }
  int32_t rows = a->cu_q[seqs];
  if (rows > a->q_rows.cap || (a->q_rows.n != nullptr && rows > *a->q_rows.n)) return SIE_INVALID_ARGUMENT;
  return SIE_OK;
}

}  // namespace

sie_status attention_check(const sie_attention_args *a) {
  if (a->q.dtype != SIE_BF16 && a->q.dtype != SIE_F16) return SIE_UNSUPPORTED;
  if (a->k.dtype != a->q.dtype || a->v.dtype != a->q.dtype || a->y.dtype != a->q.dtype)
    return SIE_UNSUPPORTED;
  if (a->head_dim != 32 && a->head_dim != 64 && a->head_dim != 128 && a->head_dim != 256)
    return SIE_UNSUPPORTED;
  if (a->heads < 1 || a->kv_heads < 1 || a->kv_heads > a->heads) return SIE_INVALID_ARGUMENT;
  int64_t q_columns = int64_t{a->heads} * a->head_dim, kv_columns = int64_t{a->kv_heads} * a->head_dim;
  if (a->q.ld < q_columns || a->y.ld < q_columns || a->k.ld < kv_columns || a->v.ld < kv_columns)
    return SIE_INVALID_ARGUMENT;
  // Rows are copied and stored 16 bytes at a time.
  if ((a->q.ld | a->k.ld | a->v.ld | a->y.ld) % 8 != 0) return SIE_UNSUPPORTED;
  if (a->mask != SIE_MASK_FULL && a->mask != SIE_MASK_CAUSAL && a->mask != SIE_MASK_WINDOW)
    return SIE_INVALID_ARGUMENT;
  if (a->mask == SIE_MASK_WINDOW && a->window < 0) return SIE_INVALID_ARGUMENT;
  if (a->queries_first != 0 && a->queries_first != 1) return SIE_INVALID_ARGUMENT;
  if (a->bias_reach < 0 || a->bias_reach > SIE_MAX_BIAS_REACH) return SIE_INVALID_ARGUMENT;
  if (a->bias != nullptr && (a->head_dim > 128 || a->prefix_keys != nullptr)) return SIE_UNSUPPORTED;
  if (a->prefix_keys != nullptr) {
    const sie_tensor &k = a->prefix_k, &v = a->prefix_v;
    if (k.dtype != a->q.dtype || v.dtype != a->q.dtype) return SIE_UNSUPPORTED;
    if (k.ld < kv_columns || v.ld < kv_columns || a->prefix_first == nullptr) return SIE_INVALID_ARGUMENT;
    if ((k.ld | v.ld) % 8 != 0) return SIE_UNSUPPORTED;
  }
  // The largest score is found before scaling, so the scale must keep the order; slopes are divided
  // by it.
  if (!(a->scale >= 1e-30f && a->scale <= 1e30f)) return SIE_INVALID_ARGUMENT;
  if (a->max_kv < 0 || a->seqs.cap < 0 || a->q_rows.cap < 0) return SIE_INVALID_ARGUMENT;
  if (a->max_kv > kAttentionMaxLength) return SIE_UNSUPPORTED;
  return a->buckets != nullptr ? attention_disentangled_check(a) : SIE_OK;
}

int64_t attention_work_bytes(const sie_op_bounds *bounds) {
  // With one query a sequence there may be more queries than keys.
  int64_t rows = bounds->rows > bounds->seqs ? bounds->rows : bounds->seqs;
  return static_cast<int64_t>(sizeof(AttentionWork)) +
         attention_max_items(rows, bounds->seqs) * static_cast<int64_t>(sizeof(AttentionItem));
}

namespace {

sie_status list_work(const sie_attention_args *a, void *dst, const Classes &classes) {
  sie_status status = attention_check(a);
  if (status != SIE_OK) return status;
  int32_t seqs = a->seqs.cap > 0 ? *a->seqs.n : 0;
  status = check_offsets(a, seqs);
  if (status != SIE_OK) return status;
  if (dst == nullptr) return SIE_INVALID_ARGUMENT;

  AttentionWork *work = static_cast<AttentionWork *>(dst);
  AttentionItem *items = reinterpret_cast<AttentionItem *>(work + 1);
  *work = AttentionWork{};
  int32_t limit = choose_limit(a, seqs, classes), n = 0;
  const int32_t wide_rows = choose_wide_rows(a, seqs, classes);
  for (int32_t b = 0; b < seqs; b++) {
    int32_t queries = a->cu_q[b + 1] - a->cu_q[b], keys = static_cast<int32_t>(keys_of(a, b));
    const Class own = classes.of(keys);
    int32_t rows = clamped(most_rows(a->head_dim, keys), limit);
    if (own == warp_class) rows = kAttentionWarpKeys;
    if (own == wide_class) rows = wide_rows;
    for (int32_t i = 0; i < queries; i += rows) {
      AttentionItem item = {};
      item.q_row = a->cu_q[b] + i;
      item.q_rows = queries - i < rows ? queries - i : rows;
      item.kv_row = a->cu_kv[b];
      item.keys = keys;
      item.position = a->queries_first ? i : keys - queries + i;
      item.prefix_keys = prefix_of(a, b);
      item.prefix_row = item.prefix_keys > 0 ? a->prefix_first[b] : 0;
      items[n++] = item;
      (own == warp_class ? work->warp_items : work->cta_items)++;
      if (own == wide_class) work->wide_items++;
      if (own <= tall_class) work->tall_end++;
    }
  }
  sort(items, n, classes);
  return SIE_OK;
}

}  // namespace

sie_status attention_work(const sie_attention_args *host_view, void *dst) {
  return list_work(host_view, dst, Classes{host_view->head_dim, false, host_view->mask});
}

sie_status attention_work_sm90(const sie_attention_args *host_view, void *dst) {
  return list_work(host_view, dst,
                   Classes{host_view->head_dim, attention_lists_wide(host_view), host_view->mask});
}

}  // namespace sie_cuda
