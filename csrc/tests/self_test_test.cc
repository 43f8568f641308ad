// self_test_test.cc — the start-up test must rule out kernels that are wrong, or whose results
// depend on the batch.
#include "self_test.h"

#include "tests/check.h"

namespace {

const sie_ops *real;

sie_status wrong_linear(const sie_linear_args *a, const sie_share *share) {
  sie_status status = real->linear(a, share);
  // Changes one element of the last row by a thousandth.
  int64_t last = *a->rows.n - 1;
  float *y = static_cast<float *>(a->y.p);
  if (last >= 0) y[last * a->y.ld + a->n - 1] = y[last * a->y.ld + a->n - 1] * 1.001f + 0.5f;
  return status;
}

sie_status batchy_linear(const sie_linear_args *a, const sie_share *share) {
  sie_status status = real->linear(a, share);
  // Right to seven digits, but with other bits for fewer than eight rows.
  if (*a->rows.n >= 8) return status;
  float *y = static_cast<float *>(a->y.p);
  for (int64_t i = 0; i < a->n; i++) y[i] *= 1.0000002f;
  return status;
}

sie_status batchy_layernorm(const sie_layernorm_args *a, const sie_share *share) {
  sie_status status = real->layernorm(a, share);
  if (*a->rows.n < 8 && a->y.dtype == SIE_F32) static_cast<float *>(a->y.p)[3] *= 1.0000002f;
  return status;
}

sie_status leaking_attention(const sie_attention_args *a, const sie_share *share) {
  sie_status status = real->attention(a, share);
  if (*a->seqs.n > 1) static_cast<float *>(a->y.p)[a->cu_q[3] * a->y.ld] += 1e-6f;
  return status;
}

const char *verdict(const sie_ops &ops, sie_status want) {
  const char *problem;
  sie_status status = sie::self_test(&ops, SIE_COMPUTE_F32, &problem);
  CHECK(status == want, "status %d, %d expected (%s)", status, want,
        problem != nullptr ? problem : "no problem");
  return problem != nullptr ? problem : "";
}

void expect(const char *problem, const char *part) {
  CHECK(strstr(problem, part) != nullptr, "\"%s\" does not say \"%s\"", problem, part);
}

}  // namespace

TEST(self_test_rules_out_bad_kernels) {
  uint32_t isa = sie_cpu_detect();
  real = isa != 0 ? sie_cpu_ops(isa) : nullptr;
  if (real == nullptr) real = sie_ref_ops();
  verdict(*real, SIE_OK);
  sie_ops bad = *real;
  bad.linear = wrong_linear;
  expect(verdict(bad, SIE_UNSUPPORTED), "reference in linear");
  bad.linear = batchy_linear;
  expect(verdict(bad, SIE_UNSUPPORTED), "batch in linear");
  bad = *real;
  bad.layernorm = batchy_layernorm;
  expect(verdict(bad, SIE_UNSUPPORTED), "batch in layernorm");
  bad = *real;
  bad.attention = leaking_attention;
  expect(verdict(bad, SIE_UNSUPPORTED), "batch in attention");
  bad.attention = nullptr;
  expect(verdict(bad, SIE_UNSUPPORTED), "incomplete");
}
