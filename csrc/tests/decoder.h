// decoder.h — a small decoder with three programs over the same weights: one for whole sequences, one
// that writes the keys and values of prefixes into a state, and one whose sequences stand behind
// them.
#ifndef SIE_CSRC_TESTS_DECODER_H
#define SIE_CSRC_TESTS_DECODER_H

#include <vector>

#include "model.h"

namespace decoder {

constexpr int blocks = 3, hidden = 64, heads = 2, kv_heads = 1, head_dim = 32, n_adapters = 2;
constexpr int64_t max_tokens = 16384, max_len = 1300, max_seqs = 64, state_rows = 1300;

struct Text {
  int number = 0, length = 0, adapter = -1;
};
// A sequence: its own rows, behind a prefix or none (-1).
struct Behind {
  Text own;
  int prefix = -1;
};

// What a batch gives: the last row of each sequence, and all rows, as f32 bits; and its flags.
struct Result {
  sie_status status = SIE_OK;
  std::vector<std::vector<float>> last, rows;
  std::vector<int32_t> nonfinite;
};

class Decoder {
 public:
  Decoder() = default;
  Decoder(const Decoder &) = delete;
  Decoder &operator=(const Decoder &) = delete;
  ~Decoder() { close(); }

  sie_status open(uint32_t kind, uint32_t isa, int threads, uint32_t compute);
  sie_status open_on(model::Card *card, uint32_t compute);
  void close();

  // Runs whole sequences: each prefix with the rows behind it.
  Result plain(const std::vector<Text> &prefixes, const std::vector<Behind> &texts);
  // Runs the prefixes, then the texts behind them. The results are those of the texts' own rows.
  Result shared(const std::vector<Text> &prefixes, const std::vector<Behind> &texts);
  // Sets an element of a word's row (Model::plant).
  void plant(int32_t word, int64_t column, float value);
  // Replaces the program that writes by one whose state has so many rows, at most state_rows.
  sie_status replace_writer(int64_t rows);
  // Give the arena with its outputs, or the state, new memory on the card.
  sie_status place_arena();
  sie_status place_state();
  sie_status write(const std::vector<Text> &prefixes);
  Result read(const std::vector<Text> &prefixes, const std::vector<Behind> &texts);

  model::Model m;
  enum Program { whole, writer, reader, n_programs };
  sie_program *programs[n_programs] = {};
  sie_slot *slots[n_programs] = {};
  sie_arena *arena = nullptr;
  sie_state *state = nullptr;
  sie_error err = {};

 private:
  struct Block {
    sie_weight *qkv, *out, *gamma, *beta, *a[n_adapters], *b[n_adapters];
  };
  struct Batch {
    std::vector<int32_t> ids, cu = {0}, adapter, first, rows;
    void add(const Text &text);
    void end(int adapter_of);
  };
  sie_status make();
  sie_status record(Program which, int64_t rows);
  sie_status block(Program which, int i, sie_value *x);
  sie_status prepare(const sie_workspace &workspace);
  sie_status submit(Program which, const Batch &batch, sie_state *with);
  Result finish(Program which, const Batch &batch);
  Result run(Program which, const Batch &batch, sie_state *with);
  void *device_memory(int64_t bytes);

  model::Card *card_ = nullptr;
  void *arena_memory_ = nullptr, *outputs_[2] = {};
  std::vector<void *> memory_;
  Block blocks_[blocks] = {};
  sie_weight *word_ = nullptr, *gamma_ = nullptr, *beta_ = nullptr, *cos_ = nullptr, *sin_ = nullptr,
             *q_gamma_ = nullptr;
};

// How many of the texts' results differ in a bit.
int differences(const Result &a, const Result &b);

}  // namespace decoder

#endif  // SIE_CSRC_TESTS_DECODER_H
