// machine.h — made-up machines of several nodes: a sysfs tree, an affinity mask, and the calls that
// would place pages.
#ifndef SIE_CSRC_TESTS_MACHINE_H
#define SIE_CSRC_TESTS_MACHINE_H

#include <stdint.h>

#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "hooks.h"
#include "root.h"

// A call that would place pages.
struct PlacedPages {
  const char *p;
  size_t bytes;
  std::vector<int32_t> nodes;
  int mode;
  unsigned long bits;  // that the call names
};

// A page that a thread on the node at `place` touched.
struct TouchedPage {
  int32_t place;
  const char *p;
};

// While it lives, devices are opened on it. Threads are pinned to CPUs that this machine may lack;
// the kernel's refusals are ignored, as they are outside tests. One at a time.
class MadeUpMachine {
 public:
  // `nodes` nodes of `cores` cores with `threads` CPUs each. CPU c is of core c % (nodes · cores),
  // and cores are numbered node by node, as Linux does. An L3 cache has `shared` cores.
  MadeUpMachine(int nodes, int cores, int threads = 1, int shared = 4) {
    const int all = nodes * cores;
    std::string online;
    for (int k = 0; k < nodes; k++) {
      std::string list;
      for (int t = 0; t < threads; t++) list += (t > 0 ? "," : "") + range(t * all + k * cores, cores);
      node(k, list + "\n");
      online += (k > 0 ? "," : "") + std::to_string(k);
    }
    root.file("/sys/devices/system/node/online", online + "\n");
    for (int cpu = 0; cpu < all * threads; cpu++) {
      const int core = cpu % all, first = core / shared * shared;
      std::string siblings;
      for (int t = 0; t < threads; t++) siblings += (t > 0 ? "," : "") + std::to_string(t * all + core);
      const std::string path = "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
      root.file(path + "/topology/thread_siblings_list", siblings + "\n");
      root.file(path + "/cache/index0/level", "1\n");
      root.file(path + "/cache/index1/level", "3\n");
      root.file(path + "/cache/index1/shared_cpu_list", range(first, shared) + "\n");
    }
    cpus.resize(static_cast<size_t>(all * threads));
    std::iota(cpus.begin(), cpus.end(), 0);
    install();
  }
  ~MadeUpMachine() { sie::hooks::made_up.store(nullptr); }
  MadeUpMachine(const MadeUpMachine &) = delete;
  MadeUpMachine &operator=(const MadeUpMachine &) = delete;

  void node(int number, const std::string &list) {
    root.file("/sys/devices/system/node/node" + std::to_string(number) + "/cpulist", list);
  }
  // Makes the mask these CPUs.
  void install() {
    machine_ = {root.path(), cpus.data(), static_cast<int32_t>(cpus.size()), bind, touch};
    calls().clear();
    touched().clear();
    sie::hooks::made_up.store(&machine_);
  }
  // What was asked of the kernel, and what it answers.
  static std::vector<PlacedPages> &calls() {
    static std::vector<PlacedPages> all;
    return all;
  }
  static std::vector<TouchedPage> &touched() {
    static std::vector<TouchedPage> all;
    return all;
  }
  static int &answer() {
    static int number = 0;
    return number;
  }

  static std::string range(int first, int count) {
    return std::to_string(first) + (count > 1 ? "-" + std::to_string(first + count - 1) : "");
  }

  Root root;
  std::vector<int32_t> cpus;

 private:
  static int bind(void *p, size_t bytes, int mode, const unsigned long *nodes, unsigned long bits) {
    std::vector<int32_t> named;
    for (int32_t k = 0; k < 1024; k++) {
      if ((nodes[k / 64] >> (k % 64) & 1) != 0) named.push_back(k);
    }
    calls().push_back({static_cast<const char *>(p), bytes, named, mode, bits});
    return answer();
  }
  static void touch(int32_t place, const void *p) {
    touched().push_back({place, static_cast<const char *>(p)});
  }
  sie::hooks::Machine machine_ = {};
};

#endif  // SIE_CSRC_TESTS_MACHINE_H
