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
