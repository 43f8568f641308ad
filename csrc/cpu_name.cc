// cpu_name.cc — reads a processor's name. Both families are compiled everywhere, so that tests see both.
#include "cpu_name.h"

#include <stdio.h>
#include <string.h>

namespace sie {

void name_x86_64(Cpuid cpuid, char *name, size_t cap) {
  uint32_t largest[4], brand[13] = {};  // 48 bytes, and a NUL
  cpuid(0x80000000u, largest);
  if (largest[0] >= 0x80000004u) {
    for (uint32_t i = 0; i < 3; i++) cpuid(0x80000002u + i, brand + 4 * i);
  }
  const char *text = reinterpret_cast<const char *>(brand);
  text += strspn(text, " ");
  snprintf(name, cap, "%s", text[0] != '\0' ? text : "x86-64 CPU");
}

void name_arm64(const char *root, char *name, size_t cap) {
  char path[256];
  snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", root);
  // MIDR_EL1 as Linux shows it: implementer in the top byte of its low word, part number from bit 4.
  unsigned long long midr = 0;
  if (FILE *file = fopen(path, "re")) {
    if (fscanf(file, "%llx", &midr) != 1) midr = 0;
    fclose(file);
  }
  if (midr == 0) {
    snprintf(name, cap, "arm64 CPU");
  } else {
    snprintf(name, cap, "arm64 CPU, implementer 0x%02llx, part 0x%03llx", midr >> 24 & 0xff,
             midr >> 4 & 0xfff);
  }
}

}  // namespace sie
