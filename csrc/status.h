// status.h — how functions of the C side report failures.
//
//   SIE_FAIL_IF(n < 1, SIE_INVALID_ARGUMENT, err, "n is %lld; at least 1 is needed", (long long)n);
//   SIE_TRY(check_caps(caps, err));
//
// err is the caller's sie_error and may be null. The format is mandatory; the compiler checks it.
#ifndef SIE_CSRC_STATUS_H
#define SIE_CSRC_STATUS_H

#include "sie.h"

namespace sie {

// Fills err (if not null) with the status and the formatted message, cut to fit, and returns
// status.
[[gnu::format(printf, 3, 4), gnu::cold]] sie_status fail(sie_error *err, sie_status status,
                                                         const char *format, ...);

}  // namespace sie

#define SIE_FAIL_IF(condition, status, err, ...)                                          \
  do {                                                                                    \
    if (__builtin_expect(!!(condition), 0)) return ::sie::fail(err, status, __VA_ARGS__); \
  } while (0)

#define SIE_TRY(call)                                                   \
  do {                                                                  \
    sie_status try_status_ = (call);                                    \
    if (__builtin_expect(try_status_ != SIE_OK, 0)) return try_status_; \
  } while (0)

#endif  // SIE_CSRC_STATUS_H
