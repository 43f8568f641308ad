// cpu_limits_test.cc — quotas and memory limits from made-up /proc and cgroup trees.
#include "cpu_limits.h"

#include <string>

#include "root.h"
#include "tests/check.h"

namespace {

sie::CpuLimits read(const Root &root) { return sie::read_cpu_limits(root.path()); }

const char *const mount_v2 =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

}  // namespace

TEST(limits_without_cgroups) {
  Root root;
  sie::CpuLimits limits = read(root);
  CHECK(limits.cpus_affinity >= 1, "%d CPUs", limits.cpus_affinity);
  CHECK(limits.cpus_quota == 0 && limits.memory_limit == 0, "quota %g, memory %lld", limits.cpus_quota,
        static_cast<long long>(limits.memory_limit));
}

TEST(limits_v2_takes_the_tightest_ancestor) {
  Root root;
  root.file("/proc/self/cgroup", "0::/pod/box/leaf\n");
  root.file("/proc/self/mountinfo", mount_v2);
  root.file("/sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  root.file("/sys/fs/cgroup/pod/memory.max", "max\n");
  root.file("/sys/fs/cgroup/pod/box/cpu.max", "400000 100000\n");
  root.file("/sys/fs/cgroup/pod/box/memory.max", "1073741824\n");
  root.file("/sys/fs/cgroup/pod/box/leaf/cpu.max", "max 100000\n");
  root.file("/sys/fs/cgroup/pod/box/leaf/memory.max", "2147483648\n");
  sie::CpuLimits limits = read(root);
  CHECK(limits.cpus_quota == 1.5, "quota %g", limits.cpus_quota);
  CHECK(limits.memory_limit == 1073741824, "memory %lld", static_cast<long long>(limits.memory_limit));
}

TEST(limits_v2_reads_the_mount_itself) {
  // Inside a container with its own cgroup namespace the group is /.
  Root root;
  root.file("/proc/self/cgroup", "0::/\n");
  root.file("/proc/self/mountinfo", mount_v2);
  root.file("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  CHECK(read(root).cpus_quota == 0.5, "quota %g", read(root).cpus_quota);
}

TEST(limits_v1_by_controller) {
  Root root;
  root.file("/proc/self/cgroup", "5:memory:/docker/abc\n3:cpuacct,cpu:/docker/abc\n1:name=systemd:/\n");
  root.file("/proc/self/mountinfo",
            "31 23 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
            "32 23 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
            "33 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  // The mount of the cpu hierarchy shows only the container's group and those below it.
  root.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
  root.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  root.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.file("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "536870912\n");
  sie::CpuLimits limits = read(root);
  CHECK(limits.cpus_quota == 2.5, "quota %g", limits.cpus_quota);
  CHECK(limits.memory_limit == 536870912, "memory %lld", static_cast<long long>(limits.memory_limit));
}

TEST(limits_v1_without_quota) {
  Root root;
  root.file("/proc/self/cgroup", "3:cpu:/a\n");
  root.file("/proc/self/mountinfo", "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  root.file("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  root.file("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  CHECK(read(root).cpus_quota == 0, "quota %g", read(root).cpus_quota);
}

TEST(limits_survive_nonsense) {
  Root root;
  std::string line(9000, 'x');
  root.file("/proc/self/cgroup", "::::\n\n0::" + line + "\nno colons\n0::/g\n");
  root.file("/proc/self/mountinfo", line + "\n - \n1 2 3\n" + mount_v2);
  root.file("/sys/fs/cgroup/g/cpu.max", "-5 0 what\n");
  root.file("/sys/fs/cgroup/g/memory.max", "99999999999999999999999\n");
  root.file("/sys/fs/cgroup/cpu.max", "\n");
  sie::CpuLimits limits = read(root);
  CHECK(limits.cpus_quota == 0 && limits.memory_limit == 0, "quota %g, memory %lld", limits.cpus_quota,
        static_cast<long long>(limits.memory_limit));
}
