// device.h — the parts of a device that the bench and the conformance program need: memory, one
// stream, graphs.
//
// There are two builds of one interface. device_cuda.cc is the only place that calls the CUDA
// runtime (linked statically; on a machine without a driver the program starts and open() reports
// it). device_host.cc has the emulator's devices, whose memory is a heap of its own. One device a
// process, one thread.
#ifndef SIE_KERNELS_BENCH_DEVICE_H
#define SIE_KERNELS_BENCH_DEVICE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

#include "cuda/ptx/launch_status.h"
#include "ops.h"

namespace device {

struct Info {
  bool emulated;  // times mean nothing
  std::string name;
  int32_t sm;  // 80, 89, 90, …
  int32_t multiprocessors;
  int64_t memory_bytes, l2_bytes;
  int32_t driver, runtime;  // 13000 for 13.0; 0 where emulated
};

// The devices that this build can open, as numbers for open(). Without a driver there are none, and
// *why_none says so.
std::vector<int32_t> list(std::string *why_none);

// Opens a device of the list and makes its stream. Returns false, with a message, where there is no
// code for it or it does not answer.
bool open(int32_t which, Info *info, std::string *message);

// The stream to call tables with; programmatic launch as programmatic() says.
const sie_stream *stream();

// sie_stream.pdl of a card: programmatic launch from sm_90 on, where SIE_CUDA_PDL in the environment
// does not say off, or launches (not in what is captured).
inline int32_t programmatic(int32_t sm, bool captured) {
  const char *said = getenv("SIE_CUDA_PDL");
  const bool off =
      said != nullptr && (strcmp(said, "off") == 0 || (captured && strcmp(said, "launches") == 0));
  return sm >= 90 && !off ? 1 : 0;
}

// Device memory, contents undefined, aligned to 256 bytes; NULL when there is no more.
void *allocate(size_t bytes);
void release(void *p);
// Copies and waits for the copy.
bool copy_in(void *to, const void *from, size_t bytes);
bool copy_out(void *to, const void *from, size_t bytes);
bool copy_within(void *to, const void *from, size_t bytes);
// Waits for the stream. Returns SIE_DEVICE_LOST when a kernel has failed: the process is then of no
// more use. Returns what ptx::launch_status says where only a launch was refused: the device is as it
// was. The runtime's words are in message().
sie_status finish();
// What finish() returns by the runtime's codes: the last error that a call left behind, and the
// stream's own.
inline sie_status finished(int left_behind, int stream) {
  return stream != 0 ? SIE_DEVICE_LOST : ptx::launch_status(left_behind);
}
std::string message();

// Records what is launched on the stream, and runs it as often as asked. NULL when a launch cannot
// be captured. Emulated devices have no graph (NULL).
struct Graph;
bool begin_capture();
Graph *end_capture();
void destroy(Graph *graph);
// Milliseconds of one run, between two events; below 0 when it failed.
double run(Graph *graph);

// A device-to-device copy of the bytes, milliseconds; below 0 when it failed.
double time_copy(void *to, const void *from, size_t bytes);

}  // namespace device

#endif  // SIE_KERNELS_BENCH_DEVICE_H
