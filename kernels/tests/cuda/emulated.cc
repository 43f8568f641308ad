// emulated.cc — the three families of devices, and the seed of their random order.
#include "tests/cuda/emulated.h"

#include <stdlib.h>
#include <time.h>

#include "cuda/cuda_ops.h"
#include "simt/simt.h"
#include "tests/harness.h"

namespace harness {

namespace {

uint64_t process_seed() {
  static const uint64_t seed = [] {
    if (const char *text = getenv("SIE_SIMT_SEED")) return static_cast<uint64_t>(strtoull(text, nullptr, 0));
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<uint64_t>(now.tv_nsec ^ now.tv_sec) & 0xffffffffu;
  }();
  return seed;
}

}  // namespace

void add_emulated_gpus() {
  // Few multiprocessors, so that kernels whose CTAs take several tiles do so at small sizes.
  const int32_t multiprocessors = 2;
  for (int32_t sm : {80, 89, 90}) {
    gpus().push_back({sie_cuda_ops(sm), {nullptr, sm, multiprocessors, sm >= 90 ? 1 : 0, 0}});
  }
}

void restart_emulation() { simt::seed(process_seed()); }

void print_emulation_seed() {
  printf("emulated GPUs: SIE_SIMT_SEED=%llu repeats this order of threads\n",
         static_cast<unsigned long long>(process_seed()));
}

}  // namespace harness
