// topology.h — which logical CPUs share a physical core, and on which of them executors stay.
#ifndef SIE_CSRC_TOPOLOGY_H
#define SIE_CSRC_TOPOLOGY_H

#include <stdint.h>

namespace sie {

// Puts cpus[n], ascending, into an order in which the first `cores` entries are of `cores`
// different physical cores, and the others, their hyperthreads, follow; returns `cores`. <root>/sys
// tells which share one, root as in read_cpu_limits; a CPU of which nothing can be read is a core
// of its own. Looks at the first max_executors only.
int32_t order_by_core(const char *root, int32_t *cpus, int32_t n);

// The CPUs for `threads` executors out of cpus[n], ordered as above, into chosen[threads]; false:
// they are better left to the kernel, since there is one executor, or more than CPUs, or a caller
// asked for fewer than cores. Fewer executors than cores (a quota) take neighbours, from the one
// that `spread` picks: servers side by side would else all sit on the first cores.
bool choose_cpus(const int32_t *cpus, int32_t n, int32_t cores, int32_t threads, bool asked, uint64_t spread,
                 int32_t *chosen);

}  // namespace sie

#endif  // SIE_CSRC_TOPOLOGY_H
