// model.cc — from shapes of models to the work that cost.h knows.
#include "bench/model.h"

#include <string.h>

#include "cuda/cost_heads.h"
#include "cuda/gemm_sm90_code.h"
#include "cuda/gemm_sm90_norm.h"
#include "cuda/gemm_sm90_variants.h"
#include "cuda/linear_norm.h"
#include "cuda/splade.h"

namespace bench {

using harness::ModelLinear;
using harness::ModelShape;
using sie_cuda::Card;
using sie_cuda::GemmWork;
using sie_cuda::Prediction;

namespace {

constexpr ModelLinear linears[] = {ModelLinear::qkv, ModelLinear::attention_out, ModelLinear::up,
                                   ModelLinear::down};

sie_cuda::AttentionShape attention_of(const ModelShape &m, bool local) {
  sie_cuda::AttentionShape a = {m.heads, m.kv_heads, m.head_dim};
  a.window = local ? m.window : 0;
  a.causal = m.mask == SIE_MASK_CAUSAL;
  return a;
}

// Dependent trips to memory of a row operation: the count, the row, and a table's row behind an id.
double trips(const std::string &op) {
  if (op == "layernorm") return 1;  // the row is asked for beside the count
  if (op == "take_rows") return 4;  // the sequence, its place in x, the place
  return op == "embed_layernorm" ? 3 : 2;
}

// Pooling: of the rows that the model pools.
Prediction pool_of(const Card &card, const ModelShape &m, const harness::Lengths &lengths) {
  const int64_t seqs = static_cast<int64_t>(lengths.size());
  if (m.pooling == SIE_POOL_CLS || m.pooling == SIE_POOL_LAST)
    return predict_rows(card, 2.0 * static_cast<double>(seqs) * m.width, 3);
  return predict_pool(card, static_cast<int32_t>(m.width), lengths.data(), seqs);
}

// The rows of the sequences that have an adapter: one, the other and none in turn (model_lora).
int64_t adapted_rows(const harness::Lengths &lengths) {
  int64_t rows = 0;
  for (size_t i = 0; i < lengths.size(); i++) rows += i % 3 != 2 ? lengths[i] : 0;
  return rows;
}

// Returns whether the operation is one of cost_heads.h, and then its prediction.
bool predict_head(const Card &card, const Point &point, Prediction *prediction) {
  const ModelShape &m = *point.model;
  const int32_t *const lengths = point.lengths.data();
  const int64_t seqs = static_cast<int64_t>(point.lengths.size()), tokens = harness::tokens_of(point.lengths);
  const int32_t words = static_cast<int32_t>(harness::word_columns(m)), labels = 25;
  if (point.op == "linear_f32") {
    *prediction = predict_linear_f32(card, seqs, m.width, m.width);
  } else if (point.op == "lora") {
    *prediction = predict_lora(card, {m.width, m.width, 16}, tokens, adapted_rows(point.lengths));
  } else if (point.op == "lstm") {
    *prediction = predict_lstm(card, {words / 2, 2}, lengths, seqs);
  } else if (point.op == "spans") {
    *prediction = predict_spans(card, {4 * words, 12, labels}, lengths, seqs);
  } else if (point.op == "pairs") {
    *prediction = predict_pairs(card, {4 * words, words, labels}, lengths, seqs);
  } else if (point.op == "smve") {
    *prediction = predict_smve(card, {m.width, 1, 512 * m.width, 32}, lengths, seqs);
  } else if (point.op == "attention_disentangled") {
    *prediction = predict_disentangled(card, {m.heads, m.head_dim}, lengths, seqs);
  } else {
    return false;
  }
  return true;
}

}  // namespace

GemmWork linear_work(const ModelShape &m, int64_t rows, ModelLinear part, bool fp8) {
  GemmWork w;
  w.rows = rows;
  w.fp8 = fp8;
  w.k = m.width;
  switch (part) {
    case ModelLinear::qkv:
      w.n = (m.heads + 2 * m.kv_heads) * m.head_dim;
      break;
    case ModelLinear::attention_out:
      w.n = m.width;
      w.k = m.heads * m.head_dim;
      w.residual_bytes = 2;
      break;
    case ModelLinear::up:
      w.gated = m.gate != SIE_GATE_NONE;
      w.n = w.gated ? 2 * m.inner : m.inner;
      w.activated = true;
      if (fp8) w.y_bytes = 1;  // as the next product reads it
      break;
    case ModelLinear::down:
      w.n = m.width;
      w.k = m.inner;
      w.residual_bytes = 2;
      w.blocks = fp8;  // as the product before writes it
  }
  return w;
}

bool predicts_bytes(const Point &point) {
  static const char *const known[] = {"embed_layernorm", "layernorm",    "qk_norm_rope", "quantise_rows",
                                      "gather_rows",     "join_columns", "keep_rows",    "output_rows",
                                      "take_rows",       "product",      "dots",         "output_sparse"};
  for (const char *name : known) {
    if (point.op == name) return true;
  }
  return false;
}

Predicted predict_linear(const Card &card, const GemmWork &w) {
  sie_packed packed = {};
  packed.compute = w.fp8 ? SIE_COMPUTE_FP8 : SIE_COMPUTE_BF16;
  packed.n = w.n;
  packed.k = w.k;
  sie_linear_args args = {};
  args.rows.cap = w.rows;
  args.x.scale_group = w.blocks ? 128 : (w.fp8 ? -1 : 0);
  args.n = w.n;
  args.k = w.k;
  args.w = &packed;
  args.gate = w.gated ? SIE_GATE_GEGLU : SIE_GATE_NONE;
  args.act = w.activated && !w.gated ? SIE_ACT_GELU_ERF : SIE_ACT_NONE;
  if (w.residual_bytes > 0) args.residual.p = &packed;  // there is one; nobody reads it
  args.residual.dtype = w.residual_bytes == 4 ? SIE_F32 : SIE_BF16;
  args.y.dtype = w.y_bytes == 1 ? SIE_F8E4M3 : SIE_BF16;
  const sie_stream on = {nullptr, card.sm, card.multiprocessors, 0, 0};
  const int32_t chosen = sie_cuda::gemm_sm90_pick(args, on);
  Predicted all;
  for (int32_t i = 0; i < sie_cuda::GEMM_SM90_COUNT; i++) {
    if (!sie_cuda::gemm_sm90_takes(i, &args)) continue;
    const sie_cuda::GemmSm90Variant &v = sie_cuda::gemm_sm90_variants[i];
    const Prediction p = i == sie_cuda::GEMM_SM90_SKINNY ? predict_skinny(card, w)
                                                         : predict_gemm(card, w, gemm_sm90_shape(v, w));
    if (i == chosen) {
      all.by = p;
      all.variant = v.name;
    }
    const bool tie = i == chosen && p.us == all.fastest.us;
    if (*all.fastest_variant == 0 || p.us < all.fastest.us || tie) {
      all.fastest = p;
      all.fastest_variant = v.name;
    }
  }
  return all;
}

Predicted predict_linear_norm(const Card &card, const GemmWork &w) {
  const sie_stream on = {nullptr, card.sm, card.multiprocessors, 0, 0};
  const int32_t form = sie_cuda::gemm_sm90_norm_pick(SIE_COMPUTE_BF16, w.rows, w.n, w.k, on);
  Predicted all;
  if (form >= 0) {
    const sie_cuda::GemmSm90NormForm &f = *sie_cuda::gemm_sm90_norm_form(form);
    all.by = predict_gemm_norm(card, w, {f.rows, f.columns, f.warpgroup_rows, f.cluster, f.code});
    all.variant = f.name;
  } else {
    all.by = predict_linear(card, w).by;
    all.by.us += predict_rows(card, 4.0 * static_cast<double>(w.rows * w.n), trips("layernorm")).us;
    all.variant = "two kernels";
  }
  all.fastest = all.by;
  all.fastest_variant = all.variant;
  return all;
}

bool has_linear_norm(const Card &card, const GemmWork &w) {
  const sie_packed packed = {w.fp8 ? SIE_COMPUTE_FP8 : SIE_COMPUTE_BF16, 0, w.n, w.k, nullptr};
  const sie_stream on = {nullptr, card.sm, card.multiprocessors, 0, 0};
  return sie_cuda::linear_norm_pays(&packed, &on) != 0;
}

bool predict(const Card &card, const Point &point, double bytes, Predicted *prediction) {
  *prediction = {};
  const ModelShape &m = *point.model;
  if (point.op == "linear" || point.op == "linear_norm") {
    for (ModelLinear part : linears) {
      if (point.part != part_name(part)) continue;
      const GemmWork w = linear_work(m, harness::tokens_of(point.lengths), part, point.type == "fp8");
      *prediction = point.op == "linear" ? predict_linear(card, w) : predict_linear_norm(card, w);
      return true;
    }
    return false;
  }
  if (point.op == "attention") {
    prediction->by = predict_attention(card, attention_of(m, m.mask == SIE_MASK_WINDOW), point.lengths.data(),
                                       static_cast<int64_t>(point.lengths.size()));
    return true;
  }
  if (point.op == "splade") {
    GemmWork w;
    w.rows = harness::tokens_of(point.lengths);
    w.n = harness::vocabulary_of(m);
    w.k = m.width;
    w.fp8 = point.type == "fp8";
    w.y_bytes = 0;
    // Its 76 KiB of code, beside the other warpgroup's products, would make the last tile 30 clocks longer.
    const sie_cuda::GemmSm90Variant &v =
        sie_cuda::gemm_sm90_variants[sie_cuda::splade_sm90_tile(w.fp8, w.rows)];
    prediction->by = predict_splade(card, w, {v.rows, v.columns, v.warpgroup_rows, v.cluster},
                                    static_cast<int64_t>(point.lengths.size()));
    return true;
  }
  if (point.op == "pool_output") {
    prediction->by = pool_of(card, m, point.lengths);
    return true;
  }
  if (point.op == "maxsim") {
    prediction->by = predict_maxsim(card, static_cast<int32_t>(m.width), 32, point.lengths.data(),
                                    static_cast<int64_t>(point.lengths.size()));
    return true;
  }
  if (point.op == "muvera") {
    // model_muvera's; its row and block fit twice in the shared memory of sm_90.
    const sie_cuda::MuveraShape shape = {static_cast<int32_t>(m.width), 40, 6, 10240, 2};
    prediction->by =
        predict_muvera(card, shape, point.lengths.data(), static_cast<int64_t>(point.lengths.size()));
    return true;
  }
  if (predict_head(card, point, &prediction->by)) return true;
  if (!predicts_bytes(point)) return false;
  prediction->by = predict_rows(card, bytes, trips(point.op));
  return true;
}

int32_t model_launches(const ModelDepth &d) {
  const int32_t norms = 2, products = 4, attention = 1, rotation = d.shape.rotary ? 1 : 0;
  return 1 + d.blocks * (norms + products + attention + rotation) + 1;  // embedding, blocks, pooling
}

double predict_model_us(const Card &card, const ModelDepth &d, int64_t seqs, int32_t length, bool fp8) {
  const ModelShape &m = d.shape;
  const int64_t tokens = seqs * length;
  const harness::Lengths lengths(static_cast<size_t>(seqs), length);
  const double row = static_cast<double>(tokens) * m.width * 2;
  const double norm = predict_rows(card, 2 * row, trips("layernorm")).us;
  double block = m.rotary ? 2 * norm : 0;
  for (ModelLinear part : linears) {
    const GemmWork w = linear_work(m, tokens, part, fp8 && part != ModelLinear::attention_out);
    // Norms behind a product, unless they write e4m3 rows as well.
    const bool before_norm = !m.rotary && (part == ModelLinear::attention_out || part == ModelLinear::down);
    const bool joined = before_norm && !fp8 && has_linear_norm(card, w);
    block += joined ? predict_linear_norm(card, w).by.us : predict_linear(card, w).by.us;
    if (before_norm && !joined) block += norm;
  }
  if (m.rotary)
    block +=
        predict_rows(card, 4.0 * static_cast<double>(tokens) * (m.heads + m.kv_heads) * m.head_dim, 2).us;
  double us = predict_rows(card, 3 * row, 3).us + pool_of(card, m, lengths).us;
  for (int32_t i = 0; i < d.blocks; i++) {
    const bool local = m.mask == SIE_MASK_WINDOW && i % d.global_every != 0;
    us += block + predict_attention(card, attention_of(m, local), lengths.data(), seqs).us;
  }
  return us;
}

}  // namespace bench
