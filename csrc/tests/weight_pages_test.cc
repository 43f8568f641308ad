// weight_pages_test.cc — blocks of a group share huge pages, keep what is written to them, and give
// their pages back.
#include "weight_pages.h"

#include <stdint.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "machine.h"
#include "model.h"
#include "tests/check.h"
#include "wrapped.h"

namespace {

using sie::Block;
using sie::WeightPages;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool shares = false;
#else
constexpr bool shares = true;
#endif

// Whether each 4 KiB page of [p, p + bytes), which begins a page, is in memory.
bool resident(const char *p, size_t bytes) {
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  CHECK(mincore(const_cast<char *>(p), bytes, pages.data()) == 0, "mincore");
  return std::all_of(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; });
}

// A block that was allocated, and the value of all of its words.
struct Held {
  Block block;
  uint32_t group, value;

  bool overlaps(const Held &other) const {
    return block.p < other.block.at(static_cast<int64_t>(other.block.bytes)) &&
           other.block.p < block.at(static_cast<int64_t>(block.bytes));
  }
  bool holds(uint32_t want) const {
    const uint32_t *words = static_cast<const uint32_t *>(block.p);
    return std::all_of(words, words + block.bytes / 4, [&](uint32_t word) { return word == want; });
  }
};

}  // namespace

// Random allocations and releases: a new block is zeroed, aligned and nobody else's, and every block
// keeps its values until it is released.
TEST(weight_pages_keep_what_is_written) {
  model::Random random(24);
  WeightPages pages;
  sie::Seats seats = {};
  std::vector<Held> all;
  uint32_t values = 0;
  for (int step = 0; step < 600; step++) {
    const bool frees = random.below(100) < (step < 300 ? 35 : 60);
    if (frees && !all.empty()) {
      const size_t i = static_cast<size_t>(random.below(static_cast<int>(all.size())));
      CHECK(all[i].holds(all[i].value), "step %d: a block of %zu bytes changed", step, all[i].block.bytes);
      pages.release(&all[i].block);
      CHECK(all[i].block.p == nullptr, "a released block is not empty");
      all.erase(all.begin() + static_cast<int64_t>(i));
      continue;
    }
    Held held = {};
    held.group = static_cast<uint32_t>(random.below(4));  // 0 is none
    const int kind = random.below(10);
    size_t bytes = static_cast<size_t>(1 + random.below(kind < 5 ? 4096 : 3 << 20));
    if (kind == 9) bytes = WeightPages::largest + static_cast<size_t>(random.below(2));
    CHECK(pages.allocate(seats, held.group, WeightPages::anywhere, bytes, &held.block), "no memory");
    CHECK(held.block.bytes >= bytes, "%zu bytes for %zu", held.block.bytes, bytes);
    CHECK(reinterpret_cast<uintptr_t>(held.block.p) % 64 == 0, "a block is not aligned");
    CHECK(held.holds(0), "step %d: a new block of %zu bytes is not zero", step, bytes);
    for (const Held &other : all) CHECK(!held.overlaps(other), "step %d: two blocks overlap", step);
    held.value = ++values;
    std::fill_n(static_cast<uint32_t *>(held.block.p), held.block.bytes / 4, held.value);
    all.push_back(held);
  }
  for (Held &held : all) {
    CHECK(held.holds(held.value), "a block of %zu bytes changed", held.block.bytes);
    pages.release(&held.block);
  }
  CHECK(pages.regions() == 0, "%lld regions are left", static_cast<long long>(pages.regions()));
}

// Blocks of one group lie one behind another, those of two groups, of none, of two nodes and large
// ones do not, and what does not fit begins a region.
TEST(weight_pages_are_a_groups) {
  if (!shares) return;  // every block is alone under a sanitizer
  constexpr int32_t anywhere = WeightPages::anywhere;
  constexpr size_t largest = WeightPages::largest;
  WeightPages pages;
  sie::Seats seats = {};
  seats.nodes = 1;
  std::vector<Block> all;
  // Allocates the next block and compares the number of regions.
  auto add = [&](uint32_t group, int32_t place, size_t bytes, int64_t regions, const char *what) {
    Block block;
    CHECK(pages.allocate(seats, group, place, bytes, &block), "no memory");
    CHECK(pages.regions() == regions, "%s: %lld regions", what, static_cast<long long>(pages.regions()));
    all.push_back(block);
    return block;
  };
  const Block a = add(1, anywhere, 100, 1, "the first block");
  const Block b = add(1, anywhere, 100, 1, "the second of a group");
  CHECK(a.bytes == 128 && b.p == a.at(128), "blocks of a group are not neighbours");
  CHECK(reinterpret_cast<uintptr_t>(a.p) % (2 << 20) == 0, "a region does not begin a huge page");
  add(2, anywhere, 100, 2, "another group");
  add(0, anywhere, 100, 2, "no group");
  add(1, anywhere, largest + 1, 2, "a large block");
  const Block half = add(1, anywhere, largest, 2, "half a region");
  CHECK(half.p == b.at(128), "half a region does not fit into one");
  add(1, anywhere, largest, 3, "more than a region");
  add(1, 0, 100, 4, "on a node");
  add(5, anywhere, 0, 4, "no bytes");
  add(3, anywhere, largest, 5, "the first half of a region");
  add(3, anywhere, largest, 5, "the second half");
  for (Block &block : all) pages.release(&block);
  CHECK(pages.regions() == 0, "%lld regions are left", static_cast<long long>(pages.regions()));
}

// A huge page is in memory while a block lies on it, and no longer.
TEST(weight_pages_go_back) {
  if (!shares) return;
  constexpr size_t page = size_t{2} << 20;
  WeightPages pages;
  const sie::Seats seats = {};
  Block first, second, third;  // on page 0; on 0 and 1; on 1 and 2
  CHECK(pages.allocate(seats, 7, WeightPages::anywhere, page / 2, &first), "no memory");
  CHECK(pages.allocate(seats, 7, WeightPages::anywhere, page, &second), "no memory");
  CHECK(pages.allocate(seats, 7, WeightPages::anywhere, page, &third), "no memory");
  char *begin = first.at(0);
  std::fill_n(begin, 5 * page / 2, char{1});
  pages.release(&second);
  CHECK(resident(begin, 5 * page / 2), "a page with a block went");
  pages.release(&first);
  CHECK(!resident(begin, 4096) && resident(begin + page, 3 * page / 2), "the first page alone goes");
  Block fourth;  // on page 2, behind the third
  CHECK(pages.allocate(seats, 7, WeightPages::anywhere, 64, &fourth) && fourth.p == begin + 5 * page / 2,
        "a released place is given again");
  pages.release(&third);
  CHECK(!resident(begin + page, 4096) && resident(begin + 2 * page, 4096), "the second page alone goes");
  pages.release(&fourth);
  CHECK(pages.regions() == 0, "%lld regions are left", static_cast<long long>(pages.regions()));
  unsigned char in_memory;
  CHECK(mincore(begin, 4096, &in_memory) != 0, "the region is still mapped");
  CHECK(pages.allocate(seats, 7, WeightPages::anywhere, page, &first), "no memory");
  CHECK(pages.allocate(seats, 7, WeightPages::anywhere, 64, &second), "no memory");
  *second.at(0) = 1;
  CHECK(resident(second.at(0), 4096), "what is written is not in memory");
  pages.release(&second);
  CHECK(!resident(first.at(page), 4096), "a block ends before the page that it does not reach");
  pages.release(&first);
}

// The page of a block that begins a page is that block's alone, and so is the page before it.
TEST(weight_pages_of_neighbours_are_apart) {
  if (!shares) return;
  constexpr size_t page = size_t{2} << 20;
  WeightPages pages;
  const sie::Seats seats = {};
  Block first, second;
  CHECK(pages.allocate(seats, 7, WeightPages::anywhere, page, &first), "no memory");
  CHECK(pages.allocate(seats, 7, WeightPages::anywhere, 64, &second), "no memory");
  CHECK(second.p == first.at(page), "blocks of a group are not neighbours");
  char *const begin = first.at(0);
  *begin = 1, *second.at(0) = 1;
  pages.release(&first);
  CHECK(!resident(begin, 4096) && resident(begin + page, 4096), "the first page alone goes");
  pages.release(&second);
}

// A region may begin where another ends: a block's region is the one that it lies in.
TEST(weight_pages_of_adjacent_regions_are_apart) {
  if (!shares) return;
  constexpr size_t region = size_t{32} << 20, page = size_t{2} << 20;
  // A place that is free.
  Block place;
  CHECK(sie::allocate_pages(3 * region, &place), "no memory");
  char *const begin = place.at(0);
  sie::release(&place);
  WeightPages pages;
  const sie::Seats seats = {};
  Block first, second;
  wrapped::next_mapping.store(begin);
  CHECK(pages.allocate(seats, 1, WeightPages::anywhere, page, &first), "no memory");
  wrapped::next_mapping.store(begin + region);
  CHECK(pages.allocate(seats, 2, WeightPages::anywhere, page, &second), "no memory");
  CHECK(first.p == begin && second.p == begin + region, "the regions are not adjacent");
  std::fill_n(first.at(0), page, char{1});
  std::fill_n(second.at(0), page, char{2});
  pages.release(&second);
  CHECK(pages.regions() == 1 && first.at(0)[0] == 1 && first.at(page - 1)[0] == 1,
        "another region is released");
  pages.release(&first);
  CHECK(pages.regions() == 0, "%lld regions are left", static_cast<long long>(pages.regions()));
}

// Pages are asked for on the node of their region, or of a block that is alone, and nowhere else.
TEST(weight_pages_lie_on_their_node) {
  if (!shares) return;
  MadeUpMachine machine(2, 1);
  auto &calls = MadeUpMachine::calls();
  WeightPages pages;
  sie::Seats seats = {};
  seats.nodes = 2;
  seats.numbers[0] = 0, seats.numbers[1] = 1;
  std::vector<Block> all;
  // Allocates a block, for which so many bytes are placed on its node.
  auto add = [&](uint32_t group, int32_t place, size_t bytes, size_t placed) {
    calls.clear();
    Block block;
    CHECK(pages.allocate(seats, group, place, bytes, &block), "no memory");
    all.push_back(block);
    if (placed == 0) {
      CHECK(calls.empty(), "%zu calls for %zu bytes", calls.size(), bytes);
    } else {
      CHECK(calls.size() == 1 && calls[0].bytes == placed && calls[0].nodes == std::vector<int32_t>{place},
            "%zu calls for %zu bytes on node %d", calls.size(), bytes, place);
    }
  };
  constexpr int32_t anywhere = WeightPages::anywhere;
  constexpr size_t region = WeightPages::region_bytes, large = WeightPages::largest + 4096;
  add(1, anywhere, 100, 0);
  add(1, anywhere, large, 0);
  add(0, anywhere, 100, 0);
  for (int32_t place : {0, 1}) {
    add(1, place, 100, region);
    add(1, place, 100, 0);
    add(1, place, large, large);
    add(0, place, 4096, 4096);
  }
  for (Block &block : all) pages.release(&block);
  CHECK(pages.regions() == 0, "%lld regions are left", static_cast<long long>(pages.regions()));
}
