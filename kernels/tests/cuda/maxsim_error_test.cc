// maxsim_error_test.cc — how far MaxSim's products in parts of bf16 are from those in double.
#include <math.h>

#include "common/tol.h"
#include "tests/cuda/operands.h"
#include "tests/row_input.h"

using namespace calls;

namespace {

constexpr int64_t seqs = 64, width = 128;

// The largest error of a product, as a share of ‖q‖·‖d‖: sequences of one row, and one query row.
double largest_error(const Gpu &gpu, int32_t dtype) {
  Random random(4711);
  Rows x(&random, aligned, seqs, width, dtype), y(&random, aligned, seqs, 1, SIE_F32);
  fill(&x, &random, plain);
  Array<float> q;
  for (int64_t i = 0; i < width; i++) q.push_back(random.real());
  Array<int32_t> cu, partner(seqs, 0), n = {seqs}, cu_queries = {0, 1};
  for (int32_t b = 0; b <= seqs; b++) cu.push_back(b);
  sie_maxsim_args a = {};
  a.rows = a.seqs = {seqs, n.data()};
  a.cu_seqlens = cu.data();
  a.c = width;
  a.x = x.tensor();
  a.queries = q.data();
  a.cu_queries = cu_queries.data();
  a.partner = partner.data();
  a.y = y.tensor();
  Scratch scratch(gpu.ops, {});
  sie_share share = scratch.share(0, 1);
  share.on = &gpu.on;
  CHECK(gpu.ops->maxsim(&a, &share) == SIE_OK && memory.finish(&gpu.on) == SIE_OK, "%s: refused",
        gpu.ops->name);
  double largest = 0;
  for (int64_t b = 0; b < seqs; b++) {
    double dot = 0, qs = 0, ds = 0;
    for (int64_t i = 0; i < width; i++) {
      const double v = static_cast<double>(q[static_cast<size_t>(i)]), w = x.get(b, i);
      dot += v * w, qs += v * v, ds += w * w;
    }
    largest = fmax(largest, fabs(y.get(b, 0) - dot) / sqrt(qs * ds));
  }
  return largest;
}

}  // namespace

// Without one of its products f16 and f32 would be off by 3e-4. On the emulator the largest error of 512 products is 1.4e-7
// in bf16, 8.9e-7 in f16 and 1.1e-6 in f32.
TEST(maxsim_error_is_that_of_its_parts) {
  for (const Gpu &gpu : gpus()) {
    for (int32_t dtype : {SIE_BF16, SIE_F16, SIE_F32}) {
      const double error = largest_error(gpu, dtype),
                   bound = sie_tol_dot(width, 1, 1) + (dtype == SIE_BF16 ? 0 : 3 * ldexp(1, -16));
      CHECK(error <= bound, "%s: %s: off by %.3g of the norms, %.3g allowed", gpu.ops->name,
            dtype_text(dtype), error, bound);
    }
  }
}
