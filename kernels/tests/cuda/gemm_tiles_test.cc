// gemm_tiles_test.cc — the choice of a variant: a line of the table before the estimate, and which
// lines fit.
#include "cuda/gemm_tiles.h"

#include "tests/check.h"

namespace {

using sie_cuda::GemmTile;

// Three variants; the second is estimated fastest, `refused` cannot do the call.
struct Family {
  static constexpr int32_t count = 3;
  int32_t refused = -1;
  const char *name(int32_t i) const {
    static const char *const names[] = {"small", "middle", "large"};
    return names[i];
  }
  bool takes(int32_t i) const { return i != refused; }
  int64_t clocks(int32_t i) const { return i == 1 ? 10 : 20; }
};

struct Nothing {
  static constexpr int32_t count = 0;
  const char *name(int32_t) const { return ""; }
  bool takes(int32_t) const { return true; }
  int64_t clocks(int32_t) const { return 0; }
};

const GemmTile tiles[] = {
    {90, SIE_COMPUTE_BF16, 768, 384, 64, 512, "large"},
    {90, SIE_COMPUTE_BF16, 768, 384, 64, 512, "small"},
    {86, SIE_COMPUTE_BF16, 768, 384, 0, 1024, "small"},
    {0, 0, 0, 0, 0, 0, nullptr},
};

int32_t choose(int32_t sm, int64_t rows, int64_t n = 768, int64_t k = 384,
               uint32_t compute = SIE_COMPUTE_BF16, const Family &family = Family()) {
  sie_packed weight = {};
  weight.compute = compute;
  sie_linear_args a = {};
  a.w = &weight;
  a.n = n;
  a.k = k;
  a.rows.cap = rows;
  return sie_cuda::gemm_choose(family, tiles, a, {nullptr, sm, 2, 0, 0});
}

TEST(gemm_tiles_lines_come_first) {
  const struct {
    int32_t sm;
    int64_t rows, n, k;
    uint32_t compute;
    int32_t want;
    const char *what;
  } cases[] = {
      {90, 65, 768, 384, SIE_COMPUTE_BF16, 2, "the first row of the line"},
      {90, 512, 768, 384, SIE_COMPUTE_BF16, 2, "its last"},
      {90, 64, 768, 384, SIE_COMPUTE_BF16, 1, "one row less"},
      {90, 513, 768, 384, SIE_COMPUTE_BF16, 1, "one row more"},
      {90, 100, 769, 384, SIE_COMPUTE_BF16, 1, "another N"},
      {90, 100, 768, 385, SIE_COMPUTE_BF16, 1, "another K"},
      {90, 100, 768, 384, SIE_COMPUTE_F16, 1, "another class"},
      {86, 100, 768, 384, SIE_COMPUTE_BF16, 0, "another card's line"},
      {80, 100, 768, 384, SIE_COMPUTE_BF16, 1, "a card without lines"},
  };
  for (const auto &c : cases) {
    const int32_t got = choose(c.sm, c.rows, c.n, c.k, c.compute);
    CHECK(got == c.want, "%s: variant %d, not %d", c.what, got, c.want);
  }
}

TEST(gemm_tiles_that_cannot_are_passed_over) {
  CHECK(choose(90, 100, 768, 384, SIE_COMPUTE_BF16, {2}) == 0, "%s", "the second line is not taken");
  CHECK(choose(80, 100, 768, 384, SIE_COMPUTE_BF16, {1}) == 0, "%s", "not the first of equal estimates");
  const sie_linear_args none = {};
  CHECK(sie_cuda::gemm_choose(Nothing(), tiles + 3, none, {}) == -1, "%s", "a variant out of none");
}

}  // namespace
