// detect.cc — the sie_cpu_detect of libraries whose AMX kernels run on emulated tiles.
#include <stdint.h>

#include "ops.h"

// kernels/cpu/detect.cc, compiled under this name.
extern "C" uint32_t sie_machine_detect(void);

// SIE_ISA_AMX wherever the machine has the other instructions that those kernels need.
uint32_t sie_cpu_detect(void) {
  const uint32_t best = sie_machine_detect();
  __builtin_cpu_init();
  if (best < SIE_ISA_AVX512_VNNI || !__builtin_cpu_supports("avx512bf16")) return best;
  return SIE_ISA_AMX;
}
