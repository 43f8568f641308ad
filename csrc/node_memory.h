// node_memory.h — memory of which the kernel is told on which nodes its pages lie.
//
// The kernel chooses a page's node when the page is first touched. It is asked first (mbind), and
// the touching thread runs on the node then. Where it refuses to be asked, as in containers without
// CAP_SYS_NICE, the threads alone decide.
#ifndef SIE_CSRC_NODE_MEMORY_H
#define SIE_CSRC_NODE_MEMORY_H

#include "memory.h"
#include "topology.h"

namespace sie {

// A smaller block is not placed: it would not fill its pages, and caches hold it.
constexpr size_t placed_from = size_t{64} << 10;

// Asks the kernel for the pages in [p, p + bytes), which nobody has touched: on the node if n is 1,
// else in turn on each of nodes[n], the kernel's numbers. Returns 0 or an errno. Whole pages only.
int place_pages(void *p, size_t bytes, const int32_t *nodes, int32_t n);

// Whether the kernel can be asked: places one page on nodes[n]. Returns 0 or an errno.
int try_placing(const int32_t *nodes, int32_t n);

// While it lives, the calling thread runs on the CPUs of a node of the seats; afterwards where it
// ran before.
class OnNode {
 public:
  OnNode(const Seats &seats, int32_t place);
  ~OnNode() { before_.stay(); }
  OnNode(const OnNode &) = delete;
  OnNode &operator=(const OnNode &) = delete;

 private:
  CpuMask before_;
};

// Allocates a block whose pages are on the seats' node `place`, or in turn on all of their nodes if
// place is -1. False when there is no memory. If the kernel refuses to place them, the block is
// good all the same.
bool allocate_on(const Seats &seats, int32_t place, size_t bytes, Block *block);

}  // namespace sie

#endif  // SIE_CSRC_NODE_MEMORY_H
