// linear_norm_refusals_test.cc — what the GPU tables refuse of linear_norm, before they write anything: all that
// either of its two operations refuses of such a call, and whatever is not in place.
#include "cuda/gemm_sm90_norm.h"
#include "tests/cuda/operands.h"

using namespace calls;

namespace {

using Args = sie_linear_norm_args;

// A call of 4 rows that is right, with W of 32 by 32.
struct Call : Operands {
  Weight weight = Weight(SIE_COMPUTE_BF16, columns, columns, std::vector<float>(columns *columns, 0.5f));
  sie_packed packed = {};

  Args on(const sie_ops *ops) {
    Args a = {};
    packed = *weight.packed(ops);
    a.linear.rows = a.norm.rows = tokens();
    a.linear.n = a.linear.k = a.norm.c = columns;
    a.linear.w = &packed;
    a.linear.x = a.linear.residual = in();
    a.linear.y = a.norm.x = a.norm.y = to();
    a.norm.gamma = vector.data();
    a.norm.norm = SIE_NORM_LAYER;
    return a;
  }
};

struct Spoil {
  const char *what;
  sie_status status;
  void (*spoil)(Args *a, sie_packed *w);
};

// Gives y, and so the norm, another form.
void change_y(Args *a, void (*change)(sie_tensor *y)) {
  change(&a->linear.y);
  a->norm.x = a->norm.y = a->linear.y;
}
void change_rows(Args *a, sie_rows to) { a->linear.rows = a->norm.rows = to; }

const Spoil spoils[] = {
    {"no weight", invalid, [](Args *a, sie_packed *) { a->linear.w = nullptr; }},
    {"class F32", unsupported,
     [](Args *a, sie_packed *w) { w->compute = SIE_COMPUTE_F32, a->linear.x.dtype = SIE_F32; }},
    {"class FP8", unsupported, [](Args *, sie_packed *w) { w->compute = SIE_COMPUTE_FP8; }},
    {"x of another type", unsupported, [](Args *a, sie_packed *) { a->linear.x.dtype = SIE_F16; }},
    {"y in f32", unsupported,
     [](Args *a, sie_packed *) { change_y(a, [](sie_tensor *y) { y->dtype = SIE_F32; }); }},
    {"y in e4m3", unsupported,
     [](Args *a, sie_packed *) { change_y(a, [](sie_tensor *y) { y->dtype = SIE_F8E4M3; }); }},
    {"another capacity of the norm", invalid, [](Args *a, sie_packed *) { a->norm.rows.cap--; }},
    {"another count of the norm", invalid,
     [](Args *a, sie_packed *) {
       static const int32_t four = 4;
       a->norm.rows.n = &four;
     }},
    {"x of the norm elsewhere", invalid, [](Args *a, sie_packed *) { a->norm.x = a->linear.x; }},
    {"y of the norm elsewhere", invalid, [](Args *a, sie_packed *) { a->norm.y = a->linear.x; }},
    {"another stride of the norm's x", invalid, [](Args *a, sie_packed *) { a->norm.x.ld++; }},
    {"another stride of the norm's y", invalid, [](Args *a, sie_packed *) { a->norm.y.ld++; }},
    {"another type of the norm's x", invalid, [](Args *a, sie_packed *) { a->norm.x.dtype = SIE_F16; }},
    {"another type of the norm's y", invalid, [](Args *a, sie_packed *) { a->norm.y.dtype = SIE_F16; }},
    {"fewer columns of the norm", invalid, [](Args *a, sie_packed *) { a->norm.c--; }},
    {"all columns of a gate", invalid, [](Args *a, sie_packed *) { a->linear.gate = SIE_GATE_SWIGLU; }},
    {"no columns", invalid,
     [](Args *a, sie_packed *w) { a->norm.c = 0, a->linear.n = w->n = 1, a->linear.gate = SIE_GATE_SWIGLU; }},
    {"no norm", invalid, [](Args *a, sie_packed *) { a->norm.norm = SIE_NORM_NONE; }},
    {"an unknown norm", invalid, [](Args *a, sie_packed *) { a->norm.norm = 7; }},
    {"no gamma", invalid, [](Args *a, sie_packed *) { a->norm.gamma = nullptr; }},
    {"quantised rows", invalid, [](Args *a, sie_packed *) { a->norm.yq.p = a->norm.y.p; }},
    {"a bias of the norm", invalid, [](Args *a, sie_packed *) { a->norm.bias = a->norm.gamma; }},
    {"a residual of the norm", invalid, [](Args *a, sie_packed *) { a->norm.residual = a->linear.x; }},
    {"a sum", invalid, [](Args *a, sie_packed *) { a->norm.sum = a->linear.y; }},
    {"too many columns", unsupported,
     [](Args *a, sie_packed *w) {
       a->linear.n = w->n = a->norm.c = a->linear.residual.ld = 8193;
       change_y(a, [](sie_tensor *y) { y->ld = 8193; });
     }},
    {"an unknown act", invalid, [](Args *a, sie_packed *) { a->linear.act = 7; }},
    {"no x", invalid, [](Args *a, sie_packed *) { a->linear.x.p = nullptr; }},
    {"no y", invalid, [](Args *a, sie_packed *) { change_y(a, [](sie_tensor *y) { y->p = nullptr; }); }},
    {"a stride of y below its columns", invalid,
     [](Args *a, sie_packed *) { change_y(a, [](sie_tensor *y) { y->ld = columns - 1; }); }},
    {"no row count", invalid, [](Args *a, sie_packed *) { change_rows(a, {rows, nullptr}); }},
    {"fewer rows than none", invalid, [](Args *a, sie_packed *) { change_rows(a, {-1, a->linear.rows.n}); }},
    {"too many rows", invalid,
     [](Args *a, sie_packed *) { change_rows(a, {(int64_t{1} << 30) + 1, a->linear.rows.n}); }},
    {"no rows of the widest", SIE_OK,
     [](Args *a, sie_packed *w) {
       a->linear.n = w->n = a->norm.c = a->linear.residual.ld = 8192;
       change_y(a, [](sie_tensor *y) { y->ld = 8192; });
       change_rows(a, {0, a->linear.rows.n});
     }},
    {"no rows and no memory", SIE_OK,
     [](Args *a, sie_packed *) {
       change_rows(a, {0, nullptr});
       a->linear.x.p = a->linear.residual.p = nullptr, a->norm.gamma = nullptr;
       change_y(a, [](sie_tensor *y) { y->p = nullptr; });
     }},
};

}  // namespace

TEST(linear_norm_refuses) {
  for (const Gpu &gpu : gpus()) {
    Call call;
    const auto expect = [&](const char *what, sie_status want, const Args &a, const sie_share &share) {
      const sie_status got = gpu.ops->linear_norm(&a, &share);
      CHECK(got == want, "%s: %s: status %d, not %d", gpu.ops->name, what, got, want);
      CHECK(call.untouched(), "%s: %s: refused, but wrote", gpu.ops->name, what);
    };
    const sie_share whole = {0, 1, nullptr, 0, &gpu.on};
    for (const Spoil &s : spoils) {
      Args a = call.on(gpu.ops);
      s.spoil(&a, &call.packed);
      expect(s.what, s.status, a, whole);
    }
    const Args right = call.on(gpu.ops);
    expect("half of it", invalid, right, {0, 2, nullptr, 0, &gpu.on});
    expect("its second part", invalid, right, {1, 1, nullptr, 0, &gpu.on});
    expect("no stream", invalid, right, {0, 1, nullptr, 0, nullptr});
    CHECK(
        gpu.ops->linear_norm(nullptr, &whole) == invalid && gpu.ops->linear_norm(&right, nullptr) == invalid,
        "%s: no arguments, or no share", gpu.ops->name);
    sie_stream turing = gpu.on;
    turing.sm = 75;
    expect("sm_75", unsupported, right, {0, 1, nullptr, 0, &turing});
    CHECK(gpu.ops->linear_norm(&right, &whole) == SIE_OK && memory.finish(&gpu.on) == SIE_OK &&
              !call.untouched(),
          "%s: refuses what is right", gpu.ops->name);
  }
}

// The one kernel knows no shares: a part of a call that it would take is refused before it is asked.
TEST(linear_norm_by_one_kernel_is_whole) {
  constexpr int64_t n = 768, most = 16384;
  for (const Gpu &gpu : gpus()) {
    if (gpu.on.sm / 10 != 9) continue;
    sie_stream on = gpu.on;
    on.multiprocessors = 132;
    CHECK(sie_cuda::gemm_sm90_norm_pick(SIE_COMPUTE_BF16, most, n, n, on) >= 0, "two kernels are chosen");
    Weight weight(SIE_COMPUTE_BF16, n, n, std::vector<float>(n * n, 0.5f));
    Array<uint16_t> x(n, 0x3f80), y(n, 0xffff);
    Array<float> gamma(n, 1.0f);
    Array<int32_t> none = {0};
    Args a = {};
    a.linear.rows = a.norm.rows = {most, none.data()};
    a.linear.n = a.linear.k = a.norm.c = n;
    a.linear.w = weight.packed(gpu.ops);
    a.linear.x = a.linear.residual = {x.data(), n, SIE_BF16, 0, nullptr, nullptr, nullptr};
    a.linear.y = a.norm.x = a.norm.y = {y.data(), n, SIE_BF16, 0, nullptr, nullptr, nullptr};
    a.norm.gamma = gamma.data();
    a.norm.norm = SIE_NORM_LAYER;
    for (const sie_share &share : {sie_share{0, 2, nullptr, 0, &on}, sie_share{1, 1, nullptr, 0, &on}}) {
      const sie_status got = gpu.ops->linear_norm(&a, &share);
      CHECK(got == invalid, "%s: part %d of %d: status %d", gpu.ops->name, share.part, share.parts, got);
    }
  }
}
