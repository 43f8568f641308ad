// judge.cc — linked into programs that hold mutants: one body of tests against every mutant it
// comes by, each in a process of its own that begins where the body begins, so that inputs and
// expectations are made once.
//
//   SIE_MUTANTS_JUDGE=path     numbers of the mutants, one a line; without it a body just runs
//   SIE_MUTANTS_VERDICTS=path  what became of them, a line each, as it happens:
//     time SECONDS BODY              of the unchanged code
//     reached NUMBER                 where a body came by it for the first time
//     killed NUMBER CAUSE BODY: …    what the body printed
//     long BODY                      longer than SIE_MUTANTS_LONGEST seconds of CPU: left out
//   SIE_MUTANTS_UNTIL=seconds  of CLOCK_MONOTONIC: then the program ends with status 75, the rest undecided
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mutant.h"

extern "C" {
extern const int sie_mutant_count;
void sie_mutants_judge(const char *name, void (*observe)(void *), void (*body)(void *), void *with);
}

namespace {

constexpr int asleep_seconds = 6;  // without any CPU: nobody will wake its threads
constexpr int ended_by_deadline = 75;

struct Run {
  char cause[16];  // empty: passed
  double cpu;
};

FILE *verdicts;
int words = -1;  // file of what a body prints
unsigned char *live, *seen;
double until = 1e300, longest = 1e300;

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

bool start() {
  static int started = -1;
  if (started >= 0) return started == 1;
  const char *path = getenv("SIE_MUTANTS_JUDGE");
  started = path != nullptr ? 1 : 0;
  if (path == nullptr) return false;
  const size_t count = static_cast<size_t>(sie_mutant_count) + 1;
  live = static_cast<unsigned char *>(calloc(count, 1));
  seen = static_cast<unsigned char *>(calloc(count, 1));
  // Shared: who watches runs in another process.
  sie_mutant_reached = static_cast<SieMutantState *>(
      mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  FILE *numbers = fopen(path, "r");
  verdicts = fopen(getenv("SIE_MUTANTS_VERDICTS"), "a");
  words = memfd_create("words", 0);
  if (numbers == nullptr || verdicts == nullptr || words < 0 || sie_mutant_reached == MAP_FAILED) _exit(3);
  for (int n; fscanf(numbers, "%d", &n) == 1;) {
    if (n < 0 || n >= sie_mutant_count) _exit(3);
    live[n] = 1;
  }
  fclose(numbers);
  if (const char *text = getenv("SIE_MUTANTS_UNTIL")) until = atof(text);
  if (const char *text = getenv("SIE_MUTANTS_LONGEST")) longest = atof(text);
  return true;
}

// CPU ticks of the process where all its threads sleep; −1 where one runs or waits for a core.
long ticks_of_sleepers(pid_t process) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", process);
  DIR *tasks = opendir(path);
  if (tasks == nullptr) return -1;
  long ticks = 0;
  while (const dirent *task = readdir(tasks)) {
    if (task->d_name[0] == '.') continue;
    char text[1024], name[sizeof path + sizeof task->d_name + 8];
    snprintf(name, sizeof name, "%s/%s/stat", path, task->d_name);
    FILE *file = fopen(name, "r");
    const size_t bytes = file != nullptr ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file != nullptr) fclose(file);
    text[bytes] = 0;
    const char *state = strrchr(text, ')');
    long user, system;
    if (state == nullptr || state[2] != 'S' ||
        sscanf(state + 3, "%*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system) != 2) {
      ticks = -1;
      break;
    }
    ticks += user + system;
  }
  closedir(tasks);
  return ticks;
}

[[noreturn]] void give_up() {
  fflush(verdicts);
  _exit(ended_by_deadline);
}

// The body in a process of its own, with this mutant, or watching all where it is −1; ended after
// `limit` seconds of CPU.
Run run(void (*body)(void *), void *with, int mutant, double limit) {
  fflush(nullptr);
  if (ftruncate(words, 0) != 0 || lseek(words, 0, SEEK_SET) != 0) _exit(3);
  const pid_t child = fork();
  if (child < 0) _exit(3);
  if (child == 0) {
    setpgid(0, 0);
    dup2(words, 1);
    dup2(words, 2);
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    // By SIGKILL, which a body cannot block.
    const rlim_t seconds = static_cast<rlim_t>(ceil(limit));
    const rlimit cpu = {seconds, seconds};
    setrlimit(RLIMIT_CPU, &cpu);
    if (mutant >= 0) {
      sie_mutant_states[mutant] = sie_mutant_on;
    } else {
      for (int n = 0; n < sie_mutant_count; n++)
        sie_mutant_states[n] = live[n] ? sie_mutant_watched : sie_mutant_off;
    }
    body(with);
    fflush(nullptr);
    _exit(0);
  }
  pollfd ends = {static_cast<int>(syscall(SYS_pidfd_open, child, 0)), POLLIN, 0};
  int asleep = 0;
  long before = -1;
  bool late = false, stuck = false;
  while (poll(&ends, 1, 1000) == 0) {
    const long ticks = ticks_of_sleepers(child);
    asleep = ticks >= 0 && ticks == before ? asleep + 1 : 0;
    before = ticks;
    stuck = asleep >= asleep_seconds;
    late = now() > until;
    if (stuck || late) {
      kill(child, SIGKILL);
      break;
    }
  }
  close(ends.fd);
  int status = 0;
  rusage usage = {};
  while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  if (late) give_up();
  auto seconds = [](const timeval &t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  Run result = {"", seconds(usage.ru_utime) + seconds(usage.ru_stime)};
  const char *cause = "";
  if (stuck) {
    cause = "timeout";
  } else if (WIFEXITED(status)) {
    cause = WEXITSTATUS(status) == 0 ? "" : "numbers";
  } else {
    const int signal = WTERMSIG(status);
    cause = signal == SIGKILL   ? "timeout"
            : signal == SIGABRT ? "assertion"
            : signal == SIGILL  ? "bounds"
                                : "crash";
  }
  snprintf(result.cause, sizeof result.cause, "%s", cause);
  return result;
}

// What the last body printed, as a line.
const char *said() {
  static char text[400];
  const ssize_t bytes = pread(words, text, sizeof text - 1, 0);
  text[bytes > 0 ? bytes : 0] = 0;
  for (char *c = text; *c != 0; c++) {
    if (*c == '\n') *c = ' ';
  }
  return text;
}

Run unchanged(const char *name, void (*body)(void *), void *with, int watched) {
  const Run clean = run(body, with, watched, 1000);
  if (clean.cause[0] != 0) {
    fprintf(stderr, "%s fails without a mutant: %s: %s\n", name, clean.cause, said());
    _exit(1);
  }
  return clean;
}

}  // namespace

void sie_mutants_judge(const char *name, void (*observe)(void *), void (*body)(void *), void *with) {
  if (!start()) {
    observe(with);
    if (body != observe) body(with);
    return;
  }
  if (now() > until) give_up();
  memset(static_cast<void *>(sie_mutant_reached), 0, static_cast<size_t>(sie_mutant_count));
  Run clean = unchanged(name, observe, with, -1);
  bool any = false;
  for (int n = 0; n < sie_mutant_count; n++) {
    if (!live[n] || sie_mutant_reached[n] == sie_mutant_off) continue;
    any = true;
    if (!seen[n]) fprintf(verdicts, "reached %d\n", n);
    seen[n] = 1;
  }
  if (!any) return;
  if (body != observe) clean = unchanged(name, body, with, sie_mutant_count);
  fprintf(verdicts, "time %.3f %s\n", clean.cpu, name);
  if (clean.cpu > longest) {
    fprintf(verdicts, "long %s\n", name);
    return;
  }
  static unsigned char *todo =
      static_cast<unsigned char *>(calloc(static_cast<size_t>(sie_mutant_count) + 1, 1));
  for (int n = 0; n < sie_mutant_count; n++) todo[n] = live[n] && sie_mutant_reached[n] != sie_mutant_off;
  for (int n = 0; n < sie_mutant_count; n++) {
    if (!todo[n]) continue;
    if (now() > until) give_up();
    const Run broken = run(body, with, n, 1 + 10 * clean.cpu);
    if (broken.cause[0] == 0) continue;
    live[n] = 0;
    fprintf(verdicts, "killed %d %s %s: %s\n", n, broken.cause, name, said());
    fflush(verdicts);
  }
  fflush(verdicts);
}
