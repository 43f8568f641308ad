// conformance.cc — runs the conformance list of kernels/tests on a device's own memory.
//
//   sie_conformance [GROUP…]   groups whose name contains one of the words; SIE_TEST_SHARD=0/N:
//                              every N-th case
//   sie_conformance --list     their names
//
// Exit 0: all pass; 1: something fails; 2: no GPU. A fault on the device ends the run: everything
// after it would fail for that reason alone.
#include "bench/device.h"
#include "bench/mirror.h"
#include "cuda/cuda_ops.h"
#include "tests/harness.h"

using harness::Group;

namespace {

bool chosen(const Group &group, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (strstr(group.name, argv[i]) != nullptr) return true;
  }
  return argc < 2;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--list") == 0) {
    for (const Group &group : harness::groups()) printf("%s\n", group.name);
    return 0;
  }
  std::string why;
  device::Info info;
  const std::vector<int32_t> devices = device::list(&why);
  if (devices.empty() || !device::open(devices.back(), &info, &why)) {
    fprintf(stderr, "sie_conformance: %s\n", why.c_str());
    return 2;
  }
  mirror::install();
  sie_stream on = *device::stream();
  // Few multiprocessors, so that kernels whose CTAs take several tiles do so at the list's small
  // sizes.
  on.multiprocessors = 2;
  harness::gpus().push_back({mirror::table(sie_cuda_ops(info.sm)), on});
  harness::select(harness::Tables::gpu);
  printf("# %s, table %s\n", info.name.c_str(), harness::backends()[0]->name);
  int ran = 0;
  for (const Group &group : harness::groups()) {
    if (!chosen(group, argc, argv)) continue;
    check::failures_of_case = 0;
    const double begin = check::seconds();
    harness::run_group(group);
    printf("%-4s %s (%.2f s)\n", check::failures_of_case == 0 ? "ok" : "FAIL", group.name,
           check::seconds() - begin);
    fflush(stdout);
    ran++;
    if (device::finish() != SIE_OK) {
      fprintf(stderr, "sie_conformance: %s\n", device::message().c_str());
      return 1;
    }
  }
  printf("%d groups, %d failures\n", ran, check::failures);
  return check::failures == 0 && ran > 0 ? 0 : 1;
}
