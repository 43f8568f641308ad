// gemm_refusals.cc — the arguments that no GEMM takes.
#include "cuda/linear.h"
#include "tests/check.h"
#include "tests/cuda/gemm_check.h"

namespace gemm_test {

namespace {

// What a family must refuse: an argument changed in a call it takes.
struct Refusal {
  sie_status want;
  bool fp8;
  const char *what;
  void (*change)(sie_linear_args *a, sie_packed *w, sie_stream *on);
};

using A = sie_linear_args *;
using W = sie_packed *;
using S = sie_stream *;

const Refusal refusals[] = {
    {SIE_UNSUPPORTED, false, "class int8", [](A, W w, S) { w->compute = SIE_COMPUTE_INT8; }},
    {SIE_UNSUPPORTED, false, "x of another type", [](A a, W, S) { a->x.dtype = SIE_F16; }},
    {SIE_UNSUPPORTED, false, "y u8", [](A a, W, S) { a->y.dtype = SIE_U8; }},
    {SIE_UNSUPPORTED, false, "y e4m3 a row",
     [](A a, W, S) {
       a->y.dtype = SIE_F8E4M3;
       a->y.scale_group = -1;
     }},
    {SIE_UNSUPPORTED, false, "residual u8",
     [](A a, W, S) {
       a->residual = a->y;
       a->residual.dtype = SIE_U8;
     }},
    {SIE_UNSUPPORTED, true, "scales of 64", [](A a, W, S) { a->x.scale_group = 64; }},
    {SIE_UNSUPPORTED, false, "x at 2 bytes", [](A a, W, S) { a->x.p = static_cast<uint8_t *>(a->x.p) + 2; }},
    {SIE_UNSUPPORTED, false, "a stride of 17", [](A a, W, S) { a->x.ld = 17; }},
    {SIE_UNSUPPORTED, true, "an fp8 stride of 24", [](A a, W, S) { a->x.ld = 24; }},
    {SIE_INVALID_ARGUMENT, false, "K 0", [](A a, W w, S) { a->k = w->k = 0; }},
    {SIE_INVALID_ARGUMENT, false, "K of another weight", [](A, W w, S) { w->k = 32; }},
    {SIE_INVALID_ARGUMENT, false, "N of another weight", [](A, W w, S) { w->n = 32; }},
    {SIE_INVALID_ARGUMENT, false, "N 0", [](A a, W w, S) { a->n = w->n = 0; }},
    {SIE_INVALID_ARGUMENT, false, "N 2³⁰ + 1",
     [](A a, W w, S) { a->n = w->n = a->y.ld = (int64_t{1} << 30) + 1; }},
    {SIE_INVALID_ARGUMENT, false, "a negative capacity", [](A a, W, S) { a->rows.cap = -1; }},
    {SIE_INVALID_ARGUMENT, false, "no weight", [](A a, W, S) { a->w = nullptr; }},
    {SIE_INVALID_ARGUMENT, false, "no data", [](A, W w, S) { w->data = nullptr; }},
    {SIE_INVALID_ARGUMENT, false, "W at 8 bytes",
     [](A, W w, S) { w->data = static_cast<const uint8_t *>(w->data) + 8; }},
    {SIE_INVALID_ARGUMENT, false, "no x", [](A a, W, S) { a->x.p = nullptr; }},
    {SIE_INVALID_ARGUMENT, false, "no y", [](A a, W, S) { a->y.p = nullptr; }},
    {SIE_INVALID_ARGUMENT, false, "no count of rows", [](A a, W, S) { a->rows.n = nullptr; }},
    {SIE_INVALID_ARGUMENT, false, "a stride below K", [](A a, W, S) { a->x.ld = 8; }},
    {SIE_INVALID_ARGUMENT, false, "y's stride below N", [](A a, W, S) { a->y.ld = 7; }},
    {SIE_INVALID_ARGUMENT, false, "y at 1 byte",
     [](A a, W, S) { a->y.p = static_cast<uint8_t *>(a->y.p) + 1; }},
    {SIE_UNSUPPORTED, false, "addend bf16",
     [](A a, W, S) {
       a->addend = a->y;
       a->addend.dtype = SIE_BF16;
     }},
    {SIE_INVALID_ARGUMENT, false, "addend's stride below N",
     [](A a, W, S) {
       a->addend = a->y;
       a->addend.dtype = SIE_F32;
       a->addend.ld = 7;
     }},
    {SIE_INVALID_ARGUMENT, false, "addend off by two bytes",
     [](A a, W, S) {
       a->addend = a->y;
       a->addend.dtype = SIE_F32;
       a->addend.p = static_cast<char *>(a->y.p) + 2;
     }},
    {SIE_INVALID_ARGUMENT, false, "residual's stride below N",
     [](A a, W, S) {
       a->residual = a->y;
       a->residual.ld = 7;
     }},
    {SIE_INVALID_ARGUMENT, false, "an unknown act", [](A a, W, S) { a->act = 9; }},
    {SIE_INVALID_ARGUMENT, false, "an unknown gate", [](A a, W, S) { a->gate = 4; }},
    {SIE_INVALID_ARGUMENT, false, "act and gate",
     [](A a, W, S) {
       a->gate = SIE_GATE_GEGLU;
       a->act = SIE_ACT_RELU;
     }},
    {SIE_INVALID_ARGUMENT, false, "an odd N with a gate",
     [](A a, W w, S) {
       a->gate = SIE_GATE_GEGLU;
       a->n = w->n = 7;
     }},
    {SIE_INVALID_ARGUMENT, true, "no scales of x", [](A a, W, S) { a->x.scale = nullptr; }},
    {SIE_INVALID_ARGUMENT, false, "no scales of y",
     [](A a, W, S) {
       a->y.dtype = SIE_F8E4M3;
       a->y.scale_group = 128;
     }},
};

}  // namespace

void check_refusals(const Family &family) {
  const Problem problem({SIE_COMPUTE_BF16, 4, 4, 8, 16, -1, 0}), fp8({SIE_COMPUTE_FP8, 4, 4, 8, 16, -1, 0});
  const Ending e;
  const Bytes y(4 * 8 * 4), none(0);
  const int32_t n_rows = 4;
  for (const Refusal &refusal : refusals) {
    sie_linear_args a = (refusal.fp8 ? fp8 : problem).args(e, y, none, nullptr);
    sie_packed packed = *a.w;
    sie_stream on = family.on;
    a.rows.n = &n_rows;
    a.w = &packed;
    refusal.change(&a, &packed, &on);
    const sie_status status = call(family, by_choice, &a, &on);
    CHECK(status == refusal.want, "%s: status %d", refusal.what, status);
    for (int64_t i = 0; i < y.size(); i++) CHECK(y.p()[i] == 0xff, "%s: y was written", refusal.what);
  }
  sie_linear_args a = problem.args(e, y, none, nullptr);
  a.rows.n = &n_rows;
  CHECK(call(family, by_choice, &a, nullptr) == SIE_INVALID_ARGUMENT, "%s", "no stream");
  sie_share share = {};
  share.parts = 1;
  share.on = &family.on;
  CHECK(sie_cuda::linear(nullptr, &share) == SIE_INVALID_ARGUMENT, "%s", "no arguments");
  CHECK(sie_cuda::linear(&a, nullptr) == SIE_INVALID_ARGUMENT, "%s", "no share");
  share.parts = 2;
  CHECK(sie_cuda::linear(&a, &share) == SIE_INVALID_ARGUMENT, "%s", "one part of two");
  share.parts = 1;
  share.part = 1;
  CHECK(sie_cuda::linear(&a, &share) == SIE_INVALID_ARGUMENT, "%s", "part 1 of 1");
  CHECK(call(family, 99, &a, &family.on) == SIE_UNSUPPORTED, "%s", "no such variant");
  a.rows.cap = 0;
  a.x.p = a.y.p = nullptr;
  a.rows.n = nullptr;
  CHECK(call(family, by_choice, &a, &family.on) == SIE_OK, "%s", "no rows");
}

}  // namespace gemm_test
