// decoder.cc — records the decoder's programs and runs batches through them.
#include "decoder.h"

#include <math.h>
#include <string.h>

#include <algorithm>

#include "heads.h"

namespace decoder {

namespace {

#define TRY(call)                          \
  do {                                     \
    sie_status status_ = (call);           \
    if (status_ != SIE_OK) return status_; \
  } while (0)

constexpr int vocabulary = 97, rank = 4, rot = 16;
constexpr int64_t columns = (heads + 2 * kv_heads) * head_dim, kv = kv_heads * head_dim;
constexpr int64_t output_bytes[] = {max_seqs * heads * head_dim * 4, max_tokens * hidden * 4};

std::vector<float> rotation(bool sine) {
  std::vector<float> values;
  for (int p = 0; p < max_len; p++) {
    for (int i = 0; i < rot / 2; i++) {
      float angle = static_cast<float>(p) * powf(100, -static_cast<float>(i) / (rot / 2));
      values.push_back(sine ? sinf(angle) : cosf(angle));
    }
  }
  return values;
}

// LoRA pairs as the device takes them.
sie_status lora(model::Model *m, uint32_t seed, int64_t n, int64_t k, sie_weight **w) {
  std::vector<float> values = heads::reals(seed, n * k, 0.3f);
  if (m->card == nullptr) return m->data(SIE_F32, n, k, values.data(), w);
  bool f16 = m->compute() == SIE_COMPUTE_F16;
  std::vector<uint16_t> halves;
  for (float x : values) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    // exact in both types: three bits of the fraction
    bits &= 0xfff00000u;
    uint32_t sign = bits >> 16 & 0x8000u, exponent = (bits >> 23 & 255u) - 112u,
             fraction = bits >> 13 & 0x3ffu;
    halves.push_back(static_cast<uint16_t>(
        f16 ? ((bits >> 23 & 255u) > 112u ? sign | exponent << 10 | fraction : sign) : bits >> 16));
  }
  return m->data(f16 ? SIE_F16 : SIE_BF16, n, k, halves.data(), w);
}

}  // namespace

void Decoder::Batch::add(const Text &text) {
  harness::Random random(static_cast<uint32_t>(5000 + text.number));
  for (int i = 0; i < text.length; i++) ids.push_back(random.below(vocabulary));
}

void Decoder::Batch::end(int adapter_of) {
  cu.push_back(static_cast<int32_t>(ids.size()));
  adapter.push_back(adapter_of);
}

sie_status Decoder::open(uint32_t kind, uint32_t isa, int threads, uint32_t compute) {
  model::Shape shape;
  shape.layers = 0;
  TRY(m.open(kind, isa, threads, compute, shape));
  return make();
}

sie_status Decoder::open_on(model::Card *card, uint32_t compute) {
  model::Shape shape;
  shape.layers = 0;
  card_ = card;
  TRY(m.open_on(card, compute, shape));
  return make();
}

sie_status Decoder::make() {
  uint32_t compute = m.compute(), behind = compute == SIE_COMPUTE_FP8 ? uint32_t{SIE_COMPUTE_BF16} : compute;
  TRY(m.weight(SIE_WEIGHT_TABLE, compute, vocabulary, hidden, 1, 0, &word_));
  TRY(m.vector(heads::reals(1, hidden, 1), &gamma_));
  TRY(m.vector(heads::reals(2, hidden, 1), &beta_));
  TRY(m.data(SIE_F32, max_len, rot / 2, rotation(false).data(), &cos_));
  TRY(m.data(SIE_F32, max_len, rot / 2, rotation(true).data(), &sin_));
  TRY(m.vector(heads::reals(3, head_dim, 2), &q_gamma_));
  for (int i = 0; i < blocks; i++) {
    Block &b = blocks_[i];
    TRY(m.weight(SIE_WEIGHT_LINEAR, compute, columns, hidden, 0.25f, 0, &b.qkv));
    TRY(m.weight(SIE_WEIGHT_LINEAR, behind, hidden, heads * head_dim, 0.25f, 0, &b.out));
    TRY(m.vector(heads::reals(static_cast<uint32_t>(10 + i), hidden, 1), &b.gamma));
    TRY(m.vector(heads::reals(static_cast<uint32_t>(20 + i), hidden, 1), &b.beta));
    for (int a = 0; a < n_adapters; a++) {
      TRY(lora(&m, static_cast<uint32_t>(30 + 8 * i + a), rank, hidden, &b.a[a]));
      TRY(lora(&m, static_cast<uint32_t>(60 + 8 * i + a), columns, rank, &b.b[a]));
    }
  }
  sie_workspace most = {64, 0};
  for (int i = 0; i < n_programs; i++) {
    TRY(record(static_cast<Program>(i), state_rows));
    sie_workspace workspace;
    TRY(sie_program_end(programs[i], &workspace, &err));
    most = {std::max(most.lane, workspace.lane), std::max(most.region, workspace.region)};
  }
  return prepare(most);
}

sie_status Decoder::block(Program which, int i, sie_value *x) {
  sie_program *p = programs[which];
  Block &b = blocks_[i];
  sie_value qkv, q, k, v, all, context, sum;
  TRY(record::linear_lora(p, *x, b.qkv, nullptr, SIE_ACT_NONE, SIE_NO_VALUE, {n_adapters, b.a, b.b}, &qkv,
                          &err));
  TRY(record::columns(p, qkv, 0, heads * head_dim, &q, &err));
  TRY(record::columns(p, qkv, heads * head_dim, kv, &k, &err));
  TRY(record::columns(p, qkv, heads * head_dim + kv, kv, &v, &err));
  sie_rope_params rope = record::params<sie_rope_params>();
  rope.q = q;
  rope.k = k;
  rope.heads = heads;
  rope.kv_heads = kv_heads;
  rope.head_dim = head_dim;
  rope.rot = rot;
  rope.cos = cos_;
  rope.sin = sin_;
  rope.q_gamma = rope.k_gamma = q_gamma_;
  rope.eps = 1e-5f;
  rope.behind = which == reader ? 1 : 0;
  TRY(record::add(p, SIE_ROPE, rope, &err));
  if (which == writer) {
    TRY(record::columns(p, qkv, heads * head_dim, 2 * kv, &all, &err));
    TRY(record::state_rows(p, all, i + 1, &err));
    if (i == blocks - 1) return SIE_OK;
  }
  sie_attention_params a = record::params<sie_attention_params>();
  a.mask = SIE_MASK_CAUSAL;
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.head_dim = head_dim;
  a.segment = which == reader ? i + 1 : 0;
  TRY(record::attention(p, q, k, v, &a, &context, &err));
  if (which != writer && i == blocks - 1) {  // the last rows alone have the bits that they have among all
    sie_value last, one, pooled;
    TRY(record::gather_rows(p, q, SIE_POOL_LAST, &last, &err));
    a.mask = SIE_MASK_FULL;
    TRY(record::attention(p, last, k, v, &a, &one, &err));
    TRY(record::pool(p, one, SIE_POOL_LAST, &pooled, &err));
    TRY(record::output_values(p, pooled, 1, &err));
  }
  TRY(record::linear(p, context, b.out, nullptr, SIE_ACT_NONE, *x, &sum, &err));
  return record::layernorm(p, sum, b.gamma, b.beta, 1e-5f, x, &err);
}

sie_status Decoder::record(Program which, int64_t rows) {
  record::Caps caps;
  caps.max_tokens = which == writer ? rows : max_tokens;
  caps.max_seqs = max_seqs;
  caps.max_len = std::min(max_len, caps.max_tokens);
  TRY(record::begin(m.device, caps, &programs[which], &err));
  sie_program *p = programs[which];
  if (which != whole) TRY(record::state(p, rows, which == reader, &err));
  sie_value x;
  TRY(record::embed_layernorm(p, word_, nullptr, nullptr, gamma_, beta_, 1e-5f, 0, &x, &err));
  for (int i = 0; i < blocks; i++) TRY(block(which, i, &x));
  return which == writer ? SIE_OK : record::output_values(p, x, 0, &err);
}

void *Decoder::device_memory(int64_t bytes) {
  memory_.push_back(card_->allocate(bytes));
  return memory_.back();
}

sie_status Decoder::prepare(const sie_workspace &workspace) {
  TRY(sie_arena_create(m.device, &workspace, &arena, &err));
  sie_slot_caps caps = record::params<sie_slot_caps>();
  caps.n_outputs = 2;
  caps.max_tokens = max_tokens;
  caps.max_seqs = max_seqs;
  caps.output_bytes = output_bytes;
  for (int i = 0; i < n_programs; i++) {
    caps.input_bytes = std::max(caps.input_bytes, sie_program_input_bytes(programs[i]));
  }
  for (sie_slot *&slot : slots) TRY(sie_slot_create(m.device, &caps, &slot, &err));
  sie_state_desc desc = record::params<sie_state_desc>();
  desc.bytes = std::max(sie_program_state_bytes(programs[writer]), sie_program_state_bytes(programs[reader]));
  TRY(sie_state_create(m.device, &desc, &state, &err));
  if (card_ == nullptr) return SIE_OK;
  TRY(place_arena());
  return place_state();
}

sie_status Decoder::place_arena() {
  arena_memory_ = device_memory(sie_arena_bytes(arena));
  for (int i = 0; i < 2; i++) outputs_[i] = device_memory(output_bytes[i]);
  return sie_arena_place(arena, arena_memory_, 2, outputs_, output_bytes, &err);
}

sie_status Decoder::place_state() {
  return sie_state_place(state, device_memory(sie_state_bytes(state)), &err);
}

void Decoder::close() {
  for (sie_slot *&slot : slots) sie_slot_free(slot), slot = nullptr;
  for (sie_program *&p : programs) sie_program_free(p), p = nullptr;
  sie_arena_free(arena);
  sie_state_free(state);
  arena = nullptr;
  state = nullptr;
  m.close();
  for (void *p : memory_) card_->release(p);
  memory_.clear();
}

sie_status Decoder::submit(Program which, const Batch &batch, sie_state *with) {
  record::Batch packed;
  packed.n_seqs = static_cast<int64_t>(batch.adapter.size());
  packed.ids = batch.ids.data();
  packed.cu_seqlens = batch.cu.data();
  packed.adapter = batch.adapter.data();
  packed.prefix_first = batch.first.empty() ? nullptr : batch.first.data();
  packed.prefix_rows = batch.rows.empty() ? nullptr : batch.rows.data();
  TRY(record::load(slots[which], programs[which], &packed, &err));
  if (card_ != nullptr) {
    const void *host;
    int64_t bytes;
    TRY(sie_slot_input(slots[which], &host, &bytes, &err));
    card_->copy_in(arena_memory_, host, bytes);
  }
  return sie_program_submit(programs[which], arena, slots[which], with, &err);
}

Result Decoder::finish(Program which, const Batch &batch) {
  Result result;
  int64_t tokens = static_cast<int64_t>(batch.ids.size()), seqs = static_cast<int64_t>(batch.adapter.size());
  int32_t *flags = const_cast<int32_t *>(sie_slot_nonfinite(slots[which], nullptr));
  if (card_ != nullptr) {
    card_->finish();
    int64_t offset, bytes[] = {seqs * heads * head_dim * 4, tokens * hidden * 4};
    for (int i = 0; which != writer && i < 2; i++) {
      card_->copy_out(const_cast<void *>(sie_slot_output(slots[which], i, nullptr)), outputs_[i], bytes[i]);
    }
    sie_slot_nonfinite(slots[which], &offset);
    card_->copy_out(flags, static_cast<char *>(arena_memory_) + offset, seqs * 4);
  }
  result.status = sie_slot_wait(slots[which], &err);
  result.nonfinite.assign(flags, flags + seqs);
  if (which == writer) return result;
  const float *last = static_cast<const float *>(sie_slot_output(slots[which], 0, nullptr));
  const float *rows = static_cast<const float *>(sie_slot_output(slots[which], 1, nullptr));
  for (int64_t b = 0; b < seqs; b++) {
    result.last.emplace_back(last + b * heads * head_dim, last + (b + 1) * heads * head_dim);
    result.rows.emplace_back(rows + batch.cu[b] * hidden, rows + batch.cu[b + 1] * hidden);
  }
  return result;
}

Result Decoder::run(Program which, const Batch &batch, sie_state *with) {
  Result result;
  result.status = submit(which, batch, with);
  return result.status == SIE_OK ? finish(which, batch) : result;
}

Result Decoder::plain(const std::vector<Text> &prefixes, const std::vector<Behind> &texts) {
  Batch batch;
  for (const Behind &text : texts) {
    if (text.prefix >= 0) batch.add(prefixes[text.prefix]);
    batch.add(text.own);
    batch.end(text.own.adapter);
  }
  Result result = run(whole, batch, nullptr);
  for (size_t b = 0; b < result.rows.size(); b++) {
    int skip = texts[b].prefix >= 0 ? prefixes[texts[b].prefix].length : 0;
    result.rows[b].erase(result.rows[b].begin(), result.rows[b].begin() + skip * hidden);
  }
  return result;
}

sie_status Decoder::replace_writer(int64_t rows) {
  sie_program_free(programs[writer]);
  programs[writer] = nullptr;
  TRY(record(writer, rows));
  sie_workspace workspace;
  return sie_program_end(programs[writer], &workspace, &err);
}

sie_status Decoder::write(const std::vector<Text> &prefixes) {
  Batch batch;
  for (const Text &text : prefixes) {
    batch.add(text);
    batch.end(text.adapter);
  }
  return run(writer, batch, state).status;
}

Result Decoder::read(const std::vector<Text> &prefixes, const std::vector<Behind> &texts) {
  Batch batch;
  std::vector<int32_t> starts = {0};
  for (const Text &text : prefixes) starts.push_back(starts.back() + text.length);
  for (const Behind &text : texts) {
    batch.add(text.own);
    batch.end(text.own.adapter);
    batch.first.push_back(text.prefix >= 0 ? starts[text.prefix] : 0);
    batch.rows.push_back(text.prefix >= 0 ? prefixes[text.prefix].length : 0);
  }
  return run(reader, batch, state);
}

Result Decoder::shared(const std::vector<Text> &prefixes, const std::vector<Behind> &texts) {
  Result failed;
  failed.status = write(prefixes);
  return failed.status == SIE_OK ? read(prefixes, texts) : failed;
}

void Decoder::plant(int32_t word, int64_t column, float value) {
  std::swap(m.weights[0], word_);  // the table that Model::plant writes to
  m.plant(word, column, value);
  std::swap(m.weights[0], word_);
}

int differences(const Result &a, const Result &b) {
  auto same = [](const std::vector<float> &x, const std::vector<float> &y) {
    return x.size() == y.size() && (x.empty() || memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
  };
  if (a.status != SIE_OK || b.status != SIE_OK || a.rows.size() != b.rows.size()) return -1;
  int n = a.nonfinite != b.nonfinite ? 1 : 0;
  for (size_t i = 0; i < a.rows.size(); i++) {
    n += same(a.rows[i], b.rows[i]) ? 0 : 1;
    n += same(a.last[i], b.last[i]) ? 0 : 1;
  }
  return n;
}

}  // namespace decoder
