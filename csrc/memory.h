// memory.h — every allocation of the C side: zeroed, 64-byte aligned, and able to fail.
//
// Blocks of 4 MiB and more come straight from mmap, aligned to 2 MiB and advised for huge pages.
// The kernel hands them out zeroed, so padding never costs a write. Under a sanitizer all blocks
// come from the allocator, so that the sanitizer watches their redzones.
#ifndef SIE_CSRC_MEMORY_H
#define SIE_CSRC_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <new>

namespace sie {

// Block is memory from allocate or allocate_pages, until release; before and behind, it is empty.
struct Block {
  void *p = nullptr;
  size_t bytes = 0;
  bool mapped = false;

  char *at(int64_t offset) const { return static_cast<char *>(p) + offset; }
};

// False when there is no memory; *block is then empty. 0 bytes give a valid block.
bool allocate(size_t bytes, Block *block);
// The same straight from mmap, whatever the size, and untouched.
bool allocate_pages(size_t bytes, Block *block);
// Accepts an empty block and leaves one.
void release(Block *block);

// A zeroed array of n trivially destructible elements, or null.
template <class T>
T *array_of(Block *block, int64_t n) {
  return allocate(static_cast<size_t>(n) * sizeof(T), block) ? static_cast<T *>(block->p) : nullptr;
}

// One object of T, value-initialised, or null. Destroyed by destroy_object.
template <class T>
T *new_object() {
  Block block;
  return allocate(sizeof(T), &block) ? new (block.p) T() : nullptr;
}
template <class T>
void destroy_object(T *object) {
  if (object == nullptr) return;
  object->~T();
  Block block = {object, sizeof(T), false};
  release(&block);
}

// A growable array of plain values. push returns false when there is no memory and leaves the list
// as it was.
template <class T>
class List {
 public:
  List() = default;
  List(const List &) = delete;
  List &operator=(const List &) = delete;
  ~List() { release(&block_); }

  bool push(const T &value) {
    if ((size_ + 1) * static_cast<int64_t>(sizeof(T)) > static_cast<int64_t>(block_.bytes)) {
      Block larger;
      if (!allocate((static_cast<size_t>(size_) * 2 + 8) * sizeof(T), &larger)) return false;
      if (size_ > 0) memcpy(larger.p, block_.p, static_cast<size_t>(size_) * sizeof(T));
      release(&block_);
      block_ = larger;
    }
    new (static_cast<T *>(block_.p) + size_) T(value);
    size_++;
    return true;
  }
  void pop() { size_--; }
  void clear() { size_ = 0; }
  int64_t size() const { return size_; }
  T &operator[](int64_t i) { return static_cast<T *>(block_.p)[i]; }
  const T &operator[](int64_t i) const { return static_cast<const T *>(block_.p)[i]; }
  T *begin() { return static_cast<T *>(block_.p); }
  T *end() { return begin() + size_; }
  const T *begin() const { return static_cast<const T *>(block_.p); }
  const T *end() const { return begin() + size_; }

 private:
  Block block_ = {};
  int64_t size_ = 0;
};

inline int64_t round_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

}  // namespace sie

#endif  // SIE_CSRC_MEMORY_H
