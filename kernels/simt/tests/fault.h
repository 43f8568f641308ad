// fault.h — planted faults: each kernel is right without Fault and wrong with it. The right kernel
// must pass under every seed. The wrong one must be noticed under most seeds, by an abort that names
// the rule or by a wrong result. Each run has a process of its own.
#ifndef SIE_KERNELS_SIMT_TESTS_FAULT_H
#define SIE_KERNELS_SIMT_TESTS_FAULT_H

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "simt_test.h"

namespace simt_test {

constexpr int wrong_result = 3;
inline constexpr char anything[] = "";

// Runs body (0: right result) with a seed in a child. Returns its exit status or minus the signal,
// and its stderr.
inline int run_in_child(int (*body)(), uint64_t seed, std::string *said) {
  int ends[2];
  fflush(nullptr);
  if (pipe(ends) != 0) return -1000;
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    dup2(ends[1], 2);
    close(ends[1]);
    simt::seed(seed);
    _exit(body());
  }
  close(ends[1]);
  said->clear();
  char buffer[4096];
  for (;;) {
    ssize_t n = read(ends[0], buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    said->append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

struct Expectation {
  const char *says;  // part of the message of the abort; NULL: a wrong result; anything: either
  int of_ten;        // runs in ten that notice, at least
};

inline void check_fault(const char *name, int (*right)(), int (*wrong)(), Expectation expect) {
  std::string said;
  int noticed = 0;
  for (uint64_t seed = 1; seed <= 10; seed++) {
    int status = run_in_child(right, seed, &said);
    CHECK(status == 0, "%s, as it should be, seed %d: status %d\n%s", name, static_cast<int>(seed), status,
          said.c_str());
    status = run_in_child(wrong, seed, &said);
    bool aborted = status == -SIGABRT && said.find("simt: kernel") == 0;
    bool as_expected = expect.says != nullptr ? aborted && said.find(expect.says) != std::string::npos &&
                                                    said.find("SIE_SIMT_SEED=") != std::string::npos
                                              : status == wrong_result;
    if (expect.says == anything) as_expected = as_expected || status == wrong_result;
    CHECK(as_expected || status == 0, "%s, seed %d: status %d, not as expected\n%s", name,
          static_cast<int>(seed), status, said.c_str());
    noticed += as_expected;
  }
  CHECK(noticed >= expect.of_ten, "%s: noticed in %d of 10 runs", name, noticed);
}

}  // namespace simt_test

#define FAULT(name, says, of_ten) \
  TEST(fault_##name) { check_fault(#name, name<false>, name<true>, Expectation{says, of_ten}); }

#endif  // SIE_KERNELS_SIMT_TESTS_FAULT_H
