// memory_test.cc — blocks are as long as asked for, aligned, zeroed and given back; lists grow when
// they are full.
#include "memory.h"

#include <stdio.h>

#include <algorithm>
#include <vector>

#include "tests/check.h"

namespace {

constexpr size_t page = 4096, huge_page = size_t{2} << 20;

// A sanitizer takes all blocks from its allocator, which ends the program where too much is asked
// for, and maps pages of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

// The pages of this process's address space.
long mapped_pages() {
  long pages = -1;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == nullptr || fscanf(file, "%ld", &pages) != 1) pages = -1;
  if (file != nullptr) fclose(file);
  return pages;
}

bool zeroed(const sie::Block &block) {
  return std::all_of(block.at(0), block.at(0) + block.bytes, [](char c) { return c == 0; });
}

void fill(const sie::Block &block) { memset(block.p, 0x5a, block.bytes); }

struct Counted {
  int *destroyed;
  ~Counted() {
    if (destroyed != nullptr) ++*destroyed;
  }
};

}  // namespace

TEST(memory_from_mmap_is_what_was_asked_for) {
  constexpr size_t cases[][2] = {{0, page},
                                 {1, page},
                                 {page - 1, page},
                                 {page, page},
                                 {page + 1, 2 * page},
                                 {huge_page, huge_page},
                                 {3 * huge_page + 5, 3 * huge_page + page},
                                 {5 * huge_page, 5 * huge_page}};
  std::vector<sie::Block> blocks(sizeof cases / sizeof *cases);
  const long before = mapped_pages();
  long wanted = before;
  for (size_t i = 0; i < blocks.size(); i++) {
    sie::Block &block = blocks[i];
    CHECK(sie::allocate_pages(cases[i][0], &block) && block.mapped, "%zu bytes are not mapped", cases[i][0]);
    CHECK(block.bytes == cases[i][1], "%zu bytes for %zu", block.bytes, cases[i][0]);
    CHECK(reinterpret_cast<uintptr_t>(block.p) % huge_page == 0, "%p is not aligned to 2 MiB", block.p);
    CHECK(zeroed(block), "%zu bytes are not zeroed", block.bytes);
    fill(block);
    wanted += static_cast<long>(cases[i][1] / page);
  }
  CHECK(sanitized || mapped_pages() == wanted, "%ld pages more than the blocks have",
        mapped_pages() - wanted);
  for (sie::Block &block : blocks) {
    sie::release(&block);
    CHECK(block.p == nullptr && block.bytes == 0 && !block.mapped, "a block is left");
  }
  CHECK(sanitized || mapped_pages() == before, "%ld pages are left", mapped_pages() - before);
}

TEST(memory_from_the_allocator_is_what_was_asked_for) {
  constexpr size_t cases[][2] = {{0, 64}, {1, 64}, {63, 64}, {64, 64}, {65, 128}, {6400, 6400}, {6401, 6464}};
  for (const auto &c : cases) {
    sie::Block block;
    CHECK(sie::allocate(c[0], &block) && !block.mapped, "%zu bytes are mapped", c[0]);
    CHECK(block.bytes == c[1], "%zu bytes for %zu", block.bytes, c[0]);
    CHECK(reinterpret_cast<uintptr_t>(block.p) % 64 == 0, "%p is not aligned to 64 bytes", block.p);
    CHECK(zeroed(block), "%zu bytes are not zeroed", block.bytes);
    fill(block);
    sie::release(&block);
    CHECK(block.p == nullptr && block.bytes == 0, "a block is left");
    sie::release(&block);  // accepts an empty one
  }
  for (size_t bytes : {2 * huge_page - 64, 2 * huge_page}) {
    sie::Block block;
    CHECK(sie::allocate(bytes, &block) && block.mapped == (bytes == 2 * huge_page && !sanitized),
          "%zu bytes: %s", bytes, block.mapped ? "mapped" : "not mapped");
    sie::release(&block);
  }
}

TEST(memory_that_there_is_not_is_refused) {
  for (size_t bytes : {SIZE_MAX, SIZE_MAX - 64, SIZE_MAX / 2 + 1, SIZE_MAX / 2, SIZE_MAX / 3 + 1}) {
    sie::Block block = {&block, 1, false};
    if (!sanitized || bytes > SIZE_MAX / 2)
      CHECK(!sie::allocate(bytes, &block) && block.p == nullptr && block.bytes == 0, "%zu bytes", bytes);
    block = {&block, 1, false};
    CHECK(!sie::allocate_pages(bytes, &block) && block.p == nullptr && block.bytes == 0, "%zu mapped bytes",
          bytes);
  }
}

TEST(memory_holds_arrays_and_objects) {
  sie::Block block;
  const int64_t *const numbers = sie::array_of<int64_t>(&block, 8);
  CHECK(numbers == block.p && block.bytes == 64 && numbers[7] == 0, "8 numbers have %zu bytes", block.bytes);
  CHECK(block.at(56) == reinterpret_cast<const char *>(numbers + 7), "byte 56 is not where number 7 is");
  sie::release(&block);
  CHECK(sie::array_of<int64_t>(&block, INT64_MAX / 7) == nullptr && block.p == nullptr, "too many numbers");
  int destroyed = 0;
  Counted *object = sie::new_object<Counted>();
  CHECK(object != nullptr && object->destroyed == nullptr, "an object is not value-initialised");
  object->destroyed = &destroyed;
  sie::destroy_object(object);
  CHECK(destroyed == 1, "destroyed %d times", destroyed);
  sie::destroy_object(static_cast<Counted *>(nullptr));
  for (int64_t multiple : {1, 8, 64}) {
    for (int64_t x = 0; x < 200; x++) {
      int64_t want = 0;
      while (want < x) want += multiple;
      const int64_t got = sie::round_up(x, multiple);
      CHECK(got == want, "%lld rounded up to %lld is %lld", static_cast<long long>(x),
            static_cast<long long>(multiple), static_cast<long long>(got));
    }
  }
}

// A list has room for 8, then for 8 more than twice as many; it moves only where it is full.
TEST(memory_lists_grow_when_they_are_full) {
  sie::List<int64_t> list;
  const sie::List<int64_t> &seen = list;
  CHECK(seen.begin() == seen.end(), "an empty list has an end of its own");
  std::vector<int64_t> moved;
  for (int64_t i = 0; i < 100; i++) {
    const int64_t *const before = seen.begin();
    CHECK(list.push(7 * i), "no memory");
    if (seen.begin() != before) moved.push_back(i);
    CHECK(list.size() == i + 1 && list.end() - list.begin() == i + 1 && seen.end() - seen.begin() == i + 1,
          "%lld entries after %lld", static_cast<long long>(list.size()), static_cast<long long>(i + 1));
    for (int64_t j = 0; j <= i; j++) CHECK(seen[j] == 7 * j, "entry %lld is lost", static_cast<long long>(j));
  }
  CHECK(moved == (std::vector<int64_t>{0, 8, 24, 56}), "moved %zu times", moved.size());
  list.pop();
  CHECK(list.size() == 99 && list[98] == 98 * 7, "the last entry is popped");
  list.clear();
  CHECK(list.size() == 0 && seen.begin() == seen.end(), "cleared");
}
