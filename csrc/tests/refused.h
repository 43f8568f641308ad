// refused.h — checks that a call is refused with the right status and a message.
#ifndef SIE_CSRC_TESTS_REFUSED_H
#define SIE_CSRC_TESTS_REFUSED_H

#include "sie.h"
#include "tests/check.h"

inline void refused(const char *what, sie_status got, const sie_error &err,
                    sie_status want = SIE_INVALID_ARGUMENT) {
  CHECK(got == want, "%s: status %d, %d expected (%s)", what, got, want, err.message);
  CHECK(err.status == got && err.message[0] != '\0', "%s: no message", what);
  for (const char *c = err.message; *c != '\0'; c++)
    CHECK(*c >= ' ' && *c <= '~', "%s: \"%s\" is not ASCII", what, err.message);
}

// Clears the error before each call, so that an old message cannot pass.
#define REFUSED(call, ...)                      \
  do {                                          \
    sie_error err = {};                         \
    sie_status status = (call);                 \
    refused(#call, status, err, ##__VA_ARGS__); \
  } while (0)

// A cleared struct of the header with its struct_size set.
template <class T>
T sized() {
  T t = {};
  t.struct_size = sizeof t;
  return t;
}

#endif  // SIE_CSRC_TESTS_REFUSED_H
