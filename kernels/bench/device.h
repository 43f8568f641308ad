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

#include <string>
#include <vector>

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

// The stream to call tables with. Programmatic launch from sm_90 on.
const sie_stream *stream();

// Device memory, contents undefined, aligned to 256 bytes; NULL when there is no more.
void *allocate(size_t bytes);
void release(void *p);
// Copies and waits for the copy.
bool copy_in(void *to, const void *from, size_t bytes);
bool copy_out(void *to, const void *from, size_t bytes);
bool copy_within(void *to, const void *from, size_t bytes);
// Waits for the stream. Returns SIE_DEVICE_LOST, with the runtime's words in message(), when a
// kernel has failed; the process is then of no more use.
sie_status finish();
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
