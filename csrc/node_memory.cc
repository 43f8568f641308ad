// node_memory.cc — places pages by mbind, and by the thread that touches them first.
#include "node_memory.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "hooks.h"

namespace sie {

namespace {

constexpr size_t page = 4096, huge_page = size_t{2} << 20;
constexpr int32_t node_numbers = 1024;  // no kernel is built for more nodes

// Touches the block's pages in turn from a thread on each node: 2 MiB at a time where huge pages
// are likely, else 64 KiB.
void touch_in_turn(const Seats &seats, const Block &block) {
  const size_t step = block.bytes >= 2 * huge_page ? huge_page : placed_from;
  for (int32_t place = 0; place < seats.nodes; place++) {
    OnNode here(seats, place);
    for (size_t at = static_cast<size_t>(place) * step; at < block.bytes;
         at += static_cast<size_t>(seats.nodes) * step) {
      const size_t end = std::min(at + step, block.bytes);
      for (size_t p = at; p < end; p += page) {
        char *const first = block.at(static_cast<int64_t>(p));
        hooks::touches(place, first);
        *static_cast<volatile char *>(first) = 0;
      }
    }
  }
}

int bind(void *p, size_t bytes, int mode, const unsigned long *nodes, unsigned long bits) {
  if (const hooks::Machine *made_up = hooks::machine()) return made_up->mbind(p, bytes, mode, nodes, bits);
  return syscall(SYS_mbind, p, bytes, mode, nodes, bits, 0ul) == 0 ? 0 : errno;
}

}  // namespace

int place_pages(void *p, size_t bytes, const int32_t *nodes, int32_t n) {
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(p) + page - 1) / page * page,
                  end = (reinterpret_cast<uintptr_t>(p) + bytes) / page * page;
  if (begin >= end) return 0;
  constexpr int32_t bits = 8 * sizeof(unsigned long);
  unsigned long mask[node_numbers / bits] = {};
  for (int32_t i = 0; i < n; i++) mask[nodes[i] / bits] |= 1ul << (nodes[i] % bits);
  // The kernel reads one bit less than it is told of.
  return bind(reinterpret_cast<void *>(begin), end - begin, n == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE, mask,
              node_numbers + 1);
}

int try_placing(const int32_t *nodes, int32_t n) {
  void *p = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return ENOMEM;
  const int problem = place_pages(p, page, nodes, n);
  munmap(p, page);
  return problem;
}

OnNode::OnNode(const Seats &seats, int32_t place) : before_(CpuMask::now()) { mask_of(seats, place).stay(); }

bool allocate_on(const Seats &seats, int32_t place, size_t bytes, Block *block) {
  if (!allocate_pages(bytes, block)) return false;
  const bool all = place < 0;
  const int problem =
      place_pages(block->p, block->bytes, all ? seats.numbers : seats.numbers + place, all ? seats.nodes : 1);
  if (problem != 0 && all) touch_in_turn(seats, *block);
  return true;
}

}  // namespace sie
