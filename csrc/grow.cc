// grow.cc — accepts structs of other versions of sie.h.
#include "grow.h"

#include <stdint.h>

namespace sie {

namespace {

// No version of a struct is larger. A size that a caller forgot to set is seldom smaller.
constexpr uint32_t largest_struct = 4096;

sie_status check_size(const void *p, const char *name, uint32_t *bytes, sie_error *err) {
  SIE_FAIL_IF(p == nullptr, SIE_INVALID_ARGUMENT, err, "%s is NULL", name);
  memcpy(bytes, p, sizeof *bytes);
  SIE_FAIL_IF(*bytes < 8 || *bytes > largest_struct || *bytes % 4 != 0, SIE_INVALID_ARGUMENT, err,
              "the struct_size of %s is %u; its sizeof is needed, 8 to %u", name, *bytes, largest_struct);
  return SIE_OK;
}

}  // namespace

sie_status take_struct(const void *from, void *to, uint32_t size, const char *name, sie_error *err) {
  uint32_t bytes = 0;
  SIE_TRY(check_size(from, name, &bytes, err));
  const unsigned char *in = static_cast<const unsigned char *>(from);
  for (uint32_t i = size; i < bytes; i++) {
    SIE_FAIL_IF(
        in[i] != 0, SIE_UNSUPPORTED, err,
        "%s has %u bytes, of which this library knows %u, and byte %u is not 0: a newer libsie is needed",
        name, bytes, size, i);
  }
  uint32_t known = bytes < size ? bytes : size;
  memcpy(to, from, known);
  memset(static_cast<char *>(to) + known, 0, size - known);
  return SIE_OK;
}

sie_status give_struct(const void *from, void *to, uint32_t size, const char *name, sie_error *err) {
  uint32_t bytes = 0;
  SIE_TRY(check_size(to, name, &bytes, err));
  uint32_t known = bytes < size ? bytes : size, head = sizeof bytes;
  memcpy(static_cast<char *>(to) + head, static_cast<const char *>(from) + head, known - head);
  memset(static_cast<char *>(to) + known, 0, bytes - known);
  return SIE_OK;
}

}  // namespace sie
