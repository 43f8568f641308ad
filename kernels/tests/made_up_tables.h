// made_up_tables.h — the tables of x86-64 on kernels that are made up (table_test.cc), for machines that are described.
#ifndef SIE_KERNELS_TESTS_MADE_UP_TABLES_H
#define SIE_KERNELS_TESTS_MADE_UP_TABLES_H

#include "ops.h"

// What sie_cpu_ops(isa) gives where sie_cpu_detect finds `best`.
const sie_ops *table_on(uint32_t best, uint32_t isa);

#endif  // SIE_KERNELS_TESTS_MADE_UP_TABLES_H
