// topology.h — which logical CPUs share a physical core, an L3 cache and a memory node, and to
// which CPUs executors are pinned.
#ifndef SIE_CSRC_TOPOLOGY_H
#define SIE_CSRC_TOPOLOGY_H

#include <stdint.h>

#include "cpu_limits.h"

namespace sie {

constexpr int32_t max_executors = 1024;
constexpr int32_t max_nodes = 64;

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

// The CPUs that this process may use, and the nodes that they are of: the parts of a machine that
// have memory of their own. Nodes have places here, from 0, apart from the kernel's numbers.
struct Topology {
  int32_t n, cores;               // CPUs, and physical cores
  int32_t caches;                 // L3 caches; 0: not known
  int32_t nodes;                  // at least 1
  int32_t cpus[max_executors];    // [n] as order_by_core leaves them
  int32_t places[max_executors];  // [n] the node of each
  int32_t numbers[max_nodes];     // [nodes] the kernel's; -1: not known
};

// Reads the topology of the CPUs cpus[n], ascending. There is one node where <root>/sys names no
// nodes, or a CPU is of none or of two, or a list there makes no sense, or there are more than
// max_nodes. A node counts if it has CPUs of the list; if it has no memory, its CPUs count with
// those of the first node that has.
void read_topology(const char *root, const int32_t *cpus, int32_t n, Topology *topology);

// Where executors run. They are numbered node by node.
struct Seats {
  Topology on;
  bool pinned = false;  // each to its CPU
  // Of several nodes, though not pinned to CPUs: the kernel places each among the CPUs of its node.
  bool by_node = false;
  int32_t nodes = 1;                  // that have executors
  int32_t numbers[max_nodes] = {-1};  // [nodes] the kernel's; -1: memory is not placed
  int32_t cpus[max_executors];        // [threads] of pinned executors
  int32_t places[max_executors];      // [threads] the node of each, from 0: an index of numbers
};

// Seats `threads` executors. With one node: on the CPUs of choose_cpus. With several:
//   - as many as there are cores, or more: pinned to every core, then to hyperthreads, evenly;
//   - fewer, because of a quota: pinned to cores of as few nodes as hold them, from the node that
//     `spread` picks;
//   - fewer, because the caller asked for them: on every node, in proportion to its cores, by node.
// One executor, and more executors than CPUs, are placed by the kernel, as if there were one node.
void seat_executors(const Topology &topology, int32_t threads, bool asked, uint64_t spread, Seats *seats);

// The CPUs of a node of the seats; none if there is one node.
CpuMask mask_of(const Seats &seats, int32_t place);

// Whether there are nodes on which memory is placed.
inline bool has_nodes(const Seats &seats) { return seats.numbers[0] >= 0; }

}  // namespace sie

#endif  // SIE_CSRC_TOPOLOGY_H
