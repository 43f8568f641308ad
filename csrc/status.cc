// status.cc — error values and the ABI version.
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

namespace sie {

sie_status fail(sie_error *err, sie_status status, const char *format, ...) {
  if (err != nullptr) {
    err->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
  }
  return status;
}

}  // namespace sie

uint32_t sie_abi_version(void) { return SIE_ABI_VERSION; }

const char *sie_status_name(sie_status status) {
  switch (status) {
    case SIE_OK:
      return "ok";
    case SIE_INVALID_ARGUMENT:
      return "invalid_argument";
    case SIE_UNSUPPORTED:
      return "unsupported";
    case SIE_CORRUPT:
      return "corrupt";
    case SIE_OUT_OF_MEMORY:
      return "out_of_memory";
    case SIE_DEVICE_LOST:
      return "device_lost";
    case SIE_INTERNAL:
      return "internal";
  }
  return "unknown";
}
