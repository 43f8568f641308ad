// topology.cc — reads the siblings, the L3 cache and the node of each CPU from sysfs, and seats
// executors.
#include "topology.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>

namespace sie {

namespace {

constexpr int32_t node_numbers = 1024;  // no kernel is built for more nodes
constexpr size_t list_bytes = 16384;    // of a list; no machine writes a longer one

// Reads <root>/sys/devices/system/<name> into text[cap], NUL-terminated. Returns its length, cap -
// 1 if there is more; 0 if it cannot be read.
size_t read_system(const char *root, const char *name, char *text, size_t cap) {
  char path[512];
  text[0] = '\0';
  int length = snprintf(path, sizeof path, "%s/sys/devices/system/%s", root, name);
  if (length < 0 || static_cast<size_t>(length) >= sizeof path) return 0;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  size_t at = 0;
  for (ssize_t n; at < cap - 1 && (n = read(file, text + at, cap - 1 - at)) > 0;)
    at += static_cast<size_t>(n);
  close(file);
  text[at] = '\0';
  return at;
}

// The first CPU of the list in cpu/cpu<cpu>/<name>, such as "3,67" or "6-7"; -1 if there is none,
// or it is not at most `cpu`.
int32_t first_listed(const char *root, int32_t cpu, const char *name) {
  char path[192], text[32], *end;
  snprintf(path, sizeof path, "cpu/cpu%d/%s", cpu, name);
  read_system(root, path, text, sizeof text);
  long first = strtol(text, &end, 10);
  return end != text && first >= 0 && first <= cpu ? static_cast<int32_t>(first) : -1;
}

// The lowest CPU of the physical core of `cpu`.
int32_t core_of(const char *root, int32_t cpu) {
  for (const char *name : {"topology/core_cpus_list", "topology/thread_siblings_list"}) {
    int32_t first = first_listed(root, cpu, name);
    if (first >= 0) return first;
  }
  return cpu;
}

// The lowest CPU with which `cpu` shares its L3 cache; -1 if none is known.
int32_t cache_of(const char *root, int32_t cpu) {
  for (int index = 0; index < 8; index++) {
    char path[128], text[8];
    snprintf(path, sizeof path, "cpu/cpu%d/cache/index%d/level", cpu, index);
    if (read_system(root, path, text, sizeof text) == 0) return -1;
    if (text[0] != '3') continue;
    snprintf(path, sizeof path, "cache/index%d/shared_cpu_list", index);
    return first_listed(root, cpu, path);
  }
  return -1;
}

// Calls each(number) for the numbers of a list such as "0-3,8" in a file of at most list_bytes,
// while it returns true. False if the list makes no sense, or `each` returned false. An empty list
// is good.
template <class Each>
bool each_listed(const char *root, const char *name, int32_t end, const Each &each) {
  char text[list_bytes];
  size_t length = read_system(root, name, text, sizeof text);
  if (length == 0 || length == sizeof text - 1) return false;
  for (const char *p = text; *p != '\0' && *p != '\n';) {
    char *behind;
    if (*p < '0' || *p > '9') return false;
    long first = strtol(p, &behind, 10), last = first;
    if (*behind == '-') {
      p = behind + 1;
      if (*p < '0' || *p > '9') return false;
      last = strtol(p, &behind, 10);
    }
    if (last < first || last >= end) return false;
    for (long i = first; i <= last; i++) {
      if (!each(static_cast<int32_t>(i))) return false;
    }
    if (*behind != ',' && *behind != '\0' && *behind != '\n') return false;
    p = *behind == ',' ? behind + 1 : behind;
  }
  return true;
}

// Whether a node has memory; so it is taken where nothing says that it has none.
bool has_memory(const char *root, int32_t node) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "node/node%d/meminfo", node);
  read_system(root, path, text, sizeof text);
  const char *total = strstr(text, "MemTotal:");
  return total == nullptr || strtoll(total + strlen("MemTotal:"), nullptr, 10) > 0;
}

// Sets the nodes of t->cpus, all of which then have a place. False if what sysfs says makes no
// sense.
bool read_nodes(const char *root, Topology *t) {
  int16_t index[max_cpus];  // of a CPU in t->cpus
  std::fill(index, index + max_cpus, int16_t{-1});
  for (int32_t i = 0; i < t->n; i++) {
    index[t->cpus[i]] = static_cast<int16_t>(i);
    t->places[i] = -1;
  }
  bool empty[max_nodes];  // nodes without memory
  t->nodes = 0;
  bool good = each_listed(root, "node/online", node_numbers, [&](int32_t number) {
    char path[64];
    snprintf(path, sizeof path, "node/node%d/cpulist", number);
    bool found = false;
    if (!each_listed(root, path, max_cpus, [&](int32_t cpu) {
          int32_t i = index[cpu];
          if (i < 0) return true;
          if (t->places[i] >= 0 || t->nodes == max_nodes) return false;
          found = true;
          t->places[i] = t->nodes;
          return true;
        })) {
      return false;
    }
    if (!found) return true;
    t->numbers[t->nodes] = number;
    empty[t->nodes++] = !has_memory(root, number);
    return true;
  });
  if (!good || std::find(t->places, t->places + t->n, -1) != t->places + t->n) return false;
  int32_t host = static_cast<int32_t>(std::find(empty, empty + t->nodes, false) - empty), kept = 0;
  if (host == t->nodes) return false;
  int32_t place[max_nodes];
  for (int32_t k = 0; k < t->nodes; k++) {
    if (!empty[k]) {
      t->numbers[kept] = t->numbers[k];
      place[k] = kept++;
    }
  }
  for (int32_t i = 0; i < t->n; i++) t->places[i] = empty[t->places[i]] ? 0 : place[t->places[i]];
  t->nodes = kept;
  return true;
}

// Deals `count` among bins with so much room each, in proportion to the room; at most all of it.
void deal(int32_t count, const int32_t *room, int32_t bins, int32_t *given) {
  int64_t all = 0;
  for (int32_t k = 0; k < bins; k++) all += room[k];
  int32_t left = count;
  for (int32_t k = 0; k < bins; k++) {
    given[k] = all > 0 ? static_cast<int32_t>(int64_t{count} * room[k] / all) : 0;
    left -= given[k];
  }
  for (int32_t k = 0; left > 0 && k < bins; k++) {  // fewer are left than bins with room
    if (given[k] == room[k]) continue;
    given[k]++;
    left--;
  }
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

void read_topology(const char *root, const int32_t *cpus, int32_t n, Topology *t) {
  *t = {};
  t->n = std::min(n, max_executors);
  std::copy(cpus, cpus + t->n, t->cpus);
  t->cores = order_by_core(root, t->cpus, t->n);
  if (!read_nodes(root, t)) {
    std::fill(t->places, t->places + t->n, 0);
    t->nodes = 1;
    t->numbers[0] = -1;
  }
  int32_t firsts[max_executors];
  for (int32_t i = 0; i < t->cores; i++) {
    int32_t first = cache_of(root, t->cpus[i]);
    if (first < 0) {
      t->caches = 0;
      return;
    }
    if (std::find(firsts, firsts + t->caches, first) == firsts + t->caches) firsts[t->caches++] = first;
  }
}

void seat_executors(const Topology &t, int32_t threads, bool asked, uint64_t spread, Seats *seats) {
  *seats = {};
  seats->on = t;
  if (t.nodes == 1) {
    seats->pinned = choose_cpus(t.cpus, t.n, t.cores, threads, asked, spread, seats->cpus);
    return;
  }
  if (threads < 2 || threads > t.n) return;
  // What each node has; cores come first in t.cpus, also in each node's part of it.
  int32_t cores[max_nodes] = {}, others[max_nodes] = {}, of_node[max_nodes] = {}, more[max_nodes] = {};
  for (int32_t i = 0; i < t.n; i++) (i < t.cores ? cores : others)[t.places[i]]++;
  uint64_t nodes = static_cast<uint64_t>(t.nodes);
  if (threads >= t.cores || asked) {
    deal(std::min(threads, t.cores), cores, t.nodes, of_node);
    deal(std::max(0, threads - t.cores), others, t.nodes, more);
  } else {
    int32_t room[max_nodes] = {}, held = 0;
    for (uint64_t k = spread % nodes; held < threads; k = (k + 1) % nodes) held += room[k] = cores[k];
    deal(threads, room, t.nodes, of_node);
  }
  seats->by_node = threads < t.cores && asked;
  seats->pinned = !seats->by_node;
  seats->nodes = 0;
  for (int32_t k = 0, seat = 0; k < t.nodes; k++) {
    int32_t count = of_node[k] + more[k];
    if (count == 0) continue;
    int32_t own[max_executors], n = 0;
    for (int32_t i = 0; i < t.n; i++) {
      if (t.places[i] == k) own[n++] = t.cpus[i];
    }
    // With an executor on every core, it does not matter where to begin.
    uint64_t first = count < cores[k] ? spread / nodes % static_cast<uint64_t>(cores[k]) : 0;
    for (int32_t i = 0; i < count; i++, seat++) {
      uint64_t place = first + static_cast<uint64_t>(i);
      seats->cpus[seat] = own[count <= cores[k] ? place % static_cast<uint64_t>(cores[k]) : place];
      seats->places[seat] = seats->nodes;
    }
    seats->numbers[seats->nodes++] = t.numbers[k];
  }
}

CpuMask mask_of(const Seats &seats, int32_t place) {
  const Topology &on = seats.on;
  CpuMask mask;
  for (int32_t i = 0; i < on.n && has_nodes(seats); i++) {
    if (on.numbers[on.places[i]] == seats.numbers[place]) mask.add(on.cpus[i]);
  }
  return mask;
}

}  // namespace sie
