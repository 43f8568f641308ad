// detect.cc — finds the instruction set that a machine runs. It looks at cpuid and at what the
// operating system saves; for AMX it also asks the kernel for permission. Compiled for the baseline
// instruction set.
#include "detect.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ops.h"

namespace sie_cpu {

namespace {

CpuidLeaf cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidLeaf r = {0, 0, 0, 0};
  if (__get_cpuid_max(0, nullptr) >= leaf) __cpuid_count(leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
  return r;
}

uint32_t saved_states() {
  uint32_t eax = 0, edx = 0;
  __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return eax;
}

long arch_prctl(long code, long value) { return syscall(SYS_arch_prctl, code, value); }

constexpr uint32_t bit(int n) { return 1u << n; }
bool has(uint32_t flags, uint32_t wanted) { return (flags & wanted) == wanted; }

}  // namespace

uint32_t detect(const Machine &machine) {
  const CpuidLeaf basic = machine.cpuid(1, 0), extended = machine.cpuid(7, 0);
  constexpr uint32_t fma = bit(12), osxsave = bit(27), avx = bit(28), f16c = bit(29);
  if (!has(basic.ecx, fma | osxsave | avx | f16c)) return SIE_ISA_BEST;
  const uint32_t states = machine.saved_states();
  constexpr uint32_t ymm_states = bit(1) | bit(2), zmm_states = bit(5) | bit(6) | bit(7),
                     tile_states = bit(17) | bit(18);
  constexpr uint32_t avx2 = bit(5);
  if (!has(states, ymm_states) || !has(extended.ebx, avx2)) return SIE_ISA_BEST;
  constexpr uint32_t avx512 = bit(16) | bit(17) | bit(30) | bit(31);  // F, DQ, BW, VL
  if (!has(states, zmm_states) || !has(extended.ebx, avx512)) return SIE_ISA_AVX2;
  constexpr uint32_t vnni = bit(11);
  if (!has(extended.ecx, vnni)) return SIE_ISA_AVX512;
  constexpr uint32_t avx512_bf16 = bit(5);
  if (!has(machine.cpuid(7, 1).eax, avx512_bf16)) return SIE_ISA_AVX512_VNNI;
  constexpr uint32_t amx = bit(22) | bit(24) | bit(25);  // bf16, tile, int8
  if (!has(states, tile_states) || !has(extended.edx, amx)) return SIE_ISA_AVX512_BF16;
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return machine.arch_prctl(request_permission, tile_data) == 0 ? SIE_ISA_AMX : SIE_ISA_AVX512_BF16;
}

}  // namespace sie_cpu

uint32_t sie_cpu_detect(void) {
  return sie_cpu::detect({sie_cpu::cpuid, sie_cpu::saved_states, sie_cpu::arch_prctl});
}
