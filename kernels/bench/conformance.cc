// conformance.cc — runs the conformance list of kernels/tests on a device's own memory.
//
//   sie_conformance [--multiprocessors few|all|both] [GROUP…]
//                              groups whose name contains one of the words; SIE_TEST_SHARD=0/N: every
//                              N-th case; SIE_CUDA_PDL=off: without programmatic launch
//   sie_conformance --list     their names
//
// few: kernels are told of 2 multiprocessors, so that CTAs that take several tiles do so at the list's
// small sizes; all: of the card's own number, as in service; both, the default, one after the other.
//
// Exit 0: all pass; 1: something fails; 2: no GPU. A fault on the device ends the run: everything
// after it would fail for that reason alone.
#include "bench/device.h"
#include "bench/mirror.h"
#include "cuda/cuda_ops.h"
#include "tests/harness.h"

using harness::Group;

namespace {

constexpr int32_t few = 2;

// The command line: which multiprocessors, and words.
struct Asked {
  bool few = true, all = true;
  std::vector<const char *> words;
};

// False: there is no such option.
bool read(int argc, char **argv, Asked *asked) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--multiprocessors") != 0) {
      if (argv[i][0] == '-') return false;
      asked->words.push_back(argv[i]);
      continue;
    }
    if (++i == argc) return false;
    const bool both = strcmp(argv[i], "both") == 0;
    asked->few = both || strcmp(argv[i], "few") == 0;
    asked->all = both || strcmp(argv[i], "all") == 0;
    if (!asked->few && !asked->all) return false;
  }
  return true;
}

bool chosen(const Group &group, const Asked &asked) {
  for (const char *word : asked.words) {
    if (strstr(group.name, word) != nullptr) return true;
  }
  return asked.words.empty();
}

// Runs the groups on a card of so many multiprocessors, and counts them. False: the device is lost.
bool run(const device::Info &info, int32_t multiprocessors, const Asked &asked, int *ran) {
  sie_stream on = *device::stream();
  on.multiprocessors = multiprocessors;
  harness::gpus() = {{mirror::table(sie_cuda_ops(info.sm)), on}};
  harness::select(harness::Tables::gpu);
  printf("# %s, table %s, %d multiprocessors\n", info.name.c_str(), harness::backends()[0]->name,
         multiprocessors);
  for (const Group &group : harness::groups()) {
    if (!chosen(group, asked)) continue;
    check::failures_of_case = 0;
    const double begin = check::seconds();
    harness::run_group(group);
    const sie_status status = device::finish();
    CHECK(status == SIE_OK, "%s: status %d: %s", group.name, static_cast<int>(status),
          device::message().c_str());
    printf("%-4s %s (%.2f s)\n", check::failures_of_case == 0 ? "ok" : "FAIL", group.name,
           check::seconds() - begin);
    fflush(stdout);
    ++*ran;
    if (status == SIE_DEVICE_LOST) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--list") == 0) {
    for (const Group &group : harness::groups()) printf("%s\n", group.name);
    return 0;
  }
  Asked asked;
  if (!read(argc, argv, &asked)) {
    fprintf(stderr, "usage: sie_conformance [--multiprocessors few|all|both] [GROUP…]\n");
    return 1;
  }
  std::string why;
  device::Info info;
  const std::vector<int32_t> devices = device::list(&why);
  if (devices.empty() || !device::open(devices.back(), &info, &why)) {
    fprintf(stderr, "sie_conformance: %s\n", why.c_str());
    return 2;
  }
  mirror::install();
  int ran = 0;
  const bool lost = (asked.few && !run(info, few, asked, &ran)) ||
                    (asked.all && !run(info, info.multiprocessors, asked, &ran));
  if (lost) fprintf(stderr, "sie_conformance: the device is lost; nothing more can run\n");
  printf("%d groups, %d failures\n", ran, check::failures);
  return !lost && check::failures == 0 && ran > 0 ? 0 : 1;
}
