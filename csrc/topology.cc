// topology.cc — reads the siblings of each CPU from sysfs.
#include "topology.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>

#include "executor.h"

namespace sie {

namespace {

// The lowest CPU of the physical core of `cpu`: the first number of a list such as "3,67" or "6-7".
int32_t core_of(const char *root, int32_t cpu) {
  for (const char *name : {"core_cpus_list", "thread_siblings_list"}) {
    char path[512], text[32];
    int length = snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/%s", root, cpu, name);
    if (length < 0 || static_cast<size_t>(length) >= sizeof path) continue;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    text[n > 0 ? n : 0] = '\0';
    char *end;
    long first = strtol(text, &end, 10);
    if (end != text && first >= 0 && first <= cpu) return static_cast<int32_t>(first);
  }
  return cpu;
}

}  // namespace

int32_t order_by_core(const char *root, int32_t *cpus, int32_t n) {
  int32_t cores = 0, seen[max_executors];  // the cores of the first entries
  n = std::min(n, max_executors);
  for (int32_t i = 0; i < n; i++) {
    int32_t core = core_of(root, cpus[i]);
    if (std::find(seen, seen + cores, core) != seen + cores) continue;
    std::rotate(cpus + cores, cpus + i, cpus + i + 1);
    seen[cores++] = core;
  }
  return cores;
}

bool choose_cpus(const int32_t *cpus, int32_t n, int32_t cores, int32_t threads, bool asked, uint64_t spread,
                 int32_t *chosen) {
  if (threads < 2 || threads > n || (asked && threads < cores)) return false;
  // With an executor on every core, it does not matter where to begin.
  uint64_t first = threads < cores ? spread % static_cast<uint64_t>(cores) : 0;
  for (int32_t i = 0; i < threads; i++) {
    uint64_t place = static_cast<uint64_t>(i);
    chosen[i] = cpus[threads <= cores ? (first + place) % static_cast<uint64_t>(cores) : place];
  }
  return true;
}

}  // namespace sie
