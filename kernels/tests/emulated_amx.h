// emulated_amx.h — runs the AMX kernels on machines without AMX.
#ifndef SIE_KERNELS_TESTS_EMULATED_AMX_H
#define SIE_KERNELS_TESTS_EMULATED_AMX_H

#include "ops.h"

// kernels/cpu/table.cc, compiled again over kernels with emulated tiles.
extern "C" const sie_ops *sie_emulated_amx_ops(uint32_t isa);

// The table "amx-emulated". NULL where the machine lacks AVX-512 with VNNI or BF16, which these
// kernels also use.
const sie_ops *emulated_amx();

// The number of tiles that this thread has multiplied.
int64_t emulated_products();

#endif  // SIE_KERNELS_TESTS_EMULATED_AMX_H
