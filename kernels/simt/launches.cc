// launches.cc — records which kernels were launched with which threads, shared memory and cluster.
//
// With SIE_SIMT_LAUNCHES=FILE in the environment, a process appends one line for each different
// launch when it exits. The line has, with tabs between: the program, the kernel's offset in it
// (its symbol's address in nm less that of __executable_start), threads of a CTA, bytes of dynamic
// shared memory, CTAs of a cluster, and sm. tools/kernels/budgets.py reads it: compiled code does
// not state dynamic shared memory.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <set>
#include <string>
#include <tuple>

#include "simt/machine.h"

extern "C" const char __executable_start;  // by the linker: where the program begins

namespace simt {

namespace {

using Shape = std::tuple<ptrdiff_t, uint32_t, size_t, uint32_t, int32_t>;

// Never destroyed: it is read while the process exits.
std::set<Shape> &shapes() {
  static std::set<Shape> *all = new std::set<Shape>;
  return *all;
}

void write_shapes() {
  const char *path = getenv("SIE_SIMT_LAUNCHES");
  char program[4096];
  ssize_t length = readlink("/proc/self/exe", program, sizeof program);
  if (path == nullptr || length <= 0 || length == sizeof program) return;
  std::string text;
  for (const auto &[kernel, threads, shared_bytes, cluster, sm] : shapes()) {
    char line[160];
    snprintf(line, sizeof line, "\t%tx\t%u\t%zu\t%u\t%d\n", kernel, threads, shared_bytes, cluster, sm);
    text.append(program, static_cast<size_t>(length)).append(line);
  }
  // One write: several processes may append to one file.
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) perror(path);
  if (file >= 0) close(file);
}

}  // namespace

void record_launch(const Launch &launch) {
  static const bool wanted = getenv("SIE_SIMT_LAUNCHES") != nullptr && atexit(write_shapes) == 0;
  if (!wanted) return;
  uint32_t threads = launch.block.x * launch.block.y * launch.block.z;
  shapes().emplace(static_cast<const char *>(launch.function) - &__executable_start, threads,
                   launch.shared_bytes, launch.cluster, launch.sm);
}

}  // namespace simt
