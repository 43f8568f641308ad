// model.h — a small BERT-like model recorded through the public header, for tests of csrc.
#ifndef SIE_CSRC_TESTS_MODEL_H
#define SIE_CSRC_TESTS_MODEL_H

#include <stdint.h>

#include <vector>

#include "entries.h"
#include "ops.h"
#include "sie.h"
#include "tests/random.h"

namespace model {

class Model;

struct Shape {
  int layers = 2, heads = 2, head_dim = 32, ffn = 160;
  int vocabulary = 97, positions = 700, types = 2;
  bool prune = false;  // the last layer computes only the first token; pooling is CLS, not mean
  bool tokens = true;  // output 1: all rows of the last layer (not when pruned)
  bool head = false;   // behind pooling: a matrix of class F32, then tanh
  // If set, records what follows the last layer, given its token rows, in place of pooling and its
  // outputs.
  sie_status (*tail)(Model *, sie_value) = nullptr;
};

using harness::Random;

// The caller's part of a GPU (sie.h, section 7): memory aligned to 256 bytes, and copies that are
// done on return.
class Card {
 public:
  virtual void *allocate(int64_t bytes) = 0;
  virtual void release(void *p) = 0;
  virtual void copy_in(void *to, const void *from, int64_t bytes) = 0;
  virtual void copy_out(void *to, const void *from, int64_t bytes) = 0;
  virtual void finish() = 0;  // waits for the stream
  sie_gpu gpu = {};

 protected:
  ~Card() = default;
};

// A device with one model and everything needed to run it. Not copyable; closes what it opened.
class Model {
 public:
  Model() = default;
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;
  ~Model() { close(); }

  // Opens a device and records the model; returns the status of the first call that failed. By
  // default batches have up to 4,096 tokens and 512 sequences of up to 640 tokens each.
  sie_status open(uint32_t kind, uint32_t isa, int threads, uint32_t compute, const Shape &shape = {});
  // The same on a GPU. If compute is FP8, the matrix behind attention is BF16, as in real models.
  sie_status open_on(Card *card, uint32_t compute, const Shape &shape);
  void close();

  Card *card = nullptr;
  void *arena_memory = nullptr, *outputs[4] = {};  // on a GPU
  sie_device *device = nullptr;
  sie_program *program = nullptr;
  sie_arena *arena = nullptr;
  sie_slot *slots[2] = {};
  std::vector<sie_weight *> weights;
  sie_error err = {};
  Shape shape;
  int hidden = 0;
  int64_t max_tokens = 4096, max_len = 640, min_len = 0;  // set before opening
  uint32_t placement = SIE_PLACE_INTERLEAVED;             // so are these
  bool one_node = false;
  // On a GPU: its table has linear_norm pay for every weight (1), for none (0), or as it is.
  int norms_pay = -1;

  // For tails: random weights, and vectors and data with given values.
  uint32_t compute() const { return compute_; }
  sie_status create(const sie_weight_desc &desc, sie_weight **out);
  sie_status weight(uint32_t kind, uint32_t compute, int64_t n, int64_t k, float scale, float offset,
                    sie_weight **out);
  sie_status vector(const std::vector<float> &values, sie_weight **out);
  sie_status data(uint32_t dtype, int64_t n, int64_t k, const void *values, sie_weight **out);
  // Sets one element of a word's row in the table, also to NaN or infinity, which a checkpoint
  // could not.
  void plant(int32_t word, int64_t column, float value);

 private:
  sie_status linear(sie_value x, int64_t n, int64_t k, sie_act act, sie_value residual, sie_value *y,
                    bool after_attention = false);
  sie_status make(const sie_device_options &options, uint32_t compute, const Shape &wanted);
  sie_status place_arena(const sie_workspace &workspace, const sie_slot_caps &caps);
  sie_status norm(sie_value x, sie_value *y);
  sie_status record();
  sie_status layer(sie_value *x, bool last);
  sie_status head(sie_value *x);

  sie_ops table_ = {};  // of a GPU, where norms_pay is set
  uint32_t compute_ = 0;
  uint32_t seed_ = 1;
  std::vector<void *> memory_;  // of a GPU
};

struct Batch {
  std::vector<int32_t> ids, types, cu = {0};
  std::vector<sie_out_item> items[4];
  // For tails; empty: NULL.
  std::vector<uint8_t> keep, choose;
  std::vector<int32_t> adapter, partner, cu_queries, cu_labels, label_ids;
  std::vector<int32_t> cu_words, word_first, word_last;
  std::vector<float> queries;
  int64_t bytes[4] = {};  // of each output to compare

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  int64_t seqs() const { return static_cast<int64_t>(cu.size()) - 1; }
  // Adds one sequence: text `number` of the corpus, cut or repeated to `length`.
  void add(const Shape &shape, int number, int length);
};

struct Result {
  sie_status status = SIE_OK;
  std::vector<float> rows;         // [B, hidden]
  std::vector<float> values;       // [T, hidden]
  std::vector<uint8_t> bytes[4];   // of a tail's outputs
  std::vector<int32_t> nonfinite;  // [B]
};

sie_status submit(Model *m, int slot, const Batch &batch);
Result wait(Model *m, int slot, const Batch &batch);
Result run(Model *m, const Batch &batch);

}  // namespace model

#endif  // SIE_CSRC_TESTS_MODEL_H
