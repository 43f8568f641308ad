// emulated_amx.cc — the table "amx-emulated": the AMX kernels on emulated tiles (emulated_tiles.h).
#include "tests/emulated_amx.h"

#if defined(__x86_64__)

#include "cpu/amx_tile.h"
#include "cpu/detect.h"

int64_t emulated_products() { return sie_cpu::emulated_tiles()->products; }

// kernels/cpu/table.cc, compiled again for the emulated kernels, asks this in place of
// sie_cpu_detect.
extern "C" uint32_t sie_emulated_amx_detect(void) { return SIE_ISA_AMX; }

const sie_ops *emulated_amx() {
  // The other instructions that the kernels need.
  if (sie_cpu_detect() < SIE_ISA_AVX512_BF16) return nullptr;
  static const sie_ops ops = [] {
    sie_ops table = *sie_emulated_amx_ops(SIE_ISA_AMX);
    table.name = "amx-emulated";
    return table;
  }();
  return &ops;
}

#else

const sie_ops *emulated_amx() { return nullptr; }
int64_t emulated_products() { return 0; }

#endif
