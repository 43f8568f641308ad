// Launches that wait in a stream: what is refused at once, what is kept, and how often it runs.
#include "simt_test.h"

namespace simt_test {
namespace {

struct Parameters {
  alignas(64) int32_t add[3];
};

__global__ void add_kernel(int32_t *out, const Parameters parameters, int32_t times) {
  out[threadIdx.x] += parameters.add[threadIdx.x % 3] * times;
}

// A stream that keeps the last launch.
struct Kept {
  void (*run)(void *kernel) = nullptr;
  void *kernel = nullptr;
  void (*destroy)(void *kernel) = nullptr;
  int32_t taken = 0;
  bool programmatic = false;
  sie_status answer = SIE_OK;
} kept;

sie_status keep(void *stream, void (*run)(void *), void *kernel, void (*destroy)(void *), bool programmatic) {
  CHECK(stream == &kept, "another stream");
  if (kept.answer != SIE_OK) return kept.answer;
  kept.run = run;
  kept.kernel = kernel;
  kept.destroy = destroy;
  kept.programmatic = programmatic;
  kept.taken++;
  return SIE_OK;
}

sie_status add(int32_t *out, int32_t first, int32_t times, unsigned threads) {
  const sie_stream on = {&kept, 80, 2, 0, 0};
  Parameters parameters = {{first, 20, 30}};
  const sie_status status = SIE_LAUNCH(add_kernel, 1, threads, 0, &on, out, parameters, times);
  parameters.add[0] = -1000;  // the launch has its own copy
  return status;
}

TEST(launch_in_a_stream_runs_when_the_stream_says) {
  kept = {};
  simt::set_stream_sink(keep);
  int32_t out[3] = {};
  CHECK(add(out, 10, 2, 3) == SIE_OK && kept.taken == 1, "launch");
  CHECK(out[0] == 0 && out[1] == 0, "it ran at its launch");
  CHECK(!kept.programmatic, "it may start early");
  const uint64_t before = simt::launches();
  kept.run(kept.kernel);
  CHECK(out[0] == 20 && out[1] == 40 && out[2] == 60, "%d %d %d", out[0], out[1], out[2]);
  kept.run(kept.kernel);
  CHECK(out[0] == 40 && out[1] == 80 && out[2] == 120, "again: %d %d %d", out[0], out[1], out[2]);
  CHECK(simt::launches() == before + 2, "launches");
  kept.destroy(kept.kernel);
  simt::set_stream_sink(nullptr);
}

TEST(launch_in_a_stream_says_that_it_may_start_early) {
  kept = {};
  simt::set_stream_sink(keep);
  int32_t out[3] = {};
  const sie_stream on = {&kept, 90, 2, 1, 0};
  CHECK(SIE_LAUNCH(add_kernel, 1, 3, 0, &on, out, Parameters{{1, 1, 1}}, 1) == SIE_OK, "launch");
  CHECK(kept.taken == 1 && kept.programmatic, "programmatic launch was lost");
  kept.destroy(kept.kernel);
  simt::set_stream_sink(nullptr);
}

TEST(launch_in_a_stream_refuses_at_once) {
  kept = {};
  simt::set_stream_sink(keep);
  int32_t out[3] = {};
  CHECK(add(out, 10, 1, 0) == SIE_INTERNAL, "no threads");
  CHECK(add(out, 10, 1, 1025) == SIE_INTERNAL, "too many threads");
  CHECK(kept.taken == 0, "the stream was given a launch that CUDA refuses");
  kept.answer = SIE_DEVICE_LOST;
  CHECK(add(out, 10, 1, 3) == SIE_DEVICE_LOST && out[0] == 0, "a stream that takes nothing");
  simt::set_stream_sink(nullptr);
  CHECK(add(out, 10, 1, 3) == SIE_OK && out[0] == 10, "without a sink it runs at once: %d", out[0]);
  const sie_stream none = {nullptr, 80, 2, 0, 0};
  simt::set_stream_sink(keep);
  CHECK(SIE_LAUNCH(add_kernel, 1, 3, 0, &none, out, Parameters{{1, 1, 1}}, 1) == SIE_OK && out[0] == 11,
        "no stream: it runs at once, and out is %d", out[0]);
  simt::set_stream_sink(nullptr);
}

}  // namespace
}  // namespace simt_test
