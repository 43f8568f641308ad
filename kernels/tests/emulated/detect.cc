// detect.cc — the sie_cpu_detect of libraries whose tables above the machine's run on emulated
// instructions.
#include <stdint.h>

#include "ops.h"

// kernels/cpu/detect.cc, compiled under this name.
extern "C" uint32_t sie_machine_detect(void);

// SIE_ISA_AMX wherever the machine has the instructions that are not emulated.
uint32_t sie_cpu_detect(void) {
#ifdef SIE_EMULATED_AVX512
  constexpr uint32_t needed = SIE_ISA_AVX2;
#else
  constexpr uint32_t needed = SIE_ISA_AVX512_BF16;
#endif
  const uint32_t best = sie_machine_detect();
  return best < needed ? best : SIE_ISA_AMX;
}
