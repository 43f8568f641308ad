// norm_order_test.cc — layernorm of 257 … 1,024 columns under emulation, bit for bit against the order of sums
// that norm_order.cuh states, written out again on whole rows.
#include "cuda/norm_order.cuh"

#include <math.h>

#include <algorithm>
#include <vector>

#include "common/dtype.h"
#include "cuda/rows.h"
#include "tests/check.h"
#include "tests/cuda/gemm_problem.h"

namespace {

using gemm_test::load;
using gemm_test::Random;
using gemm_test::store;

// The sum over a row of c columns; squared: of x². The octets of a group are o, o + 8, o + 16 of `octets`, of which
// those behind the row are left out.
float sum_of(const std::vector<float> &x, bool squared) {
  const size_t octets = x.size() / 8;
  auto pair = [&](size_t octet, size_t t) {
    const float a = x[8 * octet + 2 * t], b = x[8 * octet + 2 * t + 1];
    return squared ? fmaf(b, b, a * a) : a + b;
  };
  // The octets in the order in which they are added, by group and by place among eight.
  auto list = [&](size_t group, size_t o) {
    std::vector<std::vector<size_t>> sums;
    if (octets > 96) {
      sums = {{16 * group + o, 16 * group + 8 + o}};
    } else if (octets > 64) {
      sums = {{24 * group + o, 24 * group + 16 + o}, {24 * group + 8 + o}};
    } else {
      sums = {{24 * group + o, 24 * group + 16 + o}, {24 * group + 8 + o, 48 + 8 * group + o}};
    }
    return sums;
  };
  auto add = [](float *sum, bool *any, float more) {
    *sum = *any ? *sum + more : more;
    *any = true;
  };
  const size_t groups = octets > 96 ? 8 : (octets > 64 ? 4 : 2);
  std::vector<float> of_group(groups);
  for (size_t g = 0; g < groups; g++) {
    float quad[4];
    for (size_t t = 0; t < 4; t++) {
      float eight[8];
      for (size_t o = 0; o < 8; o++) {
        float all = squared ? 0.0f : -0.0f;
        bool any_all = false;
        for (const std::vector<size_t> &part : list(g, o)) {
          float some = -0.0f;
          bool any = false;
          for (size_t octet : part) {
            if (octet < octets) add(&some, &any, pair(octet, t));
          }
          if (any) add(&all, &any_all, some);
        }
        eight[o] = all;
      }
      quad[t] =
          ((eight[0] + eight[1]) + (eight[2] + eight[3])) + ((eight[4] + eight[5]) + (eight[6] + eight[7]));
    }
    of_group[g] = (quad[0] + quad[1]) + (quad[2] + quad[3]);
  }
  while (of_group.size() > 1) {
    for (size_t g = 0; g < of_group.size() / 2; g++) of_group[g] = of_group[2 * g] + of_group[2 * g + 1];
    of_group.resize(of_group.size() / 2);
  }
  return of_group[0];
}

// A row's norm from its elements in f32.
std::vector<float> norm_of(const std::vector<float> &x, const sie_layernorm_args &a) {
  const float c = static_cast<float>(x.size());
  const float mean = a.norm == SIE_NORM_LAYER ? sum_of(x, false) / c : 0.0f;
  std::vector<float> d(x.size()), y(x.size());
  for (size_t i = 0; i < x.size(); i++) d[i] = x[i] - mean;
  const float factor = 1.0f / sqrtf(sum_of(d, true) / c + a.eps);
  for (size_t i = 0; i < x.size(); i++)
    y[i] = fmaf(d[i] * factor, a.weight_offset + a.gamma[i], a.beta != nullptr ? a.beta[i] : 0.0f);
  return y;
}

// Rows of c columns, whose strides keep 16-byte accesses or leave none; y goes where x is.
void check_rows(int64_t c, int32_t type, int32_t norm, bool aligned, bool beta, int32_t sm) {
  constexpr int32_t rows = 11;
  const int64_t ld = c + (aligned ? 8 : 3), bytes = gemm_test::element_bytes(type);
  std::vector<uint8_t> memory(static_cast<size_t>(rows * ld * bytes + 64), 0xff);
  uint8_t *p = memory.data() + (16 - reinterpret_cast<uintptr_t>(memory.data()) % 16) % 16;
  std::vector<float> vectors(static_cast<size_t>(2 * c + 8));
  float *gamma = vectors.data() + (16 - reinterpret_cast<uintptr_t>(vectors.data()) % 16) % 16 / 4,
        *betas = gamma + c;
  Random random(static_cast<uint32_t>(c + type + norm));
  for (int64_t i = 0; i < c; i++) gamma[i] = random.real(), betas[i] = random.real();
  std::vector<std::vector<float>> x(rows, std::vector<float>(static_cast<size_t>(c)));
  for (int32_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < c; i++) {
      // Large and small ones, so that an order shows; a row of −0 alone, whose sum has a sign.
      const float v = r == 7 ? -0.0f : ldexpf(random.real(), static_cast<int>(random.next() % 12));
      store(type, p + r * ld * bytes, i, v);
      x[static_cast<size_t>(r)][static_cast<size_t>(i)] = load(type, p + r * ld * bytes, i);
      if (r == 7) betas[i] = i % 2 == 0 ? betas[i] : -0.0f;
    }
  }
  sie_layernorm_args a = {};
  a.rows = {rows, &rows};
  a.c = c;
  a.x = a.y = {p, ld, type, 0, nullptr, nullptr, nullptr};
  a.gamma = gamma;
  a.beta = beta ? betas : nullptr;
  a.eps = 1e-6f;
  a.norm = norm;
  a.weight_offset = norm == SIE_NORM_RMS ? 1.0f : 0.0f;
  const sie_stream on = {nullptr, sm, 2, 0, 0};
  const sie_share share = {0, 1, nullptr, 0, &on};
  const sie_status status = sie_cuda::layernorm(&a, &share);
  CHECK(status == SIE_OK, "C=%d: status %d", static_cast<int>(c), status);
  for (int32_t r = 0; r < rows; r++) {
    const std::vector<float> want = norm_of(x[static_cast<size_t>(r)], a);
    for (int64_t i = 0; i < c; i++) {
      float rounded = 0;
      store(type, &rounded, 0, want[static_cast<size_t>(i)]);
      const float y = load(type, p + r * ld * bytes, i), expected = load(type, &rounded, 0);
      CHECK(memcmp(&y, &expected, sizeof y) == 0, "C=%d type %d norm %d row %d column %d: %.9g, not %.9g",
            static_cast<int>(c), type, norm, r, static_cast<int>(i), static_cast<double>(y),
            static_cast<double>(expected));
    }
  }
}

TEST(norm_order_of_linears) {
  for (int64_t c : {384, 768, 1024}) {
    for (int32_t type : {SIE_BF16, SIE_F16, SIE_F32}) {
      for (int32_t norm : {SIE_NORM_LAYER, SIE_NORM_RMS}) check_rows(c, type, norm, true, true, 90);
    }
    check_rows(c, SIE_BF16, SIE_NORM_LAYER, false, true, 80);
    check_rows(c, SIE_BF16, SIE_NORM_LAYER, true, false, 80);
  }
}

TEST(norm_order_of_other_rows) {
  // The first and last columns of each number of octets a lane, and groups that end inside.
  for (int64_t c : {264, 320, 392, 448, 512, 520, 648, 760, 776, 904, 1016}) {
    check_rows(c, SIE_BF16, SIE_NORM_LAYER, true, true, 80);
    check_rows(c, SIE_F32, SIE_NORM_LAYER, false, true, 80);
  }
}

}  // namespace
