// no_cpu.cc — GPU programs are built without the CPU backends, which have their own tests.
#include "ops.h"

extern "C" const sie_ops *sie_cpu_ops(uint32_t) { return nullptr; }
extern "C" uint32_t sie_cpu_detect(void) { return 0; }
