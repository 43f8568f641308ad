// cpu_limits.h — how many CPUs and how much memory this process may use: affinity and cgroups.
#ifndef SIE_CSRC_CPU_LIMITS_H
#define SIE_CSRC_CPU_LIMITS_H

#include <stdint.h>

namespace sie {

constexpr int32_t max_cpus = 65536;  // no kernel is built for more

struct CpuLimits {
  int32_t cpus_affinity;  // CPUs in the affinity mask, at least 1
  double cpus_quota;      // the tightest cgroup quota from this process's group to the root; 0 = none
  int64_t memory_limit;   // the tightest cgroup memory limit, bytes; 0 = none
};

// Reads cgroup v1, v2 and mixed hierarchies, as <root>/proc/self/{cgroup,mountinfo} and the mounts
// they name describe them. root is "" for the real system and a folder in tests. What cannot be
// read is no limit.
CpuLimits read_cpu_limits(const char *root);

// The first `count` CPUs of the affinity mask, ascending, into cpus; returns how many there are of
// them.
int32_t affinity_cpus(int32_t *cpus, int32_t count);

// Executors for these limits and so many physical cores: one for each of these, bounded by the
// quota rounded up; at least 1.
int32_t usable_cpus(const CpuLimits &limits, int32_t cores);

}  // namespace sie

#endif  // SIE_CSRC_CPU_LIMITS_H
