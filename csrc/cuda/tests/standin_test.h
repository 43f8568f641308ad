// standin_test.h — what the tests of the stand-in share. They call the driver's functions through
// the stubs, as a program does.
#ifndef SIE_CSRC_CUDA_TESTS_STANDIN_TEST_H
#define SIE_CSRC_CUDA_TESTS_STANDIN_TEST_H

#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "cuda/driver.h"
#include "cuda/ptx/launch.h"
#include "cuda/standin/program.h"
#include "tests/check.h"

using DevicePointer = unsigned long long;
using Event = void *;

extern "C" {
int cuDeviceGetCount(int *count);
int cuDeviceGetName(char *name, int size, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDevicePrimaryCtxRetain(CUcontext *context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);
int cuCtxSetCurrent(CUcontext context);
int cuCtxGetDevice(int *device);
int cuCtxSynchronize();
int cuMemAlloc_v2(DevicePointer *p, size_t bytes);
int cuMemFree_v2(DevicePointer p);
int cuMemGetInfo_v2(size_t *free, size_t *total);
int cuMemcpyHtoD_v2(DevicePointer to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, DevicePointer from, size_t bytes);
int cuMemcpyHtoDAsync_v2(DevicePointer to, const void *from, size_t bytes, CUstream stream);
int cuMemcpyDtoHAsync_v2(void *to, DevicePointer from, size_t bytes, CUstream stream);
int cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes, CUstream stream);
int cuMemsetD32_v2(DevicePointer p, unsigned value, size_t count);
int cuStreamCreate(CUstream *stream, unsigned flags);
int cuStreamDestroy_v2(CUstream stream);
int cuStreamQuery(CUstream stream);
int cuStreamSynchronize(CUstream stream);
int cuStreamWaitEvent(CUstream stream, Event event, unsigned flags);
int cuEventCreate(Event *event, unsigned flags);
int cuEventDestroy_v2(Event event);
int cuEventRecord(Event event, CUstream stream);
int cuEventQuery(Event event);
int cuEventSynchronize(Event event);
int cuEventElapsedTime(float *milliseconds, Event from, Event to);
int cuArrayDestroy(void *array);
}

namespace standin_test {

#define OK(call)                                              \
  do {                                                        \
    const int code_ = (call);                                 \
    CHECK(code_ == CUDA_SUCCESS, #call " answers %d", code_); \
  } while (0)
#define ANSWERS(want, call)                                                 \
  do {                                                                      \
    const int code_ = (call);                                               \
    CHECK(code_ == (want), #call " answers %d, want %d", code_, int{want}); \
  } while (0)

inline std::string command(const std::string &text) {
  char answer[2048];
  const int done = sie_standin_command(text.c_str(), answer, sizeof answer);
  CHECK(done == 0, "%s: %s", text.c_str(), answer);
  return answer;
}

// For the life of a test: the primary context of a device, current on this thread, a non-blocking
// stream and an event.
class Gpu {
 public:
  explicit Gpu(int device = 0) : device_(device) {
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
    OK(cuEventCreate(&event, 2));
  }
  ~Gpu() { close(); }
  void close() {
    if (device_ < 0) return;
    OK(cuDevicePrimaryCtxRelease_v2(device_));
    OK(cuCtxSetCurrent(nullptr));
    device_ = -1;
  }
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  Event event = nullptr;

 private:
  int device_;
};

inline DevicePointer device_memory(size_t bytes) {
  DevicePointer p = 0;
  OK(cuMemAlloc_v2(&p, bytes));
  return p;
}

inline int32_t *pinned_memory(size_t bytes) {
  void *p = nullptr;
  OK(cuMemHostAlloc(&p, bytes, 0));
  return static_cast<int32_t *>(p);
}

__global__ inline void add_kernel(int32_t *to, const int32_t *from, int32_t value) {
  to[threadIdx.x] = from[threadIdx.x] + value;
}

inline sie_status add(CUstream stream, DevicePointer to, DevicePointer from, int32_t value,
                      unsigned threads) {
  const sie_stream on = {stream, 80, 2, 0, 0};
  return SIE_LAUNCH(add_kernel, 1, threads, 0, &on, reinterpret_cast<int32_t *>(to),
                    reinterpret_cast<const int32_t *>(from), value);
}

// Runs the function in a child process. Returns the signal that ended the process, or -1.
template <class Function>
int signal_of(Function function) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    (void)!freopen("/dev/null", "w", stderr);
    function();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

}  // namespace standin_test

#endif  // SIE_CSRC_CUDA_TESTS_STANDIN_TEST_H
