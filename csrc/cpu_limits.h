// cpu_limits.h — how many CPUs and how much memory this process may use: affinity and cgroups.
#ifndef SIE_CSRC_CPU_LIMITS_H
#define SIE_CSRC_CPU_LIMITS_H

#include <stdint.h>

namespace sie {

constexpr int32_t max_cpus = 65536;  // no kernel is built for more

struct CpuLimits {
  int32_t cpus_affinity;  // CPUs in the affinity mask, at least 1
  double cpus_quota;      // the tightest cgroup quota of this process's groups; 0 = none
  int64_t memory_limit;   // their tightest memory limit, bytes; 0 = none
};

// Reads affinity and the limits of cgroup v1, v2 and mixed hierarchies.
// <root>/proc/self/{cgroup,mountinfo} say where the hierarchies are. root is "" for the real system
// and a folder in tests. A limit that cannot be read counts as none.
CpuLimits read_cpu_limits(const char *root);

// Writes the first `count` CPUs of the affinity mask to cpus, ascending. Returns the number of CPUs
// in the mask, which may be larger than count.
int32_t affinity_cpus(int32_t *cpus, int32_t count);

// CPUs on which a thread may run.
class CpuMask {
 public:
  // Those of the calling thread.
  static CpuMask now();
  void add(int32_t cpu) { words_[cpu / bits] |= 1ul << (cpu % bits); }
  // Keeps the calling thread on them; if the kernel refuses, or there are none, it runs where it
  // did.
  void stay() const;

 private:
  static constexpr int32_t bits = 8 * sizeof(unsigned long);
  unsigned long words_[max_cpus / bits] = {};
};

// The number of executors for these limits and `cores` physical cores: one a core, at most the
// quota rounded up, at least 1.
int32_t usable_cpus(const CpuLimits &limits, int32_t cores);

}  // namespace sie

#endif  // SIE_CSRC_CPU_LIMITS_H
