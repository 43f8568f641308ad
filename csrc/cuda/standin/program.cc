// program.cc — sends the launches of emulated kernels to the stand-in's streams. A program only has
// to link this object (it defines sie_standin_command).
#include "cuda/standin/program.h"

#include <stdio.h>

#include "cuda/driver.h"
#include "cuda/ptx/launch_status.h"
#include "simt/simt.h"

namespace {

using Enqueue = int(void *stream, void (*run)(void *), void *kernel, void (*destroy)(void *),
                    bool programmatic);
using Control = int(const char *command, char *answer, size_t size);

sie_status enqueue(void *stream, void (*run)(void *), void *kernel, void (*destroy)(void *),
                   bool programmatic) {
  auto *function = reinterpret_cast<Enqueue *>(sie_driver_symbol("sie_standin_enqueue"));
  if (function == nullptr) {
    fprintf(
        stderr,
        "sie: this build emulates its kernels and needs the stand-in as SIE_LIBCUDA, not a real driver\n");
    return SIE_INTERNAL;
  }
  return ptx::launch_status(function(stream, run, kernel, destroy, programmatic));
}

[[gnu::constructor]] void install() { simt::set_stream_sink(enqueue); }

}  // namespace

int sie_standin_command(const char *command, char *answer, size_t size) {
  auto *function = reinterpret_cast<Control *>(sie_driver_symbol("sie_standin_control"));
  if (function != nullptr) return function(command, answer, size);
  if (size > 0)
    snprintf(answer, size, "the driver in use is not the stand-in: set SIE_LIBCUDA to its libcuda.so.1");
  return -1;
}
