// points.cc — models and loads.
#include "bench/points.h"

#include "bench/models.h"

namespace bench {

using harness::Lengths;
using harness::ModelLinear;
using harness::ModelShape;

namespace {

// The product by which cards are compared: [8192, 8192]·[8192, 8192], as its qkv linear has it.
const ModelShape square = {"square",       8192,          32, 16,    128,   8192,         SIE_GATE_NONE,
                           SIE_NORM_LAYER, SIE_MASK_FULL, 0,  false, false, SIE_POOL_MEAN};
const ModelShape token_vectors = {
    "colbert", 128, 0, 0, 0, 0, SIE_GATE_NONE, SIE_NORM_LAYER, SIE_MASK_FULL, 0, false, false, SIE_POOL_MEAN};
const ModelShape long_means = {
    "nomic-embed", 768,          0, 0, 0, 0, SIE_GATE_NONE, SIE_NORM_LAYER, SIE_MASK_FULL, 0, false,
    false,         SIE_POOL_MEAN};
const ModelShape tiny = {"tiny",        64, 2,     2,     32,           128, SIE_GATE_NONE, SIE_NORM_LAYER,
                         SIE_MASK_FULL, 0,  false, false, SIE_POOL_MEAN};
const ModelShape tiny_rotary = {
    "tiny-rotary",   128, 2,    1,    64,           128, SIE_GATE_SWIGLU, SIE_NORM_RMS,
    SIE_MASK_CAUSAL, 0,   true, true, SIE_POOL_LAST};
const ModelShape tiny_vectors = {
    "tiny-vectors", 32,           0, 0, 0, 0, SIE_GATE_NONE, SIE_NORM_LAYER, SIE_MASK_FULL, 0, false,
    false,          SIE_POOL_MEAN};

struct Load {
  const char *name;
  Lengths lengths;
};

// 16,384 tokens in sequences of 16 … 512, long and short ones in turn: a fixed walk, the same in
// every run.
Lengths mixed_lengths() {
  Lengths lengths;
  int32_t left = 16384;
  for (uint32_t state = 1; left > 0;) {
    state = state * 1664525u + 1013904223u;
    int32_t length = 16 + static_cast<int32_t>((state >> 8) % 497);
    lengths.push_back(length < left ? length : left);
    left -= lengths.back();
  }
  return lengths;
}

class List {
 public:
  void add_linears(const ModelShape &m, const Load &load) {
    for (ModelLinear part :
         {ModelLinear::qkv, ModelLinear::attention_out, ModelLinear::up, ModelLinear::down}) {
      add_linear(m, load, part);
    }
  }
  void add_linear(const ModelShape &m, const Load &load, ModelLinear part) {
    for (uint32_t compute : {SIE_COMPUTE_BF16, SIE_COMPUTE_FP8}) {
      const bool fp8 = compute == SIE_COMPUTE_FP8;
      if (fp8 && part == ModelLinear::attention_out) continue;
      add("linear", m, part_name(part), load, fp8 ? "fp8" : "bf16", fp8 ? Roof::fp8 : Roof::bf16,
          [&m, load, part, compute] { return harness::model_linear(m, load.lengths, part, compute); });
    }
  }
  // The products of a block that a norm follows, and that norm.
  void add_norms_of_linears(const ModelShape &m, const Load &load) {
    if (m.rotary) return;  // its norms stand before
    for (ModelLinear part : {ModelLinear::attention_out, ModelLinear::down}) {
      add("linear_norm", m, part_name(part), load, "bf16", Roof::bf16,
          [&m, load, part] { return harness::model_linear_norm(m, load.lengths, part); });
    }
  }
  void add_attention(const ModelShape &m, const Load &load) {
    add("attention", m, "attention", load, "bf16", Roof::bf16,
        [&m, load] { return harness::model_attention(m, load.lengths); });
  }
  void add_disentangled(const ModelShape &m, const Load &load) {
    add("attention_disentangled", m, "attention", load, "bf16", Roof::bf16,
        [&m, load] { return harness::model_disentangled(m, load.lengths); });
  }
  void add_pool_output(const ModelShape &m, const Load &load) {
    rows(m, load, "pool_output", "pool_output", "bf16", harness::model_pool_output);
  }
  void add_rows(const ModelShape &m, const Load &load) {
    rows(m, load, "embed_layernorm", "embed", "bf16", harness::model_embed);
    for (bool twin : {false, true}) {
      add("layernorm", m, "norm", load, twin ? "bf16+fp8" : "bf16", Roof::memory,
          [&m, load, twin] { return harness::model_norm(m, load.lengths, twin); });
    }
    if (m.rotary) rows(m, load, "qk_norm_rope", "rope", "bf16", harness::model_rope);
    rows(m, load, "quantise_rows", "quantise", "fp8", harness::model_quantise);
    add_pool_output(m, load);
    rows(m, load, "gather_rows", "gather", "bf16", harness::model_gather);
    rows(m, load, "join_columns", "join", "bf16", harness::model_join);
    rows(m, load, "lora", "adapters", "bf16", harness::model_lora);
    rows(m, load, "output_rows", "output", "int8", harness::model_output);
    rows(m, load, "linear_f32", "head", "f32", harness::model_head);
  }
  void add_muvera(const ModelShape &m, const Load &load) {
    rows(m, load, "muvera", "muvera", "bf16", harness::model_muvera);
    rows(m, load, "smve", "smve", "bf16", harness::model_smve);
  }
  // From token rows to sparse rows, as a SPLADE head does.
  void add_splade(const ModelShape &m, const Load &load) {
    rows(m, load, "keep_rows", "keep", "bf16", harness::model_keep);
    for (uint32_t compute : {SIE_COMPUTE_BF16, SIE_COMPUTE_FP8}) {
      const bool fp8 = compute == SIE_COMPUTE_FP8;
      add("splade", m, "vocabulary", load, fp8 ? "fp8" : "bf16", fp8 ? Roof::fp8 : Roof::bf16,
          [&m, load, compute] { return harness::model_splade(m, load.lengths, compute); });
    }
    rows(m, load, "output_sparse", "sparse", "f32", harness::model_sparse);
  }

  void add_maxsim(const ModelShape &m, const Load &load) {
    rows(m, load, "maxsim", "maxsim", "bf16", harness::model_maxsim);
  }
  // From token rows to what is found, as GLiNER's span and token models and GLiClass have it.
  void add_extraction(const ModelShape &m, const Load &load) {
    rows(m, load, "take_rows", "words", "bf16", harness::model_take);
    rows(m, load, "lstm", "lstm", "bf16", harness::model_lstm);
    rows(m, load, "spans", "spans", "bf16", harness::model_spans);
    add("pairs", m, "pairs", load, "bf16", Roof::bf16,
        [&m, load] { return harness::model_pairs(m, load.lengths); });
    rows(m, load, "product", "product", "bf16", harness::model_product);
    rows(m, load, "dots", "dots", "bf16", harness::model_dots);
  }
  std::vector<Point> take() { return std::move(all_); }

 private:
  void add(const char *op, const ModelShape &m, const char *part, const Load &load, const char *type,
           Roof roof, std::function<std::unique_ptr<harness::Case>()> make) {
    all_.push_back({op, &m, part, load.name, type, load.lengths, roof, std::move(make)});
  }
  void rows(const ModelShape &m, const Load &load, const char *op, const char *part, const char *type,
            std::unique_ptr<harness::Case> (*make)(const ModelShape &, const Lengths &)) {
    add(op, m, part, load, type, Roof::memory, [&m, load, make] { return make(m, load.lengths); });
  }

  std::vector<Point> all_;
};

}  // namespace

const char *part_name(ModelLinear part) {
  static const char *const names[] = {"qkv", "attention_out", "up", "down"};
  return names[static_cast<int>(part)];
}

std::string Point::name() const {
  return harness::text("op=%s/model=%s/part=%s/load=%s/T=%lld/type=%s", op.c_str(), model->name, part.c_str(),
                       load.c_str(), static_cast<long long>(harness::tokens_of(lengths)), type.c_str());
}

std::vector<Point> points() {
  const Load query = {"query", {16}}, passages = {"passages", Lengths(128, 128)},
             mixed = {"mixed", mixed_lengths()}, longest = {"longest", Lengths(32, 512)};
  List list;
  for (const ModelDepth &of : model_depths()) {
    const ModelShape &m = of.shape;
    for (const Load &load : {passages, query}) {
      list.add_linears(m, load);
      list.add_norms_of_linears(m, load);
      list.add_attention(m, load);
      list.add_rows(m, load);
    }
    // Here the lengths matter, not only their sum.
    list.add_attention(m, mixed);
    list.add_attention(m, longest);
    list.add_pool_output(m, mixed);
  }
  for (const Load &load : {Load{"book", {8192}}, Load{"chapters", Lengths(8, 2048)}, longest})
    list.add_pool_output(long_means, load);
  const ModelShape &base = model_depths()[1].shape;
  for (const Load &load : {passages, query}) list.add_splade(base, load);
  for (const Load &load : {passages, query, longest}) list.add_disentangled(base, load);
  const Load document = {"document", {384}};
  for (const Load &load : {passages, query, document}) list.add_extraction(base, load);
  list.add_muvera(token_vectors, passages);
  list.add_muvera(token_vectors, query);
  list.add_maxsim(token_vectors, passages);
  list.add_maxsim(token_vectors, query);
  list.add_linear(square, {"square", Lengths(16, 512)}, ModelLinear::qkv);
  return list.take();
}

std::vector<Point> tiny_points() {
  const Load load = {"tiny", {9, 1, 0, 17, 33}};
  List list;
  for (const ModelShape *m : {&tiny, &tiny_rotary}) {
    list.add_linears(*m, load);
    list.add_norms_of_linears(*m, load);
    list.add_attention(*m, load);
    list.add_rows(*m, load);
  }
  list.add_splade(tiny, {"tiny", {9, 3}});
  list.add_disentangled(tiny, load);
  list.add_extraction(tiny, {"tiny", {9, 1, 0, 5}});
  list.add_muvera(tiny_vectors, {"tiny", {9, 3}});
  list.add_maxsim(tiny_vectors, {"tiny", {9, 3}});
  return list.take();
}

std::vector<SweepShape> sweep_shapes() {
  std::vector<SweepShape> all;
  for (const ModelDepth &of : model_depths()) {
    const ModelShape &m = of.shape;
    for (uint32_t compute : {SIE_COMPUTE_BF16, SIE_COMPUTE_FP8}) {
      for (ModelLinear part :
           {ModelLinear::qkv, ModelLinear::attention_out, ModelLinear::up, ModelLinear::down}) {
        if (compute == SIE_COMPUTE_FP8 && part == ModelLinear::attention_out) continue;
        all.push_back({&m, part, compute});
      }
    }
  }
  return all;
}

}  // namespace bench
