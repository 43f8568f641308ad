// bad_arguments_test.cc — every function with every kind of wrong argument: it must return the
// right status and a message and change nothing, and the object must stay usable.
#include <math.h>

#include <functional>
#include <vector>

#include "model.h"
#include "refused.h"

using model::Model;

namespace {

struct Open {
  Model m;
  Open() { CHECK(m.open(SIE_DEVICE_CPU, 0, 2, SIE_COMPUTE_F32) == SIE_OK, "%s", m.err.message); }
};

record::Batch batch_of(int64_t seqs, const int32_t *ids, const int32_t *types, const int32_t *cu,
                       const sie_out_item *items) {
  record::Batch batch;
  batch.n_seqs = seqs;
  batch.ids = ids;
  batch.type_ids = types;
  batch.cu_seqlens = cu;
  batch.items[0] = items;
  return batch;
}

}  // namespace

TEST(bad_device_arguments) {
  sie_device *device = reinterpret_cast<sie_device *>(1);
  sie_device_options o = sized<sie_device_options>();
  o.kind = SIE_DEVICE_CPU;
  REFUSED(sie_device_open(nullptr, &device, &err));
  CHECK(device == nullptr, "a failed open leaves a handle");
  REFUSED(sie_device_open(&o, nullptr, &err));
  auto with = [&](const std::function<void(sie_device_options *)> &change, sie_status want) {
    sie_device_options changed = o;
    change(&changed);
    REFUSED(sie_device_open(&changed, &device, &err), want);
  };
  with([](sie_device_options *x) { x->struct_size = 4; }, SIE_INVALID_ARGUMENT);
  with([](sie_device_options *x) { x->kind = 0; }, SIE_INVALID_ARGUMENT);
  with([](sie_device_options *x) { x->kind = 77; }, SIE_INVALID_ARGUMENT);
  with([](sie_device_options *x) { x->kind = SIE_DEVICE_CUDA; }, SIE_UNSUPPORTED);
  with([](sie_device_options *x) { x->threads = -1; }, SIE_INVALID_ARGUMENT);
  with([](sie_device_options *x) { x->threads = 1 << 20; }, SIE_INVALID_ARGUMENT);
  for (uint32_t isa : {9u, 0x10000u, 0x10006u, 0x20000u, 0x20003u, 0x30001u}) {
    with([isa](sie_device_options *x) { x->isa = isa; }, SIE_INVALID_ARGUMENT);
  }
#if defined(__aarch64__)
  constexpr uint32_t others[] = {SIE_ISA_AVX2, SIE_ISA_AMX};
#else
  constexpr uint32_t others[] = {SIE_ISA_NEON, SIE_ISA_NEON_DOT};
#endif
  for (uint32_t isa : others) with([isa](sie_device_options *x) { x->isa = isa; }, SIE_UNSUPPORTED);
  CHECK(sie_device_open(nullptr, &device, nullptr) == SIE_INVALID_ARGUMENT, "a null error is allowed");
  Open open;
  sie_device_info info = {};
  REFUSED(sie_device_query(nullptr, &info, &err));
  REFUSED(sie_device_query(open.m.device, nullptr, &err));
  REFUSED(sie_device_query(open.m.device, &info, &err));
  sie_device_close(nullptr);
}

TEST(bad_weight_arguments) {
  Open open;
  float data[64] = {};
  sie_weight_desc d = sized<sie_weight_desc>();
  d.kind = SIE_WEIGHT_LINEAR;
  d.compute = SIE_COMPUTE_F32;
  d.dtype = SIE_F32;
  d.n_parts = 1;
  d.n = 8;
  d.k = 8;
  d.parts[0] = {data, 8, 0};
  sie_weight *w;
  REFUSED(sie_weight_create(nullptr, &d, &w, &err));
  REFUSED(sie_weight_create(open.m.device, nullptr, &w, &err));
  REFUSED(sie_weight_create(open.m.device, &d, nullptr, &err));
  auto with = [&](const std::function<void(sie_weight_desc *)> &change,
                  sie_status want = SIE_INVALID_ARGUMENT) {
    sie_weight_desc changed = d;
    change(&changed);
    w = reinterpret_cast<sie_weight *>(1);
    REFUSED(sie_weight_create(open.m.device, &changed, &w, &err), want);
    CHECK(w == nullptr, "a refused weight leaves a handle");
  };
  with([](sie_weight_desc *x) { x->struct_size++; });
  with([](sie_weight_desc *x) { x->kind = 0; });
  with([](sie_weight_desc *x) { x->kind = 5; });
  with([](sie_weight_desc *x) { x->dtype = SIE_I32; }, SIE_UNSUPPORTED);
  with([](sie_weight_desc *x) { x->compute = 0; });
  with([](sie_weight_desc *x) { x->compute = 99; });
  with([](sie_weight_desc *x) { x->compute = SIE_COMPUTE_FP8; }, SIE_UNSUPPORTED);
  with([](sie_weight_desc *x) { x->dtype = SIE_I8; }, SIE_UNSUPPORTED);
  with([](sie_weight_desc *x) { x->layout = 5; });
  with([](sie_weight_desc *x) { x->layout = SIE_LAYOUT_INTERLEAVE_GATE_UP; });
  for (int32_t parts : {-1, 0, 9}) with([parts](sie_weight_desc *x) { x->n_parts = parts; });
  for (int64_t n : {int64_t{-8}, int64_t{0}, int64_t{7}, int64_t{9}, INT64_MAX})
    with([n](sie_weight_desc *x) { x->n = n; });
  for (int64_t k : {int64_t{-8}, int64_t{0}, INT64_MAX}) with([k](sie_weight_desc *x) { x->k = k; });
  for (int64_t rows : {int64_t{-1}, int64_t{0}, INT64_MAX})
    with([rows](sie_weight_desc *x) { x->parts[0].rows = rows; });
  with([](sie_weight_desc *x) { x->parts[0].data = nullptr; });
  with([](sie_weight_desc *x) { x->parts[0].ld = 7; });
  with([](sie_weight_desc *x) { x->parts[0].ld = -8; });
  with([](sie_weight_desc *x) { x->kind = SIE_WEIGHT_VECTOR; });
  sie_weight_free(nullptr);
  CHECK(sie_weight_bytes(nullptr) == 0, "a null weight has bytes");
}

TEST(bad_recording_arguments) {
  Open open, other;
  sie_program *p = nullptr;
  record::Caps caps;
  caps.max_tokens = 64;
  caps.max_seqs = 4;
  caps.max_len = 64;
  REFUSED(sie_program_begin(nullptr, &p, &err));
  REFUSED(sie_program_begin(open.m.device, nullptr, &err));
  for (int field = 0; field < 4; field++) {
    for (int64_t value : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
      if (field == 3 && value == 0) continue;  // no queries
      record::Caps changed = caps;
      (field == 0   ? changed.max_tokens
       : field == 1 ? changed.max_seqs
       : field == 2 ? changed.max_len
                    : changed.max_query_rows) = value;
      REFUSED(record::begin(open.m.device, changed, &p, &err));
      sie_program_free(p);
    }
  }
  sie_error none;
  CHECK(record::begin(open.m.device, caps, &p, &none) == SIE_OK, "%s", none.message);
  REFUSED(sie_program_add(nullptr, nullptr, 0, &err));
  REFUSED(sie_program_add(p, nullptr, 1, &err));
  sie_op nothing = {SIE_LINEAR, 0, nullptr};
  REFUSED(sie_program_add(p, &nothing, -1, &err));
  REFUSED(sie_program_add(p, &nothing, 1, &err));
  nothing.kind = 0;
  REFUSED(sie_program_add(p, &nothing, 1, &err), SIE_UNSUPPORTED);
  nothing.kind = 9999;
  REFUSED(sie_program_add(p, &nothing, 1, &err), SIE_UNSUPPORTED);

  // The model's weights: word, position, type, gamma, beta, then the first layer's linear and its
  // bias.
  const std::vector<sie_weight *> &w = open.m.weights;
  sie_weight *word = w[0], *position = w[1], *type = w[2], *gamma = w[3], *beta = w[4], *linear = w[5],
             *bias = w[6];
  sie_value y;
  sie_workspace workspace;
  REFUSED(sie_program_end(p, &workspace, &err));  // nothing recorded
  REFUSED(record::embed_layernorm(nullptr, word, position, type, gamma, beta, 0, 0, &y, &err));
  REFUSED(record::embed_layernorm(p, nullptr, position, type, gamma, beta, 0, 0, &y, &err));
  REFUSED(record::embed_layernorm(p, gamma, position, type, gamma, beta, 0, 0, &y, &err));
  REFUSED(record::embed_layernorm(p, word, gamma, type, gamma, beta, 0, 0, &y, &err));
  REFUSED(record::embed_layernorm(p, word, position, type, nullptr, beta, 0, 0, &y, &err));
  REFUSED(record::embed_layernorm(p, word, position, type, bias, beta, 0, 0, &y, &err));
  REFUSED(record::embed_layernorm(p, word, position, type, gamma, bias, 0, 0, &y, &err));
  REFUSED(record::embed_layernorm(p, word, position, type, gamma, beta, NAN, 0, &y, &err));
  REFUSED(record::embed_layernorm(p, word, position, type, gamma, beta, -1, 0, &y, &err));
  REFUSED(record::embed_layernorm(p, word, position, type, gamma, beta, 0, -1, &y, &err));
  REFUSED(record::embed_layernorm(p, word, position, type, gamma, beta, 0, 700, &y, &err));
  REFUSED(record::embed_layernorm(p, word, position, type, gamma, beta, 0, 0, nullptr, &err));
  REFUSED(record::embed_layernorm(p, other.m.weights[0], position, type, gamma, beta, 0, 0, &y, &err));
  sie_value x = 0, qkv = 0, pooled = 0;
  CHECK(record::embed_layernorm(p, word, position, type, gamma, beta, 0, 0, &x, &none) == SIE_OK, "%s",
        none.message);

  for (sie_value v : {-2, 0, 2, 1 << 30}) {
    REFUSED(record::linear(p, v, linear, bias, SIE_ACT_NONE, SIE_NO_VALUE, &y, &err));
    REFUSED(record::layernorm(p, v, gamma, beta, 0, &y, &err));
    REFUSED(record::columns(p, v, 0, 1, &y, &err));
    REFUSED(record::gather_rows(p, v, SIE_POOL_CLS, &y, &err));
    REFUSED(record::pool(p, v, SIE_POOL_MEAN, &y, &err));
    REFUSED(record::output_values(p, v, 0, &err));
    if (v != SIE_NO_VALUE) REFUSED(record::linear(p, x, linear, bias, SIE_ACT_NONE, v, &y, &err));
  }
  REFUSED(record::linear(p, x, nullptr, bias, SIE_ACT_NONE, SIE_NO_VALUE, &y, &err));
  REFUSED(record::linear(p, x, word, bias, SIE_ACT_NONE, SIE_NO_VALUE, &y, &err));
  REFUSED(record::linear(p, x, linear, gamma, SIE_ACT_NONE, SIE_NO_VALUE, &y, &err));
  REFUSED(record::linear(p, x, linear, bias, 7, SIE_NO_VALUE, &y, &err));
  REFUSED(record::linear(p, x, linear, bias, SIE_ACT_NONE, x, &y, &err));  // 64 columns against 192
  REFUSED(record::linear(p, x, linear, bias, SIE_ACT_NONE, SIE_NO_VALUE, nullptr, &err));
  CHECK(record::linear(p, x, linear, bias, SIE_ACT_NONE, SIE_NO_VALUE, &qkv, &none) == SIE_OK, "%s",
        none.message);
  REFUSED(record::linear(p, qkv, linear, bias, SIE_ACT_NONE, SIE_NO_VALUE, &y, &err));
  REFUSED(record::layernorm(p, qkv, gamma, beta, 0, &y, &err));
  REFUSED(record::layernorm(p, x, nullptr, beta, 0, &y, &err));
  REFUSED(record::layernorm(p, x, gamma, beta, 2, &y, &err));
  REFUSED(record::columns(p, qkv, -1, 10, &y, &err));
  REFUSED(record::columns(p, qkv, 0, 0, &y, &err));
  REFUSED(record::columns(p, qkv, 0, 193, &y, &err));
  REFUSED(record::columns(p, qkv, 192, 1, &y, &err));
  REFUSED(record::columns(p, qkv, 1, INT64_MAX, &y, &err));
  sie_value q, k, v;
  record::columns(p, qkv, 0, 64, &q, &none);
  record::columns(p, qkv, 64, 64, &k, &none);
  record::columns(p, qkv, 128, 64, &v, &none);
  sie_attention_params a = sized<sie_attention_params>();
  a.heads = a.kv_heads = 2;
  a.head_dim = 32;
  a.scale = 1;
  REFUSED(record::attention(p, q, k, v, &a, nullptr, &err));
  REFUSED(record::attention(p, qkv, k, v, &a, &y, &err));
  auto with = [&](const std::function<void(sie_attention_params *)> &change) {
    sie_attention_params changed = a;
    change(&changed);
    REFUSED(record::attention(p, q, k, v, &changed, &y, &err));
  };
  with([](sie_attention_params *t) { t->struct_size = 8; });
  with([](sie_attention_params *t) { t->mask = 3; });
  with([](sie_attention_params *t) { t->which = SIE_POOL_LAST; });  // of a query for every row
  with([](sie_attention_params *t) { t->heads = 0; });
  with([](sie_attention_params *t) { t->heads = 3; });
  with([](sie_attention_params *t) { t->kv_heads = -1; });
  with([](sie_attention_params *t) { t->kv_heads = 1; });
  with([](sie_attention_params *t) { t->head_dim = 0; });
  with([](sie_attention_params *t) { t->head_dim = 1 << 30; });
  with([](sie_attention_params *t) { t->scale = NAN; });
  with([](sie_attention_params *t) {
    t->mask = SIE_MASK_WINDOW;
    t->window = -1;
  });
  REFUSED(record::gather_rows(p, x, SIE_POOL_MEAN, &y, &err));
  REFUSED(record::pool(p, x, 0, &y, &err));
  CHECK(record::pool(p, x, SIE_POOL_MEAN, &pooled, &none) == SIE_OK, "%s", none.message);
  REFUSED(record::gather_rows(p, pooled, SIE_POOL_CLS, &y, &err));
  REFUSED(record::output_rows(p, x, 0, &err));
  CHECK(record::output_rows(p, pooled, 0, &none) == SIE_OK, "%s", none.message);
  REFUSED(sie_program_end(p, nullptr, &err));
  CHECK(sie_program_end(p, &workspace, &none) == SIE_OK, "%s", none.message);
  REFUSED(sie_program_end(p, &workspace, &err));
  REFUSED(record::layernorm(p, x, gamma, beta, 0, &y, &err));
  sie_program_free(p);
  sie_program_free(nullptr);
  CHECK(sie_program_describe(nullptr, nullptr, 0) == 0, "a null program describes itself");
}

TEST(bad_run_arguments) {
  Open open, other;
  Model &m = open.m;
  sie_arena *arena;
  sie_slot *slot;
  sie_slot_caps caps = sized<sie_slot_caps>();
  caps.n_outputs = 1;
  caps.max_tokens = 16;
  caps.max_seqs = 2;
  int64_t output_bytes[2] = {300, 0};
  caps.output_bytes = output_bytes;
  caps.input_bytes = sie_program_input_bytes(m.program);
  sie_workspace some = {1 << 20, 1 << 20};
  REFUSED(sie_arena_create(nullptr, &some, &arena, &err));
  REFUSED(sie_arena_create(m.device, nullptr, &arena, &err));
  REFUSED(sie_arena_create(m.device, &some, nullptr, &err));
  for (const sie_workspace &bad :
       {sie_workspace{0, 0}, sie_workspace{63, 0}, sie_workspace{64, -1}, sie_workspace{-64, 64},
        sie_workspace{INT64_MAX, 0}, sie_workspace{64, INT64_MAX}}) {
    REFUSED(sie_arena_create(m.device, &bad, &arena, &err));
  }
  some.region = int64_t{1} << 46;
  REFUSED(sie_arena_create(m.device, &some, &arena, &err), SIE_OUT_OF_MEMORY);
  REFUSED(sie_slot_create(nullptr, &caps, &slot, &err));
  REFUSED(sie_slot_create(m.device, nullptr, &slot, &err));
  REFUSED(sie_slot_create(m.device, &caps, nullptr, &err));
  auto with = [&](const std::function<void(sie_slot_caps *)> &change) {
    sie_slot_caps changed = caps;
    change(&changed);
    REFUSED(sie_slot_create(m.device, &changed, &slot, &err));
  };
  with([](sie_slot_caps *x) { x->struct_size = 0; });
  with([](sie_slot_caps *x) { x->n_outputs = 0; });
  with([](sie_slot_caps *x) { x->n_outputs = SIE_MAX_OUTPUTS + 1; });
  with([](sie_slot_caps *x) { x->max_tokens = 0; });
  with([](sie_slot_caps *x) { x->max_seqs = INT64_MAX; });
  with([](sie_slot_caps *x) { x->output_bytes = nullptr; });
  const int64_t below[] = {-1};
  with([&](sie_slot_caps *x) { x->output_bytes = below; });
  for (int64_t bytes : {int64_t{-1}, int64_t{0}, INT64_MAX})
    with([bytes](sie_slot_caps *x) { x->input_bytes = bytes; });

  const int32_t ids[] = {1, 2, 3, 4}, types[] = {0, 1, 0, 1}, cu[] = {0, 1, 4};
  sie_out_item items[2] = {{SIE_F32, 0, 0, 0, 0}, {SIE_F32, 0, 0, 0, 256}};
  sie_slot *s = m.slots[0];
  auto load = [&](int64_t b, const int32_t *i, const int32_t *ty, const int32_t *c, const sie_out_item *it,
                  sie_error *err) {
    record::Batch batch = batch_of(b, i, ty, c, it);
    return record::load(s, m.program, &batch, err);
  };
  record::Batch good = batch_of(2, ids, types, cu, items);
  sie_batch lists = sized<sie_batch>(), unsized = {};
  REFUSED(record::load(nullptr, m.program, &good, &err));
  REFUSED(record::load(s, nullptr, &good, &err));
  REFUSED(sie_slot_load(s, m.program, nullptr, &err));
  REFUSED(sie_slot_load(s, m.program, &unsized, &err));
  REFUSED(sie_slot_load(s, m.program, &lists, &err));  // without offsets
  lists.n_spaces = 1;
  REFUSED(sie_slot_load(s, m.program, &lists, &err));
  lists.n_spaces = 0;
  lists.n_inputs = 1;
  REFUSED(sie_slot_load(s, m.program, &lists, &err));
  lists.n_inputs = 0;
  lists.n_outputs = 1;
  REFUSED(sie_slot_load(s, m.program, &lists, &err));
  REFUSED(record::load(s, other.m.program, &good, &err));
  REFUSED(load(2, nullptr, types, cu, items, &err));
  REFUSED(load(2, ids, types, nullptr, items, &err));
  REFUSED(load(2, ids, types, cu, nullptr, &err));
  REFUSED(load(-1, ids, types, cu, items, &err));
  REFUSED(load(1 << 30, ids, types, cu, items, &err));
  const int32_t bad_cu[][3] = {{1, 1, 4}, {0, 5, 4}, {0, -1, 4}, {0, 1, INT32_MAX}, {0, INT32_MAX, 4}};
  for (const auto &c : bad_cu) REFUSED(load(2, ids, types, c, items, &err));
  const int32_t bad_ids[][4] = {{1, 2, 3, 97}, {-1, 2, 3, 4}, {1, 2, INT32_MAX, 4}};
  for (const auto &i : bad_ids) REFUSED(load(2, i, types, cu, items, &err));
  const int32_t bad_types[] = {0, 2, 0, 0};
  REFUSED(load(2, ids, bad_types, cu, items, &err));
  std::vector<int32_t> many(700, 1);
  const int32_t long_cu[] = {0, 641};
  REFUSED(load(1, many.data(), nullptr, long_cu, items, &err));
  auto with_item = [&](const std::function<void(sie_out_item *)> &change,
                       sie_status want = SIE_INVALID_ARGUMENT) {
    sie_out_item changed[2] = {items[0], items[1]};
    change(&changed[1]);
    REFUSED(load(2, ids, types, cu, changed, &err), want);
  };
  with_item([](sie_out_item *x) { x->dtype = SIE_BF16; }, SIE_UNSUPPORTED);
  with_item([](sie_out_item *x) { x->dtype = -7; }, SIE_UNSUPPORTED);
  with_item([](sie_out_item *x) { x->dims = -1; });
  with_item([](sie_out_item *x) { x->dims = 65; });
  with_item([](sie_out_item *x) { x->normalize = 2; });
  with_item([](sie_out_item *x) { x->offset = -4; });
  with_item([](sie_out_item *x) { x->offset = 2; });
  with_item([](sie_out_item *x) { x->offset = INT64_MAX - 3; });
  with_item([](sie_out_item *x) { x->offset = 512 * 64 * 4; });

  sie_error none;
  REFUSED(sie_slot_wait(nullptr, &err));
  REFUSED(sie_slot_wait(s, &err));
  REFUSED(sie_program_submit(m.program, m.arena, s, nullptr, &err));  // nothing loaded
  CHECK(load(2, ids, types, cu, items, &none) == SIE_OK, "%s", none.message);
  REFUSED(sie_program_submit(nullptr, m.arena, s, nullptr, &err));
  REFUSED(sie_program_submit(m.program, nullptr, s, nullptr, &err));
  REFUSED(sie_program_submit(m.program, m.arena, nullptr, nullptr, &err));
  REFUSED(sie_program_submit(m.program, other.m.arena, s, nullptr, &err));
  const sie_workspace little = {4096, 0};
  CHECK(sie_arena_create(m.device, &little, &arena, &none) == SIE_OK, "%s", none.message);
  REFUSED(sie_program_submit(m.program, arena, s, nullptr, &err));  // too small
  sie_arena_free(arena);
  CHECK(sie_program_submit(m.program, m.arena, s, nullptr, &none) == SIE_OK, "%s", none.message);
  REFUSED(sie_program_submit(m.program, m.arena, s, nullptr, &err));
  REFUSED(load(2, ids, types, cu, items, &err));  // in flight
  CHECK(sie_slot_wait(s, &none) == SIE_OK, "%s", none.message);
  REFUSED(sie_slot_wait(s, &err));
  REFUSED(sie_program_submit(m.program, m.arena, s, nullptr, &err));
  CHECK(load(0, nullptr, nullptr, cu, nullptr, &none) == SIE_OK, "an empty batch: %s", none.message);
  CHECK(sie_program_submit(m.program, m.arena, s, nullptr, &none) == SIE_OK &&
            sie_slot_wait(s, &none) == SIE_OK,
        "%s", none.message);
  for (int32_t index : {-1, 2, 1 << 30})
    CHECK(sie_slot_output(s, index, nullptr) == nullptr, "output %d exists", index);
  CHECK(sie_slot_output(nullptr, 0, nullptr) == nullptr && sie_arena_bytes(nullptr) == 0,
        "null handles answer");
  sie_slot_free(nullptr);
  sie_arena_free(nullptr);

  // A slot with fewer outputs or bytes than the program writes.
  CHECK(sie_slot_create(m.device, &caps, &slot, &none) == SIE_OK, "%s", none.message);
  REFUSED(record::load(slot, m.program, &good, &err));
  sie_slot_free(slot);
  caps.n_outputs = 2;
  output_bytes[0] = 512;
  output_bytes[1] = 4 * 64 * 4 - 1;
  CHECK(sie_slot_create(m.device, &caps, &slot, &none) == SIE_OK, "%s", none.message);
  REFUSED(record::load(slot, m.program, &good, &err));
  sie_slot_free(slot);
}
