// gemm_sm90_norm_test.cc — linear_norm by one kernel under emulation: every form bit for bit against linear and
// layernorm, one behind the other, and what the forms take.
#include "cuda/gemm_sm90_norm.h"

#include <string.h>

#include <vector>

#include "cuda/gemm_sm90.h"
#include "cuda/rows.h"
#include "simt/simt.h"
#include "tests/check.h"
#include "tests/cuda/gemm_check.h"

namespace {

using gemm_test::Bytes;
using gemm_test::Ending;
using gemm_test::Problem;
using gemm_test::Random;
using gemm_test::Shape;
using sie_cuda::gemm_sm90_norm_form;

// What a call has beside its shape.
struct Extras {
  bool bias = true, beta = true, in_place = true;
  float weight_offset = 0, eps = 1e-12f;
  int64_t gap = 0, residual_gap = 0;  // elements between rows
  int32_t multiprocessors = 1;        // one cluster has all tiles
};

// γ, β, and a bias whose mean is far from 0, so that the order in which rows are summed shows in the difference.
struct Vectors {
  Bytes bias, gamma, beta;
  explicit Vectors(int64_t n) : bias(n * 4), gamma(n * 4), beta(n * 4) {
    Random random(static_cast<uint32_t>(n));
    for (int64_t i = 0; i < n; i++) {
      at(bias)[i] = 200.0f + random.real();
      at(gamma)[i] = 1.0f + random.real();
      at(beta)[i] = random.real();
    }
  }
  static float *at(const Bytes &of) { return reinterpret_cast<float *>(of.p()); }
};

Ending ending_of(uint32_t compute, const Extras &x) {
  Ending e;
  e.y = e.residual = compute == SIE_COMPUTE_F16 ? SIE_F16 : SIE_BF16;
  e.gap = x.gap;
  e.residual_gap = x.residual_gap;
  e.in_place = x.in_place;
  return e;
}

// The arguments, with y and the residual from the caller.
sie_linear_norm_args args_of(const Problem &problem, const Vectors &vectors, const Extras &x, const Bytes &y,
                             const Bytes &residual, const int32_t *rows) {
  sie_linear_norm_args a = {};
  a.linear = problem.args(ending_of(problem.shape().compute, x), y, residual, nullptr);
  a.linear.rows.n = rows;
  a.linear.bias = x.bias ? Vectors::at(vectors.bias) : nullptr;
  a.norm.rows = a.linear.rows;
  a.norm.c = a.linear.n;
  a.norm.x = a.norm.y = a.linear.y;
  a.norm.gamma = Vectors::at(vectors.gamma);
  a.norm.beta = x.beta ? Vectors::at(vectors.beta) : nullptr;
  a.norm.eps = x.eps;
  a.norm.weight_offset = x.weight_offset;
  a.norm.norm = SIE_NORM_LAYER;
  return a;
}

constexpr int32_t two_kernels = -1;

// All bytes of y behind the call; form: or two_kernels. Bytes of no element and of rows that are not there begin as
// 0xff.
std::vector<uint8_t> run(const Problem &problem, const Vectors &vectors, const Extras &x, int32_t form) {
  const Shape &s = problem.shape();
  const Ending e = ending_of(s.compute, x);
  const Bytes y(problem.bytes(e, problem.y_ld(e), e.y));
  const Bytes apart(x.in_place ? 0 : problem.bytes(e, problem.residual_ld(e), e.residual));
  const Bytes &residual = x.in_place ? y : apart;
  problem.fill_residual(e, residual);
  const int32_t rows = static_cast<int32_t>(s.n_rows);
  const sie_linear_norm_args a = args_of(problem, vectors, x, y, residual, &rows);
  const sie_stream on = {nullptr, 90, x.multiprocessors, 1, 0};
  const sie_share share = {0, 1, nullptr, 0, &on};
  simt::written_before(a.linear.x.p,
                       s.cap > 0 ? static_cast<size_t>(((s.cap - 1) * a.linear.x.ld + s.k) * 2) : 0);
  sie_status status;
  if (form == two_kernels) {
    status = sie_cuda::gemm_sm90_run(2, &a.linear, &on);
    if (status == SIE_OK) status = sie_cuda::layernorm(&a.norm, &share);
  } else {
    status = sie_cuda::gemm_sm90_norm_run(form, &a, &on);
  }
  simt::written_before(nullptr, 0);
  CHECK(status == SIE_OK, "form %d: status %d", form, status);
  return std::vector<uint8_t>(y.p(), y.p() + y.size());
}

// All forms of so wide a row, against the two kernels.
void check_shape(uint32_t compute, int64_t rows, int64_t cap, int64_t n, int64_t k,
                 const Extras &x = Extras()) {
  const Problem problem({compute, rows, cap, n, k, -1, gemm_test::gap(compute, k, rows % 2)});
  const Vectors vectors(n);
  const std::vector<uint8_t> want = run(problem, vectors, x, two_kernels);
  const Ending e = ending_of(compute, x);
  for (int32_t i = 0; gemm_sm90_norm_form(i) != nullptr; i++) {
    const sie_cuda::GemmSm90NormForm &form = *gemm_sm90_norm_form(i);
    if (form.columns * form.cluster != n) continue;
    const std::vector<uint8_t> got = run(problem, vectors, x, i);
    int64_t others = 0, first = -1;
    for (size_t b = 0; b < want.size(); b++) {
      if (got[b] == want[b]) continue;
      if (first < 0) first = static_cast<int64_t>(b) / 2;
      others++;
    }
    CHECK(others == 0, "%s %s R=%lld K=%lld: %lld bytes differ, first of row %lld column %lld", form.name,
          gemm_test::class_name(compute), static_cast<long long>(rows), static_cast<long long>(k),
          static_cast<long long>(others), static_cast<long long>(first / problem.y_ld(e)),
          static_cast<long long>(first % problem.y_ld(e)));
  }
}

const int64_t widths[] = {384, 768, 1024};

void check_rows(int64_t n) {
  const int64_t rows[] = {0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 300};
  int turn = 0;
  for (int64_t r : rows) {
    // Capacity exact, one more, and enough for tiles that do not exist in this run.
    const uint32_t compute = turn % 2 == 0 ? SIE_COMPUTE_BF16 : SIE_COMPUTE_F16;
    check_shape(compute, r, r % 3 == 0 ? r : (r % 3 == 1 ? r + 1 : r + 130), n, 80);
    turn++;
  }
}

TEST(gemm_sm90_norm_rows_384) { check_rows(384); }
TEST(gemm_sm90_norm_rows_768) { check_rows(768); }
TEST(gemm_sm90_norm_rows_1024) { check_rows(1024); }

TEST(gemm_sm90_norm_many_tiles) {
  // Three and more tiles a warp, so that the barriers of its sums come around, on one cluster and on some.
  for (int64_t n : widths) {
    for (int32_t multiprocessors : {1, 32}) {
      Extras x;
      x.multiprocessors = multiprocessors;
      check_shape(SIE_COMPUTE_F16, 700, 700, n, 16, x);
    }
  }
}

TEST(gemm_sm90_norm_many_steps) {
  // More steps of K than any ring has stages, several times around; two tiles a warpgroup.
  for (int64_t n : widths) check_shape(SIE_COMPUTE_BF16, 260, 260, n, 19 * 64 - 5);
}

TEST(gemm_sm90_norm_endings) {
  for (int64_t n : widths) {
    for (uint32_t compute : {SIE_COMPUTE_BF16, SIE_COMPUTE_F16}) {
      Extras x;
      x.in_place = false;
      x.bias = compute == SIE_COMPUTE_F16;
      x.beta = !x.bias;
      x.weight_offset = 1;
      x.eps = 1e-3f;
      x.gap = 24;
      x.residual_gap = 8;
      check_shape(compute, 140, 150, n, 64, x);
    }
  }
}

// A call that its form takes, and changes of one thing that leave it to two kernels.
TEST(gemm_sm90_norm_takes) {
  constexpr int64_t n = 384;
  const Extras x;
  const Problem problem({SIE_COMPUTE_BF16, 2, 2, n, 64, -1, 0});
  const Vectors vectors(n);
  const Bytes y(2 * n * 2 + 16), apart(2 * n * 2 + 16);
  const int32_t rows = 2;
  Extras separate = x;
  separate.in_place = false;
  const sie_linear_norm_args right = args_of(problem, vectors, separate, y, apart, &rows);
  const sie_stream on = {nullptr, 90, 1, 0, 0};
  const auto refuses = [&](const char *what, const sie_linear_norm_args &a, const sie_stream &stream,
                           int32_t form) {
    CHECK(!sie_cuda::gemm_sm90_norm_takes(form, &a, &stream), "%s: taken", what);
    CHECK(sie_cuda::gemm_sm90_norm_run(form, &a, &stream) == SIE_UNSUPPORTED, "%s: run", what);
    for (int64_t i = 0; i < y.size(); i++) CHECK(y.p()[i] == 0xff, "%s: wrote", what);
  };
  const int32_t pair = sie_cuda::GEMM_SM90_NORM_64X192;
  CHECK(sie_cuda::gemm_sm90_norm_takes(pair, &right, &on), "%s", "what is right");
  refuses("a wider form", right, on, sie_cuda::GEMM_SM90_NORM_64X192_FOUR);
  refuses("a form of other tiles", right, on, sie_cuda::GEMM_SM90_NORM_128X128_EIGHT);
  refuses("no form", right, on, sie_cuda::GEMM_SM90_NORM_COUNT);
  refuses("no form", right, on, -1);
  for (int32_t sm : {89, 100, 120}) refuses("another card", right, {nullptr, sm, 1, 0, 0}, pair);
  struct Change {
    const char *what;
    void (*make)(sie_linear_norm_args *);
  };
  const Change changes[] = {
      {"RMS norm", [](sie_linear_norm_args *a) { a->norm.norm = SIE_NORM_RMS; }},
      {"an activation", [](sie_linear_norm_args *a) { a->linear.act = SIE_ACT_RELU; }},
      {"a gate", [](sie_linear_norm_args *a) { a->linear.gate = SIE_GATE_SWIGLU; }},
      {"an addend",
       [](sie_linear_norm_args *a) {
         a->linear.addend = a->linear.residual;
         a->linear.addend.dtype = SIE_F32;
       }},
      {"no residual", [](sie_linear_norm_args *a) { a->linear.residual.p = nullptr; }},
      {"a residual of another type", [](sie_linear_norm_args *a) { a->linear.residual.dtype = SIE_F16; }},
      {"a residual in f32", [](sie_linear_norm_args *a) { a->linear.residual.dtype = SIE_F32; }},
      {"y of another type", [](sie_linear_norm_args *a) { a->linear.y.dtype = SIE_F16; }},
      {"rows of y off 16 bytes", [](sie_linear_norm_args *a) { a->linear.y.ld += 4; }},
      {"rows of the residual off 16 bytes", [](sie_linear_norm_args *a) { a->linear.residual.ld += 4; }},
      {"y off 16 bytes",
       [](sie_linear_norm_args *a) { a->linear.y.p = static_cast<char *>(a->linear.y.p) + 8; }},
      {"the residual off 16 bytes",
       [](sie_linear_norm_args *a) { a->linear.residual.p = static_cast<char *>(a->linear.residual.p) + 8; }},
      {"bias off 16 bytes", [](sie_linear_norm_args *a) { a->linear.bias++; }},
      {"gamma off 16 bytes", [](sie_linear_norm_args *a) { a->norm.gamma++; }},
      {"beta off 16 bytes", [](sie_linear_norm_args *a) { a->norm.beta++; }},
  };
  for (const Change &change : changes) {
    sie_linear_norm_args a = right;
    change.make(&a);
    refuses(change.what, a, on, pair);
  }
  // What linear refuses.
  sie_linear_norm_args a = right;
  a.linear.x.ld = 8;
  CHECK(sie_cuda::gemm_sm90_norm_run(pair, &a, &on) == SIE_INVALID_ARGUMENT, "%s", "rows of x on each other");
}

// The model's choice, which is a matter of speed alone.
TEST(gemm_sm90_norm_choice) {
  const sie_stream h200 = {nullptr, 90, 132, 0, 0};
  const struct {
    uint32_t compute;
    int64_t rows, n, k;
    int32_t form;
  } choices[] = {
      {SIE_COMPUTE_BF16, 16384, 384, 384, sie_cuda::GEMM_SM90_NORM_128X192},
      {SIE_COMPUTE_BF16, 16384, 384, 1536, sie_cuda::GEMM_SM90_NORM_128X192},
      {SIE_COMPUTE_BF16, 16384, 768, 768, sie_cuda::GEMM_SM90_NORM_128X192_FOUR},
      {SIE_COMPUTE_F16, 16384, 768, 3072, sie_cuda::GEMM_SM90_NORM_128X192_FOUR},
      {SIE_COMPUTE_BF16, 2048, 768, 768, sie_cuda::GEMM_SM90_NORM_64X192_FOUR},
      {SIE_COMPUTE_BF16, 16384, 1024, 1024, sie_cuda::GEMM_SM90_NORM_128X128_EIGHT},
      {SIE_COMPUTE_BF16, 16384, 1024, 4096, sie_cuda::GEMM_SM90_NORM_128X256_FOUR},
      {SIE_COMPUTE_BF16, 1, 768, 768, -1},
      {SIE_COMPUTE_BF16, 8, 1024, 4096, -1},
      // A row tile more than whole turns.
      {SIE_COMPUTE_BF16, 16512, 768, 3072, -1},
      // No form is so wide, or of that class.
      {SIE_COMPUTE_BF16, 16384, 512, 512, -1},
      {SIE_COMPUTE_BF16, 16384, 256, 1024, -1},
      {SIE_COMPUTE_FP8, 16384, 768, 768, -1},
      {SIE_COMPUTE_F32, 16384, 768, 768, -1},
  };
  for (const auto &c : choices) {
    const int32_t form = sie_cuda::gemm_sm90_norm_pick(c.compute, c.rows, c.n, c.k, h200);
    CHECK(form == c.form, "R=%lld N=%lld K=%lld: form %d, not %d", static_cast<long long>(c.rows),
          static_cast<long long>(c.n), static_cast<long long>(c.k), form, c.form);
  }
  for (int32_t sm : {80, 89, 100, 120}) {
    CHECK(sie_cuda::gemm_sm90_norm_pick(SIE_COMPUTE_BF16, 16384, 768, 768, {nullptr, sm, 132, 0, 0}) == -1,
          "a form for sm_%d", sm);
  }
}

}  // namespace
