// emulated_main.cc — the bench without a GPU: the same cases, tiny, on the emulator's devices, for
// correctness alone.
//
//   kernel_bench_emulated        exit 0: all right, or not in the tables; 1: something is wrong
#include "bench/device.h"
#include "bench/mirror.h"
#include "bench/points.h"
#include "bench/verify.h"
#include "cuda/cuda_ops.h"

int main() {
  printf("# emulated GPUs: results are checked, nothing is timed\n");
  mirror::install();
  mirror::hide(true);  // every pointer that these kernels read is translated
  std::string why;
  for (int32_t which : device::list(&why)) {
    device::Info info;
    if (!device::open(which, &info, &why)) {
      fprintf(stderr, "kernel_bench_emulated: %s\n", why.c_str());
      return 1;
    }
    const sie_ops *table = mirror::table(sie_cuda_ops(info.sm));
    harness::gpus().assign(1, {table, *device::stream()});
    int right = 0, lacking = 0;
    for (const bench::Point &point : bench::tiny_points()) {
      std::unique_ptr<harness::Case> c = point.make();
      const int before = check::failures;
      const sie_status status = c->present(table) ? bench::verify(c.get(), table) : SIE_UNSUPPORTED;
      CHECK(status == SIE_OK || status == SIE_UNSUPPORTED, "%s: status %d", point.name().c_str(), status);
      const bool failed = check::failures != before;
      (status == SIE_OK ? right : lacking) += failed ? 0 : 1;
      printf("%-4s %s %s\n", failed ? "FAIL" : (status == SIE_OK ? "ok" : "none"), table->name,
             point.name().c_str());
    }
    printf("# %s: %d right, %d not in the table\n", info.name.c_str(), right, lacking);
  }
  printf("# %d failures\n", check::failures);
  return check::failures == 0 ? 0 : 1;
}
