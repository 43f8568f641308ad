// detect.h — what detect.cc and detect_arm64.cc want to know of a machine, so that a test can
// answer for a machine that it does not run on.
#ifndef SIE_KERNELS_CPU_DETECT_H
#define SIE_KERNELS_CPU_DETECT_H

#include <stdint.h>

namespace sie_cpu {

struct CpuidLeaf {
  uint32_t eax, ebx, ecx, edx;
};

struct Machine {
  // All zero where the leaf does not exist.
  CpuidLeaf (*cpuid)(uint32_t leaf, uint32_t subleaf);
  // The register states that the operating system saves (the low half of XCR0). Called only where
  // cpuid has OSXSAVE.
  uint32_t (*saved_states)();
  // arch_prctl of Linux, which grants the tile registers to a process on request: 0 where it does.
  // Called last, when everything else is there.
  long (*arch_prctl)(long code, long value);
};

// The best sie_isa that the machine runs; SIE_ISA_BEST (0) where it lacks AVX2, FMA or F16C.
uint32_t detect(const Machine &machine);

// The best sie_isa of an arm64 machine with these capabilities (AT_HWCAP of Linux); SIE_ISA_BEST
// (0) where it lacks ASIMD.
uint32_t detect_arm64(uint64_t capabilities);

}  // namespace sie_cpu

#endif  // SIE_KERNELS_CPU_DETECT_H
