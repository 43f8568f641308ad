// heads.cc — records the heads.
#include "heads.h"

#include <math.h>
#include <string.h>

#include "common/dtype.h"
#include "common/muvera.h"

namespace heads {

std::vector<float> reals(uint32_t seed, int64_t n, float scale) {
  model::Random random(seed);
  std::vector<float> values(static_cast<size_t>(n));
  for (float &x : values) x = random.real() * scale;
  return values;
}

namespace {

using model::Model;
using model::Random;

#define TRY(call)                          \
  do {                                     \
    sie_status status_ = (call);           \
    if (status_ != SIE_OK) return status_; \
  } while (0)

constexpr int hidden = 64;

std::vector<int32_t> signed_indices(uint32_t seed, int64_t n, int32_t below) {
  Random random(seed);
  std::vector<int32_t> values(static_cast<size_t>(n));
  for (int32_t &x : values) {
    x = random.below(below);
    if (random.below(2) == 1) x = ~x;
  }
  return values;
}

bool is_gpu(const Model *m) { return m->card != nullptr; }

// Records y[R, reduced] = a linear of x, in the model's class.
sie_status reduce(Model *m, sie_value x, sie_value *y) {
  sie_weight *w;
  TRY(m->weight(SIE_WEIGHT_LINEAR, m->compute(), reduced, hidden, 0.2f, 0, &w));
  return record::linear(m->program, x, w, nullptr, SIE_ACT_NONE, SIE_NO_VALUE, y, &m->err);
}

// Reduces the kept rows of a sum. A CPU stores a sum in f32, unless an operation on its kept rows
// needs the class's type.
sie_status keep_tail(Model *m, sie_value x) {
  sie_weight *w;
  sie_value sum, moved, kept, y, pooled;
  TRY(m->weight(SIE_WEIGHT_LINEAR, m->compute(), hidden, hidden, 0.2f, 0, &w));
  TRY(record::linear(m->program, x, w, nullptr, SIE_ACT_NONE, x, &sum, &m->err));
  TRY(record::keep_rows(m->program, sum, &moved, &m->err));
  TRY(reduce(m, moved, &y));
  TRY(record::keep_rows(m->program, x, &kept, &m->err));
  TRY(record::pool(m->program, kept, SIE_POOL_MEAN, &pooled, &m->err));
  TRY(record::output_token_rows(m->program, y, 0, &m->err));
  TRY(record::output_values(m->program, kept, 1, &m->err));
  TRY(record::output_rows(m->program, pooled, 2, &m->err));
  return record::output_token_rows(m->program, x, 3, &m->err);
}

// Token rows only, for devices without keep_rows.
sie_status tokens_tail(Model *m, sie_value x) {
  sie_value pooled;
  TRY(record::pool(m->program, x, SIE_POOL_MEAN, &pooled, &m->err));
  TRY(record::output_token_rows(m->program, x, 0, &m->err));
  TRY(record::output_values(m->program, x, 1, &m->err));
  return record::output_rows(m->program, pooled, 2, &m->err);
}

// Also outputs the tokens' logits, of which SPLADE takes the maximum.
sie_status splade_tail(Model *m, sie_value x) {
  sie_weight *w, *bias;
  sie_value y, logits;
  // Only one family of GPUs has an FP8 kernel. Elsewhere the matrix is BF16, as a checkpoint's
  // loader would choose.
  bool narrow = m->compute() == SIE_COMPUTE_FP8 && m->card->gpu.minor != 9;
  uint32_t compute = narrow ? uint32_t{SIE_COMPUTE_BF16} : m->compute();
  TRY(m->weight(SIE_WEIGHT_LINEAR, compute, vocabulary, hidden, 0.2f, 0, &w));
  TRY(m->weight(SIE_WEIGHT_VECTOR, compute, vocabulary, 1, 0.5f, -1.5f, &bias));
  TRY(record::splade(m->program, x, w, bias, &y, &m->err));
  TRY(record::linear(m->program, x, w, bias, SIE_ACT_NONE, SIE_NO_VALUE, &logits, &m->err));
  TRY(record::output_sparse(m->program, y, SIE_SPARSE_LOG, 0, &m->err));
  TRY(record::output_values(m->program, y, 1, &m->err));
  TRY(record::output_values(m->program, logits, 2, &m->err));
  return record::output_sparse(m->program, y, SIE_SPARSE_AS_IS, 3, &m->err);
}

sie_status maxsim_tail(Model *m, sie_value x) {
  sie_value y, unit, plain;
  TRY(reduce(m, x, &y));
  TRY(record::maxsim(m->program, y, 1, &unit, &m->err));
  TRY(record::maxsim(m->program, y, 0, &plain, &m->err));
  TRY(record::output_values(m->program, unit, 0, &m->err));
  TRY(record::output_values(m->program, plain, 1, &m->err));
  return record::output_values(m->program, y, 2, &m->err);
}

sie_status kept_maxsim_tail(Model *m, sie_value x) {
  sie_value kept, y, unit;
  TRY(record::keep_rows(m->program, x, &kept, &m->err));
  TRY(reduce(m, kept, &y));
  TRY(record::maxsim(m->program, y, 1, &unit, &m->err));
  TRY(record::output_values(m->program, unit, 0, &m->err));
  return record::output_values(m->program, y, 1, &m->err);
}

// Makes an adapter's matrix.
sie_status adapter(Model *m, uint32_t seed, int64_t n, int64_t k, float scale, sie_weight **out) {
  return stored(m, n, k, reals(seed, n * k, scale), out);
}

// Records y[R, n] with LoRA adapters of ranks 4, 8 and 5, of which the first `change` change this
// linear; 0: a linear without adapters.
sie_status adapted(Model *m, sie_value x, int64_t n, int64_t k, int change, uint32_t act, sie_value residual,
                   sie_value *y) {
  sie_weight *w, *bias, *a[n_adapters] = {}, *b[n_adapters] = {};
  TRY(m->weight(SIE_WEIGHT_LINEAR, m->compute(), n, k, 1.7f / sqrtf(static_cast<float>(k)), 0, &w));
  TRY(m->weight(SIE_WEIGHT_VECTOR, m->compute(), n, 1, 0.1f, 0, &bias));
  if (change == 0) return record::linear(m->program, x, w, bias, act, residual, y, &m->err);
  const int64_t ranks[n_adapters] = {4, 8, 5};
  for (int i = 0; i < change; i++) {
    uint32_t seed = static_cast<uint32_t>(900 + 10 * i + n);
    TRY(adapter(m, seed, ranks[i], k, 0.2f, &a[i]));
    TRY(adapter(m, seed + 1, n, ranks[i], 0.3f, &b[i]));
  }
  record::Lora lora = {n_adapters, a, b};
  return record::linear_lora(m->program, x, w, bias, act, residual, lora, y, &m->err);
}

// Linears behind a norm (whose quantised rows the linear reads), behind a linear, and with one row
// for each sequence. `adapters` of them change each linear, one fewer the second.
sie_status lora_linears(Model *m, sie_value x, int adapters) {
  constexpr int ffn = 160;  // a block of 128 columns, and a short one
  sie_value inner, sum, first, last;
  TRY(adapted(m, x, ffn, hidden, adapters, SIE_ACT_GELU_ERF, SIE_NO_VALUE, &inner));
  TRY(adapted(m, inner, hidden, ffn, adapters == 0 ? 0 : adapters - 1, SIE_ACT_NONE, x, &sum));
  TRY(record::gather_rows(m->program, sum, SIE_POOL_CLS, &first, &m->err));
  TRY(adapted(m, first, reduced, hidden, adapters, SIE_ACT_TANH, SIE_NO_VALUE, &last));
  TRY(record::output_token_rows(m->program, sum, 0, &m->err));
  return record::output_values(m->program, last, 1, &m->err);
}

sie_status lora_tail(Model *m, sie_value x) { return lora_linears(m, x, n_adapters); }

// A stream made by an embedding and one by a norm. Rows taken from a stream are streams: a residual
// reads them as they are, and a matrix with adapters in the class's type.
sie_status stream_rows_tail(Model *m, sie_value) {
  sie_weight *w, *gamma;
  sie_value words, normal, rows, last, narrow, adapted_rows, both;
  sie_embed_params e = record::params<sie_embed_params>();
  e.ids = record::ids;
  e.word = m->weights[0];
  e.norm = SIE_NORM_NONE;
  e.word_scale = 1.7f;
  TRY(record::result(m->program, SIE_EMBED, e, &words, &m->err));
  TRY(record::stream(m->program, words, &m->err));
  TRY(m->vector(norm_gamma(), &gamma));
  TRY(record::layernorm(m->program, words, gamma, nullptr, block_eps, &normal, &m->err));
  TRY(record::stream(m->program, normal, &m->err));
  TRY(m->weight(SIE_WEIGHT_LINEAR, m->compute(), hidden, hidden, 0.2f, 0, &w));
  TRY(record::linear(m->program, normal, w, nullptr, SIE_ACT_NONE, words, &rows, &m->err));
  TRY(record::stream(m->program, rows, &m->err));
  TRY(record::gather_rows(m->program, rows, SIE_POOL_LAST, &last, &m->err));
  TRY(adapted(m, last, hidden, hidden, n_adapters, SIE_ACT_NONE, last, &both));
  TRY(reduce(m, words, &narrow));
  TRY(adapted(m, rows, reduced, hidden, n_adapters - 1, SIE_ACT_TANH, narrow, &adapted_rows));
  TRY(record::output_values(m->program, words, 0, &m->err));
  TRY(record::output_values(m->program, last, 1, &m->err));
  TRY(record::output_values(m->program, both, 2, &m->err));
  return record::output_token_rows(m->program, adapted_rows, 3, &m->err);
}

sie_status muvera(Model *m, sie_value x, bool query, int32_t index) {
  sie_muvera_params params = {};
  params.struct_size = sizeof params;
  params.repetitions = repetitions;
  params.simhash_bits = bits;
  params.projected = projected;
  params.final_dims = encoded;
  params.is_query = query;
  params.fill_empty = !query;
  params.normalize = 1;
  sie_weight *w;
  TRY(m->data(SIE_F32, repetitions * hidden, bits, simhash().data(), &w));
  params.simhash = w;
  TRY(m->data(SIE_I32, repetitions, hidden, ams().data(), &w));
  params.ams = w;
  std::vector<int32_t> table = sketch();
  int64_t all = static_cast<int64_t>(table.size());
  if (is_gpu(m)) {
    std::vector<int32_t> output(table.size()), source(table.size());
    TRY(sie_muvera_order(table.data(), repetitions, all / repetitions, encoded, output.data(), source.data(),
                         &m->err));
    TRY(m->data(SIE_I32, all, 1, output.data(), &w));
    params.sketch_output = w;
    TRY(m->data(SIE_I32, all, 1, source.data(), &w));
    params.sketch_source = w;
  } else {
    TRY(m->data(SIE_I32, all, 1, table.data(), &w));
    params.sketch = w;
  }
  return record::output_muvera(m->program, x, &params, index, &m->err);
}

sie_status muvera_tail(Model *m, sie_value x) {
  TRY(muvera(m, x, false, 0));
  TRY(muvera(m, x, true, 1));
  TRY(record::output_values(m->program, x, 2, &m->err));
  sie_muvera_params sum = {};  // no bits, no tables: the sum of the rows, twice
  sum.struct_size = sizeof sum;
  sum.repetitions = 2;
  sum.is_query = 1;
  return record::output_muvera(m->program, x, &sum, 3, &m->err);
}

sie_status smve_tail(Model *m, sie_value x) {
  sie_smve_params params = {};
  params.struct_size = sizeof params;
  params.repetitions = repetitions;
  params.width = width;
  params.top = top;
  params.normalize = 1;
  sie_weight *w;
  TRY(m->data(SIE_F32, repetitions * width, hidden, anchors().data(), &w));
  params.anchors = w;
  TRY(record::output_smve(m->program, x, &params, 0, &m->err));
  params.is_query = 1;
  params.max_nonzeros = 20;
  TRY(record::output_smve(m->program, x, &params, 1, &m->err));
  return record::output_values(m->program, x, 2, &m->err);
}

bool always(const sie_ops *) { return true; }

}  // namespace

sie_status stored(Model *m, int64_t n, int64_t k, const std::vector<float> &values, sie_weight **out) {
  if (!is_gpu(m)) return m->data(SIE_F32, n, k, values.data(), out);
  const bool half = m->compute() == SIE_COMPUTE_F16;
  std::vector<uint16_t> narrow(values.size());
  for (size_t i = 0; i < values.size(); i++)
    narrow[i] = half ? sie_f16_from_f32(values[i]) : sie_bf16_from_f32(values[i]);
  return m->data(half ? SIE_F16 : SIE_BF16, n, k, narrow.data(), out);
}

sie_status lora_tail_without_adapters(Model *m, sie_value x) { return lora_linears(m, x, 0); }

std::vector<float> simhash() { return reals(71, int64_t{repetitions} * hidden * bits, 1); }
std::vector<int32_t> ams() { return signed_indices(72, int64_t{repetitions} * hidden, projected); }
std::vector<int32_t> sketch() {
  return signed_indices(73, int64_t{repetitions} * (1 << bits) * projected, encoded);
}
std::vector<float> anchors() {
  std::vector<float> values = reals(74, int64_t{repetitions} * width * hidden, 1);
  for (size_t row = 0; row < values.size(); row += hidden) {
    float norm = 0;
    for (size_t i = row; i < row + hidden; i++) norm += values[i] * values[i];
    for (size_t i = row; i < row + hidden; i++) values[i] /= sqrtf(norm);
  }
  return values;
}

const Head all[] = {
    {"tokens",
     tokens_tail,
     always,
     {{Kind::token_rows, hidden}, {Kind::values, hidden}, {Kind::rows, hidden}, {}},
     1,
     false},
    {"keep",
     keep_tail,
     [](const sie_ops *ops) { return ops->keep_rows != nullptr; },
     {{Kind::token_rows, reduced, true},
      {Kind::values, hidden, true},
      {Kind::rows, hidden},
      {Kind::token_rows, hidden}},
     2,
     false},
    {"splade",
     splade_tail,
     [](const sie_ops *ops) { return ops->splade != nullptr && ops->output_sparse != nullptr; },
     {{Kind::sparse, vocabulary},
      {Kind::values, vocabulary, false, true},
      {Kind::values, vocabulary},
      {Kind::sparse, vocabulary}},
     2,
     false},
    {"maxsim",
     maxsim_tail,
     [](const sie_ops *ops) { return ops->maxsim != nullptr; },
     {{Kind::values, 1, false, true}, {Kind::values, 1, false, true}, {Kind::values, reduced}, {}},
     8,
     false},
    {"maxsim of kept rows",
     kept_maxsim_tail,
     [](const sie_ops *ops) { return ops->maxsim != nullptr && ops->keep_rows != nullptr; },
     {{Kind::values, 1, false, true}, {Kind::values, reduced, true}, {}, {}},
     8,
     false},
    {"lora",
     lora_tail,
     [](const sie_ops *ops) { return ops->lora != nullptr; },
     {{Kind::token_rows, hidden}, {Kind::values, reduced, false, true}, {}, {}},
     4,
     false},
    {"muvera",
     muvera_tail,
     [](const sie_ops *ops) { return ops->muvera != nullptr; },
     {{Kind::rows, encoded}, {Kind::rows, encoded}, {Kind::values, hidden}, {Kind::rows, 2 * hidden}},
     20,
     true},
    {"smve",
     smve_tail,
     [](const sie_ops *ops) { return ops->smve != nullptr; },
     {{Kind::sparse, repetitions * width}, {Kind::sparse, repetitions * width}, {Kind::values, hidden}, {}},
     2,
     true},
    {"residual",
     residual_tail,
     always,
     {{Kind::values, hidden}, {Kind::values, hidden}, {Kind::values, hidden}, {Kind::token_rows, hidden}},
     4,
     false},
    {"stream",
     stream_tail,
     [](const sie_ops *ops) { return ops->keep_rows != nullptr && ops->join_columns != nullptr; },
     {{Kind::values, hidden},
      {Kind::values, hidden},
      {Kind::values, hidden},
      {Kind::token_rows, 2 * reduced, true}},
     8,
     false},
    {"stream rows",
     stream_rows_tail,
     [](const sie_ops *ops) { return ops->lora != nullptr && ops->join_columns != nullptr; },
     {{Kind::values, hidden},
      {Kind::values, hidden, false, true},
      {Kind::values, hidden, false, true},
      {Kind::token_rows, reduced}},
     8,
     false},
    {"gate",
     gate_tail,
     always,
     {{Kind::values, 2 * gated}, {Kind::values, gated}, {Kind::values, gated}, {Kind::token_rows, hidden}},
     8,
     false},
    {"rotary",
     rotary_tail,
     [](const sie_ops *ops) { return ops->qk_norm_rope != nullptr; },
     {{Kind::values, 2 * hidden}, {Kind::values, 2 * hidden}, {Kind::values, hidden}, {Kind::values, hidden}},
     8,
     false},
    {"turned",
     turned_tail,
     [](const sie_ops *ops) { return ops->qk_norm_rope != nullptr; },
     {{Kind::values, 2 * hidden}, {Kind::values, 2 * hidden}, {Kind::values, hidden}, {Kind::values, hidden}},
     8,
     false},
    {"relative bias",
     bias_tail,
     always,
     {{Kind::values, 2 * hidden},
      {Kind::values, hidden},
      {Kind::values, hidden},
      {Kind::values, hidden, false, true}},
     8,
     false},
    {"disentangled",
     disentangled_tail,
     always,
     {{Kind::values, 3 * hidden},
      {Kind::values, hidden},
      {Kind::values, hidden, false, true},
      {Kind::values, hidden}},
     8,
     false},
    {"one query",
     one_query_tail,
     always,
     {{Kind::values, hidden, false, true},
      {Kind::values, hidden, false, true},
      {Kind::values, hidden, false, true},
      {Kind::values, hidden, false, true}},
     8,
     false},
    {"update",
     update_tail,
     [](const sie_ops *ops) { return ops->qk_norm_rope != nullptr; },
     {{Kind::values, reduced}, {Kind::values, reduced}, {Kind::rows, hidden}, {Kind::rows, hidden}},
     8,
     false},
    {"pools",
     pools_tail,
     always,
     {{Kind::rows, hidden}, {Kind::rows, 2 * hidden}, {Kind::values, hidden}, {Kind::rows, hidden}},
     2,
     false},
    {"kept pools",
     kept_pools_tail,
     [](const sie_ops *ops) { return ops->keep_rows != nullptr; },
     {{Kind::rows, hidden}, {Kind::rows, 5 * hidden}, {Kind::values, hidden, true}, {Kind::rows, hidden}},
     2,
     false},
    {"labels",
     labels_tail,
     [](const sie_ops *ops) { return ops->keep_rows != nullptr; },
     {{Kind::token_rows, reduced, true, false, true},
      {Kind::values, hidden, false, false, true},
      {Kind::rows, hidden},
      {Kind::token_rows, hidden}},
     8,
     false},
    {"words",
     words_tail,
     [](const sie_ops *ops) { return ops->take_rows != nullptr && ops->lstm != nullptr; },
     {{Kind::token_rows, hidden, false, false, false, true},
      {Kind::values, 2 * word_hidden, false, false, false, true},
      {Kind::values, 1, false, false, false, true},
      {Kind::rows, hidden}},
     8,
     false},
    {"join",
     join_tail,
     [](const sie_ops *ops) { return ops->join_columns != nullptr; },
     {{Kind::values, joined}, {Kind::token_rows, hidden}, {Kind::rows, 2 * hidden}, {Kind::values, reduced}},
     8,
     false},
};
const int count = sizeof all / sizeof *all;

const Head &named(const char *name) {
  int i = 0;
  while (strcmp(all[i].name, name) != 0) i++;
  return all[i];
}

}  // namespace heads
