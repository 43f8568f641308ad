// random_recording.h — what the steps of a random program draw from: its weights, its values, numbers.
#ifndef SIE_CSRC_TESTS_RANDOM_RECORDING_H
#define SIE_CSRC_TESTS_RANDOM_RECORDING_H

#include <stdarg.h>
#include <stdio.h>

#include <vector>

#include "random_program.h"
#include "tests/random.h"

namespace random_program {

struct Value {
  sie_value number;
  sie_space space;
  int64_t columns;
};

class Recording {
 public:
  Recording(Program *program, uint32_t seed, uint32_t compute)
      : program_(program), compute_(compute), random_(seed) {}

 protected:
  template <class T>
  void add(uint32_t kind, const T &params) {
    if (program_->failed_) return;
    program_->must(record::add(program_->program_, kind, params, &program_->err_), "record");
  }

  // Random values around `offset`, by at most `scale`.
  sie_weight *weight(uint32_t kind, uint32_t compute, int64_t n, int64_t k, float scale, float offset = 0,
                     uint32_t dtype = SIE_F32) {
    std::vector<float> values(static_cast<size_t>(n * k));
    for (float &x : values) x = random_.real() * scale + offset;
    return program_->weight(kind, compute, n, k, values, dtype);
  }
  sie_weight *vector(int64_t n, float scale, float offset = 0) {
    return weight(SIE_WEIGHT_VECTOR, SIE_COMPUTE_F32, n, 1, scale, offset);
  }
  sie_weight *data(int64_t n, int64_t k, float scale) {
    return weight(SIE_WEIGHT_DATA, SIE_COMPUTE_F32, n, k, scale);
  }
  // Any integers.
  sie_weight *integers(int64_t n, int64_t k) {
    return weight(SIE_WEIGHT_DATA, SIE_COMPUTE_F32, n, k, 1, 0, SIE_I32);
  }
  sie_weight *table(int64_t n, int64_t k, float scale) {
    return weight(SIE_WEIGHT_TABLE, compute_, n, k, scale);
  }

  // True once in `one_in` times.
  bool chance(int32_t one_in) { return random_.below(one_in) == 0; }

  // Numbers of values have gaps.
  sie_value fresh() { return last_ += 1 + random_.below(3); }

  void keep_value(sie_value number, sie_space space, int64_t columns) {
    values_.push_back({number, space, columns});
  }

  // A line for Program::explain.
  [[gnu::format(printf, 2, 3)]] void note(const char *format, ...) {
    char line[160];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    program_->log_.push_back(line);
  }

  // Mostly the last value, so that chains are long.
  Value pick() {
    if (!chance(3)) return values_.back();
    return values_[static_cast<size_t>(random_.below(static_cast<int32_t>(values_.size())))];
  }

  // An earlier value of that shape, or none.
  sie_value like(sie_space space, int64_t columns) {
    std::vector<sie_value> all;
    for (const Value &v : values_) {
      if (v.space == space && v.columns == columns) all.push_back(v.number);
    }
    if (all.empty() || chance(3)) return SIE_NO_VALUE;
    return all[static_cast<size_t>(random_.below(static_cast<int32_t>(all.size())))];
  }

  Program *program_;
  uint32_t compute_;
  harness::Random random_;
  sie_value last_ = 0;
  std::vector<Value> values_;
};

}  // namespace random_program

#endif  // SIE_CSRC_TESTS_RANDOM_RECORDING_H
