// emulated_kernels_test.cc — the kernels on AMX tiles, called past their table, which hides what they
// refuse behind the generic kernels and their scratch behind a larger one.
#include <math.h>

#include "at_end.h"
#include "common/dtype.h"
#include "tests/emulated_cpu.h"

#if defined(__x86_64__)

#include "cpu/amx_tile.h"

// As cmake/amx.cmake names them.
namespace sie_cpu {
sie_status attention_bf16_amx_emulated(const sie_attention_args *a, const sie_share *share);
int64_t attention_bf16_amx_scratch_emulated(const sie_op_bounds *bounds);
sie_status attention_disentangled_amx_emulated(const sie_attention_args *a, const sie_share *share);
int64_t attention_disentangled_amx_scratch_emulated(const sie_op_bounds *bounds);
}  // namespace sie_cpu

using namespace at_end;

namespace {

constexpr int32_t d = 32;
const int32_t none = 0, one = 1, starts[] = {0, 0}, single[] = {0, 1};

bool runs() { return emulated_cpu(SIE_ISA_AMX) != nullptr; }

bool released() {
  for (const auto &tile : sie_cpu::emulated_tiles()->tile) {
    if (tile.rows != 0) return false;
  }
  return true;
}

// Attention of one query to one key, in bf16.
struct Call {
  AtEnd<uint16_t> q, k, v, y;
  AtEnd<float> table;
  sie_attention_args args = {};

  explicit Call(bool by_distance) : q(d, 0x3f80), k(d, 0x3f80), v(d, 0x4000), y(d), table(d, 1.0f) {
    args.q_rows = args.seqs = {1, &one};
    args.cu_q = args.cu_kv = single, args.max_kv = 1;
    args.q = of(q.data(), d, SIE_BF16), args.k = of(k.data(), d, SIE_BF16);
    args.v = of(v.data(), d, SIE_BF16), args.y = of(y.data(), d, SIE_BF16);
    args.heads = args.kv_heads = 1, args.head_dim = d;
    args.scale = 0.5f;
    if (!by_distance) return;
    args.pos_key = args.pos_query = of(table.data(), d, SIE_F32);
    args.buckets = &none, args.position_rows = 1;
  }
};

// What the kernel says to the call with a change.
template <class Change>
void expect(sie_status want, bool by_distance, const char *what, Change change) {
  Call call(by_distance);
  change(&call.args);
  alignas(64) static uint8_t scratch[1 << 16];
  const sie_share share = {0, 1, scratch, sizeof scratch, nullptr};
  const sie_status status = (by_distance ? sie_cpu::attention_disentangled_amx_emulated
                                         : sie_cpu::attention_bf16_amx_emulated)(&call.args, &share);
  CHECK(status == want, "%s%s: status %d, %d expected", what, by_distance ? ", by distance" : "", status,
        want);
  CHECK(released(), "%s%s: tiles are left configured", what, by_distance ? ", by distance" : "");
}

// `seqs` sequences of so many queries and keys, all of which are alike, on scratch that ends where its
// memory does. With `weightless` all scores of the first query are −∞: it has no weight to divide by.
void attend_in_scratch(int32_t columns, int32_t seqs, int32_t queries, int32_t keys, bool by_distance,
                       bool weightless = false) {
  std::vector<int32_t> cu_q, cu_kv;
  for (int32_t b = 0; b <= seqs; b++) cu_q.push_back(b * queries), cu_kv.push_back(b * keys);
  const int32_t rows = seqs * queries;
  const AtEnd<uint16_t> q(rows * columns, 0x3f80), k(seqs * keys * columns, 0x3f80),
      v(seqs * keys * columns, 0x4000), y(rows * columns);
  const AtEnd<float> table(columns, 1.0f);
  if (weightless) q.data()[0] = 0xff80;
  Call call(by_distance);
  sie_attention_args &a = call.args;
  a.q_rows = {rows, &rows}, a.seqs = {seqs, &seqs};
  a.cu_q = cu_q.data(), a.cu_kv = cu_kv.data(), a.max_kv = keys;
  a.q = of(q.data(), columns, SIE_BF16), a.k = of(k.data(), columns, SIE_BF16);
  a.v = of(v.data(), columns, SIE_BF16), a.y = of(y.data(), columns, SIE_BF16);
  a.head_dim = columns;
  if (by_distance) a.pos_key = a.pos_query = of(table.data(), columns, SIE_F32);
  sie_op_bounds b = {};
  b.kind = SIE_OP_ATTENTION;
  b.max_len = keys, b.head_dim = columns, b.heads = b.kv_heads = 1, b.position_rows = a.position_rows;
  const int64_t bytes = by_distance ? sie_cpu::attention_disentangled_amx_scratch_emulated(&b)
                                    : sie_cpu::attention_bf16_amx_scratch_emulated(&b);
  const AtEnd<uint8_t> scratch(bytes, 0xff);
  const sie_share share = {0, 1, scratch.data(), bytes, nullptr};
  const sie_status status = (by_distance ? sie_cpu::attention_disentangled_amx_emulated
                                         : sie_cpu::attention_bf16_amx_emulated)(&a, &share);
  CHECK(status == SIE_OK, "status %d", status);
  for (int64_t i = 0; i < rows * columns; i++) {
    const uint16_t got = y.data()[i];
    const bool right = weightless && i < columns ? isnan(sie_f32_from_bf16(got)) : got == 0x4000;
    CHECK(right, "%d × %d: y[%lld] = %x", queries, keys, static_cast<long long>(i), got);
  }
}

}  // namespace

TEST(emulated_attention_on_tiles_refuses) {
  if (!runs()) return;
  using Args = sie_attention_args;
  for (bool by_distance : {false, true}) {
    auto takes = [=](const char *what, auto change) { expect(SIE_OK, by_distance, what, change); };
    auto lacks = [=](const char *what, auto change) { expect(SIE_UNSUPPORTED, by_distance, what, change); };
    takes("bf16", [](Args *) {});
    for (sie_tensor Args::*which : {&Args::q, &Args::k, &Args::v, &Args::y})
      lacks("an operand of f32", [=](Args *a) { (a->*which).dtype = SIE_F32; });
    for (float scale : {0.0f, -1.0f, NAN}) lacks("a scale", [=](Args *a) { a->scale = scale; });
    for (int32_t columns : {1, 16, 31, 33, 40, 63, 96, 127, 255, 257})
      lacks("columns of a head", [=](Args *a) { a->head_dim = columns; });
    takes("no sequence", [](Args *a) { a->q_rows = a->seqs = {0, &none}, a->cu_q = a->cu_kv = starts; });
  }
  auto takes = [](const char *what, auto change) { expect(SIE_OK, false, what, change); };
  auto lacks = [](const char *what, auto change) { expect(SIE_UNSUPPORTED, false, what, change); };
  lacks("buckets", [](Args *a) { a->buckets = &none; });
  for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_CAUSAL, SIE_MASK_WINDOW})
    takes("mask", [=](Args *a) { a->mask = mask; });
  for (int32_t mask : {SIE_MASK_FULL - 1, SIE_MASK_WINDOW + 1})
    lacks("mask", [=](Args *a) { a->mask = mask; });
  for (int32_t heads : {0, -1}) lacks("key heads", [=](Args *a) { a->kv_heads = heads; });
  lacks("heads that do not divide", [](Args *a) { a->heads = 3, a->kv_heads = 2; });
  const auto prefix = [](Args *a) {
    a->prefix_keys = a->prefix_first = &none, a->prefix_k = a->k, a->prefix_v = a->v;
  };
  takes("a prefix", prefix);
  lacks("keys of a prefix of f32", [=](Args *a) { prefix(a), a->prefix_k.dtype = SIE_F32; });
  lacks("values of a prefix of f32", [=](Args *a) { prefix(a), a->prefix_v.dtype = SIE_F32; });
  takes("no prefix of any type", [](Args *a) { a->prefix_k.dtype = a->prefix_v.dtype = SIE_F32; });
  for (int32_t reach : {0, SIE_MAX_BIAS_REACH}) takes("reach", [=](Args *a) { a->bias_reach = reach; });
  for (int32_t reach : {-1, SIE_MAX_BIAS_REACH + 1}) lacks("reach", [=](Args *a) { a->bias_reach = reach; });
}

TEST(emulated_attention_on_tiles_has_the_scratch_it_needs) {
  if (!runs()) return;
  for (int32_t columns : {1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257}) {
    const bool tiles = columns == 32 || columns == 64 || columns == 128 || columns == 256;
    for (int64_t length : {1, 32, 33, 511, 512, 513, 30000}) {
      sie_op_bounds b = {};
      b.kind = SIE_OP_ATTENTION;
      b.max_len = length, b.head_dim = columns, b.heads = b.kv_heads = 3;
      // Keys and values in bf16 in steps of 32, at most 512 of them; 32 queries; their scores, 64 bytes
      // more a row; beyond 512 keys values, largest score and sum of 1152 rows.
      const int64_t keys = std::min<int64_t>((length + 31) / 32 * 32, 512);
      const int64_t wanted = 2 * keys * columns * 2 + 32 * columns * 2 + 32 * (keys + 16) * 4 +
                             (length > 512 ? 1152 * (columns + 2) * 4 : 0);
      const int64_t got = sie_cpu::attention_bf16_amx_scratch_emulated(&b);
      CHECK(got == (tiles ? wanted : 0), "D %lld, %lld keys: %lld bytes, %lld expected",
            static_cast<long long>(columns), static_cast<long long>(length), static_cast<long long>(got),
            static_cast<long long>(tiles ? wanted : 0));
      for (int64_t rows : {1, 32, 33, 511}) {
        for (int32_t reach : {0, 3, 4, 260}) {
          b.position_rows = static_cast<int32_t>(rows), b.bucket_reach = reach;
          // Two lists of rows by distance, 16 more on either side; K in steps of 32 rows, Q and 64 rows
          // more; 32 rows of products with K, 64 bytes more each; 64 × 32 products with Q.
          const int64_t lists = (2 * (2 * (reach + 16) + 1) * 4 + 63) / 64 * 64,
                        steps = (rows + 31) / 32 * 32;
          const int64_t more =
              lists + steps * columns * 2 + (rows + 64) * columns * 2 + 32 * (steps + 16) * 4 + 64 * 32 * 4;
          const int64_t all = sie_cpu::attention_disentangled_amx_scratch_emulated(&b);
          CHECK(all == (tiles ? wanted + more : 0),
                "D %lld, %lld keys, %lld rows, reach %d: %lld bytes, %lld expected",
                static_cast<long long>(columns), static_cast<long long>(length), static_cast<long long>(rows),
                reach, static_cast<long long>(all), static_cast<long long>(tiles ? wanted + more : 0));
        }
      }
      b.position_rows = 0;
    }
  }
}

// Whole tiles of queries and of keys, whole blocks and chunks.
TEST(emulated_attention_on_tiles_keeps_to_its_scratch) {
  if (!runs()) return;
  for (bool by_distance : {false, true}) {
    for (int32_t queries : {17, 32}) {
      attend_in_scratch(32, 1, queries, 1, by_distance);
      attend_in_scratch(32, 2, queries, 32, by_distance);
      attend_in_scratch(256, 1, queries, 32, by_distance);
      attend_in_scratch(32, 1, queries, 512, by_distance);
    }
    attend_in_scratch(32, 1, 1152, 513, by_distance);
    attend_in_scratch(32, 1, 1152, 513, by_distance, true);
  }
}

// Whichever key it is, and however many are behind a mask: a weight of more than 1 would be none that the
// exponential knows.
TEST(emulated_attention_on_tiles_finds_the_largest_score) {
  const sie_ops *ops = emulated_cpu(SIE_ISA_AMX);
  if (ops == nullptr) return;
  for (int32_t keys : {1, 15, 16, 17, 31, 32, 33, 64, 75, 530}) {
    for (int32_t at = 0; at < keys; at += keys > 500 ? 23 : 1) {
      for (bool by_distance : {false, true}) {
        for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_CAUSAL, SIE_MASK_WINDOW}) {
          if (by_distance && mask != SIE_MASK_FULL) continue;
          const int32_t cu_kv[] = {0, keys};
          AtEnd<uint16_t> k(keys * d), v(keys * d);
          const AtEnd<float> table(d, 0.0f);
          for (int32_t i = 0; i < keys; i++) k.data()[i * d] = 0xc47a;  // −1000
          k.data()[at * d] = 0x447a, v.data()[at * d] = 0x4040;
          Call call(by_distance);
          sie_attention_args &a = call.args;
          a.cu_kv = cu_kv, a.max_kv = keys;
          a.k = of(k.data(), d, SIE_BF16), a.v = of(v.data(), d, SIE_BF16);
          a.mask = mask, a.window = keys - 1 - at;  // the largest score is the first that is seen
          if (by_distance) a.pos_key = a.pos_query = of(table.data(), d, SIE_F32);
          sie_op_bounds b = {};
          b.kind = SIE_OP_ATTENTION;
          b.max_len = keys, b.head_dim = d, b.heads = b.kv_heads = 1, b.position_rows = a.position_rows;
          Scratch scratch(ops, b);
          const sie_share share = scratch.share(0, 1);
          CHECK(ops->attention(&a, &share) == SIE_OK && scratch.intact(), "attention");
          CHECK(*call.y.data() == 0x4040, "key %d of %d, mask %d: y = %x, 3 expected", at, keys, mask,
                *call.y.data());
        }
      }
    }
  }
}

// Under a mask a sum that has come to −0 is +0: in a tile, and where blocks of keys are joined.
TEST(emulated_attention_on_tiles_has_no_negative_zeros_under_a_mask) {
  const sie_ops *ops = emulated_cpu(SIE_ISA_AMX);
  if (ops == nullptr) return;
  for (int32_t mask : {SIE_MASK_FULL, SIE_MASK_CAUSAL, SIE_MASK_WINDOW}) {
    for (int32_t keys : {64, 520}) {
      const int32_t cu_kv[] = {0, keys}, last = keys - 1;
      AtEnd<uint16_t> k(keys * d), v(keys * d);
      if (keys == 64) {
        v.data()[0] = 0x0080, v.data()[32 * d] = 0x8081;  // their sum is a denormal, which tiles make −0
      } else {
        v.data()[0] = 0x8080, k.data()[last * d] = 0x430c;  // what shrinks by 2⁻¹⁰¹
      }
      Call call(false);
      sie_attention_args &a = call.args;
      a.cu_kv = cu_kv, a.max_kv = keys;
      a.k = of(k.data(), d, SIE_BF16), a.v = of(v.data(), d, SIE_BF16);
      a.mask = mask, a.window = keys;
      sie_op_bounds b = {};
      b.kind = SIE_OP_ATTENTION;
      b.max_len = keys, b.head_dim = d, b.heads = b.kv_heads = 1;
      Scratch scratch(ops, b);
      const sie_share share = scratch.share(0, 1);
      CHECK(ops->attention(&a, &share) == SIE_OK && scratch.intact(), "attention");
      const uint16_t wanted = mask == SIE_MASK_FULL ? 0x8000 : 0;
      CHECK(*call.y.data() == wanted, "mask %d, %d keys: y = %x, %x expected", mask, keys, *call.y.data(),
            wanted);
    }
  }
}

// A NaN behind a window, and what lies in scratch before the first step of keys that a tile sees.
TEST(emulated_attention_on_tiles_begins_with_the_first_step_that_is_seen) {
  const sie_ops *ops = emulated_cpu(SIE_ISA_AMX);
  if (ops == nullptr) return;
  const int32_t rows = 160, cu[] = {0, rows};
  const AtEnd<uint16_t> q(rows * d, 0x3f80), k(rows * d, 0x3f80), v(rows * d, 0x4000), y(rows * d);
  v.data()[(rows - 1) * d] = 0x7fc0;
  for (int32_t window : {31, 32, 33, 64, 65}) {
    Call call(false);
    sie_attention_args &a = call.args;
    a.q_rows = {rows, &rows};
    a.cu_q = a.cu_kv = cu, a.max_kv = rows;
    a.q = of(q.data(), d, SIE_BF16), a.k = of(k.data(), d, SIE_BF16);
    a.v = of(v.data(), d, SIE_BF16), a.y = of(y.data(), d, SIE_BF16);
    a.mask = SIE_MASK_WINDOW, a.window = window;
    sie_op_bounds b = {};
    b.kind = SIE_OP_ATTENTION;
    b.max_len = rows, b.head_dim = d, b.heads = b.kv_heads = 1;
    for (int32_t query : {64, 95, 96, 97}) {
      if (query + window >= rows - 1) continue;  // it sees the NaN
      a.q_first = query, a.q_last = query + 1;
      Scratch scratch(ops, b);
      const sie_share share = scratch.share(0, 1);
      CHECK(ops->attention(&a, &share) == SIE_OK && scratch.intact(), "attention");
      for (int32_t i = 0; i < d; i++)
        CHECK(y.data()[query * d + i] == 0x4000, "window %d, query %d: y[%d] = %x", window, query, i,
              y.data()[query * d + i]);
    }
  }
}

// Scores are large, their difference is 1: it is that of the products, not of two rounded ones.
TEST(emulated_attention_on_tiles_subtracts_before_it_rounds) {
  const sie_ops *ops = emulated_cpu(SIE_ISA_AMX);
  if (ops == nullptr) return;
  const int32_t cu_kv[] = {0, 2};
  for (int32_t large = 0; large < 8; large++) {
    AtEnd<uint16_t> k(2 * d), v(2 * d);
    k.data()[0] = k.data()[d] = static_cast<uint16_t>(0x4a00 + large);  // 2²¹ and more
    k.data()[d + 1] = 0xbf80, v.data()[d] = 0x3f80;
    Call call(false);
    sie_attention_args &a = call.args;
    a.cu_kv = cu_kv, a.max_kv = 2;
    a.k = of(k.data(), d, SIE_BF16), a.v = of(v.data(), d, SIE_BF16);
    a.scale = 1;
    sie_op_bounds b = {};
    b.kind = SIE_OP_ATTENTION;
    b.max_len = 2, b.head_dim = d, b.heads = b.kv_heads = 1;
    Scratch scratch(ops, b);
    const sie_share share = scratch.share(0, 1);
    CHECK(ops->attention(&a, &share) == SIE_OK && scratch.intact(), "attention");
    const double y = static_cast<double>(sie_f32_from_bf16(*call.y.data())), want = 1 / (1 + exp(1.0));
    CHECK(fabs(y - want) < 0.0025, "score %d: y = %g, %g expected", large, y, want);
  }
}

TEST(emulated_linears_release_their_tiles) {
  const sie_ops *ops = emulated_cpu(SIE_ISA_AMX);
  if (ops == nullptr) return;
  float scale = 1;
  int32_t zero = 0;
  Weight bf16(SIE_COMPUTE_BF16, 1, 1, {2.0f}), int8(SIE_COMPUTE_INT8, 1, 1, {127.0f});
  for (Weight *weight : {&bf16, &int8}) {
    const bool bytes = weight == &int8;
    AtEnd<uint16_t> half(1, 0x4040);  // 3
    AtEnd<uint8_t> byte(1, 3);
    AtEnd<float> y(1);
    sie_linear_args a = {};
    a.rows = {1, &one}, a.n = a.k = 1;
    a.x = bytes ? of(byte.data(), 1, SIE_U8) : of(half.data(), 1, SIE_BF16);
    if (bytes) a.x.scale = &scale, a.x.zero = &zero, a.x.scale_group = -1;
    a.w = weight->packed(ops);
    a.y = of(y.data(), 1, SIE_F32);
    sie_op_bounds bounds = {};
    bounds.kind = SIE_OP_LINEAR, bounds.compute = bytes ? SIE_COMPUTE_INT8 : SIE_COMPUTE_BF16;
    bounds.rows = bounds.n = bounds.k = 1;
    Scratch scratch(ops, bounds);
    const sie_share share = scratch.share(0, 1);
    CHECK(ops->linear(&a, &share) == SIE_OK && scratch.intact(), "linear");
    const float wanted = bytes ? 381.0f : 6.0f;
    CHECK(*y.data() == wanted, "y = %g, %g expected", static_cast<double>(*y.data()),
          static_cast<double>(wanted));
    CHECK(released(), "tiles are left configured by a linear of %s", bytes ? "bytes" : "bf16");
  }
}

#endif  // __x86_64__
