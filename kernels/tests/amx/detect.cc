// detect.cc — the sie_cpu_detect of libraries whose AMX kernels run on emulated tiles.
#include <stdint.h>

#include "ops.h"

// kernels/cpu/detect.cc, compiled under this name.
extern "C" uint32_t sie_machine_detect(void);

// SIE_ISA_AMX wherever the machine has the other instructions that those kernels need.
uint32_t sie_cpu_detect(void) {
  const uint32_t best = sie_machine_detect();
  return best < SIE_ISA_AVX512_BF16 ? best : SIE_ISA_AMX;
}
