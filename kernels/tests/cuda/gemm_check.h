// gemm_check.h — runs a linear on one GEMM variant and checks the rules for every variant: only y's
// elements of existing rows are written; sums are near those in double; and endings (activation,
// gate, residual, rounding, scales) are bit for bit what their definition makes of the sums.
#ifndef SIE_KERNELS_TESTS_CUDA_GEMM_CHECK_H
#define SIE_KERNELS_TESTS_CUDA_GEMM_CHECK_H

#include <vector>

#include "tests/cuda/gemm_problem.h"

namespace gemm_test {

// A family of variants: how to run one, and on what device.
struct Family {
  sie_status (*run)(int32_t variant, const sie_linear_args *args, const sie_stream *on);
  sie_stream on;
};

// Runs the table's entry, which chooses a variant itself.
constexpr int32_t by_choice = -1;

struct Result {
  sie_status status = SIE_OK;
  std::vector<float> y;      // [n_rows, columns], widened
  std::vector<float> scale;  // y in e4m3: [n_rows, blocks]
};

const char *class_name(uint32_t compute);
sie_status call(const Family &family, int32_t variant, const sie_linear_args *args, const sie_stream *on);
Result run(const Family &family, const Problem &problem, const Ending &e, int32_t variant);
bool same_bits(const Result &a, const Result &b);
// y in f32 and no residual: every element against double.
void check_sums(const Problem &problem, const Ending &e, const Result &result, int32_t variant);
// The ending against the variant's own sums; returns the result.
Result check_ending(const Family &family, const Problem &problem, const Ending &e, int32_t variant);
// Every activation with residuals and outputs in turn, every gate with every output; for y of 150
// columns.
std::vector<Ending> activation_endings();
std::vector<Ending> gate_endings();
// A NaN in x gives a row of NaN and changes no other row.
void check_nan_stays_in_its_row(const Family &family, uint32_t compute, const std::vector<int32_t> &variants);
// Blocks of y in e4m3 whose largest element is 448 times the least scale there is, 2⁻¹⁰⁰.
void check_least_scale(const Family &family, int32_t variant);
// Arguments outside the contract (gemm_call.h) come back with their status and nothing written.
void check_refusals(const Family &family);

}  // namespace gemm_test

#endif  // SIE_KERNELS_TESTS_CUDA_GEMM_CHECK_H
