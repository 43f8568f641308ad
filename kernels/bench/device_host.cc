// device_host.cc — the emulator's devices (kernels/simt). Their memory is separate from the tests'
// own, as a card's is.
#include <stdlib.h>
#include <string.h>

#include "bench/device.h"

namespace device {

struct Graph {};

namespace {

sie_stream on = {};

}  // namespace

std::vector<int32_t> list(std::string *) { return {80, 89, 90}; }

bool open(int32_t which, Info *info, std::string *) {
  *info = {};
  info->emulated = true;
  info->name = "emulated sm_" + std::to_string(which);
  info->sm = which;
  info->multiprocessors = 5;
  on = {nullptr, which, info->multiprocessors, programmatic(which, false), 0};
  return true;
}

const sie_stream *stream() { return &on; }

void *allocate(size_t bytes) {
  void *p = nullptr;
  return posix_memalign(&p, 256, bytes > 0 ? bytes : 1) == 0 ? p : nullptr;
}

void release(void *p) { free(p); }

bool copy_in(void *to, const void *from, size_t bytes) {
  memcpy(to, from, bytes);
  return true;
}
bool copy_out(void *to, const void *from, size_t bytes) { return copy_in(to, from, bytes); }
bool copy_within(void *to, const void *from, size_t bytes) { return copy_in(to, from, bytes); }

sie_status finish() { return SIE_OK; }
std::string message() { return ""; }

bool begin_capture() { return false; }
Graph *end_capture() { return nullptr; }
void destroy(Graph *) {}
double run(Graph *) { return -1; }
double time_copy(void *, const void *, size_t) { return -1; }

}  // namespace device
