// cpu_name.h — what a processor calls itself.
#ifndef SIE_CSRC_CPU_NAME_H
#define SIE_CSRC_CPU_NAME_H

#include <stddef.h>
#include <stdint.h>

namespace sie {

// Fills eax, ebx, ecx and edx of a leaf of cpuid, subleaf 0.
using Cpuid = void (*)(uint32_t leaf, uint32_t registers[4]);

// The brand string of an x86-64 processor.
void name_x86_64(Cpuid cpuid, char *name, size_t cap);

// Implementer and part of an arm64 processor, as <root>/sys shows them.
void name_arm64(const char *root, char *name, size_t cap);

}  // namespace sie

#endif  // SIE_CSRC_CPU_NAME_H
