// affinity.cc — answers system calls about affinity from a made-up mask.
#include "affinity.h"

#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>

namespace affinity {

namespace {

std::atomic<Made *> made{nullptr};

bool answers(long number) { return number == SYS_sched_getaffinity || number == SYS_sched_setaffinity; }

}  // namespace

Mask mask_of(std::initializer_list<int32_t> cpus) {
  Mask words(1024);
  for (int32_t cpu : cpus) words[static_cast<size_t>(cpu) / 64] |= 1ul << (cpu % 64);
  return words;
}

Made::Made(std::initializer_list<int32_t> cpus) : mine(mask_of(cpus)) { made.store(this); }
Made::~Made() { made.store(nullptr); }

std::vector<Mask> Made::kept() {
  const std::lock_guard<std::mutex> locked(lock_);
  std::sort(kept_.begin(), kept_.end());
  return kept_;
}

// The kernel's arguments: the thread, the bytes of a mask, the mask.
long Made::call(long number, const long *arguments) {
  const size_t size = static_cast<size_t>(arguments[1]);
  if (number == SYS_sched_getaffinity) {
    memcpy(reinterpret_cast<void *>(arguments[2]), mine.data(), std::min(size, mine.size() * sizeof mine[0]));
    return bytes;
  }
  Mask words(size / sizeof(unsigned long));
  memcpy(words.data(), reinterpret_cast<const void *>(arguments[2]), size);
  const std::lock_guard<std::mutex> locked(lock_);
  kept_.push_back(words);
  return 0;
}

}  // namespace affinity

extern "C" {

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long &argument : a) argument = va_arg(list, long);
  va_end(list);
  if (affinity::Made *made = affinity::answers(number) ? affinity::made.load() : nullptr)
    return made->call(number, a);
  return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"
