// node_memory_test.cc — which pages the kernel is asked for, on which nodes, and who touches them
// where it refuses.
#include "node_memory.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>

#include "machine.h"
#include "tests/check.h"

namespace {

using Numbers = std::vector<int32_t>;

constexpr size_t page = 4096, huge_page = size_t{2} << 20;

}  // namespace

TEST(node_memory_places_whole_pages) {
  MadeUpMachine machine(2, 1);
  auto &calls = MadeUpMachine::calls();
  sie::Block block;
  CHECK(sie::allocate_pages(16 * page, &block), "no memory");
  const int32_t nodes[] = {0, 1};
  for (size_t offset : {size_t{0}, size_t{1}, page - 1, page, page + 1}) {
    for (size_t bytes :
         {size_t{0}, size_t{1}, page - 1, page, page + 1, 2 * page - 1, 2 * page, 3 * page + 1}) {
      char *const p = block.at(static_cast<int64_t>(offset));
      size_t first = 16, count = 0;  // the pages of the block that lie in [p, p + bytes)
      for (size_t i = 0; i < 16; i++) {
        if (i * page < offset || (i + 1) * page > offset + bytes) continue;
        first = std::min(first, i);
        count++;
      }
      calls.clear();
      CHECK(sie::place_pages(p, bytes, nodes, 2) == 0, "refused");
      CHECK(calls.size() == (count > 0 ? 1 : 0), "%zu calls for %zu bytes at %zu", calls.size(), bytes,
            offset);
      if (calls.empty()) continue;
      CHECK(calls[0].p == block.at(static_cast<int64_t>(first * page)) && calls[0].bytes == count * page,
            "%zu bytes at %zu: %zu bytes, not %zu pages", bytes, offset, calls[0].bytes, count);
    }
  }
  sie::release(&block);
}

TEST(node_memory_names_its_nodes) {
  MadeUpMachine machine(2, 1);
  auto &calls = MadeUpMachine::calls();
  sie::Block block;
  CHECK(sie::allocate_pages(page, &block), "no memory");
  for (const Numbers &nodes : {Numbers{0}, {63}, {64}, {1023}, {0, 1}, {5, 64, 200, 1023}}) {
    calls.clear();
    sie::place_pages(block.p, page, nodes.data(), static_cast<int32_t>(nodes.size()));
    CHECK(calls.size() == 1 && calls[0].nodes == nodes, "other nodes than those from %d on", nodes[0]);
    CHECK(calls[0].mode == (nodes.size() == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE), "mode %d of %zu nodes",
          calls[0].mode, nodes.size());
    CHECK(calls[0].bits == 1025, "%lu bits", calls[0].bits);
  }
  sie::release(&block);
}

// Where the kernel refuses, threads on the nodes touch 2 MiB in turn; of small blocks 64 KiB.
TEST(node_memory_is_touched_in_turn) {
  auto &calls = MadeUpMachine::calls();
  auto &touched = MadeUpMachine::touched();
  for (int nodes : {2, 3}) {
    MadeUpMachine machine(nodes, 1);
    auto t = std::make_unique<sie::Topology>();
    auto seats = std::make_unique<sie::Seats>();
    sie::read_topology(machine.root.path(), machine.cpus.data(), nodes, t.get());
    sie::seat_executors(*t, nodes, false, 0, seats.get());
    for (size_t bytes : {size_t{1}, size_t{64} << 10, (size_t{64} << 10) + 1, size_t{300} << 10,
                         2 * huge_page - page, 2 * huge_page, 4 * huge_page + page}) {
      MadeUpMachine::answer() = EPERM;
      calls.clear();
      touched.clear();
      sie::Block block;
      CHECK(sie::allocate_on(*seats, -1, bytes, &block), "no memory");
      CHECK(calls.size() == 1 && calls[0].nodes.size() == static_cast<size_t>(nodes), "%zu calls",
            calls.size());
      const size_t step = block.bytes < 2 * huge_page ? size_t{64} << 10 : huge_page;
      size_t next = 0;
      for (int32_t place = 0; place < nodes; place++) {
        for (size_t p = 0; p < block.bytes; p += page) {
          if (p / step % static_cast<size_t>(nodes) != static_cast<size_t>(place)) continue;
          const bool same = next < touched.size() && touched[next].place == place &&
                            touched[next].p == block.at(static_cast<int64_t>(p));
          CHECK(same, "%zu bytes on %d nodes: byte %zu is not touched from node %d", bytes, nodes, p, place);
          if (!same) return;
          next++;
        }
      }
      CHECK(touched.size() == next, "%zu pages of %zu are touched twice", touched.size() - next, next);
      sie::release(&block);
      touched.clear();
      // A copy, which is for one node, and what the kernel places are left to whoever fills them.
      CHECK(sie::allocate_on(*seats, 1, bytes, &block) && calls.back().nodes == Numbers{1}, "not on node 1");
      sie::release(&block);
      MadeUpMachine::answer() = 0;
      CHECK(sie::allocate_on(*seats, -1, bytes, &block) && touched.empty(), "%zu pages are touched",
            touched.size());
      sie::release(&block);
    }
  }
}

// What the kernel of this machine answers is what place_pages says.
TEST(node_memory_tells_what_the_kernel_answers) {
  sie::Block block;
  CHECK(sie::allocate_pages(2 * page, &block), "no memory");
  const unsigned long first = 1;
  const int32_t node = 0;
  errno = EDOM;
  const long status =
      syscall(SYS_mbind, block.p, page, MPOL_PREFERRED, &first, 8 * sizeof first, 0ul) == 0 ? 0 : errno;
  errno = EDOM;
  const int got = sie::place_pages(block.at(page), page, &node, 1);
  CHECK(got == status, "%d, but the kernel answers %ld", got, status);
  errno = EDOM;
  CHECK(sie::try_placing(&node, 1) == status, "to try it tells otherwise");
  sie::release(&block);
}
