// standin_test.cc — the stand-in's streams, events, captures and failures.
#include "cuda/tests/standin_test.h"

namespace standin_test {
namespace {

constexpr unsigned n = 64;
constexpr size_t bytes = n * sizeof(int32_t);

TEST(a_stream_keeps_its_order) {
  Gpu gpu;
  int32_t *host = pinned_memory(bytes);
  DevicePointer a = device_memory(bytes), b = device_memory(bytes);
  for (int32_t round = 0; round < 10; round++) {
    for (unsigned i = 0; i < n; i++) host[i] = static_cast<int32_t>(i) + round;
    OK(cuMemcpyHtoDAsync_v2(a, host, bytes, gpu.stream));
    CHECK(add(gpu.stream, b, a, 100, n) == SIE_OK, "launch");
    CHECK(add(gpu.stream, b, b, 1000, n) == SIE_OK, "launch");
    OK(cuMemcpyDtoDAsync_v2(a, b, bytes, gpu.stream));
    OK(cuMemcpyDtoHAsync_v2(host, a, bytes, gpu.stream));
    OK(cuStreamSynchronize(gpu.stream));
    OK(cuStreamQuery(gpu.stream));
    for (unsigned i = 0; i < n; i++) {
      CHECK(host[i] == static_cast<int32_t>(i) + round + 1100, "element %u is %d", i, host[i]);
    }
  }
}

// The number of rounds, out of 30, in which a kernel of a non-blocking stream read what an upload of
// pageable memory had not written yet. later is what the host's memory holds after the call: neither a
// round nor -1, which an early read finds in memory that nothing has written.
int early_reads(bool wait) {
  constexpr int32_t later = -2;
  Gpu gpu;
  int32_t host[n], *result = pinned_memory(bytes);
  DevicePointer a = device_memory(bytes), b = device_memory(bytes);
  int early = 0;
  for (int32_t round = 0; round < 30; round++) {
    for (unsigned i = 0; i < n; i++) host[i] = round;
    OK(cuMemcpyHtoD_v2(a, host, bytes));
    for (unsigned i = 0; i < n; i++) host[i] = later;  // it is staged
    if (wait) OK(cuStreamSynchronize(nullptr));
    CHECK(add(gpu.stream, b, a, 0, n) == SIE_OK, "launch");
    OK(cuMemcpyDtoHAsync_v2(result, b, bytes, gpu.stream));
    OK(cuStreamSynchronize(gpu.stream));
    CHECK(result[0] != later, "memory was read after the call");
    early += result[0] != round;
    int32_t there = -1;
    OK(cuMemcpyDtoH_v2(&there, a, sizeof there));  // the default stream has its own order
    CHECK(there == round, "%d, want %d", there, round);
  }
  return early;
}

TEST(an_upload_of_pageable_memory_is_only_staged) {
  command("delay 1000");
  CHECK(early_reads(true) == 0, "with the wait");
  int early = 0;
  for (int tries = 0; tries < 200 && early <= 3; tries++) early += early_reads(false);
  CHECK(early > 3, "without the wait nothing was wrong");
  command("delay 100");
}

// The number of rounds, out of 30, in which the second stream read before the first had written.
int stale_reads(bool wait) {
  Gpu gpu;
  CUstream other = nullptr;
  OK(cuStreamCreate(&other, 1));
  int32_t *host = pinned_memory(bytes), *result = pinned_memory(bytes);
  DevicePointer a = device_memory(bytes), b = device_memory(bytes);
  int stale = 0;
  for (int32_t round = 0; round < 30; round++) {
    for (unsigned i = 0; i < n; i++) host[i] = round;
    OK(cuMemcpyHtoDAsync_v2(a, host, bytes, gpu.stream));
    OK(cuEventRecord(gpu.event, gpu.stream));
    if (wait) OK(cuStreamWaitEvent(other, gpu.event, 0));
    CHECK(add(other, b, a, 0, n) == SIE_OK, "launch");
    OK(cuMemcpyDtoHAsync_v2(result, b, bytes, other));
    OK(cuStreamSynchronize(other));
    stale += result[0] != round;
    OK(cuStreamSynchronize(gpu.stream));
  }
  OK(cuStreamDestroy_v2(other));
  return stale;
}

TEST(a_missing_wait_is_seen) {
  command("delay 1000");
  CHECK(stale_reads(true) == 0, "with the wait");
  // How often this happens depends on the machine, so the test tries until it has seen it.
  int stale = 0;
  for (int tries = 0; tries < 200 && stale <= 3; tries++) stale += stale_reads(false);
  CHECK(stale > 3, "without the wait nothing was wrong");
  command("delay 100");
}

TEST(events_complete_when_their_stream_gets_there) {
  Gpu gpu;
  command("delay 20000");
  DevicePointer a = device_memory(bytes);
  Event timed[2];
  for (Event &event : timed) OK(cuEventCreate(&event, 0));
  float milliseconds = -1;
  ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, timed[0], timed[1]));
  OK(cuEventQuery(gpu.event));  // never recorded: nothing to wait for
  OK(cuStreamWaitEvent(gpu.stream, gpu.event, 0));
  OK(cuEventRecord(timed[0], gpu.stream));
  int busy = 0;
  for (int i = 0; i < 10; i++) {
    CHECK(add(gpu.stream, a, a, 1, n) == SIE_OK, "launch");
    OK(cuEventRecord(gpu.event, gpu.stream));
    busy += cuEventQuery(gpu.event) == CUDA_ERROR_NOT_READY;
    OK(cuEventSynchronize(gpu.event));
    OK(cuEventQuery(gpu.event));
  }
  CHECK(busy > 2, "events were ready before their stream came to them");
  OK(cuEventRecord(timed[1], gpu.stream));
  OK(cuEventSynchronize(timed[1]));
  OK(cuEventElapsedTime(&milliseconds, timed[0], timed[1]));
  CHECK(milliseconds > 0 && milliseconds < 10000, "%f ms", milliseconds);
  ANSWERS(CUDA_ERROR_INVALID_HANDLE,
          cuEventElapsedTime(&milliseconds, timed[0], gpu.event));  // the event has no timing
  OK(cuEventDestroy_v2(timed[0]));
  ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(timed[0], gpu.stream));
  command("delay 100");
}

TEST(a_capture_is_replayed) {
  Gpu gpu;
  int32_t *host = pinned_memory(bytes);
  DevicePointer a = device_memory(bytes), b = device_memory(bytes);
  OK(cuMemsetD32_v2(a, 5, n));
  OK(cuMemsetD32_v2(b, 0, n));
  OK(cuStreamBeginCapture_v2(gpu.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CHECK(add(gpu.stream, b, b, 7, n) == SIE_OK, "launch");
  OK(cuMemcpyDtoDAsync_v2(a, b, bytes, gpu.stream));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(gpu.stream, &graph));
  OK(cuStreamSynchronize(gpu.stream));
  int32_t first = 0;
  OK(cuMemcpyDtoH_v2(&first, a, sizeof first));
  CHECK(first == 5, "it ran while it was captured: %d", first);
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, gpu.stream));
  OK(cuMemcpyDtoHAsync_v2(host, a, bytes, gpu.stream));
  OK(cuGraphExecDestroy(exec));  // while it is running
  OK(cuStreamSynchronize(gpu.stream));
  for (unsigned i = 0; i < n; i++) CHECK(host[i] == 21, "element %u is %d", i, host[i]);
  ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuGraphLaunch(exec, gpu.stream));
  ANSWERS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(gpu.stream, &graph));
  CHECK(command("handles") == "contexts 1 streams 1 events 1 graphs 0 execs 0", "%s",
        command("handles").c_str());
}

// Checks whether an allocation invalidates a capture of this mode: by this thread (own) or by
// another.
void check_spoilt(int mode, bool own, bool want) {
  Gpu gpu;
  CUgraph graph = nullptr;
  OK(cuStreamBeginCapture_v2(gpu.stream, mode));
  auto allocate = [&] {
    OK(cuCtxSetCurrent(gpu.context));
    DevicePointer p = 0;
    ANSWERS(want ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS, cuMemAlloc_v2(&p, 16));
  };
  if (own) {
    allocate();
  } else {
    std::thread(allocate).join();
  }
  ANSWERS(want ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS,
          cuStreamEndCapture(gpu.stream, &graph));
  if (!want) OK(cuGraphDestroy(graph));
}

TEST(a_capture_is_spoilt) {
  check_spoilt(CU_STREAM_CAPTURE_MODE_GLOBAL, true, true);
  check_spoilt(CU_STREAM_CAPTURE_MODE_GLOBAL, false, true);
  check_spoilt(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true, true);
  check_spoilt(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, false);
  check_spoilt(CU_STREAM_CAPTURE_MODE_RELAXED, true, false);
  Gpu gpu;
  CUgraph graph = nullptr;
  OK(cuEventRecord(gpu.event, gpu.stream));
  OK(cuStreamBeginCapture_v2(gpu.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  ANSWERS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(gpu.stream, gpu.event, 0));
  DevicePointer a = device_memory(bytes);
  CHECK(add(gpu.stream, a, a, 1, n) == SIE_INTERNAL, "a launch into a spoilt capture");
  ANSWERS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(gpu.stream, &graph));
  OK(cuStreamBeginCapture_v2(gpu.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  ANSWERS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(gpu.stream));
  std::thread([&] {
    OK(cuCtxSetCurrent(gpu.context));
    ANSWERS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture(gpu.stream, &graph));
  }).join();
  ANSWERS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(gpu.stream, &graph));
}

TEST(a_call_fails_where_a_test_asks_for_it) {
  Gpu gpu;
  command("reset-calls");
  command("fail cuMemAlloc_v2 2 2");
  DevicePointer a = device_memory(16), b = 0;
  CHECK(command("pending") == "1", "pending");
  ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&b, 16));
  CHECK(command("pending") == "0" && b == 0, "pending");
  b = device_memory(16);
  command("fail cuMemFree_v2 1 1");
  ANSWERS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a));
  CHECK(command("allocated") == "16 bytes in 1 blocks, pinned 0 bytes in 0 blocks",
        "what fails to free frees: %s", command("allocated").c_str());
  command("fail-any 3 999");
  OK(cuEventQuery(gpu.event));
  OK(cuStreamQuery(gpu.stream));
  ANSWERS(999, cuCtxSynchronize());
  OK(cuCtxSynchronize());
  CHECK(command("calls") ==
            "cuCtxSynchronize 2\ncuEventQuery 1\ncuMemAlloc_v2 3\ncuMemFree_v2 1\ncuStreamQuery 1\n",
        "%s", command("calls").c_str());
  command("fail cuLaunchKernelEx 1 2");
  CHECK(add(gpu.stream, b, b, 1, 4) == SIE_OUT_OF_MEMORY, "launch");
  CHECK(add(gpu.stream, b, b, 1, 4) == SIE_OK, "launch");
  char answer[256];
  for (const char *wrong :
       {"", "fail", "fail cuMemAlloc_v2", "fail cuMemAlloc_v2 0 2", "fail cuMemAlloc_v2 1 2 stick",
        "fail-any 1", "devices", "capability x", "memory 1 7", "nonsense 1"}) {
    CHECK(sie_standin_command(wrong, answer, sizeof answer) == -1, "'%s' was accepted", wrong);
  }
  ANSWERS(CUDA_ERROR_NOT_SUPPORTED, cuArrayDestroy(nullptr));  // a function that the stand-in lacks
}

TEST(a_lost_device_stays_lost) {
  Gpu gpu;
  DevicePointer a = device_memory(bytes);
  OK(cuMemsetD32_v2(a, 3, n));
  command("fail kernel 2 700");
  for (int i = 0; i < 4; i++) {
    const sie_status status = add(gpu.stream, a, a, 1, n);
    CHECK(status == SIE_OK || status == SIE_DEVICE_LOST, "launch: %d", status);
  }
  ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(gpu.stream));
  ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventSynchronize(gpu.event));
  ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree_v2(a));
  DevicePointer b = 0;
  ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&b, 16));
  CHECK(*reinterpret_cast<int32_t *>(a) == 4, "%d: kernels ran behind the one that failed",
        *reinterpret_cast<int32_t *>(a));
  char answer[256];
  CHECK(sie_standin_command("reset", answer, sizeof answer) == -1, "reset with the context retained");
  gpu.close();
  CUcontext context = nullptr;
  ANSWERS(CUDA_ERROR_ILLEGAL_ADDRESS, cuDevicePrimaryCtxRetain(&context, 0));
  command("reset");
  {
    Gpu again;
    command("fail cuStreamQuery 1 719 sticky");
    OK(cuCtxSynchronize());
    ANSWERS(CUDA_ERROR_LAUNCH_FAILED, cuStreamQuery(again.stream));
    ANSWERS(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
  }
  command("reset");
}

}  // namespace
}  // namespace standin_test

int main(int argc, char **argv) { return check::run_tests(argc, argv); }
