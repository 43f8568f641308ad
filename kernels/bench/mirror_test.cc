// mirror_test.cc — the mirror loses no pointer: the conformance list through it, by kernels/ref,
// while the blocks themselves read as rubbish.
#include "bench/mirror.h"
#include "bench/device.h"
#include "tests/harness.h"

using namespace harness;

TEST(every_pointer_is_translated) {
  for (const Group &group : groups()) run_group(group);
}

// The blocks that a call named are the resident ones, and every replica holds the inputs.
TEST(replicas_are_alike) {
  mirror::hide(false);
  std::unique_ptr<Case> c;
  for (int index = 0; c == nullptr || c->outputs[0]->rows() < 30; index++) c = groups()[1].make(index);
  const sie_ops *ops = backends()[0];
  Scratch scratch(ops, c->bounds());
  const sie_share share = scratch.share(0, 1);
  CHECK(c->call(ops, &share, 0, c->units) == SIE_OK, "refused");
  const std::vector<uint8_t> want = c->outputs[0]->bytes(0, c->outputs[0]->rows());
  CHECK(mirror::footprint() >= static_cast<int64_t>(want.size()), "a footprint of %lld",
        static_cast<long long>(mirror::footprint()));
  CHECK(mirror::resident(3), "no memory");
  for (Rows *rows : c->outputs) rows->clear();
  for (int64_t replica = 0; replica < 3; replica++) {
    mirror::select(replica);
    CHECK(c->call(ops, &share, 0, c->units) == SIE_OK, "refused");
  }
  CHECK(c->outputs[0]->untouched(0, c->outputs[0]->rows()), "a resident call wrote to the host");
  mirror::copying();
  CHECK(c->call(ops, &share, 0, c->units) == SIE_OK, "refused");
  CHECK(c->outputs[0]->bytes(0, c->outputs[0]->rows()) == want, "copying after resident gives other bits");
}

TEST(only_a_failed_kernel_loses_the_device) {
  CHECK(device::finished(0, 0) == SIE_OK, "nothing failed");
  for (int refused : {1, 9, 701, 900, 912}) {
    CHECK(device::finished(refused, 0) == SIE_INTERNAL, "%d left by a launch", refused);
    CHECK(device::finished(refused, 700) == SIE_DEVICE_LOST, "%d and a fault", refused);
  }
  CHECK(device::finished(98, 0) == SIE_UNSUPPORTED, "no code for the card");
  CHECK(device::finished(700, 0) == SIE_DEVICE_LOST && device::finished(0, 719) == SIE_DEVICE_LOST,
        "a fault");
}

TEST(programmatic_launch_can_be_switched_off) {
  const struct {
    const char *said;
    int32_t launches, captured;
  } cases[] = {{nullptr, 1, 1}, {"on", 1, 1}, {"launches", 1, 0}, {"off", 0, 0}};
  for (const auto &c : cases) {
    if (c.said != nullptr) setenv("SIE_CUDA_PDL", c.said, 1);
    CHECK(device::programmatic(90, false) == c.launches && device::programmatic(90, true) == c.captured,
          "SIE_CUDA_PDL=%s", c.said != nullptr ? c.said : "(none)");
    CHECK(device::programmatic(89, false) == 0, "sm_89 has none");
  }
  unsetenv("SIE_CUDA_PDL");
}

int main(int argc, char **argv) {
  device::Info info;
  std::string why;
  device::open(90, &info, &why);
  mirror::install();
  mirror::hide(true);
  gpus().push_back({mirror::table(sie_ref_ops()), *device::stream()});
  select(Tables::gpu);
  return check::run_tests(argc, argv);
}
