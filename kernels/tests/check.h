// check.h — a small test frame for the C side: cases register themselves, checks count failures and
// continue.
//
//   TEST(slabs_hold_every_sequence) { CHECK(n == 3, "n is %d", n); }
//
// main() of each test binary calls run_tests(argc, argv). An argument selects the cases whose name
// contains it, or, with = in front, the case of that name. For tools that run the same tests many
// times (tools/mutate), the environment may hold:
//   SIE_TEST_LIST=1      names the selected cases and runs none; with parts, of those that are long
//                        lists
//   SIE_TEST_STOP=1      ends the program at the first failure
//   SIE_TEST_SHARD=3/16  of cases that are long lists, every 16th entry from the third on (from 0)
//   SIE_TEST_CASES=1/2   of the selected cases every second from the first on (from 0)
//   SIE_TEST_TURN=5      both begin 2·5 entries later: turns in a row see all of them
//   SIE_TEST_OTHERS=1/2  of the selected cases that are no long lists every second, in each turn the
//                        same ones
#ifndef SIE_KERNELS_TESTS_CHECK_H
#define SIE_KERNELS_TESTS_CHECK_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Defined in a program that holds mutants (tools/mutate/judge.cc); null in all others.
extern "C" [[gnu::weak]] void sie_mutants_judge(const char *name, void (*observe)(void *),
                                                void (*body)(void *), void *with);

namespace check {

enum class Kind {
  single,
  list,    // asks for judgement of each entry
  verdict  // on what the cases before it have seen: in every process
};

struct Case {
  const char *name;
  void (*run)();
  Kind kind;
  Case *next;
};

inline Case *first_case = nullptr;
inline Case **last_case = &first_case;
inline int failures = 0;
inline int failures_of_case = 0;

struct Register {
  explicit Register(Case *c) {
    *last_case = c;
    last_case = &c->next;
  }
};

// A part of a list: every `every`-th entry, from number `first` on.
struct Part {
  int first = 0, every = 1;
  // Reads FIRST/EVERY from the environment; without it, or where it is neither, the part is all.
  explicit Part(const char *variable) {
    const char *text = getenv(variable);
    if (text == nullptr || sscanf(text, "%d/%d", &first, &every) != 2 || every < 1) first = 0, every = 1;
  }
  // The part that two processes, with `first` 0 and 1, have in a turn.
  Part in_turn(const char *variable) const {
    const char *text = getenv(variable);
    Part part = *this;
    if (text != nullptr) part.first += 2 * (atoi(text) % every);
    return part;
  }
  bool has(int index) const { return index % every == first % every; }
};

// Whether entry `index` of a case's list is to be run.
inline bool in_shard(int index) {
  static const Part part = Part("SIE_TEST_SHARD").in_turn("SIE_TEST_TURN");
  return part.has(index);
}

[[gnu::format(printf, 3, 4)]] inline void failed(const char *file, int line, const char *format, ...) {
  failures++;
  // A broken kernel fails everywhere: the first lines say enough.
  if (++failures_of_case > 8) return;
  const char *slash = strrchr(file, '/');
  fprintf(stderr, "    %s:%d: ", slash != nullptr ? slash + 1 : file, line);
  va_list args;
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
  if (getenv("SIE_TEST_STOP") != nullptr) exit(1);
}

// Whether mutants are being judged, each by parts of the tests in processes of their own.
inline bool judging() { return sie_mutants_judge != nullptr && getenv("SIE_MUTANTS_JUDGE") != nullptr; }

// Runs `body`: once unchanged, and where mutants are judged again with each mutant that `observe`
// reaches.
template <typename Observe, typename Body>
void judged(const char *name, const Observe &observe, const Body &body) {
  struct With {
    const Observe &observe;
    const Body &body;
  } with = {observe, body};
  sie_mutants_judge(
      name, [](void *w) { static_cast<With *>(w)->observe(); },
      [](void *w) { static_cast<With *>(w)->body(); }, &with);
}
template <typename Body>
void judged(const char *name, const Body &body) {
  if (!judging()) return body();
  void (*const run)(void *) = [](void *w) { (*static_cast<const Body *>(w))(); };
  sie_mutants_judge(name, run, run, const_cast<Body *>(&body));
}

inline double seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs the selected cases in order of definition; returns the exit status of main.
inline int run_tests(int argc, char **argv) {
  int ran = 0, number = 0, others = 0;
  const Part part = Part("SIE_TEST_CASES").in_turn("SIE_TEST_TURN"), of_others = Part("SIE_TEST_OTHERS");
  for (Case *c = first_case; c != nullptr; c = c->next) {
    bool selected = argc < 2;
    for (int i = 1; i < argc; i++) {
      bool exact = argv[i][0] == '=';
      selected =
          selected || (exact ? strcmp(c->name, argv[i] + 1) == 0 : strstr(c->name, argv[i]) != nullptr);
    }
    if (!selected || !part.has(number++)) continue;
    if (c->kind == Kind::single && !of_others.has(others++)) continue;
    if (const char *list = getenv("SIE_TEST_LIST")) {
      if (strcmp(list, "parts") != 0 || c->kind == Kind::list) puts(c->name);
      ran++;
      continue;
    }
    failures_of_case = 0;
    double begin = seconds();
    if (c->kind == Kind::list) {
      c->run();
    } else {
      judged(c->name, [c] { c->run(); });
    }
    printf("%-4s %s (%.2f s)\n", failures_of_case == 0 ? "ok" : "FAIL", c->name, seconds() - begin);
    fflush(stdout);
    ran++;
  }
  printf("%d cases, %d failures\n", ran, failures);
  return failures == 0 && ran > 0 ? 0 : 1;
}

}  // namespace check

#define TEST(name) CHECK_TEST(name, single)
// A long list; its entries pass through check::judged one by one.
#define TEST_LIST(name) CHECK_TEST(name, list)
// What the cases before it have seen, together.
#define TEST_VERDICT(name) CHECK_TEST(name, verdict)

#define CHECK_TEST(name, kind)                                                       \
  static void test_##name();                                                         \
  static check::Case case_##name = {#name, test_##name, check::Kind::kind, nullptr}; \
  static check::Register register_##name(&case_##name);                              \
  static void test_##name()

// The message is mandatory: a failure must say what it saw.
#define CHECK(condition, ...)                                         \
  do {                                                                \
    if (!(condition)) check::failed(__FILE__, __LINE__, __VA_ARGS__); \
  } while (0)

#endif  // SIE_KERNELS_TESTS_CHECK_H
