// bench_main.cc — times every operation on the GPU of this machine.
//
//   sie_bench [--json FILE] [--cublaslt FILE] [--filter TEXT] [--seconds N]
//   sie_bench --sweep FILE [--seconds N]   tile variants of the GEMM; lines for
//                                          kernels/cuda/gemm_tiles.h
//
// It prints lines of Go benchmarks on standard output. %floor is the least time that the card's own
// ceilings allow, measured first in this run, as a share of the median; %noise is the distance
// between two series of the same code. Exit 0: timed and right; 1: something is wrong or could not
// be written; 2: no GPU.
#include <stdlib.h>

#include "bench/cublaslt.h"
#include "bench/device.h"
#include "bench/mirror.h"
#include "bench/report.h"
#include "bench/sweep.h"
#include "bench/verify.h"
#include "cuda/cuda_ops.h"

namespace {

struct Options {
  std::string json, cublaslt, filter, sweep;
  double seconds = 1e9;
};

bool parse(int argc, char **argv, Options *options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) return false;
    const char *value = argv[i + 1];
    if (flag == "--json") {
      options->json = value;
    } else if (flag == "--cublaslt") {
      options->cublaslt = value;
    } else if (flag == "--filter") {
      options->filter = value;
    } else if (flag == "--sweep") {
      options->sweep = value;
    } else if (flag == "--seconds" && atof(value) > 0) {
      options->seconds = atof(value);
    } else {
      return false;
    }
  }
  return true;
}

void time_points(const Options &options, const sie_ops *table, bool cublaslt, bench::Timer *timer,
                 bench::Report *report) {
  sie_ops peer = {};
  peer.linear = cublaslt::linear;
  const double begin = check::seconds();
  int left = 0;
  for (const bench::Point &point : bench::points()) {
    if (point.name().find(options.filter) == std::string::npos) continue;
    if (check::seconds() - begin > options.seconds) {
      left++;
      continue;
    }
    std::unique_ptr<harness::Case> c = point.make();
    std::vector<bench::Implementation> list = {{"sie", nullptr}};
    if (cublaslt && point.op == "linear") list.push_back({"cublaslt", &peer});
    if (!c->present(table)) {
      printf("# %s: not in table %s\n", point.name().c_str(), table->name);
      continue;
    }
    const sie_status status = bench::verify(c.get(), table);
    CHECK(status == SIE_OK || status == SIE_UNSUPPORTED, "%s: status %d", point.name().c_str(), status);
    if (status == SIE_UNSUPPORTED) printf("# %s: unsupported by %s\n", point.name().c_str(), table->name);
    if (status != SIE_OK) continue;
    for (const bench::Result &result : timer->time(c.get(), table, list)) {
      CHECK(result.status == SIE_OK || result.name != "sie", "%s: status %d when timed: %s",
            point.name().c_str(), result.status, device::message().c_str());
      report->result(point, *c, result);
    }
  }
  if (left > 0) printf("# %d cases were left when the time was up\n", left);
}

}  // namespace

int main(int argc, char **argv) {
  Options options;
  if (!parse(argc, argv, &options)) {
    fprintf(
        stderr,
        "usage: sie_bench [--json FILE] [--cublaslt FILE] [--filter TEXT] [--sweep FILE] [--seconds N]\n");
    return 1;
  }
  std::string why;
  device::Info info;
  const std::vector<int32_t> devices = device::list(&why);
  if (devices.empty() || !device::open(devices[0], &info, &why)) {
    fprintf(stderr, "sie_bench: %s\n", why.c_str());
    return 2;
  }
  mirror::install();
  const sie_ops *table = mirror::table(sie_cuda_ops(info.sm));
  harness::gpus().push_back({table, *device::stream()});
  bench::Timer timer(info.l2_bytes, info.memory_bytes);
  bench::Ceilings ceilings;
  if (!timer.ceilings(&ceilings)) {
    fprintf(stderr, "sie_bench: the ceilings cannot be measured: %s\n", device::message().c_str());
    return 1;
  }
  std::string peer;
  const bool cublaslt = cublaslt::open(options.cublaslt, &peer);
  std::unique_ptr<bench::Report> report = bench::Report::open(options.json);
  if (report == nullptr) return 1;
  report->device(info, ceilings, peer);
  if (options.sweep.empty()) {
    time_points(options, table, cublaslt, &timer, report.get());
  } else {
    bench::sweep(info, &timer, table, options.sweep, options.seconds);
  }
  if (timer.ceilings(&ceilings)) report->drift(ceilings);
  printf("# %d failures\n", check::failures);
  return check::failures == 0 ? 0 : 1;
}
