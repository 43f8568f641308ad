// model_cases.h — the operations of real models at their own shapes, for the bench on GPUs
// (kernels/bench).
//
// The same classes as in the conformance list, so that what is timed is what is tested, and flops()
// and bytes() are counted once. Activations are bf16, behind pooling f32; cases are dense and
// marked `bench`.
#ifndef SIE_KERNELS_TESTS_MODEL_CASES_H
#define SIE_KERNELS_TESTS_MODEL_CASES_H

#include "tests/harness.h"

namespace harness {

// A transformer as its operations need it.
struct ModelShape {
  const char *name;
  int32_t width, heads, kv_heads, head_dim;
  int32_t inner;         // columns in the middle of the feed-forward
  int32_t gate;          // sie_gate; SIE_GATE_NONE: exact GELU
  int32_t norm;          // sie_norm
  int32_t mask, window;  // of attention
  bool rotary;           // positions by rotation, norms before the blocks; else tables, norms behind
  bool head_norm;        // q and k are normalised before they are rotated
  int32_t pooling;       // sie_pooling
};

enum class ModelLinear { qkv, attention_out, up, down };

using Lengths = std::vector<int32_t>;

// compute: SIE_COMPUTE_BF16, or SIE_COMPUTE_FP8 with the scales that the producer of x gives: one a
// row from norms, one a block of 128 columns into `down`, which `up` writes. attention_out is in
// bf16 only (else NULL).
std::unique_ptr<Case> model_linear(const ModelShape &model, const Lengths &lengths, ModelLinear part,
                                   uint32_t compute);
// attention_out or down with a residual, and the norm behind it, in bf16: as blocks with norms behind have them.
std::unique_ptr<Case> model_linear_norm(const ModelShape &model, const Lengths &lengths, ModelLinear part);
// A Dense module behind pooling: width × width in f32, one row a sequence, with tanh.
std::unique_ptr<Case> model_head(const ModelShape &model, const Lengths &lengths);
std::unique_ptr<Case> model_embed(const ModelShape &model, const Lengths &lengths);
// twin: also writes an e4m3 copy of y with a scale a row.
std::unique_ptr<Case> model_norm(const ModelShape &model, const Lengths &lengths, bool twin);
std::unique_ptr<Case> model_attention(const ModelShape &model, const Lengths &lengths);
// The same heads with DeBERTa-v3's tables by distance, of 512 rows.
std::unique_ptr<Case> model_disentangled(const ModelShape &model, const Lengths &lengths);
std::unique_ptr<Case> model_rope(const ModelShape &model, const Lengths &lengths);
// e4m3 in blocks of 128.
std::unique_ptr<Case> model_quantise(const ModelShape &model, const Lengths &lengths);
std::unique_ptr<Case> model_gather(const ModelShape &model, const Lengths &lengths);
// Pooled, normalised, f32.
std::unique_ptr<Case> model_pool_output(const ModelShape &model, const Lengths &lengths);
// As many rows as sequences, normalised, int8.
std::unique_ptr<Case> model_output(const ModelShape &model, const Lengths &lengths);
// Documents of token vectors of model.width columns: 40 repetitions of 6 bits, sketched to 10240.
std::unique_ptr<Case> model_muvera(const ModelShape &model, const Lengths &lengths);
// Documents of token vectors: 32 projections a row out of 512 for each column, normalised.
std::unique_ptr<Case> model_smve(const ModelShape &model, const Lengths &lengths);
// What extraction does with words, which take the place of tokens. Words and labels have 512
// columns, of the tiny models 64.
inline int64_t word_columns(const ModelShape &model) { return model.width < 384 ? 64 : 512; }
// As many words as tokens: the mean of up to three rows each.
std::unique_ptr<Case> model_take(const ModelShape &model, const Lengths &lengths);
// Both directions over words, half of their columns each.
std::unique_ptr<Case> model_lstm(const ModelShape &model, const Lengths &lengths);
// Spans of up to 12 words against 25 labels of their sequence, few of them above the threshold; the
// inner layer has four times the columns of a word.
std::unique_ptr<Case> model_spans(const ModelShape &model, const Lengths &lengths);
// Words against as many labels, three logits of each pair.
std::unique_ptr<Case> model_pairs(const ModelShape &model, const Lengths &lengths);
// Rows of words by rows of words.
std::unique_ptr<Case> model_product(const ModelShape &model, const Lengths &lengths);
std::unique_ptr<Case> model_dots(const ModelShape &model, const Lengths &lengths);
// As many rows as tokens, out of twice as many.
std::unique_ptr<Case> model_keep(const ModelShape &model, const Lengths &lengths);
// Two values of model.width columns, joined.
std::unique_ptr<Case> model_join(const ModelShape &model, const Lengths &lengths);
// BERT's, and of the tiny models what an emulator does in a second.
inline int64_t vocabulary_of(const ModelShape &model) { return model.width < 384 ? 1000 : 30522; }
// A row of the vocabulary a sequence, some 200 columns kept.
// compute: SIE_COMPUTE_BF16 or FP8 with a scale a row.
std::unique_ptr<Case> model_splade(const ModelShape &model, const Lengths &lengths, uint32_t compute);
std::unique_ptr<Case> model_sparse(const ModelShape &model, const Lengths &lengths);

// Documents of token vectors of model.width columns against one query of 32 rows, normalised.
std::unique_ptr<Case> model_maxsim(const ModelShape &model, const Lengths &lengths);

// Two adapters of rank 16 on a width × width linear, sequences in turn with one, the other and
// none.
std::unique_ptr<Case> model_lora(const ModelShape &model, const Lengths &lengths);

inline int64_t tokens_of(const Lengths &lengths) {
  int64_t sum = 0;
  for (int32_t length : lengths) sum += length;
  return sum;
}

}  // namespace harness

#endif  // SIE_KERNELS_TESTS_MODEL_CASES_H
