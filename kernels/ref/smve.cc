// smve — the sparse multi-vector encoding of each sequence's rows, as a sparse output row
// (sie_smve_args in ops.h).
//   For each row x and repetition r the `top` largest of x·anchor[r, a] are kept (of equals the
//   lower a). A column's value is their sum, for documents divided by the number of them that are
//   not 0. Zeros are dropped, then all but the max_nonzeros largest |value| (of equals the lower
//   column). Sums are in double, values rounded once to f32. A NaN is never kept.
// Shapes   x [R, C], row stride ≥ C; anchors [repetitions, width, C]; items [B]. 1 ≤ top ≤ width.
// Types    x f32 | bf16 | f16; values f32 | f16.
// Alias    none.
// Share    sequences.
// Scratch  of the longest sequence: repetitions·L·top kept projections, and as many columns.
// Source   Spisak and Galovic 2026, topk.io/blog/20260311-smve-multi-vector-retrieval
#include "sparse_row.h"

namespace sie_ref {

namespace {

struct Projection {
  double value;
  int64_t column;  // r·width + anchor; −1: none
};

// One sequence and its working memory.
struct Item {
  const sie_smve_args *a;
  int64_t first, tokens;
  Projection *kept;    // [repetitions, tokens, top], each list from the largest on
  Projection *pooled;  // [repetitions·tokens·top], columns ascending
};

double norm_of(const Item &item, int64_t row) {
  double sum = 0;
  for (int64_t c = 0; c < item.a->c; c++) sum += load(item.a->x, row, c) * load(item.a->x, row, c);
  const double norm = sqrt(sum);
  return norm < 1e-12 ? 1e-12 : norm;
}

// Writes the largest projections of one row in one repetition to list[top].
void keep_largest(const Item &item, int64_t row, int64_t repetition, Projection *list) {
  const sie_smve_args *a = item.a;
  const double norm = a->normalize != 0 ? norm_of(item, row) : 1;
  for (int64_t i = 0; i < a->top; i++) list[i] = {0, -1};
  int64_t count = 0;
  for (int64_t anchor = 0; anchor < a->width; anchor++) {
    const int64_t column = repetition * a->width + anchor;
    double value = 0;
    for (int64_t c = 0; c < a->c; c++)
      value += load(a->x, row, c) / norm * static_cast<double>(a->anchors[column * a->c + c]);
    if (isnan(value)) continue;
    int64_t at = count;
    while (at > 0 && list[at - 1].value < value) at--;
    if (at == a->top) continue;
    if (count < a->top) count++;
    for (int64_t i = count - 1; i > at; i--) list[i] = list[i - 1];
    list[at] = {value, column};
  }
}

// Pools the kept projections into the values of columns, ascending; returns their number.
int64_t pool(const Item &item) {
  const sie_smve_args *a = item.a;
  int64_t count = 0;
  for (int64_t column = 0; column < int64_t{a->repetitions} * a->width; column++) {
    const Projection *lists = item.kept + column / a->width * item.tokens * a->top;
    double sum = 0, contributions = 0;
    for (int64_t i = 0; i < item.tokens * a->top; i++) {
      if (lists[i].column != column) continue;
      sum += lists[i].value;
      contributions += lists[i].value != 0 ? 1 : 0;
    }
    if (sum == 0) continue;
    item.pooled[count++] = {a->is_query != 0 ? sum : sum / contributions, column};
  }
  return count;
}

// Whether fewer than `limit` others come before entry i.
bool among_largest(const Projection *pooled, int64_t count, int64_t i, int64_t limit) {
  int64_t before = 0;
  for (int64_t j = 0; j < count; j++) {
    const double x = fabs(pooled[j].value), y = fabs(pooled[i].value);
    before += x > y || (x == y && j < i) ? 1 : 0;
  }
  return before < limit;
}

}  // namespace

int64_t smve_scratch(const sie_op_bounds *bounds) {
  return 2 * bounds->repetitions * bounds->max_len * bounds->top * static_cast<int64_t>(sizeof(Projection));
}

sie_status smve(const sie_smve_args *a, const sie_share *share) {
  if (!is_float(a->x.dtype)) return SIE_UNSUPPORTED;
  if (a->repetitions < 1 || a->top < 1 || a->top > a->width || a->max_nonzeros < 0)
    return SIE_INVALID_ARGUMENT;
  if (int64_t{a->repetitions} * a->width > INT32_MAX) return SIE_UNSUPPORTED;
  Range seqs = share_of(*a->seqs.n, share);
  for (int64_t b = seqs.first; b < seqs.last; b++) {
    if (!is_sparse_item(a->items[b])) return SIE_UNSUPPORTED;
    Item item;
    item.a = a;
    item.first = a->cu_seqlens[b];
    item.tokens = a->cu_seqlens[b + 1] - item.first;
    item.kept = static_cast<Projection *>(share->scratch);
    item.pooled = item.kept + a->repetitions * item.tokens * a->top;
    for (int64_t r = 0; r < a->repetitions; r++) {
      for (int64_t t = 0; t < item.tokens; t++)
        keep_largest(item, item.first + t, r, item.kept + (r * item.tokens + t) * a->top);
    }
    const int64_t count = pool(item);
    SparseRow row(a->items[b], a->out);
    for (int64_t i = 0; i < count; i++) {
      if (a->max_nonzeros == 0 || among_largest(item.pooled, count, i, a->max_nonzeros))
        row.add(item.pooled[i].column, item.pooled[i].value);
    }
    row.finish();
  }
  return SIE_OK;
}

}  // namespace sie_ref
