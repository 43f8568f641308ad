// topology.h — which logical CPUs share a physical core, and to which CPUs executors are pinned.
#ifndef SIE_CSRC_TOPOLOGY_H
#define SIE_CSRC_TOPOLOGY_H

#include <stdint.h>

namespace sie {

// Reorders cpus[n], given ascending: the first entries are one CPU of each physical core, the
// others, their hyperthreads, follow. Returns the number of cores. <root>/sys says which CPUs share
// a core, root as in read_cpu_limits; a CPU that it says nothing about counts as a core. Looks at
// the first max_executors only.
int32_t order_by_core(const char *root, int32_t *cpus, int32_t n);

// Chooses the CPUs for `threads` executors out of cpus[n], ordered as above, into chosen[threads].
// False: the kernel should place them, because there is only one executor, or more executors than
// CPUs, or the caller asked for fewer than there are cores. Fewer executors than cores (a quota)
// take neighbouring cores, from the one that `spread` picks; otherwise several servers on a machine
// would all use the first cores.
bool choose_cpus(const int32_t *cpus, int32_t n, int32_t cores, int32_t threads, bool asked, uint64_t spread,
                 int32_t *chosen);

}  // namespace sie

#endif  // SIE_CSRC_TOPOLOGY_H
