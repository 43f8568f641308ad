// detect_arm64.cc — finds the instruction set that an arm64 machine runs, from what Linux says of it.
// Compiled for the baseline instruction set, and on x86-64 for the tests.
#include "detect.h"
#include "ops.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace sie_cpu {

uint32_t detect_arm64(uint64_t capabilities) {
  constexpr uint64_t asimd = 1u << 1, asimddp = 1u << 20;  // HWCAP_ASIMD, HWCAP_ASIMDDP
  if ((capabilities & asimd) == 0) return SIE_ISA_BEST;
  return (capabilities & asimddp) != 0 ? SIE_ISA_NEON_DOT : SIE_ISA_NEON;
}

}  // namespace sie_cpu

#if defined(__aarch64__)
uint32_t sie_cpu_detect(void) { return sie_cpu::detect_arm64(getauxval(AT_HWCAP)); }
#endif
