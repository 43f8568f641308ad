// says.h — checks that a call is refused with certain words, or that it passes.
#ifndef SIE_CSRC_TESTS_SAYS_H
#define SIE_CSRC_TESTS_SAYS_H

#include <string.h>

#include "refused.h"

inline void says(const char *what, sie_status status, const sie_error &err, const char *words,
                 sie_status want = SIE_INVALID_ARGUMENT) {
  refused(what, status, err, want);
  CHECK(strstr(err.message, words) != nullptr, "%s: \"%s\" does not say \"%s\"", what, err.message, words);
}

// Both give the call an error to fill, named err. SAYS(words, call) or SAYS(words, call, status).
#define SAYS(words, call, ...)                      \
  do {                                              \
    sie_error err = {};                             \
    const sie_status status = (call);               \
    says(#call, status, err, words, ##__VA_ARGS__); \
  } while (0)
#define PASSES(call)                                                  \
  do {                                                                \
    sie_error err = {};                                               \
    CHECK((call) == SIE_OK, "%s is refused: %s", #call, err.message); \
  } while (0)

#endif  // SIE_CSRC_TESTS_SAYS_H
