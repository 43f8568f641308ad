// cpu_limits.cc — reads the affinity mask, and the limits of this process's cgroups from its own up
// to the root.
#include "cpu_limits.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

namespace sie {

namespace {

constexpr size_t path_max = 4096;
constexpr int lines_max = 100000;  // of mountinfo
constexpr int depth_max = 64;      // cgroups from this process's to the root

// Reads a file line by line in a fixed buffer, without allocation. Lines longer than the buffer are
// skipped.
class Lines {
 public:
  explicit Lines(const char *path) : file_(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~Lines() {
    if (file_ >= 0) close(file_);
  }
  Lines(const Lines &) = delete;
  Lines &operator=(const Lines &) = delete;

  // The next line without its newline, writable, valid until the next call; null at the end.
  char *next() {
    bool skipping = false;
    while (file_ >= 0 && ++count_ < lines_max) {
      char *begin = text_ + at_;
      if (char *end = static_cast<char *>(memchr(begin, '\n', length_ - at_))) {
        *end = '\0';
        at_ = static_cast<size_t>(end - text_) + 1;
        if (!skipping) return begin;
        skipping = false;
        continue;
      }
      // Keep the part of the line already read, and read on behind it.
      length_ -= at_;
      memmove(text_, begin, length_);
      at_ = 0;
      if (length_ == sizeof text_ - 1) {
        skipping = true;
        length_ = 0;
      }
      ssize_t n = read(file_, text_ + length_, sizeof text_ - 1 - length_);
      if (n <= 0) return last(skipping);
      length_ += static_cast<size_t>(n);
    }
    return nullptr;
  }

 private:
  // The rest of a file that ends without a newline.
  char *last(bool skipping) {
    close(file_);
    file_ = -1;
    text_[length_] = '\0';
    return length_ > 0 && !skipping ? text_ : nullptr;
  }

  int file_;
  int count_ = 0;
  size_t at_ = 0, length_ = 0;
  char text_[2 * path_max];
};

// Reads a short file into text[cap], NUL-terminated; false if it cannot be opened.
bool read_text(const char *path, char *text, size_t cap) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  ssize_t n = read(file, text, cap - 1);
  close(file);
  text[n > 0 ? n : 0] = '\0';
  return true;
}

// Whether `word` is in a comma-separated list.
bool lists(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *p = list; (p = strstr(p, word)) != nullptr; p += length) {
    bool starts = p == list || p[-1] == ',', ends = p[length] == '\0' || p[length] == ',';
    if (starts && ends) return true;
  }
  return false;
}

// Finds the path of this process in the hierarchy of `controller` ("" for v2). A line is
// hierarchy:controllers:path.
bool find_group(const char *groups, const char *controller, char *path) {
  Lines lines(groups);
  while (char *line = lines.next()) {
    char *controllers = strchr(line, ':');
    char *group = controllers != nullptr ? strchr(controllers + 1, ':') : nullptr;
    if (group == nullptr || strlen(group + 1) >= path_max) continue;
    *group++ = '\0';
    controllers++;
    if (*controller == '\0' ? *controllers == '\0' : lists(controllers, controller)) {
      strcpy(path, group);
      return true;
    }
  }
  return false;
}

// The folder of `group` below the mount of its hierarchy, and the length of the mount point in it.
// mountinfo: id parent major:minor root mountpoint options … - type source superoptions
bool find_folder(const char *mounts, const char *controller, const char *group, const char *root,
                 char *folder, size_t *mount_length) {
  char mounted[path_max], point[path_max], type[64], super[1024];
  Lines lines(mounts);
  while (char *line = lines.next()) {
    char *rest = strstr(line, " - ");
    if (rest == nullptr || sscanf(rest, " - %63s %*s %1023s", type, super) != 2) continue;
    if (sscanf(line, "%*s %*s %*s %4095s %4095s", mounted, point) != 2) continue;
    bool v2 = *controller == '\0';
    if (strcmp(type, v2 ? "cgroup2" : "cgroup") != 0 || (!v2 && !lists(super, controller))) continue;
    // A mount may show only a part of the hierarchy. For a group outside it, the mount's root is
    // read.
    size_t skip = strcmp(mounted, "/") == 0 ? 0 : strlen(mounted);
    bool inside = strncmp(group, mounted, skip) == 0 && (group[skip] == '/' || group[skip] == '\0');
    const char *below = inside ? group + skip : "";
    int n = snprintf(folder, path_max, "%s%s", root, point);
    if (n < 0 || static_cast<size_t>(n) + strlen(below) >= path_max) continue;
    *mount_length = static_cast<size_t>(n);
    strcpy(folder + n, below);
    return true;
  }
  return false;
}

bool read_below(const char *folder, const char *name, char *text, size_t cap) {
  char path[path_max + 64];
  int n = snprintf(path, sizeof path, "%s/%s", folder, name);
  return n > 0 && static_cast<size_t>(n) < sizeof path && read_text(path, text, cap);
}

void tighten_quota(CpuLimits *limits, double quota, double period) {
  if (quota <= 0 || period <= 0) return;
  double cpus = quota / period;
  if (limits->cpus_quota == 0 || cpus < limits->cpus_quota) limits->cpus_quota = cpus;
}

void tighten_memory(CpuLimits *limits, const char *text) {
  char *end;
  unsigned long long bytes = strtoull(text, &end, 10);
  // "max" and v1's page-rounded maximum both mean none.
  if (end == text || bytes == 0 || bytes >= (1ull << 62)) return;
  int64_t limit = static_cast<int64_t>(bytes);
  if (limits->memory_limit == 0 || limit < limits->memory_limit) limits->memory_limit = limit;
}

// Reads the limits of one cgroup. It tries the file names of v1 and v2: a folder has only those of
// its own version.
void read_group(const char *folder, CpuLimits *limits) {
  char text[128], period[128];
  if (read_below(folder, "cpu.max", text, sizeof text)) {
    double quota, per;
    if (sscanf(text, "%lf %lf", &quota, &per) == 2) tighten_quota(limits, quota, per);
  }
  if (read_below(folder, "cpu.cfs_quota_us", text, sizeof text) &&
      read_below(folder, "cpu.cfs_period_us", period, sizeof period)) {
    tighten_quota(limits, strtod(text, nullptr), strtod(period, nullptr));
  }
  if (read_below(folder, "memory.max", text, sizeof text)) tighten_memory(limits, text);
  if (read_below(folder, "memory.limit_in_bytes", text, sizeof text)) tighten_memory(limits, text);
}

// A limit of any ancestor binds, so every group up to the mount point is read.
void read_hierarchy(const char *groups, const char *mounts, const char *controller, const char *root,
                    CpuLimits *limits) {
  char group[path_max], folder[path_max];
  size_t mount_length;
  if (!find_group(groups, controller, group)) return;
  if (!find_folder(mounts, controller, group, root, folder, &mount_length)) return;
  for (int depth = 0; depth < depth_max; depth++) {
    read_group(folder, limits);
    char *slash = strrchr(folder + mount_length, '/');
    if (slash == nullptr) return;
    *slash = '\0';
  }
}

}  // namespace

int32_t affinity_cpus(int32_t *cpus, int32_t count) {
  constexpr int32_t bits = 8 * sizeof(unsigned long);
  unsigned long mask[max_cpus / bits] = {};
  long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
  int32_t found = 0;
  for (int32_t cpu = 0; cpu < bytes * 8; cpu++) {
    if ((mask[cpu / bits] >> (cpu % bits) & 1) == 0) continue;
    if (found < count) cpus[found] = cpu;
    found++;
  }
  return found;
}

CpuMask CpuMask::now() {
  CpuMask mask;
  syscall(SYS_sched_getaffinity, 0, sizeof mask.words_, mask.words_);
  return mask;
}

void CpuMask::stay() const { syscall(SYS_sched_setaffinity, 0, sizeof words_, words_); }

CpuLimits read_cpu_limits(const char *root) {
  int32_t cpus = affinity_cpus(nullptr, 0);
  CpuLimits limits = {cpus > 0 ? cpus : 1, 0, 0};
  char groups[path_max], mounts[path_max];
  snprintf(groups, sizeof groups, "%s/proc/self/cgroup", root);
  snprintf(mounts, sizeof mounts, "%s/proc/self/mountinfo", root);
  for (const char *controller : {"", "cpu", "memory"})
    read_hierarchy(groups, mounts, controller, root, &limits);
  return limits;
}

int32_t usable_cpus(const CpuLimits &limits, int32_t cores) {
  int32_t cpus = cores;
  if (limits.cpus_quota > 0 && ceil(limits.cpus_quota) < cpus)
    cpus = static_cast<int32_t>(ceil(limits.cpus_quota));
  return cpus > 0 ? cpus : 1;
}

}  // namespace sie
