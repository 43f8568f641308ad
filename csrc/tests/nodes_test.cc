// nodes_test.cc — the nodes of made-up machines: what is read of them, where executors sit, and
// that a node's slabs are taken first, every one once.
#include <algorithm>
#include <deque>
#include <memory>

#include "compare.h"
#include "executor.h"
#include "machine.h"
#include "model.h"
#include "node_memory.h"
#include "schedule.h"
#include "slabs.h"
#include "slot.h"
#include "tests/check.h"
#include "tickets.h"
#include "weight.h"

namespace {

using Numbers = std::vector<int32_t>;

sie::Topology read(const MadeUpMachine &m) {
  sie::Topology t;
  sie::read_topology(m.root.path(), m.cpus.data(), static_cast<int32_t>(m.cpus.size()), &t);
  return t;
}

Numbers places(const sie::Topology &t) { return Numbers(t.places, t.places + t.n); }

void check_one_node(const MadeUpMachine &m, const char *why) {
  const sie::Topology t = read(m);
  CHECK(t.nodes == 1 && t.numbers[0] == -1, "%s: %d nodes", why, t.nodes);
  for (int32_t p : places(t)) CHECK(p == 0, "%s: a CPU of node %d", why, p);
}

struct Seated {
  Numbers cpus, places, numbers;
  bool pinned, by_node;
};
Seated seat(const sie::Topology &t, int32_t threads, bool asked, uint64_t spread) {
  auto s = std::make_unique<sie::Seats>();
  sie::seat_executors(t, threads, asked, spread, s.get());
  return {Numbers(s->cpus, s->cpus + threads), Numbers(s->places, s->places + threads),
          Numbers(s->numbers, s->numbers + s->nodes), s->pinned, s->by_node};
}

}  // namespace

TEST(nodes_are_read) {
  MadeUpMachine two(2, 4, 2, 2);
  sie::Topology t = read(two);
  CHECK(t.n == 16 && t.cores == 8 && t.nodes == 2 && t.caches == 4, "%d CPUs, %d cores, %d nodes, %d caches",
        t.n, t.cores, t.nodes, t.caches);
  CHECK(places(t) == (Numbers{0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1}), "places of CPUs");
  // A mask with a part of each node, and one within a node, which then counts alone.
  two.cpus = {2, 3, 12, 13};
  t = read(two);
  CHECK(t.nodes == 2 && t.cores == 4 && places(t) == (Numbers{0, 0, 1, 1}), "a part of each");
  two.cpus = {5, 6};
  t = read(two);
  CHECK(t.nodes == 1 && t.numbers[0] == 1, "node %d of %d", t.numbers[0], t.nodes);
  // Numbers with gaps, offline CPUs that no list names, a node without CPUs.
  MadeUpMachine gaps(3, 2);
  gaps.root.file("/sys/devices/system/node/online", "0,2,5-6\n");
  gaps.node(2, "2\n");
  gaps.node(5, "4-5\n");
  gaps.node(6, "\n");
  gaps.cpus = {0, 1, 2, 4, 5};
  t = read(gaps);
  CHECK(t.nodes == 3 && t.numbers[1] == 2 && t.numbers[2] == 5, "%d nodes", t.nodes);
  CHECK(places(t) == (Numbers{0, 0, 1, 2, 2}), "places with gaps");
}

// Executors of a node without memory count with the first that has some.
TEST(nodes_without_memory_are_no_nodes) {
  MadeUpMachine m(3, 2);
  for (int k : {0, 1, 2}) {
    m.root.file(
        "/sys/devices/system/node/node" + std::to_string(k) + "/meminfo",
        "Node " + std::to_string(k) + " MemTotal: " + (k == 0 ? "0" : "65536") + " kB\nMemFree: 0 kB\n");
  }
  const sie::Topology t = read(m);
  CHECK(t.nodes == 2 && t.numbers[0] == 1 && t.numbers[1] == 2, "%d nodes, first %d", t.nodes, t.numbers[0]);
  CHECK(places(t) == (Numbers{0, 0, 0, 0, 1, 1}), "places");
  for (int k : {1, 2}) {
    m.root.file("/sys/devices/system/node/node" + std::to_string(k) + "/meminfo", "MemTotal: 0 kB\n");
  }
  check_one_node(m, "no node has memory");
}

TEST(nodes_that_make_no_sense_are_one) {
  const char *const lists[] = {"",          "x\n",    "0-\n",
                               "-3\n",      "3-0\n",  "0-1,\n,",
                               "0-1;2\n",   "0--1\n", "0-99999999999999999999\n",
                               "0-70000\n", "0 1\n",  "1-3\n"};
  for (const char *list : lists) {
    MadeUpMachine m(2, 4);
    m.node(0, list);
    check_one_node(m, list);
    // Also behind a list that names all of the node's CPUs.
    if (*list == '\0') continue;
    m.node(0, std::string("0-3,") + list);
    check_one_node(m, list);
  }
  MadeUpMachine m(2, 4);
  m.node(1, "3-7\n");
  check_one_node(m, "a CPU of two nodes");
  m.node(1, "4-6\n");
  check_one_node(m, "a CPU of no node");
  m.node(1, "4-7\n");
  CHECK(read(m).nodes == 2, "sense again");
  for (const char *online : {"", "0,0-1\n", "0-1025\n", "1-0\n", "0-2\n", "0\n", "one\n"}) {
    m.root.file("/sys/devices/system/node/online", online);
    check_one_node(m, online);
  }
  std::string longest;
  for (int i = 0; i < 6000; i++) longest += "4-7,";
  m.root.file("/sys/devices/system/node/online", "0-1\n");
  m.node(1, longest);
  check_one_node(m, "a list without end");
  MadeUpMachine many(sie::max_nodes + 1, 1);
  check_one_node(many, "too many nodes");
  MadeUpMachine most(sie::max_nodes, 1);
  CHECK(read(most).nodes == sie::max_nodes, "%d nodes", read(most).nodes);
}

TEST(nodes_seat_executors) {
  MadeUpMachine m(2, 3, 2);
  const sie::Topology t = read(m);
  Seated all = seat(t, 6, false, 5);
  CHECK(all.pinned && all.cpus == (Numbers{0, 1, 2, 3, 4, 5}) && all.places == (Numbers{0, 0, 0, 1, 1, 1}),
        "every core, node by node");
  Seated eight = seat(t, 8, true, 1);
  CHECK(eight.pinned && eight.cpus == (Numbers{0, 1, 2, 6, 3, 4, 5, 9}), "then a hyperthread of each node");
  Seated quota = seat(t, 2, false, 1);
  CHECK(quota.pinned && quota.numbers == Numbers{1} && quota.places == (Numbers{0, 0}),
        "a quota keeps to one node");
  CHECK(quota.cpus == (Numbers{3, 4}) && seat(t, 2, false, 3).cpus == (Numbers{4, 5}), "and spreads on it");
  Seated wide = seat(t, 4, false, 0);
  CHECK(wide.numbers == (Numbers{0, 1}) && wide.places == (Numbers{0, 0, 1, 1}), "or to two");
  Seated asked = seat(t, 3, true, 0);
  CHECK(!asked.pinned && asked.by_node && asked.places == (Numbers{0, 0, 1}), "asked for: by node");
  for (int32_t threads : {1, 13}) {
    Seated none = seat(t, threads, true, 0);
    CHECK(!none.pinned && !none.by_node && none.numbers == Numbers{-1}, "%d float", threads);
  }
}

TEST(nodes_get_slabs_by_their_executors) {
  model::Random random(7);
  for (int round = 0; round < 300; round++) {
    const int32_t n = random.below(40), nodes = 1 + random.below(6), first = random.below(nodes);
    std::vector<sie::SlabShare> shares(static_cast<size_t>(n));
    for (auto &s : shares) s.cost = 1 + random.below(100);
    std::sort(shares.begin(), shares.end(), [](const auto &a, const auto &b) { return a.cost > b.cost; });
    Numbers executors(static_cast<size_t>(nodes)), work(shares.size()), order(shares.size()),
        ends(executors.size());
    for (auto &e : executors) e = 1 + random.below(8);
    sie::deal_slabs(shares.data(), n, executors.data(), nodes, first, work.data(), order.data(), ends.data());
    Numbers sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (int32_t s = 0; s < n; s++) CHECK(sorted[static_cast<size_t>(s)] == s, "slab %d is lost", s);
    CHECK(ends.back() == n, "%d of %d slabs", ends.back(), n);
    double least = 0, most = 0;
    for (int32_t k = 0, s = 0; k < nodes; k++) {
      int64_t cost = 0;
      for (int32_t begin = s; s < ends[static_cast<size_t>(k)]; s++) {
        cost += shares[static_cast<size_t>(order[static_cast<size_t>(s)])].cost;
        CHECK(s == begin || order[static_cast<size_t>(s)] > order[static_cast<size_t>(s - 1)],
              "out of order");
      }
      const double each = static_cast<double>(cost) / executors[static_cast<size_t>(k)];
      least = k == 0 || each < least ? each : least;
      most = each > most ? each : most;
    }
    const double largest = n > 0 ? static_cast<double>(shares[0].cost) : 0;
    CHECK(most - least <= largest, "a node ends %g later than another; a slab takes %g", most - least,
          largest);
    // The first slab ends soonest where there are most executors, and of such nodes is on the first.
    int32_t begin = first;
    for (int32_t i = 0; i < nodes; i++) {
      const int32_t k = (first + i) % nodes;
      if (executors[static_cast<size_t>(k)] > executors[static_cast<size_t>(begin)]) begin = k;
    }
    if (n > 0) CHECK(work[0] == begin, "begins at %d, not %d", work[0], begin);
  }
}

namespace {

// A run of lists that notes who did which ticket.
struct Listed : sie::Run {
  std::vector<Numbers> slabs;    // by node
  std::vector<int32_t> members;  // by slab
  std::vector<std::vector<sie::Ticket>> list;
  std::vector<std::atomic<int>> done;
  sie::Ticket last = {-1, -1};

  static constexpr int32_t most_slabs = 64, most_members = 4;

  Listed(std::vector<Numbers> of_nodes, std::vector<int32_t> sizes)
      : slabs(std::move(of_nodes)), members(std::move(sizes)), done(most_slabs * most_members) {
    work = run;
    tickets = 0;
    lists = static_cast<int32_t>(slabs.size());
    for (size_t k = 0; k < slabs.size(); k++) {
      list.push_back(tickets::of(slabs[k], members));
      of_node[k].tickets = list[k].data();
      of_node[k].n = static_cast<int32_t>(list[k].size());
      of_node[k].left.store(of_node[k].n);
      tickets += of_node[k].n;
    }
  }
  Listed(std::vector<Numbers> of_nodes, int32_t each)
      : Listed(std::move(of_nodes), std::vector<int32_t>(most_slabs, each)) {}
  static void run(sie::Run *r, int32_t slab, int32_t member, int32_t) {
    Listed *self = static_cast<Listed *>(r);
    self->done[static_cast<size_t>(slab * most_members + member)]++;
    self->last = {slab, member};
  }
  bool complete() const {
    int once = 0;
    for (const std::atomic<int> &n : done) {
      if (n.load() > 1) return false;
      once += n.load();
    }
    return once == tickets;
  }
};

// Slabs 0 … n - 1 in random lists.
std::vector<Numbers> random_lists(model::Random *random, int32_t nodes, int32_t n) {
  std::vector<Numbers> lists(static_cast<size_t>(nodes));
  for (int32_t s = 0; s < n; s++) lists[static_cast<size_t>(random->below(nodes))].push_back(s);
  return lists;
}

}  // namespace

// Random operations beside a plain model: queues by node. The oldest run with tickets comes first;
// in it the executor's own node, then the next one around.
TEST(nodes_lists_are_taken_as_a_plain_model_takes_them) {
  model::Random random(3);
  struct Plain {
    std::unique_ptr<Listed> run;
    std::vector<std::deque<std::pair<int32_t, int32_t>>> queues;
    bool empty() const {
      return std::all_of(queues.begin(), queues.end(), [](const auto &q) { return q.empty(); });
    }
  };
  for (int round = 0; round < 200; round++) {
    const int32_t nodes = 2 + random.below(4), threads = nodes + random.below(5);
    auto seats = std::make_unique<sie::Seats>();
    for (int32_t i = 0; i < threads; i++) seats->places[i] = i % nodes;
    sie::Executors executors;
    executors.seat(seats.get());
    std::deque<Plain> runs;
    for (int step = 0; step < 120; step++) {
      if (runs.size() < 2 && random.below(8) == 0) {
        std::vector<int32_t> members(Listed::most_slabs);
        for (int32_t &m : members) m = 1 + random.below(Listed::most_members);
        Plain plain;
        plain.run = std::make_unique<Listed>(random_lists(&random, nodes, random.below(12)), members);
        for (const Numbers &slabs : plain.run->slabs) {
          plain.queues.emplace_back();
          for (int32_t slab : slabs) {
            for (int32_t m = 0; m < members[static_cast<size_t>(slab)]; m++) {
              plain.queues.back().push_back({slab, m});
            }
          }
        }
        CHECK(executors.submit(plain.run.get()), "refused");
        runs.push_back(std::move(plain));
      }
      const int32_t executor = random.below(threads);
      Plain *oldest = nullptr;
      for (Plain &plain : runs) {
        if (oldest == nullptr && !plain.empty()) oldest = &plain;
      }
      const bool did = executors.do_other(executor);
      CHECK(did == (oldest != nullptr), "an executor %s", did ? "did what there is not" : "is idle");
      if (oldest != nullptr) {
        size_t k = static_cast<size_t>(seats->places[executor]);
        while (oldest->queues[k].empty()) k = (k + 1) % oldest->queues.size();
        const auto [slab, member] = oldest->queues[k].front();
        oldest->queues[k].pop_front();
        const sie::Ticket last = oldest->run->last;
        CHECK(last.slab == slab && last.member == member, "took member %d of slab %d, not %d of %d",
              last.member, last.slab, member, slab);
      }
      while (!runs.empty() && runs.front().empty()) {
        executors.wait(runs.front().run.get());
        CHECK(runs.front().run->complete(), "a slab was not done once");
        runs.pop_front();
      }
    }
    while (executors.do_other(0)) continue;
    for (Plain &plain : runs) CHECK(plain.run->complete(), "a slab was not done once at the end");
  }
}

TEST(nodes_lists_are_done_once_in_every_order) {
  std::unique_ptr<sie::Executors> executors;
  std::unique_ptr<Listed> first, second;
  auto seats = std::make_unique<sie::Seats>();
  seats->places[1] = 1;
  schedule::Threads threads = {};
  threads.count = 3;
  threads.preemptions = 1;
  threads.prepare = [&] {
    executors.reset(new sie::Executors);
    executors->seat(seats.get());
    first.reset(new Listed({{0}, {1}}, 1));
    second.reset(new Listed({{}, {0}}, 1));
  };
  threads.body = [&](int thread) {
    if (thread > 0) return executors->loop(thread - 1);
    CHECK(executors->submit(first.get()) && executors->submit(second.get()), "refused");
    executors->wait(first.get());
    CHECK(first->complete(), "the first run is not complete");
    executors->wait(second.get());
    CHECK(second->complete(), "the second run is not complete");
    executors->stop();
  };
  threads.afterwards = [] {};
  const long orders = schedule::explore(threads);
  printf("     %ld orders\n", orders);
  CHECK(orders > 1000, "%ld orders", orders);
}

// Threads that the kernel runs at once.
TEST(nodes_lists_lose_nothing_between_threads) {
  model::Random random(11);
  for (int32_t nodes : {2, 4, 8}) {
    auto seats = std::make_unique<sie::Seats>();
    for (int32_t i = 0; i < 8; i++) seats->places[i] = i * nodes / 8;
    sie::Executors executors;
    CHECK(executors.start(8, seats.get(), nullptr) == SIE_OK, "cannot start");
    for (int i = 0; i < 200; i++) {
      Listed a(random_lists(&random, nodes, random.below(30)), 1), b(random_lists(&random, nodes, 4), 2);
      CHECK(executors.submit(&a) && executors.submit(&b), "refused");
      executors.wait(&a);
      executors.wait(&b);
      CHECK(a.complete() && b.complete(), "a slab was not done once");
    }
    executors.stop();
  }
}

// The same bits on every machine, however many threads, wherever the weights lie: alone, in teams,
// in many slabs, in long ones.
TEST(nodes_do_not_change_results) {
  model::Batch batches[4];
  model::Shape shape;
  shape.ffn = 512;  // its matrices are large enough to be placed
  for (int i = 0; i < 40; i++) batches[0].add(shape, i, 1 + i * 37 % 90);
  batches[1].add(shape, 3, 200);
  for (int i = 0; i < 3; i++) batches[2].add(shape, i, 130 + i);
  for (int i = 0; i < 6; i++) batches[3].add(shape, i, i % 2 == 0 ? 600 : 40);
  std::vector<model::Result> expected;
  for (int nodes : {1, 2, 4, 8}) {
    for (int threads : {2, 8, 11}) {
      MadeUpMachine machine(nodes, 16 / nodes);
      model::Model m;
      m.placement = threads == 8 ? SIE_PLACE_COPIED : SIE_PLACE_INTERLEAVED;
      m.one_node = threads == 2 && nodes == 4;
      CHECK(m.open(SIE_DEVICE_CPU, SIE_ISA_BEST, threads, SIE_COMPUTE_F32, shape) == SIE_OK, "%s",
            m.err.message);
      for (size_t i = 0; i < 4; i++) {
        model::Result got = model::run(&m, batches[i]);
        CHECK(got.status == SIE_OK, "%d nodes: %s", nodes, m.err.message);
        if (expected.size() == i) expected.push_back(got);
        CHECK(same_bits(got.rows, expected[i].rows) && same_bits(got.values, expected[i].values),
              "batch %zu differs on %d nodes with %d threads", i, nodes, threads);
      }
    }
  }
}

namespace {

sie_weight *make_weight(sie_device *device, uint32_t kind, int64_t n, int64_t k, uint32_t placement) {
  std::vector<float> values(static_cast<size_t>(n * k), 0.5f);
  sie_weight_desc desc = {};
  desc.struct_size = sizeof desc;
  desc.kind = kind;
  desc.compute = SIE_COMPUTE_F32;
  desc.dtype = SIE_F32;
  desc.n_parts = 1;
  desc.n = n;
  desc.k = k;
  desc.parts[0] = {values.data(), n, 0};
  desc.placement = placement;
  sie_weight *w = nullptr;
  sie_error err;
  const sie_status status = sie_weight_create(device, &desc, &w, &err);
  CHECK(status == SIE_OK, "%s", err.message);
  return w;
}

sie_device *open_with(int32_t threads, uint32_t one_node, sie_device_info *info) {
  sie_device_options options = {};
  options.struct_size = sizeof options;
  options.kind = SIE_DEVICE_CPU;
  options.threads = threads;
  options.one_node = one_node;
  sie_device *device = nullptr;
  sie_error err;
  CHECK(sie_device_open(&options, &device, &err) == SIE_OK, "%s", err.message);
  *info = {};
  info->struct_size = sizeof *info;
  CHECK(sie_device_query(device, info, &err) == SIE_OK, "%s", err.message);
  return device;
}

}  // namespace

// What is asked of the kernel for each kind of weight, and what counts as its bytes.
TEST(nodes_hold_weights) {
  for (int answer : {0, 1}) {
    MadeUpMachine machine(4, 2);
    MadeUpMachine::answer() = answer;
    auto &calls = MadeUpMachine::calls();
    sie_device_info info;
    sie_device *device = open_with(8, 0, &info);
    CHECK(info.nodes == 4 && info.nodes_used == 4 && info.cores == 8 && info.caches == 2, "%d nodes",
          info.nodes);
    CHECK(calls.size() == 1, "%zu pages tried", calls.size());
    CHECK((strstr(info.why, "CAP_SYS_NICE") != nullptr) == (answer != 0), "why: %s", info.why);
    calls.clear();
    sie_weight *w = make_weight(device, SIE_WEIGHT_LINEAR, 256, 256, SIE_PLACE_INTERLEAVED);
    CHECK(calls.size() == 1 && calls[0].nodes == (Numbers{0, 1, 2, 3}), "%zu calls", calls.size());
    const int64_t once = sie_weight_bytes(w);
    CHECK(calls[0].bytes >= 256 * 256 * 4 && once < 256 * 256 * 4 + 8192, "%lld bytes",
          static_cast<long long>(once));
    sie_weight_free(w);
    calls.clear();
    w = make_weight(device, SIE_WEIGHT_LINEAR, 256, 256, SIE_PLACE_COPIED);
    CHECK(calls.size() == 4, "%zu calls for copies", calls.size());
    for (int32_t k = 0; k < 4; k++) CHECK(calls[static_cast<size_t>(k)].nodes == Numbers{k}, "copy %d", k);
    CHECK(sie_weight_bytes(w) == 4 * once, "%lld bytes of copies",
          static_cast<long long>(sie_weight_bytes(w)));
    for (int32_t k = 1; k < 4; k++) {
      CHECK(w->packed_on(k)->data != w->packed.data, "node %d has no copy", k);
      CHECK(memcmp(w->packed_on(k)->data, w->packed.data, 256 * 256 * 4) == 0, "the copy differs");
    }
    CHECK(w->packed_on(0) == &w->packed, "the first node's");
    sie_device_query(device, &info, nullptr);
    CHECK(info.memory_weights == 4 * once, "%lld bytes held", static_cast<long long>(info.memory_weights));
    sie_weight_free(w);
    calls.clear();
    w = make_weight(device, SIE_WEIGHT_TABLE, 256, 256, SIE_PLACE_COPIED);
    CHECK(calls.size() == 1 && calls[0].nodes.size() == 4, "a table is not copied");
    sie_weight_free(w);
    calls.clear();
    w = make_weight(device, SIE_WEIGHT_LINEAR, 32, 32, SIE_PLACE_COPIED);
    CHECK(calls.empty() && w->n_copies == 0, "a small matrix is placed");
    sie_weight_free(w);
    sie_device_query(device, &info, nullptr);
    CHECK(info.memory_weights == 0, "%lld bytes left", static_cast<long long>(info.memory_weights));
    sie_device_close(device);
    // As if there were one node: nothing is asked.
    device = open_with(8, 1, &info);
    calls.clear();
    CHECK(info.nodes == 4 && info.nodes_used == 1, "%d nodes used", info.nodes_used);
    w = make_weight(device, SIE_WEIGHT_LINEAR, 256, 256, SIE_PLACE_COPIED);
    CHECK(calls.empty() && w->n_copies == 0, "placed all the same");
    sie_weight_free(w);
    sie_device_close(device);
  }
  MadeUpMachine::answer() = 0;
}

// An arena's lanes are on their executors' nodes, and the region on all.
TEST(nodes_hold_arenas) {
  MadeUpMachine machine(2, 4);
  sie_device_info info;
  sie_device *device = open_with(8, 0, &info);
  auto &calls = MadeUpMachine::calls();
  calls.clear();
  const sie_workspace workspace = {int64_t{1} << 20, int64_t{3} << 20};
  sie_arena *arena = nullptr;
  CHECK(sie_arena_create(device, &workspace, &arena, nullptr) == SIE_OK, "no arena");
  if (arena->memory.mapped) {  // not with a sanitizer
    CHECK(calls.size() == 3, "%zu calls", calls.size());
    for (size_t k = 0; k < 2; k++) {
      CHECK(calls[k].nodes == Numbers{static_cast<int32_t>(k)} && calls[k].bytes == size_t{4} << 20 &&
                calls[k].p == arena->memory.at(static_cast<int64_t>(k) << 22),
            "the lanes of node %zu", k);
    }
    CHECK(calls[2].nodes.size() == 2 && calls[2].bytes == size_t{3} << 20, "the region");
  }
  sie_arena_free(arena);
  sie_device_close(device);
}

// On this machine: the calls of the kernel either work or are refused, and the weights are good.
TEST(nodes_of_this_machine) {
  sie::Block block;
  sie::Seats seats = {};
  seats.numbers[0] = 0;
  CHECK(sie::allocate_on(seats, -1, 1 << 20, &block), "no memory");
  for (size_t i = 0; i < block.bytes; i += 997) CHECK(*block.at(static_cast<int64_t>(i)) == 0, "not zeroed");
  sie::release(&block);
  const sie::CpuMask before = sie::CpuMask::now();
  {
    sie::OnNode here(seats, 0);
  }
  const sie::CpuMask after = sie::CpuMask::now();
  CHECK(memcmp(&before, &after, sizeof before) == 0, "the thread's CPUs have changed");
}
