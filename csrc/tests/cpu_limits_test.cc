// cpu_limits_test.cc — quotas and memory limits from made-up /proc and cgroup trees, and CPUs from
// made-up affinity masks.
#include "cpu_limits.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "affinity.h"
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

// A file may have any number, 0 too, where the host program has closed its input.
TEST(limits_are_read_through_any_descriptor) {
  Root root;
  root.file("/proc/self/cgroup", "0::/g\n");
  root.file("/proc/self/mountinfo", mount_v2);
  root.file("/sys/fs/cgroup/g/cpu.max", "150000 100000\n");
  const int input = dup(0);
  close(0);
  const double quota = read(root).cpus_quota;
  const bool open = fcntl(0, F_GETFD) >= 0;
  if (input >= 0) {
    dup2(input, 0);
    close(input);
  }
  CHECK(quota == 1.5, "quota %g", quota);
  CHECK(!open, "a file is left open");
}

// The last line may lack its newline; what an earlier part of the file had there does not count.
TEST(limits_of_a_last_line_without_newline) {
  for (size_t pad = 0; pad < 3; pad++) {
    Root root;
    std::string before(pad, '\n');
    while (before.size() < 9000) before += "zz\n";
    root.file("/proc/self/cgroup", before + "0::/g");
    root.file("/proc/self/mountinfo", mount_v2);
    root.file("/sys/fs/cgroup/g/cpu.max", "150000 100000\n");
    CHECK(read(root).cpus_quota == 1.5, "quota %g", read(root).cpus_quota);
  }
}

// A line of 8191 bytes and more is skipped as a whole, and the next one is read.
TEST(limits_skip_long_lines) {
  const std::string valid = "0::/g";
  struct {
    std::string lines;
    double want;
  } cases[] = {{std::string(9000, 'x') + "\n" + valid + "\n", 1.5},
               {std::string(8191, 'x') + "\n" + valid + "\n", 1.5},
               {std::string(8190, 'x') + "\n" + valid + "\n", 1.5},
               {std::string(8191, 'x') + valid + "\n", 0},
               {std::string(8191, 'x') + valid, 0},
               {std::string(20000, 'x') + valid + "\n" + valid + "\n", 1.5},
               // The first part of a line is kept while the rest is read.
               {std::string(100, 'x') + "\n" + std::string(8095, 'y') + "\n" + std::string(5000, 'z') + "\n" +
                    std::string(5000, 'z') + "\n" + valid + "\n",
                1.5}};
  for (const auto &c : cases) {
    Root root;
    root.file("/proc/self/cgroup", c.lines);
    root.file("/proc/self/mountinfo", mount_v2);
    root.file("/sys/fs/cgroup/g/cpu.max", "150000 100000\n");
    CHECK(read(root).cpus_quota == c.want, "%zu bytes: quota %g", c.lines.size(), read(root).cpus_quota);
  }
}

// A file has an end: 99,999 steps, each a line or a read of up to 8191 bytes.
TEST(limits_end_in_endless_files) {
  for (size_t lines : {99985, 99986}) {
    Root root;
    root.file("/proc/self/cgroup", "0::/\n");
    root.file("/proc/self/mountinfo", std::string(lines, '\n') + mount_v2);
    root.file("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    const double quota = read(root).cpus_quota;
    CHECK(quota == (lines == 99985 ? 1.5 : 0), "quota %g behind %zu lines", quota, lines);
  }
}

// The word of a controller stands alone in its list.
TEST(limits_tell_controllers_apart) {
  const char *const mount = "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
  for (const char *groups :
       {"3:notcpu:/a,cpu\n4:cpu:/g\n", "3:notcpu:/a\n4:cpu:/g\n", "3:cpuacct:/a\n4:cpu:/g\n", "3:cpu:/g\n",
        "3:cpuacct,cpu:/g\n", "3:cpu,cpuacct:/g\n", "3:a,cpu,b:/g\n"}) {
    Root root;
    root.file("/proc/self/cgroup", groups);
    root.file("/proc/self/mountinfo", mount);
    root.file("/sys/fs/cgroup/cpu/g/cpu.cfs_quota_us", "150000\n");
    root.file("/sys/fs/cgroup/cpu/g/cpu.cfs_period_us", "100000\n");
    CHECK(read(root).cpus_quota == 1.5, "%s: quota %g", groups, read(root).cpus_quota);
  }
}

// A path that fits nowhere counts as none, and the next line is asked.
TEST(limits_skip_paths_that_do_not_fit) {
  for (size_t length : {4095, 4096, 4097, 7000}) {
    Root root;
    root.file("/proc/self/cgroup", "0::/" + std::string(length - 1, 'x') + "\n0::/g\n");
    root.file("/proc/self/mountinfo", mount_v2);
    root.file("/sys/fs/cgroup/g/cpu.max", "150000 100000\n");
    // A path of 4095 bytes is taken, but there is no folder for it.
    const double want = length < 4096 ? 0 : 1.5, quota = read(root).cpus_quota;
    CHECK(quota == want, "a path of %zu bytes: quota %g", length, quota);
  }
  // The root, the mount point and what is below it make one path.
  for (size_t whole : {4095, 4096, 4097, 7000}) {
    Root root;
    const size_t point = 3000, group = whole - strlen(root.path()) - point;
    root.file("/proc/self/cgroup", "0::/" + std::string(group - 1, 'x') + "\n");
    root.file("/proc/self/mountinfo",
              "30 23 0:26 / /" + std::string(point - 1, 'y') + " rw - cgroup2 cgroup2 rw\n" + mount_v2);
    root.file("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    const double want = whole < 4096 ? 0 : 1.5, quota = read(root).cpus_quota;
    CHECK(quota == want, "a path of %zu bytes: quota %g", whole, quota);
  }
}

// A mount shows a part of the hierarchy; of a group outside it only the mount's root is read.
TEST(limits_of_groups_outside_the_mount) {
  struct {
    const char *group;
    double want;
  } cases[] = {{"/docker/abc", 4},     {"/docker/abc/leaf", 1.5}, {"/docker/xyz/leaf", 4},
               {"/docker/abcleaf", 4}, {"/docker/abc-", 4},       {"/", 4}};
  for (const auto &c : cases) {
    Root root;
    root.file("/proc/self/cgroup", std::string("3:cpu:") + c.group + "\n");
    root.file("/proc/self/mountinfo",
              "31 23 0:27 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
    root.file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
    root.file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    root.file("/sys/fs/cgroup/cpu/leaf/cpu.cfs_quota_us", "150000\n");
    root.file("/sys/fs/cgroup/cpu/leaf/cpu.cfs_period_us", "100000\n");
    // Above the mount, where no limit is.
    root.file("/sys/fs/cgroup/cpu.cfs_quota_us", "50000\n");
    root.file("/sys/fs/cgroup/cpu.cfs_period_us", "100000\n");
    CHECK(read(root).cpus_quota == c.want, "%s: quota %g", c.group, read(root).cpus_quota);
  }
}

// 64 groups are read, from the process's own upwards.
TEST(limits_of_deep_groups) {
  for (int depth : {63, 64}) {
    Root root;
    std::string group;
    for (int i = 0; i < depth; i++) group += "/a";
    root.file("/proc/self/cgroup", "0::" + group + "\n");
    root.file("/proc/self/mountinfo", mount_v2);
    root.file("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    const double quota = read(root).cpus_quota;
    CHECK(quota == (depth == 63 ? 1.5 : 0), "%d groups deep: quota %g", depth, quota);
  }
}

// Beside a quota of 2 and a limit of 4096 bytes, and alone. 0: none.
TEST(limits_that_are_none) {
  const std::string spaces(123, ' ');  // 127 bytes of a file are read
  struct {
    const char *cpu;
    std::string memory;
    double quota;
    long long bytes;
  } cases[] = {{"0 100000\n", "0\n", 0, 0},
               {"-1 100000\n", "max\n", 0, 0},
               {"100000 0\n", "4611686018427387904\n", 0, 0},
               {"100000 -1\n", "9223372036854771712\n", 0, 0},
               {"100000\n", "18446744073709551616\n", 0, 0},
               {"100000 100000\n", spaces + "2048\n", 1, 2048}};
  for (const auto &c : cases) {
    for (bool alone : {false, true}) {
      Root root;
      root.file("/proc/self/cgroup", "0::/g\n");
      root.file("/proc/self/mountinfo", mount_v2);
      if (!alone) root.file("/sys/fs/cgroup/g/cpu.max", "200000 100000\n");
      if (!alone) root.file("/sys/fs/cgroup/g/memory.max", "4096\n");
      root.file("/sys/fs/cgroup/cpu.max", c.cpu);
      root.file("/sys/fs/cgroup/memory.max", c.memory);
      const sie::CpuLimits limits = read(root);
      const double quota = c.quota == 0 && !alone ? 2 : c.quota;
      const long long bytes = c.bytes == 0 && !alone ? 4096 : c.bytes, got = limits.memory_limit;
      CHECK(limits.cpus_quota == quota, "%s: quota %g", c.cpu, limits.cpus_quota);
      CHECK(got == bytes, "%s: memory %lld", c.memory.c_str(), got);
    }
  }
  // No quota is one of v1, too.
  Root root;
  root.file("/proc/self/cgroup", "3:cpu:/a\n");
  root.file("/proc/self/mountinfo", "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  root.file("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  root.file("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  CHECK(read(root).cpus_quota == 0, "quota %g", read(root).cpus_quota);
}

// The kernel's mask may be of any length; what lies behind it is not the kernel's.
TEST(limits_list_the_cpus_of_the_mask) {
  affinity::Made made({1, 5, 63, 64, 71, 72, 127, 1000, 65535});
  const std::vector<int32_t> want = {1, 5, 63, 64, 71, 72, 127, 1000, 65535};
  for (int32_t count : {0, 1, 3, 9, 12}) {
    std::vector<int32_t> got(13, -7);
    const int32_t found = sie::affinity_cpus(got.data(), count);
    CHECK(found == 9, "%d CPUs", found);
    for (int32_t i = 0; i < 13; i++) {
      const int32_t expected = i < count && i < 9 ? want[static_cast<size_t>(i)] : -7;
      CHECK(got[static_cast<size_t>(i)] == expected, "CPU %d of %d is %d", i, count,
            got[static_cast<size_t>(i)]);
    }
  }
  made.bytes = 8;
  CHECK(sie::affinity_cpus(nullptr, 0) == 3, "%d CPUs of the first 64", sie::affinity_cpus(nullptr, 0));
  made.bytes = -1;
  CHECK(sie::affinity_cpus(nullptr, 0) == 0, "%d CPUs, though the call failed",
        sie::affinity_cpus(nullptr, 0));
  CHECK(sie::read_cpu_limits("").cpus_affinity == 1, "%d CPUs, though the call failed",
        sie::read_cpu_limits("").cpus_affinity);
  made.mine = affinity::mask_of({});
  made.bytes = 8192;
  CHECK(sie::read_cpu_limits("").cpus_affinity == 1, "%d CPUs of none",
        sie::read_cpu_limits("").cpus_affinity);
}

TEST(limits_keep_a_thread_on_its_cpus) {
  affinity::Made made({3, 900});
  sie::CpuMask mask;
  for (int32_t cpu : {1, 63, 64, 72, 65535}) mask.add(cpu);
  mask.stay();
  CHECK(made.kept() == std::vector<affinity::Mask>{affinity::mask_of({1, 63, 64, 72, 65535})}, "other CPUs");
  affinity::Made again({3, 900});
  sie::CpuMask::now().stay();
  CHECK(again.kept() == std::vector<affinity::Mask>{affinity::mask_of({3, 900})}, "not those of the thread");
}

TEST(limits_make_one_executor_at_least) {
  CHECK(sie::usable_cpus({1, 0, 0}, 0) == 1, "none of no cores");
  CHECK(sie::usable_cpus({1, 0.1, 0}, 0) == 1, "none of no cores, with a quota");
  CHECK(sie::usable_cpus({4, 2, 0}, 2) == 2, "two of two");
}
