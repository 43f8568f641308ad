// gemm_check.h — runs a linear on one GEMM variant and checks what holds for every one: nothing but y's
// elements of the rows that exist is written, sums are near those in double, and endings (activation, gate,
// residual, rounding, scales) are bit for bit what their definition makes of the sums.
#ifndef SIE_KERNELS_TESTS_CUDA_GEMM_CHECK_H
#define SIE_KERNELS_TESTS_CUDA_GEMM_CHECK_H

#include <vector>

#include "tests/cuda/gemm_problem.h"

namespace gemm_test {

// A family of variants: how one is run, on what device.
struct Family {
  sie_status (*run)(int32_t variant, const sie_linear_args *args, const sie_stream *on);
  sie_stream on;
};

struct Result {
  sie_status status = SIE_OK;
  std::vector<float> y;      // [n_rows, columns], widened
  std::vector<float> scale;  // y in e4m3: [n_rows, blocks]
};

const char *class_name(uint32_t compute);
Result run(const Family &family, const Problem &problem, const Ending &e, int32_t variant);
bool same_bits(const Result &a, const Result &b);
// y in f32 and no residual: every element against double.
void check_sums(const Problem &problem, const Ending &e, const Result &result, int32_t variant);
// The ending against the variant's own sums; returns the result.
Result check_ending(const Family &family, const Problem &problem, const Ending &e, int32_t variant);

}  // namespace gemm_test

#endif  // SIE_KERNELS_TESTS_CUDA_GEMM_CHECK_H
