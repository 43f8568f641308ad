// weight_pages.cc — blocks one behind another, counted by huge page.
#include "weight_pages.h"

#include <sys/mman.h>

#include "node_memory.h"

namespace sie {

namespace {

// Under a sanitizer every block is alone, so that the sanitizer watches its redzones.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool shares = false;
#else
constexpr bool shares = true;
#endif

bool allocate_alone(const Seats &seats, int32_t place, size_t bytes, Block *block) {
  return place == WeightPages::anywhere ? allocate(bytes, block) : allocate_on(seats, place, bytes, block);
}

}  // namespace

WeightPages::Region *WeightPages::with_room(const Seats &seats, uint32_t group, int32_t place, size_t bytes) {
  for (Region &r : regions_) {
    if (r.group == group && r.place == place && region_bytes - r.used >= bytes) return &r;
  }
  Region region = {};
  region.group = group;
  region.place = place;
  const bool ok = place == anywhere ? allocate_pages(region_bytes, &region.memory)
                                    : allocate_on(seats, place, region_bytes, &region.memory);
  if (!ok) return nullptr;
  if (!regions_.push(region)) {
    sie::release(&region.memory);
    return nullptr;
  }
  return regions_.end() - 1;
}

void WeightPages::count(Region *r, size_t at, size_t bytes, int32_t change) {
  for (size_t page = at / page_bytes; page * page_bytes < at + bytes; page++) {
    r->on_page[page] += change;
    if (r->on_page[page] == 0) {
      madvise(r->memory.at(static_cast<int64_t>(page * page_bytes)), page_bytes, MADV_DONTNEED);
    }
  }
}

bool WeightPages::allocate(const Seats &seats, uint32_t group, int32_t place, size_t bytes, Block *block) {
  const bool alone = !shares || group == 0 || bytes == 0 || bytes > largest;
  if (alone) return allocate_alone(seats, place, bytes, block);
  const size_t rounded = static_cast<size_t>(round_up(static_cast<int64_t>(bytes), 64));
  Region *r = with_room(seats, group, place, rounded);
  if (r == nullptr) return allocate_alone(seats, place, bytes, block);
  *block = {r->memory.at(static_cast<int64_t>(r->used)), rounded, false};
  count(r, r->used, rounded, 1);
  r->used += rounded;
  r->blocks++;
  return true;
}

void WeightPages::release(Block *block) {
  const uintptr_t p = reinterpret_cast<uintptr_t>(block->p);
  for (Region &r : regions_) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(r.memory.p);
    if (p < begin || p >= begin + region_bytes) continue;
    count(&r, p - begin, block->bytes, -1);
    if (--r.blocks == 0) {
      sie::release(&r.memory);
      r = regions_[regions_.size() - 1];
      regions_.pop();
    }
    *block = {};
    return;
  }
  sie::release(block);
}

}  // namespace sie
