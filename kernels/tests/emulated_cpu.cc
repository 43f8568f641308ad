// emulated_cpu.cc — the tables "avx512-emulated" to "amx-emulated".
#include "tests/emulated_cpu.h"

#if defined(__x86_64__)

#include <string>

#include "cpu/amx_tile.h"
#include "cpu/detect.h"

int64_t emulated_products() { return sie_cpu::emulated_tiles()->products; }

// kernels/cpu/table.cc, compiled again for the emulated kernels, asks this in place of
// sie_cpu_detect.
extern "C" uint32_t sie_emulated_detect(void) { return SIE_ISA_AMX; }

const sie_ops *emulated_cpu(uint32_t isa) {
#ifdef SIE_EMULATED_AVX512
  constexpr uint32_t needed = SIE_ISA_AVX2;
#else
  constexpr uint32_t needed = SIE_ISA_AVX512_BF16;
#endif
  const uint32_t best = sie_cpu_detect();
  if (best < needed || isa <= SIE_ISA_AVX2 || isa > SIE_ISA_AMX || (isa <= best && isa != SIE_ISA_AMX))
    return nullptr;
  struct Named {
    std::string name;
    sie_ops ops = {};
  };
  static Named tables[SIE_ISA_LEVEL(SIE_ISA_AMX) + 1];
  Named &table = tables[SIE_ISA_LEVEL(isa)];
  if (table.name.empty()) {
    table.ops = *sie_emulated_ops(isa);
    table.name = std::string(table.ops.name) + "-emulated";
    table.ops.name = table.name.c_str();
  }
  return &table.ops;
}

#else

const sie_ops *emulated_cpu(uint32_t) { return nullptr; }
int64_t emulated_products() { return 0; }

#endif
