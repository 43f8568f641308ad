// memory.cc — aligned, zeroed blocks from the allocator or from mmap.
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>

namespace sie {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t map_from = SIZE_MAX;
#else
constexpr size_t map_from = size_t{4} << 20;
#endif
constexpr size_t huge_page = size_t{2} << 20;
constexpr size_t alignment = 64;

// Maps enough for any alignment, then unmaps the parts outside the aligned block.
bool map_aligned(size_t bytes, Block *block) {
  size_t length = (bytes + 4095) / 4096 * 4096, room = length + huge_page;
  void *mapped = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  uintptr_t begin = reinterpret_cast<uintptr_t>(mapped);
  uintptr_t first = (begin + huge_page - 1) / huge_page * huge_page;
  if (first > begin) munmap(mapped, first - begin);
  munmap(reinterpret_cast<void *>(first + length), begin + room - first - length);
  *block = {reinterpret_cast<void *>(first), length, true};
  madvise(block->p, length, MADV_HUGEPAGE);  // only advice: a refusal costs only speed
  return true;
}

}  // namespace

bool allocate(size_t bytes, Block *block) {
  *block = {};
  if (bytes > SIZE_MAX / 2) return false;
  if (bytes >= map_from) return map_aligned(bytes, block);
  size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (rounded == 0) rounded = alignment;
  void *p = nullptr;
  if (posix_memalign(&p, alignment, rounded) != 0) return false;
  memset(p, 0, rounded);
  *block = {p, rounded, false};
  return true;
}

bool allocate_pages(size_t bytes, Block *block) {
  *block = {};
  return bytes <= SIZE_MAX / 2 && map_aligned(bytes > 0 ? bytes : 1, block);
}

void release(Block *block) {
  if (block->mapped) {
    munmap(block->p, block->bytes);
  } else {
    free(block->p);
  }
  *block = {};
}

}  // namespace sie
