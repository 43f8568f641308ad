// seats_test.cc — seats and masks of random machines beside a plain model, and what is read of nodes
// at the limits of a list.
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "machine.h"
#include "model.h"
#include "tests/check.h"
#include "topology.h"

namespace {

using Numbers = std::vector<int32_t>;

const char *const list_of_node_1 = "/sys/devices/system/node/node1/cpulist";

std::unique_ptr<sie::Topology> read(const char *root, const Numbers &cpus) {
  auto t = std::make_unique<sie::Topology>();
  sie::read_topology(root, cpus.data(), static_cast<int32_t>(cpus.size()), t.get());
  return t;
}

// A machine of so many nodes, of 1 to 5 cores, some of which have a hyperthread. No CPU is 0, and
// nodes have numbers with gaps.
sie::Topology random_topology(model::Random *random, int32_t nodes) {
  sie::Topology t = {};
  t.nodes = nodes;
  for (int32_t k = 0; k < nodes; k++) t.numbers[k] = 3 * k + 1;
  auto add = [&t](int32_t node) {
    t.places[t.n] = node;
    t.cpus[t.n] = 2 * t.n + 5;
    t.n++;
  };
  Numbers cores;
  for (int32_t k = 0; k < nodes; k++) cores.push_back(1 + random->below(5));
  for (int32_t k = 0; k < nodes; k++) {
    for (int32_t c = 0; c < cores[static_cast<size_t>(k)]; c++) add(k);
  }
  t.cores = t.n;
  for (int32_t k = 0; k < nodes; k++) {
    for (int32_t c = random->below(1 + cores[static_cast<size_t>(k)]); c > 0; c--) add(k);
  }
  return t;
}

// Each gets its share in proportion to its room, rounded down; what is left goes one each to the
// first that have room.
Numbers deal_plainly(int64_t count, const std::vector<Numbers> &room) {
  int64_t all = 0, left = count;
  for (const Numbers &r : room) all += static_cast<int64_t>(r.size());
  Numbers given(room.size());
  for (size_t k = 0; k < room.size(); k++) {
    while ((given[k] + 1) * all <= count * static_cast<int64_t>(room[k].size()) && all > 0) given[k]++;
    left -= given[k];
  }
  for (size_t k = 0; left > 0; k++) {
    if (given[k] == static_cast<int32_t>(room[k].size())) continue;
    given[k]++;
    left--;
  }
  return given;
}

struct Plain {
  Numbers cpus, places, numbers;
};

// The seats of `threads` executors on several nodes, 2 ≤ threads ≤ t.n.
Plain seat_plainly(const sie::Topology &t, int32_t threads, bool asked, uint64_t spread) {
  const size_t nodes = static_cast<size_t>(t.nodes);
  std::vector<Numbers> cores(nodes), others(nodes);
  for (int32_t i = 0; i < t.n; i++) {
    (i < t.cores ? cores : others)[static_cast<size_t>(t.places[i])].push_back(t.cpus[i]);
  }
  std::vector<Numbers> used = cores;  // cores of nodes that have executors
  if (threads < t.cores && !asked) {
    int32_t held = 0;
    for (size_t i = 0; i < nodes; i++) {
      Numbers &node = used[(spread % nodes + i) % nodes];
      const int32_t has = static_cast<int32_t>(node.size());
      if (held >= threads) node.clear();
      held += has;
    }
  }
  const Numbers of_cores = deal_plainly(std::min(threads, t.cores), used),
                of_others = deal_plainly(std::max(threads - t.cores, 0), others);
  Plain plain;
  for (size_t k = 0; k < nodes; k++) {
    Numbers own = cores[k];
    const bool all = of_cores[k] == static_cast<int32_t>(own.size());
    if (!all)
      std::rotate(own.begin(), own.begin() + static_cast<long>(spread / nodes % own.size()), own.end());
    own.resize(static_cast<size_t>(of_cores[k]));
    own.insert(own.end(), others[k].begin(), others[k].begin() + of_others[k]);
    if (own.empty()) continue;
    plain.cpus.insert(plain.cpus.end(), own.begin(), own.end());
    plain.places.resize(plain.cpus.size(), static_cast<int32_t>(plain.numbers.size()));
    plain.numbers.push_back(t.numbers[k]);
  }
  return plain;
}

void check_seats(const sie::Topology &t, int32_t threads, bool asked, uint64_t spread) {
  auto s = std::make_unique<sie::Seats>();
  sie::seat_executors(t, threads, asked, spread, s.get());
  const Plain want = seat_plainly(t, threads, asked, spread);
  const bool by_node = asked && threads < t.cores;
  CHECK(s->pinned == !by_node && s->by_node == by_node, "%d on %d cores: %s", threads, t.cores,
        s->pinned ? "pinned" : "not pinned");
  CHECK(Numbers(s->numbers, s->numbers + s->nodes) == want.numbers, "%d on %d nodes: %d, not %zu nodes",
        threads, t.nodes, s->nodes, want.numbers.size());
  CHECK(Numbers(s->places, s->places + threads) == want.places, "%d on %d nodes: other places", threads,
        t.nodes);
  if (s->pinned)
    CHECK(Numbers(s->cpus, s->cpus + threads) == want.cpus, "%d on %d nodes: other CPUs", threads, t.nodes);
  for (int32_t place = 0; place < s->nodes; place++) {
    sie::CpuMask of_node;
    for (int32_t i = 0; i < t.n; i++) {
      if (t.numbers[t.places[i]] == s->numbers[place]) of_node.add(t.cpus[i]);
    }
    const sie::CpuMask got = sie::mask_of(*s, place);
    CHECK(memcmp(&got, &of_node, sizeof got) == 0, "another mask of place %d of %d", place, s->nodes);
  }
}

}  // namespace

TEST(topology_seats_by_the_rule) {
  model::Random random(40);
  for (int round = 0; round < 300; round++) {
    const sie::Topology t = random_topology(&random, round % 50 == 0 ? sie::max_nodes : 2 + random.below(5));
    for (int draw = 0; draw < 6; draw++) {
      const int32_t threads = draw == 0 ? t.cores : 2 + random.below(t.n - 1);
      check_seats(t, threads, random.below(2) == 0, random.next());
    }
  }
}

// As many CPUs and nodes as there is room for.
TEST(topology_may_be_full) {
  Root root;
  root.file("/sys/devices/system/node/online", "3,7\n");
  root.file("/sys/devices/system/node/node3/cpulist", "0-511\n");
  root.file("/sys/devices/system/node/node7/cpulist", "512-65535\n");
  Numbers cpus(sie::max_executors);
  std::iota(cpus.begin(), cpus.end(), 0);
  const auto t = read(root.path(), cpus);
  CHECK(t->n == sie::max_executors && t->nodes == 2, "%d CPUs of %d nodes", t->n, t->nodes);
  CHECK(t->numbers[0] == 3 && t->numbers[1] == 7, "nodes %d and %d", t->numbers[0], t->numbers[1]);
  for (int32_t threads : {2, 600, sie::max_executors}) check_seats(*t, threads, false, 5);
}

TEST(topology_of_one_node_has_no_mask) {
  MadeUpMachine m(1, 4);
  const sie::CpuMask none;
  for (const char *online : {"0\n", "none\n"}) {
    m.root.file("/sys/devices/system/node/online", online);
    auto s = std::make_unique<sie::Seats>();
    sie::seat_executors(*read(m.root.path(), m.cpus), 4, false, 0, s.get());
    const sie::CpuMask got = sie::mask_of(*s, 0);
    CHECK(s->pinned && memcmp(&got, &none, sizeof got) == 0, "a mask where node %s is alone", online);
  }
}

// Caches of this process's cores only, and of the eight that a CPU is asked about.
TEST(topology_counts_caches) {
  MadeUpMachine m(2, 4);
  CHECK(read(m.root.path(), m.cpus)->caches == 2, "two caches");
  CHECK(read(m.root.path(), {4, 5, 6, 7})->caches == 1, "one of them");
  Root root;
  for (int index = 0; index < 9; index++) {
    const std::string path = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    root.file(path + "/level", index < 8 ? "2\n" : "3\n");
    root.file(path + "/shared_cpu_list", "0\n");
  }
  CHECK(read(root.path(), {0})->caches == 0, "the ninth cache counts");
  root.file("/sys/devices/system/cpu/cpu0/cache/index7/level", "3\n");
  CHECK(read(root.path(), {0})->caches == 1, "the eighth cache does not count");
}

// What a number begins with and ends with, and how long a list may be.
TEST(topology_reads_lists_of_numbers) {
  MadeUpMachine m(2, 10);
  auto nodes_with = [&m](const std::string &list) {
    m.node(0, list);
    return read(m.root.path(), m.cpus)->nodes;
  };
  for (const char *list : {"0-9", "0-9\n", "0-0,1-9\n", "0-8,9-9\n", "0,1,2-9,20-29\n", "0-9,65535\n"}) {
    CHECK(nodes_with(list) == 2, "%s is a list", list);
  }
  for (const char *list : {" 0-9\n", "0- 9\n", "0-+9\n", "+0-9\n", "0-9, \n", "0-9,65536\n", "0-9,5-3\n"}) {
    CHECK(nodes_with(list) == 1, "%s is no list", list);
  }
  std::string longest = "0-9";
  while (longest.size() < 16380) longest += ",20";
  longest.resize(16382, '\n');
  CHECK(nodes_with(longest) == 2, "%zu bytes are too long", longest.size());
  CHECK(nodes_with(longest + "\n") == 1, "%zu bytes are not too long", longest.size() + 1);
  // A node of other CPUs needs a list as well.
  MadeUpMachine three(3, 2);
  const Numbers of_two = {0, 1, 2, 3};
  CHECK(read(three.root.path(), of_two)->nodes == 2, "a node of other CPUs");
  three.node(2, "");
  CHECK(read(three.root.path(), of_two)->nodes == 1, "a node without a list");
}

// The kernel gives a long list a page at a time. Here a pipe gives it, whose writer waits until each
// piece but the last has been read.
TEST(topology_reads_lists_in_pieces) {
  auto nodes_with = [](const std::vector<std::string> &pieces) {
    MadeUpMachine m(2, 4);
    const std::string path = m.root.path() + std::string(list_of_node_1);
    unlink(path.c_str());
    CHECK(mkfifo(path.c_str(), 0600) == 0, "no pipe");
    std::thread writer([&] {
      const int pipe = open(path.c_str(), O_WRONLY | O_CLOEXEC);
      for (size_t i = 0; i < pieces.size(); i++) {
        for (int left = 1; i > 0 && ioctl(pipe, FIONREAD, &left) == 0 && left > 0;) usleep(50);
        CHECK(write(pipe, pieces[i].data(), pieces[i].size()) >= 0, "cannot write");
      }
      close(pipe);
    });
    const int32_t nodes = read(m.root.path(), m.cpus)->nodes;
    writer.join();
    return nodes;
  };
  CHECK(nodes_with({"4", "-", "7\n"}) == 2, "three pieces");
  std::string longest = "4-7";
  while (longest.size() < 16381) longest += ",9";
  CHECK(nodes_with({longest, "\n"}) == 2, "a long piece and a short one");
  CHECK(nodes_with({longest + "\n", "\n"}) == 1, "one byte too long");
  CHECK(nodes_with({"4-7,9,9,9,9", longest.substr(3)}) == 1, "more than there is room for");
}
