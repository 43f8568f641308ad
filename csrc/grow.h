// grow.h — copies structs from and to callers whose version is shorter or longer than this
// library's (sie.h, "Structs that grow").
#ifndef SIE_CSRC_GROW_H
#define SIE_CSRC_GROW_H

#include <string.h>

#include "status.h"

namespace sie {

// Copies the caller's struct, which has struct_size bytes, to one of `size` bytes. Missing bytes
// are read as 0; bytes beyond `size` must be 0. `name` is the struct's, for messages.
sie_status take_struct(const void *from, void *to, uint32_t size, const char *name, sie_error *err);

template <class T>
sie_status take(const T *from, T *to, const char *name, sie_error *err) {
  return take_struct(from, to, static_cast<uint32_t>(sizeof(T)), name, err);
}

// Copies as much of a result as the caller's struct has room for, and clears the rest of that
// struct.
sie_status give_struct(const void *from, void *to, uint32_t size, const char *name, sie_error *err);

template <class T>
sie_status give(const T &from, T *to, const char *name, sie_error *err) {
  return give_struct(&from, to, static_cast<uint32_t>(sizeof(T)), name, err);
}

}  // namespace sie

#endif  // SIE_CSRC_GROW_H
