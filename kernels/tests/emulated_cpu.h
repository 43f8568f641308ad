// emulated_cpu.h — runs the kernels of AVX-512 and of AMX on machines without them.
#ifndef SIE_KERNELS_TESTS_EMULATED_CPU_H
#define SIE_KERNELS_TESTS_EMULATED_CPU_H

#include "ops.h"

// kernels/cpu/table.cc, compiled again over kernels whose instructions are emulated.
extern "C" const sie_ops *sie_emulated_ops(uint32_t isa);

// The table of `isa` on emulated instructions (emulated_avx512.h, emulated_tiles.h), as
// "avx512-emulated", where the machine lacks the table; the one of AMX on every machine. NULL
// otherwise, and where the machine lacks what this build does not emulate: a build made where there
// is AVX512_BF16 emulates the tiles alone.
const sie_ops *emulated_cpu(uint32_t isa);

// The number of tiles that this thread has multiplied.
int64_t emulated_products();

#endif  // SIE_KERNELS_TESTS_EMULATED_CPU_H
