// fence.h — lists behind whose end is memory that cannot be read.
#ifndef SIE_CSRC_TESTS_FENCE_H
#define SIE_CSRC_TESTS_FENCE_H

#include <string.h>
#include <sys/mman.h>

#include <utility>
#include <vector>

#include "tests/check.h"

// Copies that end where their memory does.
class Fence {
 public:
  Fence() = default;
  Fence(const Fence &) = delete;
  Fence &operator=(const Fence &) = delete;
  ~Fence() {
    for (const auto &[p, bytes] : mapped_) munmap(p, bytes);
  }
  template <class T>
  const T *behind(const std::vector<T> &list) {
    constexpr size_t page = 4096;
    const size_t bytes = list.size() * sizeof(T), room = (bytes + page - 1) / page * page;
    void *p = mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED && mprotect(static_cast<char *>(p) + room, page, PROT_NONE) == 0, "no memory");
    mapped_.push_back({p, room + page});
    char *const begin = static_cast<char *>(p) + room - bytes;
    if (bytes > 0) memcpy(begin, list.data(), bytes);
    return reinterpret_cast<const T *>(begin);
  }

 private:
  std::vector<std::pair<void *, size_t>> mapped_;
};

#endif  // SIE_CSRC_TESTS_FENCE_H
