// failure_test.cc — kernels that fail, or write where they must not, during a run.
#include <atomic>

#include "device.h"
#include "model.h"
#include "paths.h"
#include "program.h"
#include "tests/check.h"

namespace {

const sie_ops *real;
std::atomic<int> calls_left{0};

// The n-th call fails, whichever member of a team makes it; other calls succeed.
sie_status failing_linear(const sie_linear_args *a, const sie_share *share) {
  if (*a->rows.n > 0 && calls_left.fetch_sub(1) == 1) return SIE_INTERNAL;
  return real->linear(a, share);
}

sie_status failing_quantise(const sie_quantise_rows_args *a, const sie_share *share) {
  if (*a->rows.n > 0 && calls_left.fetch_sub(1) == 1) return SIE_INTERNAL;
  return real->quantise_rows(a, share);
}

#ifdef SIE_CHECK_ZONES
// Writes one float behind the last row that the buffer has room for.
sie_status stray_pool(const sie_pool_args *a, const sie_share *share) {
  sie_status status = real->pool(a, share);
  static_cast<float *>(a->y.p)[a->seqs.cap * a->y.ld] = 1;
  return status;
}
#endif

}  // namespace

TEST(failing_kernels_end_the_run_and_no_more) {
  for (int threads : {1, 2, 4}) {
    model::Model m;
    CHECK(m.open(SIE_DEVICE_CPU, 0, threads, SIE_COMPUTE_F32) == SIE_OK, "%s", m.err.message);
    if (m.arena == nullptr) return;
    // In the long text, a stage runs ten times.
    m.program->stage_rows = 64;
    model::Batch one, many, longer;
    longer.add(m.shape, 1, 640);
    one.add(m.shape, 1, 50);
    for (int i = 0; i < 10; i++) many.add(m.shape, i, 100);
    model::Result expected = run(&m, one);
    real = m.device->ops;
    sie_ops faulty = *real;
    faulty.linear = failing_linear;
    for (const model::Batch *batch : {&one, &many, &longer}) {
      // The program has 8 linears. Each member of a short team calls each of them once; the leader of
      // a long one calls most of them ten times, and nobody else may have joined.
      for (int n = 1; n <= (batch == &longer ? 60 : 8 * threads); n++) {
        m.device->ops = &faulty;
        calls_left.store(n);
        CHECK(submit(&m, 0, *batch) == SIE_OK, "%s", m.err.message);
        sie_error err = {};
        sie_status status = sie_slot_wait(m.slots[0], &err);
        CHECK(status == SIE_INTERNAL, "%d threads, call %d fails: status %d", threads, n, status);
        CHECK(strstr(err.message, "linear") != nullptr, "message: %s", err.message);
      }
    }
    m.device->ops = real;
    model::Result after = run(&m, one);
    CHECK(after.status == SIE_OK && after.rows == expected.rows, "the device is of no use after failures");
  }
}

// A late operation has two steps, and several groups: whichever member fails in whichever of them, all leave
// together.
TEST(failing_late_operations_end_the_run_and_no_more) {
  for (int threads : {2, 4}) {
    model::Model m;
    CHECK(m.open(SIE_DEVICE_CPU, model::least_isa, threads, SIE_COMPUTE_INT8) == SIE_OK, "%s", m.err.message);
    if (m.arena == nullptr) return;
    m.program->late_limit = 3 * m.shape.ffn * 4;  // groups of three rows
    model::Batch few;
    few.add(m.shape, 1, 7);
    const model::Result expected = run(&m, few);
    real = m.device->ops;
    sie_ops faulty[2] = {*real, *real};
    faulty[0].linear = failing_linear;
    faulty[1].quantise_rows = failing_quantise;
    // Each member calls linear once for each of 6 linears and for each of 3 groups of the other 2, and
    // quantise_rows at least for each of those groups.
    const int calls[2] = {(6 + 2 * 3) * threads, 2 * 3 * threads};
    for (int which : {0, 1}) {
      for (int n = 1; n <= calls[which]; n++) {
        m.device->ops = &faulty[which];
        calls_left.store(n);
        CHECK(submit(&m, 0, few) == SIE_OK, "%s", m.err.message);
        sie_error err = {};
        const sie_status status = sie_slot_wait(m.slots[0], &err);
        CHECK(status == SIE_INTERNAL, "%d threads, call %d of %d fails: status %d", threads, n, which,
              status);
      }
    }
    m.device->ops = real;
    const model::Result after = run(&m, few);
    CHECK(after.status == SIE_OK && after.rows == expected.rows, "the device is of no use after failures");
  }
}

// The zones are on in builds with asserts and in those with a sanitizer (program.h).
#ifdef SIE_CHECK_ZONES
TEST(stray_writes_are_seen) {
  model::Model m;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32) == SIE_OK, "%s", m.err.message);
  if (m.arena == nullptr) return;
  real = m.device->ops;
  sie_ops faulty = *real;
  faulty.pool = stray_pool;
  // 600 tokens are a long slab, whose buffers lie in the region.
  for (int tokens : {50, 600}) {
    model::Batch batch;
    batch.add(m.shape, 1, tokens);
    m.device->ops = &faulty;
    CHECK(submit(&m, 0, batch) == SIE_OK, "%s", m.err.message);
    sie_error err = {};
    sie_status status = sie_slot_wait(m.slots[0], &err);
    CHECK(status == SIE_INTERNAL && strstr(err.message, "pool") != nullptr, "%d tokens: status %d: %s",
          tokens, status, err.message);
    m.device->ops = real;
    CHECK(run(&m, batch).status == SIE_OK, "%d tokens: a run without stray writes is refused", tokens);
  }
}
#endif
