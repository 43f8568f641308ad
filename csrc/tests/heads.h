// heads.h — the heads behind a model's last layer: kept rows, LoRA adapters, SPLADE, late
// interaction, encodings. Each is recorded by one function and run on every device. A test skips a
// head that the device has no kernel for.
#ifndef SIE_CSRC_TESTS_HEADS_H
#define SIE_CSRC_TESTS_HEADS_H

#include <vector>

#include "model.h"
#include "ops.h"

namespace heads {

enum class Kind { none, values, rows, token_rows, sparse };

struct Output {
  Kind kind = Kind::none;
  int columns = 0;
  bool kept = false;    // its rows are those of the kept subset, or the chosen ones of the labels
  bool by_seq = false;  // values: one row for each sequence
  bool labels = false;  // its rows are labels, not tokens
  bool words = false;   // its rows are words
};

struct Head {
  const char *name;
  sie_status (*tail)(model::Model *, sie_value);
  bool (*has)(const sie_ops *);
  Output outputs[4];
  double tolerance;  // a factor of the class's tolerance
  bool jumps;        // a small rounding may change the result a lot: signs and orders decide
};
extern const Head all[];
extern const int count;
const Head &named(const char *name);
// The head "lora" with the same linears, but no adapters.
sie_status lora_tail_without_adapters(model::Model *m, sie_value x);

constexpr int n_adapters = 3, n_queries = 3, reduced = 48, vocabulary = 301;

// n numbers of up to ±scale, by seed.
std::vector<float> reals(uint32_t seed, int64_t n, float scale);

// The parameters of MUVERA and SMVE as recorded, for tests that compute them again.
constexpr int repetitions = 3, bits = 2, projected = 16, encoded = 100, width = 37, top = 3;
std::vector<float> simhash(), anchors();
std::vector<int32_t> ams(), sketch();

// The parameters of the heads of blocks (heads_blocks.cc), and the recorded vectors, for tests that
// compute them again.
constexpr int block_heads = 2, block_kv_heads = 1, block_dim = 32, block_rot = 16, block_window = 5,
              gated = 80;
std::vector<float> norm_gamma(), norm_bias(), head_gamma(int which), slopes(), scorer();
constexpr int bias_reach = 12;
std::vector<float> biases();  // [block_heads, 2·bias_reach + 1]
// Disentangled attention: rows of its tables [position_rows, block_heads·block_dim], and the row by
// distance, as DeBERTa has them: one by one, then in ever longer steps.
constexpr int position_rows = 14, bucket_reach = 17;
std::vector<float> positions_of(bool queries);
std::vector<int32_t> buckets();          // [2·bucket_reach + 1]
std::vector<float> rotation(bool sine);  // [positions, block_rot/2]
constexpr int turned_from = 6;           // longer sequences turn by their length
double turn_of(int length, int pair);    // of a whole turn, from one row to the next
constexpr float block_eps = 1e-5f;
sie_status residual_tail(model::Model *m, sie_value x);
sie_status gate_tail(model::Model *m, sie_value x);
sie_status rotary_tail(model::Model *m, sie_value x);
sie_status turned_tail(model::Model *m, sie_value x);
sie_status bias_tail(model::Model *m, sie_value x);
sie_status disentangled_tail(model::Model *m, sie_value x);
sie_status one_query_tail(model::Model *m, sie_value x);
sie_status update_tail(model::Model *m, sie_value x);
sie_status pools_tail(model::Model *m, sie_value x);
sie_status kept_pools_tail(model::Model *m, sie_value x);
sie_status labels_tail(model::Model *m, sie_value x);
// Declares the labels, with their inputs and the subset that is chosen, and embeds them.
sie_status embed_labels(model::Model *m, sie_value *y);
// Views of q, k and v in one value, and the parameters of their rotation.
struct Qkv {
  sie_value all, q, k, v;
  sie_rope_params rope;
};
sie_status make_qkv(model::Model *m, sie_value x, Qkv *y);
// Makes DATA [n, k] of the type in which the device keeps what it multiplies with activations: f32 on
// a CPU, 16 bits on a GPU.
sie_status stored(model::Model *m, int64_t n, int64_t k, const std::vector<float> &values, sie_weight **out);
// Records y = x·Wᵀ in the model's class.
sie_status project(model::Model *m, sie_value x, int64_t n, int64_t k, sie_value *y);
sie_status join_tail(model::Model *m, sie_value x);
sie_status words_tail(model::Model *m, sie_value x);
constexpr int word_hidden = 17;  // of the LSTM
sie_status stream_tail(model::Model *m, sie_value x);
constexpr int joined_first = 5, joined_width = 32, joined = 64 + reduced + joined_width;

// Sequences by their numbers, each with `length_of(number)` tokens. A sequence's ids, kept rows,
// adapter, query and items depend only on its number. mixed: items of every type, some cut and
// normalised; else f32, uncut.
model::Batch batch_of(const Head &head, const model::Shape &shape, const std::vector<int> &numbers,
                      bool mixed);
int length_of(int number);  // numbers from 1,000 on are long: 513 to 612
int labels_of(int number);  // rows of its labels; from 500 on, 640 of numbers that 3 does not divide

// The bytes that sequence b wrote to output o.
std::vector<uint8_t> part(const Head &head, const model::Batch &batch, const model::Result &result, int o,
                          int b);
// The same as numbers, for f32 items: the rows one after another, or a sparse row as a dense one.
std::vector<float> numbers_of(const Head &head, const model::Batch &batch, const model::Result &result, int o,
                              int b);

}  // namespace heads

#endif  // SIE_CSRC_TESTS_HEADS_H
