// product_test.cc — the linears of the lowest tables against their definitions, bit for bit: a chain
// of FMAs in class F32, exact sums in class INT8. Ragged shapes, some of them in shares.
#include <math.h>
#include <stdlib.h>

#include <vector>

#include "cpu/isa.h"
#include "cpu/kernels_int8.h"
#include "tests/check.h"
#include "tests/random.h"

namespace {

using namespace sie_cpu;
using namespace sie_cpu::SIE_ISA_NS;

struct Shape {
  int64_t rows, n, k;
};
const Shape shapes[] = {{1, 1, 1},     {1, 8, 3},    {2, 15, 64}, {3, 16, 65},  {4, 17, 63},
                        {5, 31, 130},  {6, 32, 7},   {7, 33, 64}, {8, 40, 100}, {11, 48, 19},
                        {13, 64, 256}, {29, 70, 77}, {37, 24, 5}, {6, 96, 1},   {12, 8, 192}};

// Memory on a line, so that tables may read it as packed.
struct Block {
  explicit Block(int64_t bytes) : p(aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64))) {
    memset(p, 0, static_cast<size_t>((bytes + 127) / 64 * 64));
  }
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;
  ~Block() { free(p); }
  void *p;
};

std::vector<float> numbers(harness::Random *random, int64_t count) {
  std::vector<float> all(static_cast<size_t>(count));
  for (float &x : all) x = random->real();
  return all;
}

size_t at(int64_t r, int64_t ld, int64_t i) { return static_cast<size_t>(r * ld + i); }

// Calls the linear in `parts` shares, each with scratch of its own.
void call(LinearFn linear, const sie_linear_args &args, int32_t parts, int64_t scratch_bytes) {
  for (int32_t part = 0; part < parts; part++) {
    Block scratch(scratch_bytes);
    const sie_share share = {part, parts, scratch.p, scratch_bytes, nullptr};
    const sie_status status = linear(&args, &share);
    CHECK(status == SIE_OK, "status %d", status);
  }
}

void check_rows(const char *name, const Shape &s, int32_t parts, const std::vector<float> &got,
                const std::vector<float> &want, int64_t ld) {
  for (int64_t r = 0; r < s.rows; r++) {
    for (int64_t i = 0; i < ld; i++) {
      const float g = got[at(r, ld, i)], w = want[at(r, ld, i)];
      CHECK(memcmp(&g, &w, 4) == 0, "%s %dx%dx%d in %d shares: row %d column %d is %a, not %a", name,
            static_cast<int>(s.rows), static_cast<int>(s.n), static_cast<int>(s.k), parts,
            static_cast<int>(r), static_cast<int>(i), static_cast<double>(g), static_cast<double>(w));
    }
  }
}

}  // namespace

TEST(product_f32_is_a_chain_of_fmas) {
  harness::Random random(3);
  for (const Shape &s : shapes) {
    for (const bool residual : {false, true}) {
      const std::vector<float> x = numbers(&random, s.rows * s.k), w = numbers(&random, s.n * s.k),
                               bias = numbers(&random, s.n), more = numbers(&random, s.rows * s.n);
      const int64_t ld = s.n + 3;
      std::vector<float> want(static_cast<size_t>(s.rows * ld), 77.0f);
      for (int64_t r = 0; r < s.rows; r++) {
        for (int64_t n = 0; n < s.n; n++) {
          float sum = 0.0f;
          for (int64_t k = 0; k < s.k; k++) sum = fmaf(x[at(r, s.k, k)], w[at(n, s.k, k)], sum);
          sum = sum + bias[static_cast<size_t>(n)];
          want[at(r, ld, n)] = residual ? sum + more[at(r, s.n, n)] : sum;
        }
      }
      Block packed(linear_f32_packed_bytes(s.n, s.k));
      linear_f32_pack(s.n, s.k, 0, s.n, w.data(), s.k, packed.p);
      const sie_packed weight = {SIE_COMPUTE_F32, 0, s.n, s.k, packed.p};
      for (const int32_t parts : {1, 2, 5}) {
        std::vector<float> got(want.size(), 77.0f);
        const int32_t rows = static_cast<int32_t>(s.rows);
        sie_linear_args args = {};
        args.rows = {s.rows, &rows};
        args.n = s.n, args.k = s.k, args.w = &weight, args.bias = bias.data();
        args.x.p = const_cast<float *>(x.data()), args.x.ld = s.k, args.x.dtype = SIE_F32;
        args.y.p = got.data(), args.y.ld = ld, args.y.dtype = SIE_F32;
        if (residual)
          args.residual.p = const_cast<float *>(more.data()), args.residual.ld = s.n,
          args.residual.dtype = SIE_F32;
        call(linear_f32, args, parts, 64);
        check_rows("f32", s, parts, got, want, ld);
      }
    }
  }
}

TEST(product_int8_is_exact) {
  const struct {
    const char *name;
    LinearFn linear;
    bool runs;
  } linears[] = {
#if defined(__aarch64__)
      {"neon", linear_int8_neon, true},
      {"dot", linear_int8_dot, sie_cpu_detect() >= SIE_ISA_NEON_DOT},
#else
      {"avx2", linear_int8_avx2, true},
#endif
  };
  harness::Random random(5);
  for (const Shape &s : shapes) {
    for (const int kind : {0, 1, 2}) {  // all kinds of numbers, with outliers, and the largest of all
      std::vector<uint8_t> x(static_cast<size_t>(s.rows * s.k));
      std::vector<float> w = numbers(&random, s.n * s.k), bias = numbers(&random, s.n),
                         scale = numbers(&random, s.rows);
      std::vector<int32_t> zero(static_cast<size_t>(s.rows));
      std::vector<sie_outlier> outlier(static_cast<size_t>(s.rows));
      for (uint8_t &q : x) q = kind == 2 ? 255 : static_cast<uint8_t>(random.below(256));
      for (float &v : w) v = kind == 2 ? (random.below(2) != 0 ? 1.0f : -1.0f) : v;
      for (int32_t &z : zero) z = random.below(256);
      for (sie_outlier &o : outlier)
        o = {random.below(static_cast<int32_t>(s.k)), random.below(60000) - 30000};
      const int64_t ld = s.n + 1;
      std::vector<float> want(static_cast<size_t>(s.rows * ld), 77.0f);
      for (int64_t n = 0; n < s.n; n++) {
        float most = 0.0f;
        for (int64_t k = 0; k < s.k; k++) most = fmaxf(most, fabsf(w[at(n, s.k, k)]));
        const float unit = most > 0.0f ? most / 127.0f : 1.0f;
        for (int64_t r = 0; r < s.rows; r++) {
          const size_t row = static_cast<size_t>(r);
          int64_t sum = 0;
          for (int64_t k = 0; k < s.k; k++) {
            const float q = nearbyintf(w[at(n, s.k, k)] / unit);
            const int64_t level = static_cast<int64_t>(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
            sum += (int64_t{x[at(r, s.k, k)]} - zero[row]) * level;
            if (kind == 1 && outlier[row].column == k) sum += outlier[row].excess * level;
          }
          want[at(r, ld, n)] = fmaf(static_cast<float>(sum), scale[row] * unit, bias[static_cast<size_t>(n)]);
        }
      }
      Block packed(int8_packed_bytes(s.n, s.k));
      int8_pack(s.n, s.k, 0, s.n, w.data(), s.k, packed.p);
      const sie_packed weight = {SIE_COMPUTE_INT8, 0, s.n, s.k, packed.p};
      sie_op_bounds bounds = {};
      bounds.rows = s.rows, bounds.n = s.n, bounds.k = s.k;
      for (const auto &l : linears) {
        for (const int32_t parts : {1, 3}) {
          if (!l.runs) continue;
          std::vector<float> got(want.size(), 77.0f);
          const int32_t rows = static_cast<int32_t>(s.rows);
          sie_linear_args args = {};
          args.rows = {s.rows, &rows};
          args.n = s.n, args.k = s.k, args.w = &weight, args.bias = bias.data();
          args.x.p = x.data(), args.x.ld = s.k, args.x.dtype = SIE_U8, args.x.scale_group = -1;
          args.x.scale = scale.data(), args.x.zero = zero.data();
          args.x.outlier = kind == 1 ? outlier.data() : nullptr;
          args.y.p = got.data(), args.y.ld = ld, args.y.dtype = SIE_F32;
          call(l.linear, args, parts, linear_int8_scratch(&bounds));
          check_rows(l.name, s, parts, got, want, ld);
        }
      }
    }
  }
}
