// grow.h — structs of the caller's that may be shorter or longer than this library's (sie.h,
// "Structs that grow").
#ifndef SIE_CSRC_GROW_H
#define SIE_CSRC_GROW_H

#include <string.h>

#include "status.h"

namespace sie {

// Copies a struct of `size` bytes, of which the caller has as many as its struct_size says: what it
// lacks is 0, and what it has beyond must be. `name` is the struct's.
sie_status take_struct(const void *from, void *to, uint32_t size, const char *name, sie_error *err);

template <class T>
sie_status take(const T *from, T *to, const char *name, sie_error *err) {
  return take_struct(from, to, static_cast<uint32_t>(sizeof(T)), name, err);
}

// Gives the caller as much of a result as its struct has room for, and clears what it has beyond.
sie_status give_struct(const void *from, void *to, uint32_t size, const char *name, sie_error *err);

template <class T>
sie_status give(const T &from, T *to, const char *name, sie_error *err) {
  return give_struct(&from, to, static_cast<uint32_t>(sizeof(T)), name, err);
}

}  // namespace sie

#endif  // SIE_CSRC_GROW_H
