// gemm_epilogue_test.cc — the steps of an epilogue one by one; kernels must agree on them bit for
// bit.
#include "cuda/gemm_epilogue.cuh"

#include <math.h>

#include <vector>

#include "common/dtype.h"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/launch.h"
#include "tests/check.h"
#include "tests/cuda/gemm_problem.h"

namespace {

using gemm_test::Bytes;

// One row of 100 columns by two calls: what lies behind the last column neither counts nor is
// stored.
__global__ void store_run_kernel(sie_cuda::GemmEpilogue e, const float *x) {
  ptx::grid_dependency_wait();
  const int32_t lane = static_cast<int32_t>(threadIdx.x), column = lane % 16 * 8;
  float v[8];
  for (int32_t i = 0; i < 8; i++) v[i] = column + i < e.columns ? x[column + i] : 1e6f;
  gemm_store_run(e, 0, column, lane < 16, v);
}

TEST(gemm_epilogue_elements) {
  std::vector<float> x(100);
  gemm_test::Random random(5);
  for (float &value : x) value = random.real();
  float scale = NAN;
  Bytes y(100);
  sie_cuda::GemmEpilogue e = {};
  e.y = y.p();
  e.y_scale = &scale;
  e.y_ld = e.columns = e.n = 100;
  e.y_scale_ld = 1;
  e.y_type = SIE_F8E4M3;
  e.wide = sie_cuda::GEMM_WIDE_Y;
  const sie_stream on = {nullptr, 90, 132, 1, 0};
  CHECK(SIE_LAUNCH(store_run_kernel, 1, 32, 0, &on, e, x.data()) == SIE_OK, "%s", "not launched");
  float most = 0;
  for (float value : x) most = fmaxf(most, fabsf(value));
  CHECK(scale == sie_f8_scale(most), "scale %g", static_cast<double>(scale));
  for (size_t i = 0; i < 100; i++) {
    CHECK(y.p()[i] == sie_f8e4m3_from_f32(x[i] * (1 / scale)), "y[%zu] = %02x", i, y.p()[i]);
  }
  // The order of roundings is the contract: kernels agree on it bit for bit.
  int64_t other = 0;
  for (int i = 0; i < 1000; i++) {
    float total = random.real(), row = random.real(), column = random.real(), bias = random.real();
    float z = sie_cuda::gemm_z_scaled(total, row, column, bias), rows_first = total * row;
    CHECK(z == rows_first * column + bias, "gemm_z_scaled of %g", static_cast<double>(total));
    CHECK(sie_cuda::gemm_promote(row, column, total) == fmaf(row, column, total), "%s", "gemm_promote");
    CHECK(sie_cuda::gemm_z(total, bias) == total + bias, "%s", "gemm_z");
    other += z != total * (row * column) + bias;
  }
  CHECK(other > 0, "%s", "the other order is never different");
  CHECK(sie_cuda::e4m3_scale(0) == 1 && sie_cuda::e4m3_scale(448) == 1 && sie_cuda::e4m3_scale(1e-30f) == 1 &&
            sie_cuda::e4m3_scale(896) == 2,
        "%s", "e4m3_scale");
  const float least = 7.888609052210118e-31f;  // 2⁻¹⁰⁰, the least scale there is
  CHECK(sie_cuda::e4m3_scale(448 * least) == least && sie_cuda::e4m3_scale(447 * least) == 1, "%s",
        "e4m3_scale at its end");
}

}  // namespace
