// model.cc — records the model and runs batches through it.
#include "model.h"

#include <math.h>
#include <string.h>

#include "common/dtype.h"
#include "device.h"
#include "weight.h"

namespace model {

namespace {

#define TRY(call)                          \
  do {                                     \
    sie_status status_ = (call);           \
    if (status_ != SIE_OK) return status_; \
  } while (0)

constexpr int64_t max_seqs = 512;
constexpr int64_t tail_bytes = 4 << 20;  // of each output of a tail

template <class T>
const T *or_null(const std::vector<T> &v) {
  return v.empty() ? nullptr : v.data();
}

}  // namespace

sie_status Model::weight(uint32_t kind, uint32_t compute, int64_t n, int64_t k, float scale, float offset,
                         sie_weight **out) {
  Random random(seed_++);
  std::vector<float> values(static_cast<size_t>(n * k));
  for (float &x : values) x = random.real() * scale + offset;
  sie_weight_desc desc = {};
  desc.struct_size = sizeof desc;
  desc.kind = kind;
  desc.compute = compute;
  desc.dtype = SIE_F32;
  desc.n_parts = 1;
  desc.n = n;
  desc.k = k;
  desc.parts[0] = {values.data(), n, 0};
  return create(desc, out);
}

sie_status Model::vector(const std::vector<float> &values, sie_weight **out) {
  sie_weight_desc desc = {};
  desc.struct_size = sizeof desc;
  desc.kind = SIE_WEIGHT_VECTOR;
  desc.compute = compute_;
  desc.dtype = SIE_F32;
  desc.n_parts = 1;
  desc.n = static_cast<int64_t>(values.size());
  desc.k = 1;
  desc.parts[0] = {values.data(), desc.n, 0};
  return create(desc, out);
}

sie_status Model::data(uint32_t dtype, int64_t n, int64_t k, const void *values, sie_weight **out) {
  sie_weight_desc desc = {};
  desc.struct_size = sizeof desc;
  desc.kind = SIE_WEIGHT_DATA;
  desc.dtype = dtype;
  desc.n_parts = 1;
  desc.n = n;
  desc.k = k;
  desc.parts[0] = {values, n, 0};
  return create(desc, out);
}

sie_status Model::create(const sie_weight_desc &given, sie_weight **out) {
  sie_weight_desc desc = given;
  desc.placement = placement;
  TRY(sie_weight_create(device, &desc, out, &err));
  weights.push_back(*out);
  if (card == nullptr) return SIE_OK;
  memory_.push_back(card->allocate(sie_weight_bytes(*out)));
  card->copy_in(memory_.back(), sie_weight_staged(*out), sie_weight_bytes(*out));
  return sie_weight_place(*out, memory_.back(), &err);
}

sie_status Model::linear(sie_value x, int64_t n, int64_t k, sie_act act, sie_value residual, sie_value *y,
                         bool after_attention) {
  sie_weight *w, *bias;
  uint32_t compute = after_attention && compute_ == SIE_COMPUTE_FP8 ? uint32_t{SIE_COMPUTE_BF16} : compute_;
  TRY(weight(SIE_WEIGHT_LINEAR, compute, n, k, 1.7f / sqrtf(static_cast<float>(k)), 0, &w));
  TRY(weight(SIE_WEIGHT_VECTOR, compute_, n, 1, 0.1f, 0, &bias));
  return record::linear(program, x, w, bias, act, residual, y, &err);
}

sie_status Model::norm(sie_value x, sie_value *y) {
  sie_weight *gamma, *beta;
  TRY(weight(SIE_WEIGHT_VECTOR, compute_, hidden, 1, 0.3f, 1, &gamma));
  TRY(weight(SIE_WEIGHT_VECTOR, compute_, hidden, 1, 0.1f, 0, &beta));
  return record::layernorm(program, x, gamma, beta, 1e-12f, y, &err);
}

sie_status Model::layer(sie_value *x, bool last) {
  sie_value qkv, q, k, v, context, sum, inner, residual = *x;
  TRY(linear(*x, 3 * hidden, hidden, SIE_ACT_NONE, SIE_NO_VALUE, &qkv));
  TRY(record::columns(program, qkv, 0, hidden, &q, &err));
  TRY(record::columns(program, qkv, hidden, hidden, &k, &err));
  TRY(record::columns(program, qkv, 2 * hidden, hidden, &v, &err));
  if (last && shape.prune) {
    sie_value all = q;
    TRY(record::gather_rows(program, all, SIE_POOL_CLS, &q, &err));
    TRY(record::gather_rows(program, *x, SIE_POOL_CLS, &residual, &err));
  }
  sie_attention_params params = {};
  params.struct_size = sizeof params;
  params.mask = SIE_MASK_FULL;
  params.heads = params.kv_heads = shape.heads;
  params.head_dim = shape.head_dim;
  params.scale = 1 / sqrtf(static_cast<float>(shape.head_dim));
  TRY(record::attention(program, q, k, v, &params, &context, &err));
  TRY(linear(context, hidden, hidden, SIE_ACT_NONE, residual, &sum, true));
  TRY(norm(sum, x));
  TRY(linear(*x, shape.ffn, hidden, SIE_ACT_GELU_ERF, SIE_NO_VALUE, &inner));
  TRY(linear(inner, hidden, shape.ffn, SIE_ACT_NONE, *x, &sum));
  return norm(sum, x);
}

sie_status Model::head(sie_value *x) {
  sie_weight *w, *bias;
  TRY(weight(SIE_WEIGHT_LINEAR, SIE_COMPUTE_F32, hidden, hidden, 1.7f / sqrtf(static_cast<float>(hidden)), 0,
             &w));
  TRY(weight(SIE_WEIGHT_VECTOR, SIE_COMPUTE_F32, hidden, 1, 0.1f, 0, &bias));
  return record::linear(program, *x, w, bias, SIE_ACT_TANH, SIE_NO_VALUE, x, &err);
}

sie_status Model::record() {
  sie_weight *word, *position, *type, *gamma, *beta;
  TRY(weight(SIE_WEIGHT_TABLE, compute_, shape.vocabulary, hidden, 1, 0, &word));
  TRY(weight(SIE_WEIGHT_TABLE, compute_, shape.positions, hidden, 0.3f, 0, &position));
  TRY(weight(SIE_WEIGHT_TABLE, compute_, shape.types, hidden, 0.3f, 0, &type));
  TRY(weight(SIE_WEIGHT_VECTOR, compute_, hidden, 1, 0.3f, 1, &gamma));
  TRY(weight(SIE_WEIGHT_VECTOR, compute_, hidden, 1, 0.1f, 0, &beta));
  record::Caps caps;
  caps.max_tokens = max_tokens;
  caps.max_seqs = max_seqs;
  caps.max_len = max_len;
  caps.min_len = min_len;
  caps.max_query_rows = 256;
  TRY(record::begin(device, caps, &program, &err));
  sie_value x, pooled;
  TRY(record::embed_layernorm(program, word, position, type, gamma, beta, 1e-12f, 2, &x, &err));
  for (int i = 0; i < shape.layers; i++) TRY(layer(&x, i == shape.layers - 1));
  if (shape.tail != nullptr) return shape.tail(this, x);
  TRY(record::pool(program, x, shape.prune ? SIE_POOL_CLS : SIE_POOL_MEAN, &pooled, &err));
  if (shape.head) TRY(head(&pooled));
  TRY(record::output_rows(program, pooled, 0, &err));
  if (shape.tokens && !shape.prune) TRY(record::output_values(program, x, 1, &err));
  return SIE_OK;
}

sie_status Model::open(uint32_t kind, uint32_t isa, int threads, uint32_t compute, const Shape &wanted) {
  sie_device_options options = {};
  options.struct_size = sizeof options;
  options.kind = kind;
  options.isa = isa;
  options.threads = threads;
  options.one_node = one_node ? 1 : 0;
  return make(options, compute, wanted);
}

sie_status Model::open_on(Card *on, uint32_t compute, const Shape &wanted) {
  card = on;
  sie_device_options options = {};
  options.struct_size = sizeof options;
  options.kind = SIE_DEVICE_CUDA;
  options.gpu = &on->gpu;
  return make(options, compute, wanted);
}

sie_status Model::place_arena(const sie_workspace &workspace, const sie_slot_caps &caps) {
  if (card == nullptr) return SIE_OK;
  memory_.push_back(card->allocate(workspace.lane));
  arena_memory = memory_.back();
  for (uint32_t i = 0; i < caps.n_outputs; i++) {
    memory_.push_back(card->allocate(caps.output_bytes[i]));
    outputs[i] = memory_.back();
  }
  return sie_arena_place(arena, arena_memory, caps.n_outputs, outputs, caps.output_bytes, &err);
}

sie_status Model::make(const sie_device_options &options, uint32_t compute, const Shape &wanted) {
  shape = wanted;
  hidden = shape.heads * shape.head_dim;
  compute_ = compute;
  TRY(sie_device_open(&options, &device, &err));
  if (norms_pay >= 0) {
    table_ = *device->ops;
    table_.linear_norm_pays = nullptr;
    if (norms_pay > 0) table_.linear_norm_pays = [](const sie_packed *, const sie_stream *) { return 1; };
    device->ops = &table_;
  }
  TRY(record());
  sie_workspace workspace;
  TRY(sie_program_end(program, &workspace, &err));
  TRY(sie_arena_create(device, &workspace, &arena, &err));
  sie_slot_caps caps = {};
  caps.struct_size = sizeof caps;
  caps.n_outputs = 2;
  caps.max_tokens = max_tokens;
  caps.max_seqs = max_seqs;
  int64_t output_bytes[4] = {max_seqs * hidden * 4, max_tokens * hidden * 4};
  caps.output_bytes = output_bytes;
  if (shape.tail != nullptr) {
    caps.n_outputs = 4;
    for (int64_t &bytes : output_bytes) bytes = tail_bytes;
  }
  caps.input_bytes = sie_program_input_bytes(program);
  TRY(place_arena(workspace, caps));
  for (sie_slot *&slot : slots) TRY(sie_slot_create(device, &caps, &slot, &err));
  return SIE_OK;
}

void Model::close() {
  for (sie_slot *&slot : slots) {
    sie_slot_free(slot);
    slot = nullptr;
  }
  sie_arena_free(arena);
  sie_program_free(program);
  for (sie_weight *w : weights) sie_weight_free(w);
  weights.clear();
  sie_device_close(device);
  for (void *p : memory_) card->release(p);
  memory_.clear();
  arena = nullptr;
  program = nullptr;
  device = nullptr;
  seed_ = 1;
}

void Batch::add(const Shape &shape, int number, int length) {
  Random random(static_cast<uint32_t>(1000 + number));
  int64_t hidden = shape.heads * shape.head_dim;
  sie_out_item item = {SIE_F32, 0, 0, 0, seqs() * hidden * 4};
  items[0].push_back(item);
  for (int i = 0; i < length; i++) {
    ids.push_back(random.below(shape.vocabulary));
    types.push_back(random.below(shape.types));
  }
  cu.push_back(static_cast<int32_t>(ids.size()));
}

void Model::plant(int32_t word, int64_t column, float value) {
  const sie_tensor &t = weights[0]->table;
  uint16_t half = t.dtype == SIE_BF16 ? sie_bf16_from_f32(value) : sie_f16_from_f32(value);
  int64_t bytes = t.dtype == SIE_F32 ? 4 : 2;
  char *to = static_cast<char *>(t.p) + (word * t.ld + column) * bytes;
  const void *from = t.dtype == SIE_F32 ? static_cast<const void *>(&value) : &half;
  if (card != nullptr) {
    card->copy_in(to, from, bytes);
  } else {
    memcpy(to, from, static_cast<size_t>(bytes));
  }
}

sie_status submit(Model *m, int slot, const Batch &batch) {
  record::Batch packed;
  packed.n_seqs = batch.seqs();
  packed.ids = batch.ids.data();
  packed.type_ids = batch.types.data();
  packed.cu_seqlens = batch.cu.data();
  packed.keep = or_null(batch.keep);
  packed.adapter = or_null(batch.adapter);
  packed.partner = or_null(batch.partner);
  packed.n_queries = batch.cu_queries.empty() ? 0 : static_cast<int64_t>(batch.cu_queries.size()) - 1;
  packed.cu_queries = or_null(batch.cu_queries);
  packed.queries = or_null(batch.queries);
  packed.cu_labels = or_null(batch.cu_labels);
  packed.label_ids = or_null(batch.label_ids);
  packed.choose = or_null(batch.choose);
  packed.cu_words = or_null(batch.cu_words);
  packed.word_first = or_null(batch.word_first);
  packed.word_last = or_null(batch.word_last);
  for (int i = 0; i < 4; i++) packed.items[i] = or_null(batch.items[i]);
  TRY(record::load(m->slots[slot], m->program, &packed, &m->err));
  if (m->card != nullptr) {
    const void *host;
    int64_t bytes;
    TRY(sie_slot_input(m->slots[slot], &host, &bytes, &m->err));
    m->card->copy_in(m->arena_memory, host, bytes);
  }
  return sie_program_submit(m->program, m->arena, m->slots[slot], nullptr, &m->err);
}

Result wait(Model *m, int slot, const Batch &batch) {
  Result result;
  sie_error err;
  if (m->card != nullptr) {
    m->card->finish();
    auto fetch = [m, slot](int i, int64_t bytes) {
      m->card->copy_out(const_cast<void *>(sie_slot_output(m->slots[slot], i, nullptr)), m->outputs[i],
                        bytes);
    };
    if (m->shape.tail == nullptr) fetch(0, batch.seqs() * m->hidden * 4);
    if (m->shape.tail == nullptr && m->shape.tokens && !m->shape.prune) {
      fetch(1, batch.tokens() * m->hidden * 4);
    }
    for (int i = 0; m->shape.tail != nullptr && i < 4; i++) fetch(i, batch.bytes[i]);
    int64_t offset;
    const int32_t *flags = sie_slot_nonfinite(m->slots[slot], &offset);
    m->card->copy_out(const_cast<int32_t *>(flags), static_cast<char *>(m->arena_memory) + offset,
                      batch.seqs() * 4);
  }
  result.status = sie_slot_wait(m->slots[slot], &err);
  const int32_t *flags = sie_slot_nonfinite(m->slots[slot], nullptr);
  result.nonfinite.assign(flags, flags + batch.seqs());
  if (m->shape.tail != nullptr) {
    for (int i = 0; i < 4; i++) {
      const uint8_t *from = static_cast<const uint8_t *>(sie_slot_output(m->slots[slot], i, nullptr));
      result.bytes[i].assign(from, from + batch.bytes[i]);
    }
    return result;
  }
  const float *rows = static_cast<const float *>(sie_slot_output(m->slots[slot], 0, nullptr));
  const float *values = static_cast<const float *>(sie_slot_output(m->slots[slot], 1, nullptr));
  result.rows.assign(rows, rows + batch.seqs() * m->hidden);
  if (m->shape.tokens && !m->shape.prune) result.values.assign(values, values + batch.tokens() * m->hidden);
  return result;
}

Result run(Model *m, const Batch &batch) {
  Result result;
  result.status = submit(m, 0, batch);
  return result.status == SIE_OK ? wait(m, 0, batch) : result;
}

}  // namespace model
