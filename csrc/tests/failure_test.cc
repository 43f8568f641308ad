// failure_test.cc — kernels that fail, or write where they must not, during a run.
#include <atomic>

#include "device.h"
#include "model.h"
#include "tests/check.h"

namespace {

const sie_ops *real;
std::atomic<int> calls_left{0};

// The n-th call fails, whichever member of a team makes it; other calls succeed.
sie_status failing_linear(const sie_linear_args *a, const sie_share *share) {
  if (*a->rows.n > 0 && calls_left.fetch_sub(1) == 1) return SIE_INTERNAL;
  return real->linear(a, share);
}

// Writes one float behind the last row that the buffer has room for.
[[maybe_unused]] sie_status stray_pool(const sie_pool_args *a, const sie_share *share) {
  sie_status status = real->pool(a, share);
  static_cast<float *>(a->y.p)[a->seqs.cap * a->y.ld] = 1;
  return status;
}

}  // namespace

TEST(failing_kernels_end_the_run_and_no_more) {
  for (int threads : {1, 2, 4}) {
    model::Model m;
    CHECK(m.open(SIE_DEVICE_CPU, 0, threads, SIE_COMPUTE_F32) == SIE_OK, "%s", m.err.message);
    if (m.arena == nullptr) return;
    model::Batch one, many;
    one.add(m.shape, 1, 50);
    for (int i = 0; i < 10; i++) many.add(m.shape, i, 100);
    model::Result expected = run(&m, one);
    real = m.device->ops;
    sie_ops faulty = *real;
    faulty.linear = failing_linear;
    for (const model::Batch *batch : {&one, &many}) {
      // The program has 8 linears; each member calls each of them once.
      for (int n = 1; n <= 8 * threads; n++) {
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

TEST(stray_writes_are_seen_in_debug_builds) {
#ifdef NDEBUG
  printf("     release build: redzones are off\n");
#else
  model::Model m;
  CHECK(m.open(SIE_DEVICE_CPU, 0, 1, SIE_COMPUTE_F32) == SIE_OK, "%s", m.err.message);
  model::Batch batch;
  batch.add(m.shape, 1, 50);
  real = m.device->ops;
  sie_ops faulty = *real;
  faulty.pool = stray_pool;
  m.device->ops = &faulty;
  CHECK(submit(&m, 0, batch) == SIE_OK, "%s", m.err.message);
  sie_error err = {};
  sie_status status = sie_slot_wait(m.slots[0], &err);
  CHECK(status == SIE_INTERNAL && strstr(err.message, "pool") != nullptr, "status %d: %s", status,
        err.message);
  m.device->ops = real;
#endif
}
