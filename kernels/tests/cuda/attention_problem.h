// attention_problem.h — an attention for the CUDA kernel: guarded operands, the table's own way to
// run it, and runs whose work list, warps and shared memory the test chooses.
#ifndef SIE_KERNELS_TESTS_CUDA_ATTENTION_PROBLEM_H
#define SIE_KERNELS_TESTS_CUDA_ATTENTION_PROBLEM_H

#include <functional>
#include <string>
#include <vector>

#include "cuda/attention_sm90.h"
#include "cuda/cuda_ops.h"
#include "tests/harness.h"

namespace attention_test {

struct Lengths {
  int32_t queries, keys;
  int32_t prefix = 0;  // of the keys, in rows of their own
};

struct Config {
  int32_t dtype, head_dim, heads, kv_heads, mask, window;
  bool alibi;
  std::vector<Lengths> lengths;
  float steep = 1;     // the first 64 keys of a sequence are so many times larger
  int32_t reach = -1;  // of a relative bias; -1: none
  bool first = false;  // the queries stand at the first keys
  // Of disentangled attention, a row of its tables for each distance; -1: none. Which tables there are.
  int32_t bucket_reach = -1;
  bool by_key = true, by_query = true;
  int32_t level = -1;  // of the bias: from this distance on it stays as it is; -1: from its reach on
};

// A way to run: `warps` a CTA with room for `resident` blocks of keys, `rows` query rows an item of
// a CTA, `ctas` for each head; sequences of few keys by single warps, or by CTAs like all others.
struct Form {
  int warps;
  int32_t resident, rows;
  bool warp_form;
  int64_t ctas = 5;
};

using Bits = std::vector<uint8_t>;

class Problem {
 public:
  explicit Problem(const Config &config);

  // Borrowed from the problem; no work list yet.
  sie_attention_args args();
  // The values of y as a table on compute capability sm computes them. Each run starts from a y of
  // NaN and checks that nothing else was written.
  Bits run(int32_t sm = 90, int32_t multiprocessors = 132);
  Bits run_as(const Form &form);
  // All sequences by the wide form, `rows` rows an item, on `ctas` CTAs; of any number of keys.
  Bits run_wide(int32_t rows, int32_t ctas);
  // The bits of sequence b in `bits` of all.
  Bits of(const Bits &bits, size_t b) const;
  // Makes the own keys and values of sequence b NaN.
  void poison(size_t b);
  // y against the reference, within the tolerance of the operation.
  void verify();
  // Describes the problem in one line.
  std::string text() const;

 private:
  Bits launch(int32_t sm, int32_t multiprocessors,
              const std::function<sie_status(const sie_stream *)> &start);

  Config c_;
  harness::Array<int32_t> cu_q_, cu_kv_;
  harness::Array<int32_t> prefix_first_, prefix_keys_;  // empty where no sequence has a prefix
  int32_t seqs_, rows_;
  harness::Array<float> slopes_, bias_;
  harness::Array<int32_t> buckets_;
  harness::Array<uint8_t> list_;
  std::unique_ptr<harness::Rows> q_, k_, v_, prefix_k_, prefix_v_, pos_key_, pos_query_, y_, expected_;
};

}  // namespace attention_test

#endif  // SIE_KERNELS_TESTS_CUDA_ATTENTION_PROBLEM_H
