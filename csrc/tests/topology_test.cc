// topology_test.cc — physical cores from made-up sysfs trees, and the CPUs chosen for executors.
#include "topology.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "cpu_limits.h"
#include "root.h"
#include "tests/check.h"

namespace {

using Cpus = std::vector<int32_t>;

void siblings(Root *root, int cpu, const char *list, const char *name = "thread_siblings_list") {
  root->file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + name, list);
}

void check_order(const Root &root, Cpus cpus, int32_t cores, const Cpus &expected) {
  int32_t got = sie::order_by_core(root.path(), cpus.data(), static_cast<int32_t>(cpus.size()));
  CHECK(got == cores, "%d cores, %d expected", got, cores);
  CHECK(cpus == expected, "another order: first %d, last %d", cpus.front(), cpus.back());
}

// The CPUs of `threads` executors; empty if the kernel should place them.
Cpus chosen(const Cpus &cpus, int32_t cores, int32_t threads, bool asked, uint64_t spread) {
  Cpus out(static_cast<size_t>(threads));
  int32_t n = static_cast<int32_t>(cpus.size());
  return sie::choose_cpus(cpus.data(), n, cores, threads, asked, spread, out.data()) ? out : Cpus();
}

}  // namespace

TEST(topology_puts_one_cpu_of_each_core_first) {
  Root apart, side_by_side;
  for (int cpu = 0; cpu < 8; cpu++) {
    siblings(&apart, cpu, (std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n").c_str());
    siblings(&side_by_side, cpu,
             (std::to_string(cpu / 2 * 2) + "-" + std::to_string(cpu / 2 * 2 + 1)).c_str());
  }
  check_order(apart, {0, 1, 2, 3, 4, 5, 6, 7}, 4, {0, 1, 2, 3, 4, 5, 6, 7});
  check_order(side_by_side, {0, 1, 2, 3, 4, 5, 6, 7}, 4, {0, 2, 4, 6, 1, 3, 5, 7});
  // A mask with only the second thread of a core: that thread stands for the core.
  check_order(apart, {1, 5, 6}, 2, {1, 6, 5});
  check_order(apart, {7}, 1, {7});
}

TEST(topology_prefers_the_newer_name) {
  Root root;
  siblings(&root, 0, "0-1\n", "core_cpus_list");
  siblings(&root, 1, "0-1\n", "core_cpus_list");
  siblings(&root, 1, "1\n");
  check_order(root, {0, 1}, 1, {0, 1});
  Root other;
  siblings(&other, 1, "1\n", "core_cpus_list");
  siblings(&other, 1, "0-1\n");
  check_order(other, {0, 1}, 2, {0, 1});
}

// A file may have any number, 0 too, where the host program has closed its input.
TEST(topology_reads_through_any_descriptor) {
  Root root;
  for (int cpu : {0, 1}) siblings(&root, cpu, "0-1\n");
  const int input = dup(0);
  close(0);
  check_order(root, {0, 1}, 1, {0, 1});
  CHECK(fcntl(0, F_GETFD) < 0, "a file is left open");
  if (input >= 0) {
    dup2(input, 0);
    close(input);
  }
}

TEST(topology_without_sysfs_has_a_core_for_each_cpu) {
  Root root;
  check_order(root, {2, 5, 9}, 3, {2, 5, 9});
  siblings(&root, 5, "nonsense\n");
  siblings(&root, 9, "70000000000000\n");
  check_order(root, {2, 5, 9}, 3, {2, 5, 9});
  check_order(root, {0, 5, 9}, 3, {0, 5, 9});
  // No core is named by a later CPU, or by none.
  Root odd;
  siblings(&odd, 2, "5\n");
  for (int cpu : {6, 7}) siblings(&odd, cpu, "-1\n");
  check_order(odd, {2, 5, 6, 7}, 4, {2, 5, 6, 7});
}

TEST(topology_chooses_cpus) {
  const Cpus cpus = {0, 2, 4, 6, 1, 3, 5, 7};  // four cores, then their hyperthreads
  CHECK(chosen(cpus, 4, 4, false, 3) == (Cpus{0, 2, 4, 6}), "every core has one, wherever it begins");
  CHECK(chosen(cpus, 4, 2, false, 3) == (Cpus{6, 0}), "a quota of two takes neighbours from the fourth on");
  CHECK(chosen(cpus, 4, 2, false, 5) == (Cpus{2, 4}), "and from the second");
  CHECK(chosen(cpus, 4, 1, false, 0).empty(), "one executor floats");
  CHECK(chosen(cpus, 4, 9, true, 0).empty(), "more than CPUs float");
  CHECK(chosen(cpus, 4, 3, true, 0).empty(), "fewer than cores, asked for: they float");
  CHECK(chosen(cpus, 4, 4, true, 0) == (Cpus{0, 2, 4, 6}), "as many as cores, asked for");
  CHECK(chosen(cpus, 4, 6, true, 1) == (Cpus{0, 2, 4, 6, 1, 3}), "more than cores: hyperthreads too");
  CHECK(chosen(cpus, 4, 8, false, 1) == cpus, "as many as CPUs");
}

TEST(topology_counts_executors) {
  struct {
    int32_t affinity, cores;
    double quota;
    int32_t want;
  } cases[] = {{8, 8, 0, 8}, {8, 4, 0, 4},   {8, 4, 2.5, 3}, {8, 4, 6, 4},
               {8, 8, 2, 2}, {8, 8, 0.2, 1}, {1, 1, 0, 1}};
  for (const auto &c : cases) {
    int32_t got = sie::usable_cpus({c.affinity, c.quota, 0}, c.cores);
    CHECK(got == c.want, "%d cores, quota %g: %d executors, %d expected", c.cores, c.quota, got, c.want);
  }
}
