// standin_memory_test.cc — the stand-in's devices, contexts and memory, and the mistakes that abort
// the process.
#include <signal.h>

#include "cuda/tests/standin_test.h"

namespace standin_test {
namespace {

TEST(devices_are_what_a_test_says) {
  command("devices 3");
  command("capability 8.6 1");
  command("memory 1000000 2");
  command("multiprocessors 7");
  command("driver 12040");
  command("name Card X");
  int count = 0, version = 0;
  OK(cuDeviceGetCount(&count));
  OK(cuDriverGetVersion(&version));
  CHECK(count == 3 && version == 12040, "%d devices, driver %d", count, version);
  char name[64];
  OK(cuDeviceGetName(name, sizeof name, 2));
  CHECK(std::string(name) == "Card X", "%s", name);
  for (int device = 0; device < 3; device++) {
    int major = 0, minor = 0, multiprocessors = 0;
    size_t memory = 0;
    OK(cuDeviceGetAttribute(&major, 75, device));
    OK(cuDeviceGetAttribute(&minor, 76, device));
    OK(cuDeviceGetAttribute(&multiprocessors, 16, device));
    OK(cuDeviceTotalMem_v2(&memory, device));
    CHECK(10 * major + minor == (device == 1 ? 86 : 90), "device %d: %d.%d", device, major, minor);
    CHECK(multiprocessors == 7, "%d multiprocessors", multiprocessors);
    CHECK((memory == 1000000) == (device == 2), "device %d: %zu bytes", device, memory);
  }
  ANSWERS(CUDA_ERROR_INVALID_DEVICE, cuDeviceTotalMem_v2(nullptr, 3));
  command("devices 1");
  command("driver 13000");
  command("multiprocessors 4");
  const char *error = nullptr;
  OK(cuGetErrorName(2, &error));
  CHECK(std::string(error) == "CUDA_ERROR_OUT_OF_MEMORY", "%s", error);
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuGetErrorString(12345, &error));
}

TEST(a_context_is_of_a_thread) {
  size_t free = 0, total = 0;
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo_v2(&free, &total));
  Gpu gpu;
  OK(cuMemGetInfo_v2(&free, &total));
  std::thread([&] {
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo_v2(&free, &total));
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(gpu.stream));
    CHECK(add(gpu.stream, 0, 0, 1, 1) == SIE_DEVICE_LOST, "a launch without a context");
    OK(cuCtxSetCurrent(gpu.context));
    OK(cuMemGetInfo_v2(&free, &total));
  }).join();
  CUcontext again = nullptr;
  OK(cuDevicePrimaryCtxRetain(&again, 0));
  CHECK(again == gpu.context, "a second primary context");
  OK(cuDevicePrimaryCtxRelease_v2(0));
  OK(cuCtxSynchronize());
  device_memory(64);
  pinned_memory(64);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  ANSWERS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(gpu.context));
  ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
  CHECK(command("allocated") == "0 bytes in 0 blocks, pinned 0 bytes in 0 blocks", "%s",
        command("allocated").c_str());
  CHECK(command("handles") == "contexts 0 streams 0 events 0 graphs 0 execs 0", "%s",
        command("handles").c_str());
  OK(cuDevicePrimaryCtxRetain(&again, 0));  // gpu releases it
  int device = 7;
  OK(cuCtxSetCurrent(again));
  OK(cuCtxGetDevice(&device));
  CHECK(device == 0, "device %d", device);
}

TEST(memory_is_counted) {
  command("memory 100000");
  Gpu gpu;
  size_t free = 0, total = 0;
  DevicePointer a = device_memory(60000), b = 0;
  OK(cuMemGetInfo_v2(&free, &total));
  CHECK(total == 100000 && free == 40000, "%zu of %zu", free, total);
  ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&b, 40001));
  b = device_memory(40000);
  ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&b, 1));
  CHECK(a % 256 == 0 && b % 256 == 0, "alignment");
  float value = 0;
  OK(cuMemcpyDtoH_v2(&value, a + 59996, sizeof value));
  CHECK(value != value, "fresh memory holds %f", static_cast<double>(value));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(0));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a));
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&a, 0));
  OK(cuMemGetInfo_v2(&free, &total));
  CHECK(free == 60000, "%zu", free);
  int32_t *pinned = pinned_memory(128);
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(reinterpret_cast<uintptr_t>(pinned)));
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree_v2(b));
  gpu.close();
  command("memory 8589934592");
}

TEST(freeing_waits_for_what_is_under_way) {
  Gpu gpu;
  command("delay 20000");
  for (int i = 0; i < 5; i++) {
    DevicePointer a = device_memory(256);
    for (int k = 0; k < 4; k++) CHECK(add(gpu.stream, a, a, 1, 64) == SIE_OK, "launch");
    OK(cuMemFree_v2(a));
  }
  command("delay 100");
}

TEST(the_default_stream_waits_for_blocking_streams_only) {
  Gpu gpu;
  CUstream blocking = nullptr;
  OK(cuStreamCreate(&blocking, 0));
  DevicePointer a = device_memory(256);
  command("delay 20000");
  int stale = 0;
  for (CUstream stream : {blocking, gpu.stream}) {
    for (int i = 0; i < 10; i++) {
      OK(cuMemsetD32_v2(a, 0, 64));
      CHECK(add(stream, a, a, 1, 64) == SIE_OK, "launch");
      int32_t first = -1;
      OK(cuMemcpyDtoH_v2(&first, a, sizeof first));
      if (stream == blocking) CHECK(first == 1, "a copy ran ahead of a blocking stream");
      stale += first != 1;
      OK(cuStreamSynchronize(stream));
    }
  }
  CHECK(stale > 1, "a copy without a stream waited for a non-blocking one");
  command("delay 100");
}

TEST(mistakes_end_the_process) {
  char pageable[64] = {};
  auto in_gpu = [](auto function) {
    return signal_of([&] {
      Gpu gpu;
      DevicePointer p = device_memory(1000);
      function(&gpu, p, pinned_memory(1000));
      cuMemFree_v2(p);
    });
  };
  CHECK(in_gpu([](Gpu *, DevicePointer, int32_t *) {}) == -1, "no mistake");
  struct Mistake {
    const char *what;
    int signal;
    void (*make)(Gpu *gpu, DevicePointer p, int32_t *pinned, char *pageable);
  };
  const Mistake mistakes[] = {
      {"a copy from memory that is not pinned", SIGABRT,
       [](Gpu *gpu, DevicePointer p, int32_t *, char *pageable) {
         cuMemcpyHtoDAsync_v2(p, pageable, 64, gpu->stream);
       }},
      {"a copy beyond the allocation", SIGABRT,
       [](Gpu *gpu, DevicePointer p, int32_t *pinned, char *) {
         cuMemcpyHtoDAsync_v2(p + 8, pinned, 993, gpu->stream);
       }},
      {"a copy beyond the pinned memory", SIGABRT,
       [](Gpu *gpu, DevicePointer p, int32_t *pinned, char *) {
         cuMemcpyDtoHAsync_v2(pinned + 1, p, 997, gpu->stream);
       }},
      {"a copy to a host address that is a device's", SIGABRT,
       [](Gpu *, DevicePointer p, int32_t *, char *) {
         cuMemcpyDtoH_v2(reinterpret_cast<void *>(p), p + 500, 4);
       }},
      {"a copy without device memory", SIGABRT,
       [](Gpu *, DevicePointer, int32_t *pinned, char *) {
         cuMemcpyHtoD_v2(reinterpret_cast<uintptr_t>(pinned), pinned, 4);
       }},
      {"a kernel that writes one element too many", SIGABRT,
       [](Gpu *gpu, DevicePointer p, int32_t *, char *) { (void)add(gpu->stream, p, p, 1, 251); }},
      {"a kernel that writes in front", SIGABRT,
       [](Gpu *gpu, DevicePointer p, int32_t *, char *) { (void)add(gpu->stream, p - 4, p, 1, 1); }},
      {"a kernel that writes far away", SIGSEGV,
       [](Gpu *gpu, DevicePointer p, int32_t *, char *) {
         (void)add(gpu->stream, p + 1024, p, 1, 1);
         cuStreamSynchronize(gpu->stream);
       }},
      {"a kernel that works on freed memory", SIGSEGV,
       [](Gpu *gpu, DevicePointer, int32_t *, char *) {
         const DevicePointer q = device_memory(1000);
         cuMemFree_v2(q);
         (void)add(gpu->stream, q, q, 1, 1);
         cuStreamSynchronize(gpu->stream);
       }},
      {"a replayed copy of freed memory", SIGABRT,
       [](Gpu *gpu, DevicePointer p, int32_t *, char *) {
         const DevicePointer q = device_memory(1000);
         CUgraph graph = nullptr;
         CUgraphExec exec = nullptr;
         cuStreamBeginCapture_v2(gpu->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
         cuMemcpyDtoDAsync_v2(p, q, 1000, gpu->stream);
         cuStreamEndCapture(gpu->stream, &graph);
         cuGraphInstantiateWithFlags(&exec, graph, 0);
         cuMemFree_v2(q);
         cuGraphLaunch(exec, gpu->stream);
         cuStreamSynchronize(gpu->stream);
       }},
  };
  for (const Mistake &mistake : mistakes) {
    const int signal =
        in_gpu([&](Gpu *gpu, DevicePointer p, int32_t *pinned) { mistake.make(gpu, p, pinned, pageable); });
    CHECK(signal == mistake.signal, "%s: signal %d, want %d", mistake.what, signal, mistake.signal);
  }
}

}  // namespace
}  // namespace standin_test
