// weight_pages.h — huge pages that the weights of one group, a model, share.
//
// A matrix of a small model is smaller than a huge page, and on pages of 4 KiB a forward pass reads
// from more pages than a core keeps translations of. So the blocks of a group lie one behind another
// in regions of whole huge pages. A huge page goes back to the kernel when no block lies on it any
// more, and a region when it holds none.
#ifndef SIE_CSRC_WEIGHT_PAGES_H
#define SIE_CSRC_WEIGHT_PAGES_H

#include "memory.h"
#include "topology.h"

namespace sie {

// Not for several threads at once, as all of a device. Its user releases every block.
class WeightPages {
 public:
  static constexpr int32_t anywhere = -1;
  static constexpr size_t region_bytes = size_t{32} << 20;
  // Larger blocks are alone: they fill huge pages of their own.
  static constexpr size_t largest = region_bytes / 2;

  WeightPages() = default;
  WeightPages(const WeightPages &) = delete;
  WeightPages &operator=(const WeightPages &) = delete;

  // Allocates a zeroed block, aligned to 64 bytes, among those of the group, or alone for group 0;
  // on the seats' node `place`, or anywhere. False when there is no memory.
  bool allocate(const Seats &seats, uint32_t group, int32_t place, size_t bytes, Block *block);
  // Releases a block of any allocation; accepts an empty one.
  void release(Block *block);
  int64_t regions() const { return regions_.size(); }

 private:
  static constexpr size_t page_bytes = size_t{2} << 20;
  static constexpr size_t pages = region_bytes / page_bytes;
  struct Region {
    Block memory;
    uint32_t group;
    int32_t place;
    size_t used;             // bytes given away; released ones are not given again
    int32_t blocks;          // on all pages
    int32_t on_page[pages];  // blocks of which a part lies there
  };

  Region *with_room(const Seats &seats, uint32_t group, int32_t place, size_t bytes);
  // Adds `change` to the counts of the pages on which [at, at + bytes) lies, and gives back those
  // on which nothing lies then.
  static void count(Region *r, size_t at, size_t bytes, int32_t change);

  List<Region> regions_;
};

}  // namespace sie

#endif  // SIE_CSRC_WEIGHT_PAGES_H
