// bad_heads_test.cc — wrong arguments of the operations behind a model's last layer, and wrong
// batches for them. Programs are recorded on the reference device, which has every operation.
#include <limits.h>
#include <math.h>
#include <string.h>

#include <functional>
#include <initializer_list>

#include "device.h"
#include "heads.h"
#include "refused.h"

using model::Batch;
using model::Model;

namespace {

// A program on the reference device with only its embedding recorded, and weights of any size.
struct Recording {
  Model m;  // weights: word, position, type, gamma, beta
  sie_program *p = nullptr;
  sie_value x = SIE_NO_VALUE, kept = SIE_NO_VALUE, pooled = SIE_NO_VALUE;
  sie_error none = {};

  explicit Recording(int64_t max_query_rows = 16) {
    CHECK(m.open(SIE_DEVICE_REF, 0, 0, SIE_COMPUTE_F32, {}) == SIE_OK, "%s", m.err.message);
    record::Caps caps;
    caps.max_tokens = 64;
    caps.max_seqs = 4;
    caps.max_len = 64;
    caps.max_query_rows = max_query_rows;
    const std::vector<sie_weight *> &w = m.weights;
    ok(record::begin(m.device, caps, &p, &none));
    ok(record::embed_layernorm(p, w[0], w[1], w[2], w[3], w[4], 0, 0, &x, &none));
    ok(record::keep_rows(p, x, &kept, &none));
    ok(record::pool(p, x, SIE_POOL_MEAN, &pooled, &none));
  }
  ~Recording() { sie_program_free(p); }

  void ok(sie_status status) { CHECK(status == SIE_OK, "%s", none.message); }

  sie_weight *data(uint32_t dtype, int64_t n, int64_t k, int32_t index = 0) {
    std::vector<int32_t> values(static_cast<size_t>(n * k), index);
    sie_weight *w = nullptr;
    CHECK(m.data(dtype, n, k, values.data(), &w) == SIE_OK, "%s", m.err.message);
    return w;
  }
  sie_weight *linear(int64_t n, int64_t k) {
    sie_weight *w = nullptr;
    CHECK(m.weight(SIE_WEIGHT_LINEAR, SIE_COMPUTE_F32, n, k, 1, 0, &w) == SIE_OK, "%s", m.err.message);
    return w;
  }
};

}  // namespace

TEST(bad_data_weights) {
  Recording r;
  sie_weight *w;
  float values[4] = {1, 2, NAN, 4};
  CHECK(r.m.data(SIE_F32, 2, 2, values, &w) == SIE_CORRUPT, "a NaN is data");
  CHECK(r.m.data(SIE_U8, 2, 2, values, &w) == SIE_UNSUPPORTED, "bytes are data");
  CHECK(r.m.data(SIE_I32, 2, 2, values, &w) == SIE_OK, "%s", r.m.err.message);
  sie_value y;
  REFUSED(record::linear(r.p, r.x, w, nullptr, SIE_ACT_NONE, SIE_NO_VALUE, &y, &err));
  REFUSED(record::layernorm(r.p, r.x, w, nullptr, 0, &y, &err));
}

TEST(bad_kept_rows) {
  Recording r;
  sie_value y;
  REFUSED(record::keep_rows(nullptr, r.x, &y, &err));
  REFUSED(record::keep_rows(r.p, r.x, nullptr, &err));
  REFUSED(record::keep_rows(r.p, 99, &y, &err));
  REFUSED(record::keep_rows(r.p, r.kept, &y, &err));
  REFUSED(record::keep_rows(r.p, r.pooled, &y, &err));
  REFUSED(record::linear(r.p, r.kept, r.linear(64, 64), nullptr, SIE_ACT_NONE, r.x, &y,
                         &err));  // rows of two kinds
  sie_attention_params a = sized<sie_attention_params>();
  a.heads = a.kv_heads = 2;
  a.head_dim = 32;
  REFUSED(record::attention(r.p, r.kept, r.x, r.x, &a, &y, &err));
  REFUSED(record::attention(r.p, r.x, r.kept, r.x, &a, &y, &err));
  REFUSED(record::attention(r.p, r.x, r.x, r.kept, &a, &y, &err));
  REFUSED(record::output_rows(r.p, r.kept, 0, &err));
  REFUSED(record::output_token_rows(r.p, r.pooled, 0, &err));
  for (int32_t o = 0; o < SIE_MAX_OUTPUTS; o++) r.ok(record::output_token_rows(r.p, r.x, o, &r.none));
  REFUSED(record::output_token_rows(r.p, r.x, 0, &err));                // a name twice
  REFUSED(record::output_token_rows(r.p, r.x, SIE_MAX_OUTPUTS, &err));  // one too many
}

// One query a sequence: with a mask or slopes the program must say which row it is.
TEST(bad_one_query) {
  Recording r;
  sie_value q = 0, y = 0;
  sie_weight *slopes = nullptr;
  r.ok(r.m.vector({0.5f, 0.25f}, &slopes));
  r.ok(record::gather_rows(r.p, r.x, SIE_POOL_CLS, &q, &r.none));
  sie_attention_params a = sized<sie_attention_params>();
  a.heads = a.kv_heads = 2;
  a.head_dim = 32;
  for (uint32_t which : {0u, 1u, 2u, 3u, 4u, 99u}) {
    const bool known = which == SIE_POOL_CLS || which == SIE_POOL_LAST;
    for (bool placed : {false, true}) {
      a.which = which;
      a.mask = placed && which % 2 == 1 ? SIE_MASK_CAUSAL : SIE_MASK_FULL;
      a.alibi = placed && a.mask == SIE_MASK_FULL ? slopes : nullptr;
      if (known || (!placed && which == 0)) {
        r.ok(record::attention(r.p, q, r.x, r.x, &a, &y, &r.none));
      } else {
        REFUSED(record::attention(r.p, q, r.x, r.x, &a, &y, &err));
      }
    }
  }
  a.which = SIE_POOL_LAST;
  a.mask = SIE_MASK_CAUSAL;
  a.alibi = nullptr;
  REFUSED(record::attention(r.p, q, r.kept, r.kept, &a, &y, &err), SIE_UNSUPPORTED);  // keys without places
}

// A relative bias has a row for each head and a column for each distance, and needs places.
TEST(bad_relative_bias) {
  Recording r;
  sie_value q = 0, y = 0;
  const std::vector<float> values(64, 0.5f);
  auto table = [&](uint32_t dtype, int64_t n, int64_t k) {
    sie_weight *w = nullptr;
    r.ok(r.m.data(dtype, n, k, values.data(), &w));
    return w;
  };
  sie_weight *slopes = nullptr;
  r.ok(r.m.vector({0.5f, 0.25f}, &slopes));
  r.ok(record::gather_rows(r.p, r.x, SIE_POOL_CLS, &q, &r.none));
  sie_attention_params a = sized<sie_attention_params>();
  a.heads = a.kv_heads = 2;
  a.head_dim = 32;
  for (const sie_weight *bad : {table(SIE_F32, 2, 6), table(SIE_F32, 1, 7), table(SIE_F32, 3, 7),
                                table(SIE_I32, 2, 7), static_cast<sie_weight *>(slopes)}) {
    a.bias = bad;
    REFUSED(record::attention(r.p, r.x, r.x, r.x, &a, &y, &err));
  }
  a.bias = table(SIE_F32, 2, 7);
  REFUSED(record::attention(r.p, q, r.x, r.x, &a, &y, &err));  // which row is not said
  REFUSED(record::attention(r.p, r.x, r.kept, r.kept, &a, &y, &err), SIE_UNSUPPORTED);
  r.ok(record::attention(r.p, r.x, r.x, r.x, &a, &y, &r.none));
  a.which = SIE_POOL_CLS;
  r.ok(record::attention(r.p, q, r.x, r.x, &a, &y, &r.none));
  a.which = 0;
  a.bias = table(SIE_F32, 2, 1);  // one bias for all distances
  r.ok(record::attention(r.p, r.x, r.x, r.x, &a, &y, &r.none));
  a.struct_size = offsetof(sie_attention_params, bias);  // the header before biases
  a.bias = slopes;
  r.ok(record::attention(r.p, r.x, r.x, r.x, &a, &y, &r.none));
}

// Tables have a row for each bucket and the columns of all heads; buckets never fall, and stand alone.
TEST(bad_disentangled_attention) {
  Recording r;
  sie_value q = 0, y = 0;
  const std::vector<float> values(6 * 64, 0.5f);
  auto table = [&](int64_t n, int64_t k) {
    sie_weight *w = nullptr;
    r.ok(r.m.data(SIE_F32, n, k, values.data(), &w));
    return w;
  };
  auto rows = [&](const std::vector<int32_t> &numbers, int64_t n = 1) {
    sie_weight *w = nullptr;
    r.ok(r.m.data(SIE_I32, n, static_cast<int64_t>(numbers.size()) / n, numbers.data(), &w));
    return w;
  };
  sie_weight *slopes = nullptr;
  r.ok(r.m.vector({0.5f, 0.25f}, &slopes));
  r.ok(record::gather_rows(r.p, r.x, SIE_POOL_CLS, &q, &r.none));
  sie_attention_params good = sized<sie_attention_params>();
  good.heads = good.kv_heads = 2;
  good.head_dim = 32;
  good.pos_key = table(5, 64);
  good.pos_query = table(5, 64);
  good.buckets = rows({0, 1, 1, 2, 4});
  auto refuses = [&](auto change, sie_status wanted = SIE_INVALID_ARGUMENT) {
    sie_attention_params a = good;
    change(&a);
    REFUSED(record::attention(r.p, r.x, r.x, r.x, &a, &y, &err), wanted);
  };
  const sie_weight *const buckets[] = {rows({0, 1, 1, 2}),
                                       rows({0, 1, 2, 1, 4}),
                                       rows({0, 1, 1, 2, 5}),
                                       rows({-1, 1, 1, 2, 4}),
                                       rows({0, 1, 1, 2, 3, 4}, 2),
                                       slopes,
                                       table(1, 5)};
  for (const sie_weight *bad : buckets) refuses([&](sie_attention_params *a) { a->buckets = bad; });
  for (const sie_weight *bad : {table(5, 32), table(6, 64), table(4, 64), slopes}) {
    refuses([&](sie_attention_params *a) { a->pos_key = bad; });
    refuses([&](sie_attention_params *a) { a->pos_query = bad; });
  }
  refuses([&](sie_attention_params *a) { a->buckets = nullptr; });
  refuses([&](sie_attention_params *a) { a->pos_key = a->pos_query = nullptr; });
  refuses([&](sie_attention_params *a) { a->mask = SIE_MASK_CAUSAL; }, SIE_UNSUPPORTED);
  refuses([&](sie_attention_params *a) { a->alibi = slopes; }, SIE_UNSUPPORTED);
  refuses([&](sie_attention_params *a) { a->bias = table(2, 7); }, SIE_UNSUPPORTED);
  REFUSED(record::attention(r.p, q, r.x, r.x, &good, &y, &err));  // which row is not said
  REFUSED(record::attention(r.p, r.x, r.kept, r.kept, &good, &y, &err), SIE_UNSUPPORTED);
  r.ok(record::attention(r.p, r.x, r.x, r.x, &good, &y, &r.none));
  good.pos_query = nullptr;
  good.which = SIE_POOL_LAST;
  r.ok(record::attention(r.p, q, r.x, r.x, &good, &y, &r.none));
  good.struct_size = offsetof(sie_attention_params, pos_key);  // the header before tables
  good.buckets = slopes;
  r.ok(record::attention(r.p, q, r.x, r.x, &good, &y, &r.none));
}

// Keys that are the first rows are kept rows of q's own space.
TEST(bad_first_keys) {
  Recording r;
  sie_value q = 0, y = 0;
  r.ok(record::gather_rows(r.p, r.x, SIE_POOL_CLS, &q, &r.none));
  sie_attention_params a = sized<sie_attention_params>();
  a.heads = a.kv_heads = 2;
  a.head_dim = 32;
  a.mask = SIE_MASK_WINDOW;
  a.window = 3;
  REFUSED(record::attention(r.p, r.x, r.kept, r.kept, &a, &y, &err), SIE_UNSUPPORTED);
  a.first_keys = 2;
  REFUSED(record::attention(r.p, r.x, r.kept, r.kept, &a, &y, &err));
  a.first_keys = 1;
  REFUSED(record::attention(r.p, r.x, r.x, r.x, &a, &y, &err));  // not a subset
  a.which = SIE_POOL_CLS;
  REFUSED(record::attention(r.p, q, r.kept, r.kept, &a, &y, &err));
  a.which = 0;
  a.segment = 1;
  REFUSED(record::attention(r.p, r.x, r.kept, r.kept, &a, &y, &err));  // no state is declared
  a.segment = 0;
  r.ok(record::attention(r.p, r.x, r.kept, r.kept, &a, &y, &r.none));
}

TEST(bad_splade) {
  Recording r;
  sie_value y = 0, z = 0;
  sie_weight *w = r.linear(301, 64);
  REFUSED(record::splade(r.p, r.x, w, nullptr, nullptr, &err));
  REFUSED(record::splade(r.p, r.x, nullptr, nullptr, &y, &err));
  REFUSED(record::splade(r.p, r.x, r.linear(301, 32), nullptr, &y, &err));
  REFUSED(record::splade(r.p, r.x, w, r.m.weights[3], &y, &err));  // a bias of 64
  REFUSED(record::splade(r.p, r.kept, w, nullptr, &y, &err));
  REFUSED(record::splade(r.p, r.pooled, w, nullptr, &y, &err));
  r.ok(record::splade(r.p, r.x, w, nullptr, &y, &r.none));
  REFUSED(record::columns(r.p, y, 0, 1, &z, &err));
  REFUSED(record::pool(r.p, y, SIE_POOL_CLS, &z, &err));
  REFUSED(record::linear(r.p, y, r.linear(8, 301), nullptr, SIE_ACT_NONE, SIE_NO_VALUE, &z, &err));
  REFUSED(record::output_rows(r.p, y, 0, &err));
  REFUSED(record::output_sparse(r.p, y, static_cast<sie_sparse>(3), 0, &err));
  REFUSED(record::output_sparse(r.p, r.x, SIE_SPARSE_LOG, 0, &err));
  REFUSED(record::output_sparse(r.p, -1, SIE_SPARSE_LOG, 0, &err));
  r.ok(record::output_sparse(r.p, y, SIE_SPARSE_LOG, 0, &r.none));
}

TEST(bad_join) {
  Recording r;
  sie_value y = 0, wide = 0, all = 0;
  REFUSED(record::join(r.p, r.x, r.x, 0, nullptr, &err));
  REFUSED(record::join(r.p, 0, r.x, 0, &y, &err));
  REFUSED(record::join(r.p, r.x, 0, 0, &y, &err));    // one value is no join
  REFUSED(record::join(r.p, r.x, 0, r.x, &y, &err));  // a hole
  REFUSED(record::join(r.p, r.x, r.x, 99, &y, &err));
  REFUSED(record::join(r.p, r.x, r.kept, 0, &y, &err));  // rows of two spaces
  REFUSED(record::join(r.p, r.x, r.x, r.pooled, &y, &err));
  sie_join_params j = sized<sie_join_params>();
  j.y = record::next(r.p);
  j.x[0] = j.x[1] = r.x;
  j.reserved = 1;
  REFUSED(record::add(r.p, SIE_JOIN, j, &err));
  // The widest is possible; one column more is not.
  r.ok(record::linear(r.p, r.x, r.linear(1 << 19, 64), nullptr, SIE_ACT_NONE, SIE_NO_VALUE, &wide, &r.none));
  REFUSED(record::join(r.p, wide, wide, r.x, &y, &err));
  r.ok(record::join(r.p, wide, wide, 0, &all, &r.none));
  r.ok(record::join(r.p, r.x, r.x, r.x, &y, &r.none));
}

TEST(bad_maxsim) {
  Recording r, without(0);
  sie_value y = 0, reduced = 0;
  if (r.m.device->ops->maxsim == nullptr) {
    REFUSED(record::maxsim(r.p, r.x, 0, &y, &err), SIE_UNSUPPORTED);
    return;
  }
  REFUSED(record::maxsim(r.p, r.x, 0, nullptr, &err));
  REFUSED(record::maxsim(r.p, r.x, 2, &y, &err));
  REFUSED(record::maxsim(r.p, r.pooled, 0, &y, &err));
  REFUSED(record::maxsim(without.p, without.x, 0, &y, &err));
  r.ok(record::maxsim(r.p, r.x, 0, &y, &r.none));
  r.ok(record::linear(r.p, r.x, r.linear(8, 64), nullptr, SIE_ACT_NONE, SIE_NO_VALUE, &reduced, &r.none));
  REFUSED(record::maxsim(r.p, reduced, 0, &y, &err));  // queries of two widths
}

TEST(bad_lora) {
  Recording r;
  sie_value y;
  sie_weight *w = r.linear(96, 64), *as[] = {r.data(SIE_F32, 4, 64), nullptr},
             *bs[] = {r.data(SIE_F32, 96, 4), nullptr};
  record::Lora lora = {2, as, bs};
  auto record = [&](const record::Lora *l, sie_error *err) {
    return record::linear_lora(r.p, r.x, w, nullptr, SIE_ACT_NONE, SIE_NO_VALUE, *l, &y, err);
  };
  auto with = [&](const std::function<void(record::Lora *)> &change) {
    record::Lora changed = lora;
    change(&changed);
    REFUSED(record(&changed, &err));
  };
  for (int32_t n : {INT_MIN, 0, 65}) with([n](record::Lora *l) { l->n_adapters = n; });
  with([](record::Lora *l) { l->a = nullptr; });
  with([](record::Lora *l) { l->b = nullptr; });
  auto with_pair = [&](sie_weight *a, sie_weight *b) {
    sie_weight *second_a[] = {as[0], a}, *second_b[] = {bs[0], b};
    with([&](record::Lora *l) {
      l->a = second_a;
      l->b = second_b;
    });
  };
  with_pair(as[0], nullptr);
  with_pair(nullptr, bs[0]);
  with_pair(r.data(SIE_F32, 4, 63), bs[0]);
  with_pair(as[0], r.data(SIE_F32, 95, 4));
  with_pair(as[0], r.data(SIE_F32, 96, 5));
  with_pair(as[0], r.data(SIE_I32, 96, 4));
  with_pair(r.data(SIE_F16, 4, 64), r.data(SIE_F16, 96, 4));  // on a CPU adapters are f32
  with_pair(r.data(SIE_F32, 1025, 64), r.data(SIE_F32, 96, 1025));
  with_pair(w, bs[0]);
  if (r.m.device->ops->lora == nullptr) {
    REFUSED(record(&lora, &err), SIE_UNSUPPORTED);
  } else {
    r.ok(record(&lora, &r.none));
    with([](record::Lora *l) { l->n_adapters = 1; });  // once a linear has two, all have two
  }
  // No adapter changes this linear, so it is a plain one on any device.
  sie_weight *nothing[] = {nullptr, nullptr};
  lora.a = lora.b = nothing;
  r.ok(record(&lora, &r.none));
}

TEST(bad_streams) {
  Recording r;
  sie_stream_params s = sized<sie_stream_params>();
  auto record = [&](sie_value x, sie_error *err) { return record::stream(r.p, x, err); };
  REFUSED(record(r.x, &err));       // other operations came after its own
  REFUSED(record(r.pooled, &err));  // a pooling
  sie_value y = 0, view = 0, rows = 0;
  r.ok(record::linear(r.p, r.x, r.linear(64, 64), nullptr, SIE_ACT_NONE, r.x, &y, &r.none));
  r.ok(record::columns(r.p, y, 0, 32, &view, &r.none));
  for (sie_value x : {-1, 0, 99, r.x, view}) REFUSED(record(x, &err));
  s.x = y;
  s.struct_size = 4;
  REFUSED(record::add(r.p, SIE_STREAM, s, &err));
  sie_op none = {SIE_STREAM, 0, nullptr};
  REFUSED(sie_program_add(r.p, &none, 1, &err));
  r.ok(record(y, &r.none));
  REFUSED(record(y, &err));  // twice
  sie_norm_params n = sized<sie_norm_params>();
  n.x = n.residual = y;
  n.y = record::next(r.p);
  n.sum = n.y + 1;
  n.gamma = r.m.weights[3];
  r.ok(record::add(r.p, SIE_NORM, n, &r.none));
  r.ok(record(n.sum, &r.none));
  r.ok(record(n.y, &r.none));
  // Nothing updates a stream, nor a view of one, nor rows kept of one.
  sie_rope_params rope = sized<sie_rope_params>();
  rope.heads = 2;
  rope.head_dim = 32;
  rope.q = y;
  REFUSED(record::add(r.p, SIE_ROPE, rope, &err));
  rope.q = r.x;
  rope.k = y;
  REFUSED(record::add(r.p, SIE_ROPE, rope, &err));
  rope.k = SIE_NO_VALUE;
  rope.heads = 1;
  rope.q = view;
  REFUSED(record::add(r.p, SIE_ROPE, rope, &err));
  r.ok(record::keep_rows(r.p, y, &rows, &r.none));
  REFUSED(record(rows, &err));  // no operation whose results can be streams, and one already
}

// Turns have a row of i32 for each length, and need whole sequences and tables.
TEST(bad_turns) {
  Recording r;
  sie_rope_params rope = sized<sie_rope_params>();
  rope.q = r.x;
  rope.heads = 2;
  rope.head_dim = 32;
  rope.rot = 16;
  rope.cos = rope.sin = r.data(SIE_F32, 5, 8);
  for (const sie_weight *bad : {r.data(SIE_F32, 9, 16), r.data(SIE_I32, 9, 8), r.data(SIE_I32, 9, 17)}) {
    rope.turns = bad;
    REFUSED(record::add(r.p, SIE_ROPE, rope, &err));
  }
  rope.turns = r.data(SIE_I32, 9, 16);
  rope.position_offset = 1;
  REFUSED(record::add(r.p, SIE_ROPE, rope, &err));
  rope.position_offset = 0;
  rope.rot = 0;
  REFUSED(record::add(r.p, SIE_ROPE, rope, &err));  // no tables either
  rope.cos = rope.sin = nullptr;
  REFUSED(record::add(r.p, SIE_ROPE, rope, &err));
  rope.rot = 16;
  REFUSED(record::add(r.p, SIE_ROPE, rope, &err));
  rope.cos = rope.sin = r.data(SIE_F32, 5, 8);
  r.ok(record::add(r.p, SIE_ROPE, rope, &r.none));
  rope.struct_size = offsetof(sie_rope_params, turns);  // the header before turns
  rope.turns = rope.cos;
  r.ok(record::add(r.p, SIE_ROPE, rope, &r.none));
  sie_workspace workspace;
  char text[4096];
  r.ok(record::output_values(r.p, r.x, 0, &r.none));
  r.ok(sie_program_end(r.p, &workspace, &r.none));
  sie_program_describe(r.p, text, sizeof text);
  CHECK(strstr(text, "16 columns, in place, by length beyond 5") != nullptr, "%s", text);
}

TEST(bad_muvera) {
  Recording r;
  sie_muvera_params good = sized<sie_muvera_params>();
  good.repetitions = 3;
  good.simhash_bits = 2;
  good.projected = 16;
  good.final_dims = 100;
  good.simhash = r.data(SIE_F32, 3 * 64, 2);
  good.ams = r.data(SIE_I32, 3, 64, 15);
  good.sketch = r.data(SIE_I32, 3 * 4 * 16, 1, ~99);
  auto record = [&](const sie_muvera_params *m, sie_error *err) {
    return record::output_muvera(r.p, r.x, m, 0, err);
  };
  REFUSED(record::output_muvera(r.p, r.pooled, &good, 0, &err));
  auto with = [&](const std::function<void(sie_muvera_params *)> &change,
                  sie_status want = SIE_INVALID_ARGUMENT) {
    sie_muvera_params changed = good;
    change(&changed);
    REFUSED(record(&changed, &err), want);
  };
  with([](sie_muvera_params *m) { m->struct_size = 4; });
  for (int32_t n : {-1, 0, 2, 4097, INT_MAX}) with([n](sie_muvera_params *m) { m->repetitions = n; });
  for (int32_t n : {-1, 1, 11, 31}) with([n](sie_muvera_params *m) { m->simhash_bits = n; });
  for (int32_t n : {-1, 0, 17, INT_MAX}) with([n](sie_muvera_params *m) { m->projected = n; });
  for (int32_t n : {-1, 0, INT_MAX}) with([n](sie_muvera_params *m) { m->final_dims = n; });
  for (int32_t flag : {-1, 2}) {
    with([flag](sie_muvera_params *m) { m->is_query = flag; });
    with([flag](sie_muvera_params *m) { m->fill_empty = flag; });
    with([flag](sie_muvera_params *m) { m->center_tokens = flag; });
    with([flag](sie_muvera_params *m) { m->normalize = flag; });
  }
  with([](sie_muvera_params *m) { m->simhash = nullptr; });
  with([](sie_muvera_params *m) { m->simhash = m->ams; });
  with([](sie_muvera_params *m) { m->ams = nullptr; });
  with([](sie_muvera_params *m) { m->sketch = nullptr; });
  with([&](sie_muvera_params *m) { m->ams = r.data(SIE_I32, 3, 64, 16); }, SIE_CORRUPT);
  with([&](sie_muvera_params *m) { m->ams = r.data(SIE_I32, 3, 64, ~16); }, SIE_CORRUPT);
  with([&](sie_muvera_params *m) { m->sketch = r.data(SIE_I32, 3 * 4 * 16, 1, 100); }, SIE_CORRUPT);
  with([&](sie_muvera_params *m) { m->sketch = r.data(SIE_I32, 3 * 4 * 16, 1, INT_MIN); }, SIE_CORRUPT);
  r.ok(record(&good, &r.none));

  int32_t sketch[4] = {0, ~1, 2, 1}, output[4], source[4];
  REFUSED(sie_muvera_order(nullptr, 2, 2, 3, output, source, &err));
  REFUSED(sie_muvera_order(sketch, 2, 2, 3, nullptr, source, &err));
  REFUSED(sie_muvera_order(sketch, 2, 2, 3, output, nullptr, &err));
  for (int64_t n : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    REFUSED(sie_muvera_order(sketch, n, 2, 3, output, source, &err));
    REFUSED(sie_muvera_order(sketch, 2, n, 3, output, source, &err));
    REFUSED(sie_muvera_order(sketch, 2, 2, n, output, source, &err));
  }
  REFUSED(sie_muvera_order(sketch, 2, 2, 2, output, source, &err), SIE_CORRUPT);
}

TEST(bad_smve) {
  Recording r;
  sie_smve_params good = sized<sie_smve_params>();
  good.repetitions = 2;
  good.width = 10;
  good.top = 10;
  good.anchors = r.data(SIE_F32, 20, 64);
  auto record = [&](const sie_smve_params *s, sie_error *err) {
    return record::output_smve(r.p, r.x, s, 0, err);
  };
  if (r.m.device->ops->smve == nullptr) {
    REFUSED(record(&good, &err), SIE_UNSUPPORTED);
    return;
  }
  REFUSED(record::output_smve(r.p, r.pooled, &good, 0, &err));
  auto with = [&](const std::function<void(sie_smve_params *)> &change) {
    sie_smve_params changed = good;
    change(&changed);
    REFUSED(record(&changed, &err));
  };
  with([](sie_smve_params *s) { s->struct_size = 4; });
  for (int32_t n : {-1, 0, 3, INT_MAX}) with([n](sie_smve_params *s) { s->repetitions = n; });
  for (int32_t n : {-1, 0, 11, INT_MAX}) with([n](sie_smve_params *s) { s->width = n; });
  for (int32_t n : {-1, 0, 11}) with([n](sie_smve_params *s) { s->top = n; });
  with([](sie_smve_params *s) { s->max_nonzeros = -1; });
  with([](sie_smve_params *s) { s->is_query = 2; });
  with([](sie_smve_params *s) { s->normalize = -1; });
  with([](sie_smve_params *s) { s->anchors = nullptr; });
  with([&](sie_smve_params *s) { s->anchors = r.data(SIE_F32, 20, 63); });
  r.ok(record(&good, &r.none));
}

// An input that two operations read has the bounds of both: adapters, and groups of queries.
TEST(bad_input_of_two_operations) {
  Recording r;
  if (r.m.device->ops->maxsim == nullptr || r.m.device->ops->lora == nullptr) return;
  sie_value y = 0, score = 0;
  sie_weight *w = r.linear(96, 64);
  const sie_weight *a[] = {r.data(SIE_F32, 4, 64)}, *b[] = {r.data(SIE_F32, 96, 4)};
  sie_linear_params l = sized<sie_linear_params>();
  l.x = r.x;
  l.w = w;
  l.adapter = record::partner;
  l.n_adapters = 1;
  l.a = a;
  l.b = b;
  r.ok(record::result(r.p, SIE_LINEAR, l, &y, &r.none));
  r.ok(record::maxsim(r.p, r.x, 0, &score, &r.none));
  r.ok(record::output_values(r.p, score, 0, &r.none));
  sie_workspace workspace;
  r.ok(sie_program_end(r.p, &workspace, &r.none));
  const int32_t ids[] = {1, 2, 3}, cu[] = {0, 1, 3}, cu_queries[] = {0, 1, 2, 3};
  const std::vector<float> queries(3 * 64);
  record::Batch batch;
  batch.n_seqs = 2;
  batch.ids = ids;
  batch.cu_seqlens = cu;
  batch.n_queries = 3;
  batch.cu_queries = cu_queries;
  batch.queries = queries.data();
  for (int32_t partner : {-2, 1, 2, 3}) {  // 0 alone is an adapter and a group
    const int32_t partners[] = {0, partner};
    batch.partner = partners;
    REFUSED(record::load(r.m.slots[0], r.p, &batch, &err));
  }
  const int32_t partners[] = {0, -1};
  batch.partner = partners;
  r.ok(record::load(r.m.slots[0], r.p, &batch, &r.none));
}

// Batches for heads with one mistake each.
TEST(bad_batches_of_heads) {
  auto refuse = [](const char *name, const std::function<void(Batch *)> &change,
                   sie_status want = SIE_INVALID_ARGUMENT) {
    const heads::Head &head = heads::named(name);
    model::Shape shape;
    shape.layers = 1;
    shape.tail = head.tail;
    Model m;
    if (m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32, shape) == SIE_UNSUPPORTED) return;
    Batch batch = heads::batch_of(head, m.shape, {1, 2, 3}, false);
    CHECK(run(&m, batch).status == SIE_OK, "%s: %s", name, m.err.message);
    change(&batch);
    m.err = {};
    refused(name, submit(&m, 0, batch), m.err, want);
  };
  refuse("keep", [](Batch *b) { b->keep[5] = 2; });
  refuse("keep", [](Batch *b) { b->keep[0] = 255; });
  for (int o : {0, 2, 3}) refuse("keep", [o](Batch *b) { b->items[o].clear(); });
  refuse("keep", [](Batch *b) { b->items[0][1].offset = 2; });
  refuse("keep", [](Batch *b) { b->items[0][1].dims = heads::reduced + 1; });
  refuse("keep", [](Batch *b) { b->items[0][1].dtype = SIE_BF16; }, SIE_UNSUPPORTED);
  // There is room for the first row of the last sequence, not for the others.
  refuse("keep", [](Batch *b) { b->items[3][2].offset = (4 << 20) - 64 * 4; });
  for (int32_t adapter : {-2, heads::n_adapters, INT_MAX}) {
    refuse("lora", [adapter](Batch *b) { b->adapter[1] = adapter; });
  }
  for (int32_t partner : {-2, heads::n_queries, INT_MAX}) {
    refuse("maxsim", [partner](Batch *b) { b->partner[1] = partner; });
  }
  refuse("maxsim", [](Batch *b) { b->cu_queries[0] = 1; });
  refuse("maxsim", [](Batch *b) { b->cu_queries[1] = 99; });
  refuse("maxsim", [](Batch *b) { b->cu_queries.back() = 257; });
  refuse("maxsim", [](Batch *b) { b->queries.clear(); });
  refuse("maxsim", [](Batch *b) { b->cu_queries.resize(600, b->cu_queries.back()); });
  for (int32_t dims : {0, -1}) refuse("splade", [dims](Batch *b) { b->items[0][1].dims = dims; });
  refuse("splade", [](Batch *b) { b->items[0][1].offset += 8; });
  refuse("splade", [](Batch *b) { b->items[0][1].normalize = 1; });
  refuse("splade", [](Batch *b) { b->items[0][1].dtype = SIE_I8; }, SIE_UNSUPPORTED);
  refuse("splade", [](Batch *b) { b->items[0][1].dims = INT_MAX; });
  refuse("splade", [](Batch *b) { b->items[0][2].offset = (4 << 20) - 16; });
  refuse("muvera", [](Batch *b) { b->items[0][0].dims = heads::encoded + 1; });
}
