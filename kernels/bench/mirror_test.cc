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
