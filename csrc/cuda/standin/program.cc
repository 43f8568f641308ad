// program.cc — sends the launches of emulated kernels to the stand-in's streams. A program only has
// to link this object (it defines sie_standin_command).
#include "cuda/standin/program.h"

#include <stdio.h>

#include "cuda/driver.h"
#include "simt/simt.h"

namespace {

using Enqueue = int(void *stream, void (*run)(void *), void *kernel, void (*destroy)(void *));
using Control = int(const char *command, char *answer, size_t size);

// As kernels/cuda/ptx/launch.h does for codes of the CUDA runtime.
sie_status launch_status(int code) {
  switch (code) {
    case 0:
      return SIE_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return SIE_OUT_OF_MEMORY;
    case 98:   // CUDA_ERROR_INVALID_DEVICE_FUNCTION, of the runtime
    case 209:  // CUDA_ERROR_NO_BINARY_FOR_GPU
      return SIE_UNSUPPORTED;
    case CUDA_ERROR_INVALID_VALUE:
    case 701:  // CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
      return SIE_INTERNAL;
    default:
      return SIE_DEVICE_LOST;
  }
}

sie_status enqueue(void *stream, void (*run)(void *), void *kernel, void (*destroy)(void *)) {
  auto *function = reinterpret_cast<Enqueue *>(sie_driver_symbol("sie_standin_enqueue"));
  if (function == nullptr) {
    fprintf(
        stderr,
        "sie: this build emulates its kernels and needs the stand-in as SIE_LIBCUDA, not a real driver\n");
    return SIE_INTERNAL;
  }
  return launch_status(function(stream, run, kernel, destroy));
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
