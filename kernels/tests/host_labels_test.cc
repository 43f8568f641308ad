// host_labels_test.cc — on every CPU table: pooling of sums and sizes, and the softmax over a
// sequence's rows, against their definitions in double.
#include <math.h>
#include <string.h>

#include "harness.h"

using namespace harness;

namespace {

constexpr int64_t widest = 70, wide_ld = widest + 3, narrow_ld = 3;
const std::vector<int32_t> lengths = {7, 1, 0, 33, 2, 130, 8, 9, 64};
const int32_t seqs = static_cast<int32_t>(lengths.size());

std::vector<int32_t> offsets() {
  std::vector<int32_t> cu = {0};
  for (int32_t n : lengths) cu.push_back(cu.back() + n);
  return cu;
}

std::vector<const sie_ops *> tables() {
  std::vector<const sie_ops *> all;
  for (const sie_ops *ops : backends()) {
    if (stream_of(ops) == nullptr) all.push_back(ops);
  }
  return all;
}

sie_tensor of(float *p, int64_t ld, int32_t dtype = SIE_F32) {
  sie_tensor t = {};
  t.p = p, t.ld = ld, t.dtype = dtype;
  return t;
}

sie_share whole() {
  alignas(64) static char scratch[1 << 14];
  return {0, 1, scratch, sizeof scratch, nullptr};
}

double pooled(int32_t mode, const float *x, int64_t rows) {
  double sum = 0, squares = 0, sizes = 0, largest = 0;
  for (int64_t r = 0; r < rows; r++) {
    const double v = static_cast<double>(x[r * wide_ld]);
    sum += v, squares += v * v, sizes += fabs(v), largest = fmax(largest, fabs(v));
  }
  const double n = static_cast<double>(rows < 1 ? 1 : rows);
  if (mode == SIE_POOL_SUM) return sum;
  if (mode == SIE_POOL_ABS_MAX) return largest;
  return mode == SIE_POOL_RMS ? sqrt(squares / n) : sizes / n;
}

void check_pool(const sie_ops *ops, int32_t mode, int64_t c, bool by_sequence) {
  const std::vector<int32_t> cu = offsets();
  Random random(71);
  std::vector<float> x(static_cast<size_t>(cu.back() * wide_ld)), y(static_cast<size_t>(seqs * wide_ld), NAN);
  for (float &v : x) v = random.real();
  sie_pool_args a = {};
  a.seqs = {seqs, &seqs};
  a.cu_seqlens = by_sequence ? nullptr : cu.data();
  a.mode = mode, a.c = c;
  a.x = of(x.data(), wide_ld), a.y = of(y.data(), wide_ld);
  const sie_share share = whole();
  CHECK(ops->pool(&a, &share) == SIE_OK, "%s: mode %d is refused", ops->name, mode);
  for (int32_t b = 0; b < seqs; b++) {
    const int64_t first = by_sequence ? b : cu[static_cast<size_t>(b)];
    const int64_t rows = by_sequence ? 1 : lengths[static_cast<size_t>(b)];
    for (int64_t i = 0; i < c; i++) {
      const double want = pooled(mode, x.data() + first * wide_ld + i, rows);
      const double got = static_cast<double>(y[static_cast<size_t>(b * wide_ld + i)]);
      CHECK(fabs(got - want) <= 1e-5 * fmax(1, fabs(want)),
            "%s: mode %d of %lld columns: y[%d, %lld] = %g, %g expected", ops->name, mode,
            static_cast<long long>(c), b, static_cast<long long>(i), got, want);
    }
    CHECK(isnan(y[static_cast<size_t>(b * wide_ld + c)]), "%s: mode %d writes beyond its columns", ops->name,
          mode);
  }
}

sie_status softmax(const sie_ops *ops, const std::vector<int32_t> &cu, float *x, float *y,
                   int32_t dtype = SIE_F32) {
  const int32_t n = static_cast<int32_t>(cu.size()) - 1;
  sie_softmax_args a = {};
  a.rows = {cu.back(), &cu.back()};
  a.seqs = {n, &n};
  a.cu_seqlens = cu.data();
  a.scale = 4;
  a.x = of(x, narrow_ld), a.y = of(y, narrow_ld, dtype);
  const sie_share share = whole();
  return ops->softmax(&a, &share);
}

}  // namespace

TEST(host_pools_of_sums_and_sizes) {
  for (const sie_ops *ops : tables()) {
    for (int32_t mode : {SIE_POOL_SUM, SIE_POOL_RMS, SIE_POOL_ABS_MAX, SIE_POOL_ABS_MEAN}) {
      for (int64_t c : {int64_t{1}, int64_t{7}, int64_t{8}, int64_t{33}, widest}) {
        check_pool(ops, mode, c, false);
        check_pool(ops, mode, c, true);
      }
    }
  }
}

// Scores far apart and equal ones; the bits of a sequence are its own.
TEST(host_softmax_over_rows) {
  const std::vector<int32_t> cu = offsets();
  Random random(72);
  std::vector<float> x(static_cast<size_t>(cu.back() * narrow_ld));
  for (float &v : x) v = 10 * random.real();
  x[0] = 1e30f, x[narrow_ld] = -1e30f;
  for (int32_t r = cu[3]; r < cu[4]; r++) x[static_cast<size_t>(r * narrow_ld)] = 2;
  for (const sie_ops *ops : tables()) {
    std::vector<float> y(x.size(), NAN), alone(x.size());
    CHECK(softmax(ops, cu, x.data(), y.data()) == SIE_OK, "%s: softmax is refused", ops->name);
    for (size_t b = 0; b < lengths.size(); b++) {
      const int64_t first = cu[b] * narrow_ld;
      softmax(ops, {0, lengths[b]}, x.data() + first, alone.data() + first);
      double largest = -INFINITY, sum = 0;
      auto score = [&](int32_t r) { return 4 * static_cast<double>(x[static_cast<size_t>(r * narrow_ld)]); };
      for (int32_t r = cu[b]; r < cu[b + 1]; r++) largest = fmax(largest, score(r));
      for (int32_t r = cu[b]; r < cu[b + 1]; r++) sum += exp(score(r) - largest);
      for (int32_t r = cu[b]; r < cu[b + 1]; r++) {
        const size_t at = static_cast<size_t>(r * narrow_ld);
        const double want = exp(score(r) - largest) / sum, got = static_cast<double>(y[at]);
        CHECK(fabs(got - want) <= 3e-5 * want + 1e-37, "%s: y[%d] = %g, %g expected", ops->name, r, got,
              want);
        CHECK(memcmp(&y[at], &alone[at], sizeof y[at]) == 0, "%s: y[%d] depends on other sequences",
              ops->name, r);
        CHECK(isnan(y[at + 1]), "%s: softmax writes beyond its column", ops->name);
      }
    }
    CHECK(softmax(ops, cu, x.data(), y.data(), SIE_BF16) == SIE_UNSUPPORTED, "%s: to bf16", ops->name);
  }
}

// The largest score is taken off before e to its power: the scale may be large where scores are small.
// What follows the last sequence is no part of it.
TEST(host_softmax_of_small_scores) {
  for (const sie_ops *ops : tables()) {
    float x[3 * narrow_ld] = {}, y[3 * narrow_ld];
    x[0] = 0.5e-4f, x[narrow_ld] = -0.5e-4f, x[2 * narrow_ld] = 1e30f;
    for (float &v : y) v = 7;
    const int32_t cu[] = {0, 2, 3}, rows = 2, one = 1;
    sie_softmax_args a = {{rows, &rows}, {1, &one}, cu, 1e4f, 0, of(x, narrow_ld), of(y, narrow_ld)};
    const sie_share share = whole();
    CHECK(ops->softmax(&a, &share) == SIE_OK, "%s: softmax is refused", ops->name);
    const double want = 1 / (1 + exp(-1)), got = static_cast<double>(y[0]);
    CHECK(fabs(got - want) < 1e-5, "%s: y[0] = %g, %g expected", ops->name, got, want);
    CHECK(y[2 * narrow_ld] == 7, "%s: softmax writes behind its sequences", ops->name);
  }
}
