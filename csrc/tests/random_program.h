// random_program.h — random programs over all operations, and runs of them.
//
// A seed decides everything about a program except its device, so that one program can be recorded
// on several devices. Its operations take any earlier values, so values live long, are views, and
// are read before and after updates in place.
#ifndef SIE_CSRC_TESTS_RANDOM_PROGRAM_H
#define SIE_CSRC_TESTS_RANDOM_PROGRAM_H

#include <stdint.h>

#include <string>
#include <vector>

#include "entries.h"
#include "sie.h"

namespace random_program {

enum Space { tokens = 1, sequences, kept, shared };
enum Input { ids = 1, types, keep, adapter, partner, queries, positions };

constexpr int64_t max_tokens = 4096, max_sequences = 64, max_length = 640, max_query_rows = 200;
constexpr int32_t words = 97, type_rows = 2, position_rows = 700, adapters = 2, query_groups = 3;

// What each input holds for one sequence.
struct Text {
  std::vector<int32_t> ids, types, positions;
  std::vector<uint8_t> keep;
  int32_t adapter, partner;
};

// Makes at most 14 texts with at most max_tokens tokens in all. Some are empty, some are long slabs,
// and of some all or no tokens are kept.
std::vector<Text> random_texts(uint32_t seed);

using Texts = std::vector<const Text *>;

struct Output {
  uint32_t form;  // sie_output_form
  sie_space space;
  int64_t columns;
};

// What a run wrote: output o of text i is bytes[i * outputs + o].
struct Result {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<int32_t> nonfinite;  // by text
};

// A batch in a slot, and where its results lie.
struct Batch {
  std::vector<int32_t> ids, types, positions, adapters, partners, starts;
  std::vector<uint8_t> keep;
  std::vector<int64_t> kept_starts;
  std::vector<int32_t> query_starts;
  std::vector<float> queries;
  std::vector<std::vector<sie_out_item>> items;      // by output, then text
  std::vector<std::vector<int64_t>> offsets, sizes;  // likewise, in bytes
};

// The program of a seed on a device, with two slots. Failures are counted by CHECK, with the seed.
class Program {
 public:
  explicit Program(uint32_t seed) : seed_(seed) {}
  Program(const Program &) = delete;
  Program &operator=(const Program &) = delete;
  ~Program();

  // Opens the device, records the program, and makes room for batches of at most these texts. The
  // arena is filled with bytes of 0xff, NaN as floats: what an earlier program may leave.
  bool open(uint32_t kind, uint32_t isa, int threads, uint32_t compute, const Texts &texts);

  // Runs the texts in slot 0. After a failure the result has no bytes.
  Result run(const Texts &texts);
  // The two halves of a run, so that both slots can be at work.
  bool submit(int slot, const Texts &texts);
  Result finish(int slot);

  // Cuts operations of long slabs into the smallest blocks.
  void use_smallest_blocks() {
    program_->block_flops = 1;
    program_->stage_rows = sie::region_step;
  }
  // Prints the operations as recorded, and the plan.
  void explain();

  const std::vector<Output> &outputs() const { return outputs_; }

 private:
  friend class Recording;
  friend class Recorder;
  bool must(sie_status status, const char *what);
  // Declares the spaces and inputs, which all random programs share.
  void declare();
  // Of f32 values [n, k]; null after a failure.
  // values are the bits of elements of dtype.
  sie_weight *weight(uint32_t kind, uint32_t compute, int64_t n, int64_t k, const std::vector<float> &values,
                     uint32_t dtype = SIE_F32);
  void fill_batch(Batch *batch, const Texts &texts);
  void place_outputs(Batch *batch, int slot);

  uint32_t seed_;
  bool failed_ = false;
  sie_error err_ = {};
  sie_device *device_ = nullptr;
  sie_program *program_ = nullptr;
  sie_arena *arena_ = nullptr;
  sie_slot *slots_[2] = {};
  std::vector<sie_weight *> weights_;
  std::vector<Output> outputs_;
  int64_t query_columns_ = 0;  // 0: no operation reads the queries
  std::vector<std::string> log_;
  Batch batches_[2];
};

// Records the operations and outputs of the program's seed. Returns false if one was refused.
bool record_random(Program *program, uint32_t seed, uint32_t compute);

}  // namespace random_program

#endif  // SIE_CSRC_TESTS_RANDOM_PROGRAM_H
