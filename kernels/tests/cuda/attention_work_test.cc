// attention_work_test.cc — attention's work list, and what its launcher and the list refuse.
#include <math.h>

#include <algorithm>

#include "attention_problem.h"

namespace attention_test {
namespace {

using sie_cuda::AttentionItem;
using sie_cuda::AttentionWork;
using std::vector;

struct List {
  vector<AttentionItem> cta, warp;
  AttentionWork head;
};

List parse(const uint8_t *bytes) {
  AttentionWork head;
  memcpy(&head, bytes, sizeof head);
  const uint8_t *at = bytes + sizeof head;
  List list;
  list.head = head;
  auto take = [&](vector<AttentionItem> *items, int32_t n) {
    items->resize(static_cast<size_t>(n));
    if (n > 0) memcpy(items->data(), at, items->size() * sizeof(AttentionItem));
    at += items->size() * sizeof(AttentionItem);
  };
  take(&list.cta, head.cta_items);
  take(&list.warp, head.warp_items);
  return list;
}

// Sequences without tensors: all that a list is made from.
struct Run {
  vector<int32_t> cu_q = {0}, cu_kv = {0}, prefix_first, prefix_keys;
  int32_t seqs = 0, rows = 0;
  sie_attention_args a = {};

  // `prefix` of the keys are rows of their own, from row `first` on.
  void add(int32_t queries, int32_t keys, int32_t prefix = 0, int32_t first = 0) {
    cu_q.push_back(cu_q.back() + queries);
    cu_kv.push_back(cu_kv.back() + keys - prefix);
    prefix_first.push_back(first);
    prefix_keys.push_back(prefix);
    seqs++;
    rows = cu_q.back();
    a.max_kv = std::max<int64_t>(a.max_kv, keys);
  }
  // Checks that the list ends where attention_work_bytes says.
  List list(int32_t heads, int32_t head_dim, bool sm90 = false) {
    a.q_rows = {rows, &rows};
    a.seqs = {seqs, &seqs};
    a.cu_q = cu_q.data(), a.cu_kv = cu_kv.data();
    a.heads = a.kv_heads = heads, a.head_dim = head_dim;
    a.q.dtype = a.k.dtype = a.v.dtype = a.y.dtype = SIE_BF16;
    a.q.ld = a.k.ld = a.v.ld = a.y.ld = int64_t{heads} * head_dim;
    a.prefix_k = a.k, a.prefix_v = a.v;
    a.prefix_first = prefix_first.data(), a.prefix_keys = prefix_keys.data();
    a.scale = 1;
    sie_op_bounds bounds = {};
    bounds.rows = std::max(rows, cu_kv.back());
    bounds.seqs = seqs;
    const size_t guard = 64;
    vector<uint8_t> bytes(static_cast<size_t>(sie_cuda::attention_work_bytes(&bounds)) + guard, 0xab);
    sie_status status =
        sm90 ? sie_cuda::attention_work_sm90(&a, bytes.data()) : sie_cuda::attention_work(&a, bytes.data());
    CHECK(status == SIE_OK, "%d sequences: status %d", seqs, status);
    for (size_t i = bytes.size() - guard; i < bytes.size(); i++)
      CHECK(bytes[i] == 0xab, "wrote past the end");
    return parse(bytes.data());
  }
};

// The classes in their order, and the number that has a list's item of so many keys.
enum { wide, tall, brief, warp_form };
int class_of(int32_t keys, int32_t head_dim, bool sm90) {
  if (keys <= 32) return warp_form;
  if (!sm90 || head_dim == 32 || keys <= 16384 / head_dim) return brief;
  return keys > (head_dim == 64 ? 704 : (head_dim == 128 ? 448 : 256)) ? wide : tall;
}

// Each query row once against all keys of its own sequence, in the class of its key count, the classes
// in order, costliest first.
void check_list(const Run &run, const List &list, int32_t head_dim, bool sm90) {
  vector<int> seen(static_cast<size_t>(run.rows), 0);
  int32_t items[4] = {};
  for (bool warp : {false, true}) {
    int64_t cost = INT64_MAX;
    int before = 0;
    for (const AttentionItem &item : warp ? list.warp : list.cta) {
      const int its = class_of(item.keys, head_dim, sm90);
      items[its]++;
      CHECK(warp == (its == warp_form), "%d keys in the wrong form", item.keys);
      CHECK(its >= before, "%d keys behind those of class %d", item.keys, before);
      if (its != before) cost = INT64_MAX;
      before = its;
      CHECK(item.q_rows >= 1 && item.q_rows <= (warp ? 32 : (its == wide ? 128 : 256)), "an item of %d rows",
            item.q_rows);
      const int64_t own = int64_t{item.q_rows} * item.keys;
      CHECK(own <= cost, "an item of cost %lld behind one of %lld", static_cast<long long>(own),
            static_cast<long long>(cost));
      cost = own;
      const auto next = std::upper_bound(run.cu_q.begin(), run.cu_q.end(), item.q_row);
      const size_t b = static_cast<size_t>(next - run.cu_q.begin()) - 1;
      const int32_t queries = run.cu_q[b + 1] - run.cu_q[b], row = item.q_row - run.cu_q[b];
      CHECK(row + item.q_rows <= queries, "an item leaves its sequence");
      CHECK(item.kv_row == run.cu_kv[b] && item.prefix_keys == run.prefix_keys[b] &&
                item.keys == run.cu_kv[b + 1] - run.cu_kv[b] + run.prefix_keys[b],
            "keys of another");
      CHECK(item.prefix_row == (run.prefix_keys[b] > 0 ? run.prefix_first[b] : 0), "a prefix of another");
      CHECK(item.position == item.keys - queries + row, "position %d of row %d", item.position, row);
      CHECK(row % (warp ? 32 : 64) == 0, "rows cut at %d", row);
      for (int32_t r = 0; r < item.q_rows; r++) seen[static_cast<size_t>(item.q_row + r)]++;
    }
  }
  for (int count : seen) CHECK(count == 1, "a row %d times", count);
  const AttentionWork &head = list.head;
  CHECK(head.wide_items == items[wide] && head.tall_end == items[wide] + items[tall] && head.no_warps == 0,
        "%d wide items and %d to the last tall one, of %d and %d", head.wide_items, head.tall_end,
        items[wide], items[tall]);
}

TEST(work_list_covers_every_row_once) {
  harness::Random random(7);
  const int32_t dims[] = {32, 64, 128, 256};
  for (int round = 0; round < 60; round++) {
    Run run;
    const bool self = random.below(2) == 0;
    for (int32_t b = random.below(40); b > 0; b--) {
      const int32_t keys = random.below(random.below(3) == 0 ? 40 : (round % 2 == 0 ? 300 : 2000));
      const int32_t prefix = random.below(2) * random.below(keys + 1);
      run.add(self ? keys : random.below(4) * random.below(100), keys, prefix, random.below(1000));
    }
    const int32_t heads = 1 + random.below(16);
    const int32_t dim = dims[random.below(4)];
    for (bool sm90 : {false, true}) check_list(run, run.list(heads, dim, sm90), dim, sm90);
  }
}

// An item has as many rows as still leave a GPU enough CTAs, and no more than share one reading of
// the keys.
TEST(work_list_fills_a_gpu) {
  struct {
    int32_t seqs, length, head_dim;
    size_t items;
  } const cases[] = {
      {1, 256, 64, 4},      // 64 rows: the fewest
      {30, 256, 64, 60},    // 128: 720 CTAs of 12 heads
      {64, 256, 64, 64},    // 256: keys resident for all rows
      {64, 512, 64, 256},   // 128: tiles
      {64, 128, 128, 64},   // 128: keys resident
      {64, 128, 256, 128},  // 64
  };
  for (const auto &c : cases) {
    Run run;
    for (int32_t b = 0; b < c.seqs; b++) run.add(c.length, c.length);
    const size_t items = run.list(12, c.head_dim).cta.size();
    CHECK(items == c.items, "%d sequences of %d, D = %d: %zu items, not %zu", c.seqs, c.length, c.head_dim,
          items, c.items);
  }
}

// A wide item has the rows of two warpgroups, or of one where the run has at most 66 of the others.
TEST(work_list_of_the_wide_form) {
  struct {
    int32_t seqs, heads;
    size_t items;
  } const cases[] = {{1, 8, 16}, {1, 9, 8}, {4, 2, 64}, {8, 12, 64}};
  for (const auto &c : cases) {
    Run run;
    for (int32_t b = 0; b < c.seqs; b++) run.add(1024, 1024);
    const List list = run.list(c.heads, 64, true);
    CHECK(list.cta.size() == c.items && list.head.wide_items == static_cast<int32_t>(c.items),
          "%d sequences, %d heads: %zu items, not %zu", c.seqs, c.heads, list.cta.size(), c.items);
  }
}

TEST(shape_fits_the_shared_memory) {
  for (int sm : {80, 86, 87, 89, 90, 100, 120, 121}) {
    const int64_t most = (sm == 80 || sm == 87 ? 163 : (sm == 90 || sm == 100 ? 227 : 99)) * 1024;
    for (int d : {32, 64, 128, 256}) {
      // Keys that stay resident in sequences of that length; at least two blocks.
      const int64_t resident = sie_cuda::attention_short_keys(d) / (most < 100 * 1024 ? 2 : 1);
      for (int64_t max_kv = 0; max_kv <= 4096; max_kv++) {
        const sie_cuda::AttentionShape shape = sie_cuda::attention_shape(d, max_kv, sm);
        const int64_t keys = sie_cuda::attention_block_keys(d), block = keys * d * 4;
        const int64_t cta = shape.warps * 32 * d + shape.resident_blocks * block;
        const char *wrong = nullptr;
        if (shape.shared_bytes > most) wrong = "more than there is";
        if (max_kv > 32 && shape.shared_bytes < cta) wrong = "too little for queries and blocks";
        if (shape.shared_bytes < shape.warp_units * int64_t{sie_cuda::attention_warp_bytes(d)})
          wrong = "too little for its warps";
        if (max_kv > keys && shape.resident_blocks < 2) wrong = "one slot for several blocks";
        if (shape.warp_units < 1 || shape.warp_units > shape.warps) wrong = "units without warps";
        // It takes as much as it can use, and no more.
        if (shape.warps != (d < 256 && max_kv > sie_cuda::attention_short_keys(d) ? 8 : 4))
          wrong = "another number of warps than keys as many want";
        const int64_t blocks = std::max<int64_t>((max_kv + keys - 1) / keys, 1);
        if (shape.resident_blocks != std::min(blocks, std::max<int64_t>(resident / keys, 2)))
          wrong = "other blocks than fit or are wanted";
        const int64_t unit = sie_cuda::attention_warp_bytes(d), used = max_kv > 32 ? cta : 0,
                      units = std::min<int64_t>(shape.warps, std::max<int64_t>(48 * 1024, used) / unit);
        if (shape.warp_units != units) wrong = "fewer units than fit";
        if (shape.shared_bytes != std::max(used, units * unit)) wrong = "more than is used";
        CHECK(wrong == nullptr, "sm_%d D = %d, %lld keys: %lld bytes, %s", sm, d,
              static_cast<long long>(max_kv), static_cast<long long>(shape.shared_bytes), wrong);
      }
    }
  }
}

class Refusals {
 public:
  using Change = void (*)(sie_attention_args *a, sie_share *share, sie_stream *on);

  // What attention and attention_work say of sound arguments after a change.
  void expect(sie_status launched, sie_status listed, const char *what, Change change) {
    expect(&problem_, launched, listed, what, change);
  }
  // The same of arguments with prefixes, of 5 keys and of none.
  void expect_behind(sie_status launched, sie_status listed, const char *what, Change change) {
    expect(&behind_, launched, listed, what, change);
  }
  void expect(sie_status status, const char *what, Change change) { expect(status, status, what, change); }

 private:
  void expect(Problem *problem, sie_status launched, sie_status listed, const char *what, Change change) {
    const AttentionWork nothing = {};
    alignas(16) uint8_t work[sizeof nothing];
    memcpy(work, &nothing, sizeof nothing);
    sie_attention_args a = problem->args();
    a.work = work;
    sie_stream on = {nullptr, 90, 1, 0, 0};
    sie_share share = {0, 1, nullptr, 0, &on};
    change(&a, &share, &on);
    sie_status status = sie_cuda::attention(&a, &share);
    CHECK(status == launched, "%s: attention says %d, not %d", what, status, launched);
    status = sie_cuda::attention_work(&a, list_.data());
    CHECK(status == listed, "%s: attention_work says %d, not %d", what, status, listed);
  }

  Problem problem_{{SIE_BF16, 64, 2, 2, SIE_MASK_FULL, 0, false, {{8, 8}, {3, 3}}}};
  Problem behind_{{SIE_BF16, 64, 2, 2, SIE_MASK_CAUSAL, 0, false, {{8, 13, 5}, {3, 3}}}};
  vector<uint8_t> list_ = vector<uint8_t>(4096);
};

using A = sie_attention_args *;
using S = sie_share *;
using O = sie_stream *;
const sie_status unsupported = SIE_UNSUPPORTED, invalid = SIE_INVALID_ARGUMENT, ok = SIE_OK;

TEST(both_refuse) {
  Refusals r;
  r.expect(ok, "nothing wrong", [](A, S, O) {});
  r.expect(unsupported, "f32",
           [](A a, S, O) { a->q.dtype = a->k.dtype = a->v.dtype = a->y.dtype = SIE_F32; });
  r.expect(unsupported, "k of another type", [](A a, S, O) { a->k.dtype = SIE_F16; });
  r.expect(unsupported, "v of another type", [](A a, S, O) { a->v.dtype = SIE_F16; });
  r.expect(unsupported, "y of another type", [](A a, S, O) { a->y.dtype = SIE_F32; });
  r.expect(unsupported, "D 48", [](A a, S, O) { a->head_dim = 48; });
  r.expect(invalid, "no heads", [](A a, S, O) { a->heads = 0; });
  r.expect(invalid, "no key heads", [](A a, S, O) { a->kv_heads = 0; });
  r.expect(invalid, "more key heads than heads", [](A a, S, O) { a->kv_heads = 3; });
  r.expect(invalid, "q's stride below its columns", [](A a, S, O) { a->q.ld = 120; });
  r.expect(invalid, "k's stride below its columns", [](A a, S, O) { a->k.ld = 120; });
  r.expect(invalid, "v's stride below its columns", [](A a, S, O) { a->v.ld = 120; });
  r.expect(invalid, "y's stride below its columns", [](A a, S, O) { a->y.ld = 120; });
  r.expect(unsupported, "q's stride of 140", [](A a, S, O) { a->q.ld = 140; });
  r.expect(unsupported, "k's stride of 137", [](A a, S, O) { a->k.ld = 137; });
  r.expect(unsupported, "v's stride of 129", [](A a, S, O) { a->v.ld = 129; });
  r.expect(unsupported, "y's stride of 132", [](A a, S, O) { a->y.ld = 132; });
  r.expect(invalid, "an unknown mask", [](A a, S, O) { a->mask = 3; });
  r.expect(invalid, "a negative window", [](A a, S, O) { a->mask = SIE_MASK_WINDOW, a->window = -1; });
  r.expect(invalid, "scale 0", [](A a, S, O) { a->scale = 0; });
  r.expect(invalid, "a negative scale", [](A a, S, O) { a->scale = -1; });
  r.expect(invalid, "scale NaN", [](A a, S, O) { a->scale = NAN; });
  r.expect(invalid, "scale 1e-31", [](A a, S, O) { a->scale = 1e-31f; });
  r.expect(invalid, "an infinite scale", [](A a, S, O) { a->scale = INFINITY; });
  r.expect(invalid, "a negative length", [](A a, S, O) { a->max_kv = -1; });
  r.expect(unsupported, "a length beyond 2^28", [](A a, S, O) { a->max_kv = (int64_t{1} << 28) + 1; });
  r.expect(invalid, "negative rows", [](A a, S, O) { a->q_rows.cap = -1; });
  r.expect(invalid, "negative sequences", [](A a, S, O) { a->seqs.cap = -1; });
}

TEST(the_launcher_refuses) {
  Refusals r;
  r.expect(unsupported, ok, "sm_75", [](A, S, O on) { on->sm = 75; });
  r.expect(invalid, ok, "no stream", [](A, S share, O) { share->on = nullptr; });
  r.expect(invalid, ok, "part 1", [](A, S share, O) { share->part = 1; });
  r.expect(invalid, ok, "two parts", [](A, S share, O) { share->parts = 2; });
  r.expect(unsupported, ok, "q at 2 bytes", [](A a, S, O) { a->q.p = static_cast<uint16_t *>(a->q.p) + 1; });
  r.expect(unsupported, ok, "k at 4 bytes", [](A a, S, O) { a->k.p = static_cast<uint16_t *>(a->k.p) + 2; });
  r.expect(unsupported, ok, "v at 8 bytes", [](A a, S, O) { a->v.p = static_cast<uint16_t *>(a->v.p) + 4; });
  r.expect(unsupported, ok, "y at 8 bytes", [](A a, S, O) { a->y.p = static_cast<uint16_t *>(a->y.p) + 4; });
  r.expect(unsupported, ok, "work at 4 bytes",
           [](A a, S, O) { a->work = static_cast<const uint8_t *>(a->work) + 4; });
  r.expect(invalid, ok, "no q", [](A a, S, O) { a->q.p = nullptr; });
  r.expect(invalid, ok, "no k", [](A a, S, O) { a->k.p = nullptr; });
  r.expect(invalid, ok, "no v", [](A a, S, O) { a->v.p = nullptr; });
  r.expect(invalid, ok, "no y", [](A a, S, O) { a->y.p = nullptr; });
  r.expect(invalid, ok, "no work", [](A a, S, O) { a->work = nullptr; });
}

TEST(the_list_refuses) {
  Refusals r;
  static const int32_t falling[] = {0, 8, 3}, negative[] = {-1, 8, 11}, far[] = {0, 8, 1 << 30}, ten = 10,
                       minus_one = -1;
  r.expect(ok, invalid, "a sequence longer than stated", [](A a, S, O) { a->max_kv = 7; });
  r.expect(ok, invalid, "more sequences than stated", [](A a, S, O) { a->seqs.cap = 1; });
  r.expect(ok, invalid, "fewer sequences than none", [](A a, S, O) { a->seqs.n = &minus_one; });
  r.expect(ok, invalid, "more rows than stated", [](A a, S, O) { a->q_rows.cap = 10; });
  r.expect(ok, invalid, "more rows than there are", [](A a, S, O) { a->q_rows.n = &ten; });
  r.expect(ok, invalid, "no offsets of q", [](A a, S, O) { a->cu_q = nullptr; });
  r.expect(ok, invalid, "no offsets of k", [](A a, S, O) { a->cu_kv = nullptr; });
  r.expect(ok, invalid, "falling offsets of q", [](A a, S, O) { a->cu_q = falling; });
  r.expect(ok, invalid, "falling offsets of k", [](A a, S, O) { a->cu_kv = falling; });
  r.expect(ok, invalid, "negative offsets of q", [](A a, S, O) { a->cu_q = negative; });
  r.expect(ok, invalid, "negative offsets of k", [](A a, S, O) { a->cu_kv = negative; });
  r.expect(ok, unsupported, "too many queries", [](A a, S, O) { a->cu_q = far; });
}

TEST(prefixes_are_refused) {
  Refusals r;
  static const int32_t negative[] = {-1, 0}, beyond[] = {6, 0}, none[] = {0, 0}, late[] = {0, 11},
                       far[] = {INT32_MAX, 0};
  auto both = [&](sie_status status, const char *what, Refusals::Change change) {
    r.expect_behind(status, status, what, change);
  };
  both(ok, "nothing wrong", [](A, S, O) {});
  both(unsupported, "prefix_k of another type", [](A a, S, O) { a->prefix_k.dtype = SIE_F16; });
  both(unsupported, "prefix_v of another type", [](A a, S, O) { a->prefix_v.dtype = SIE_F16; });
  both(invalid, "prefix_k's stride below its columns", [](A a, S, O) { a->prefix_k.ld = 120; });
  both(invalid, "prefix_v's stride below its columns", [](A a, S, O) { a->prefix_v.ld = 120; });
  both(unsupported, "prefix_k's stride of 132", [](A a, S, O) { a->prefix_k.ld = 132; });
  both(unsupported, "prefix_v's stride of 130", [](A a, S, O) { a->prefix_v.ld = 130; });
  both(invalid, "no first rows", [](A a, S, O) { a->prefix_first = nullptr; });
  r.expect_behind(invalid, ok, "no prefix_k", [](A a, S, O) { a->prefix_k.p = nullptr; });
  r.expect_behind(invalid, ok, "no prefix_v", [](A a, S, O) { a->prefix_v.p = nullptr; });
  r.expect_behind(unsupported, ok, "prefix_k at 4 bytes",
                  [](A a, S, O) { a->prefix_k.p = static_cast<uint16_t *>(a->prefix_k.p) + 2; });
  r.expect_behind(unsupported, ok, "prefix_v at 8 bytes",
                  [](A a, S, O) { a->prefix_v.p = static_cast<uint16_t *>(a->prefix_v.p) + 4; });
  r.expect_behind(ok, invalid, "fewer keys than none", [](A a, S, O) { a->prefix_keys = negative; });
  r.expect_behind(ok, invalid, "rows before the first", [](A a, S, O) { a->prefix_first = negative; });
  r.expect_behind(ok, invalid, "more keys than stated", [](A a, S, O) { a->prefix_keys = beyond; });
  r.expect_behind(ok, invalid, "more keys than stated, behind none",
                  [](A a, S, O) { a->prefix_keys = late; });
  r.expect_behind(ok, invalid, "keys beyond 32 bits", [](A a, S, O) { a->prefix_keys = far; });
  both(ok, "rows before the first, of no key",
       [](A a, S, O) { a->prefix_first = negative, a->prefix_keys = none; });
}

TEST(nothing_to_do) {
  Refusals r;
  r.expect(ok, "no sequences and no pointers", [](A a, S, O) {
    a->seqs.cap = 0;
    a->work = a->q.p = a->k.p = a->v.p = a->y.p = nullptr;
    a->cu_q = a->cu_kv = nullptr;
  });
  static const int32_t zeros[] = {0, 0, 0};
  r.expect(ok, "no keys and no pointers to them", [](A a, S, O) {
    a->max_kv = 0;
    a->k.p = a->v.p = nullptr;
    a->cu_kv = zeros;
  });
  r.expect(ok, "no rows and no pointers", [](A a, S, O) {
    a->q_rows.cap = 0;
    a->work = a->q.p = a->k.p = a->v.p = a->y.p = nullptr;
    a->cu_q = a->cu_kv = zeros;
    a->q_rows.n = zeros;
  });
}

}  // namespace
}  // namespace attention_test
