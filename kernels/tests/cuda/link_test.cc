// link_test.cc — libsie_cuda.a as a program links it: with the static CUDA runtime, on a machine
// without GPU or driver. tools/kernels/link.sh builds it, runs it, and reads what it needs to
// start.
#include <cuda_runtime_api.h>

#include "cuda/arch.h"
#include "cuda/cuda_ops.h"
#include "cuda/ptx/launch_status.h"
#include "tests/check.h"

TEST(the_tables_are_there) {
  const struct {
    int sm;
    const char *name;
  } tables[] = {{80, "cuda-sm80"}, {86, "cuda-sm80"},  {89, "cuda-sm89"},
                {90, "cuda-sm90"}, {100, "cuda-sm80"}, {120, "cuda-sm89"}};
  for (const auto &table : tables) {
    const sie_ops *ops = sie_cuda_ops(table.sm);
    CHECK(ops != nullptr && strcmp(ops->name, table.name) == 0, "sm_%d: %s", table.sm,
          ops != nullptr ? ops->name : "no table");
  }
  CHECK(sie_cuda_ops(75) == nullptr, "a table for sm_75");
}

TEST(old_cards_are_refused_by_name) {
  char message[252];
  CHECK(sie_cuda_arch_refusal(7, 5, message, sizeof message) == SIE_UNSUPPORTED, "accepted");
  CHECK(strstr(message, "7.5 (sm_75)") != nullptr, "%s", message);
}

// launch_status.h has numbers; the toolkit has the names. What a launch is refused for leaves the device
// as it was.
TEST(launches_that_are_refused_do_not_lose_the_device) {
  const struct {
    cudaError_t code;
    sie_status status;
  } codes[] = {
      {cudaSuccess, SIE_OK},
      {cudaErrorMemoryAllocation, SIE_OUT_OF_MEMORY},
      {cudaErrorInsufficientDriver, SIE_UNSUPPORTED},
      {cudaErrorInvalidDeviceFunction, SIE_UNSUPPORTED},
      {cudaErrorNoKernelImageForDevice, SIE_UNSUPPORTED},
      {cudaErrorNotSupported, SIE_UNSUPPORTED},
      {cudaErrorInvalidValue, SIE_INTERNAL},
      {cudaErrorInvalidConfiguration, SIE_INTERNAL},
      {cudaErrorLaunchOutOfResources, SIE_INTERNAL},
      {cudaErrorInvalidClusterSize, SIE_INTERNAL},
      {cudaErrorStreamCaptureUnsupported, SIE_INTERNAL},
      {cudaErrorStreamCaptureInvalidated, SIE_INTERNAL},
      {cudaErrorStreamCaptureMerge, SIE_INTERNAL},
      {cudaErrorStreamCaptureUnmatched, SIE_INTERNAL},
      {cudaErrorStreamCaptureUnjoined, SIE_INTERNAL},
      {cudaErrorStreamCaptureIsolation, SIE_INTERNAL},
      {cudaErrorStreamCaptureImplicit, SIE_INTERNAL},
      {cudaErrorCapturedEvent, SIE_INTERNAL},
      {cudaErrorStreamCaptureWrongThread, SIE_INTERNAL},
      {cudaErrorIllegalAddress, SIE_DEVICE_LOST},
      {cudaErrorLaunchFailure, SIE_DEVICE_LOST},
      {cudaErrorLaunchTimeout, SIE_DEVICE_LOST},
      {cudaErrorUnknown, SIE_DEVICE_LOST},
  };
  for (const auto &c : codes) {
    CHECK(ptx::launch_status(c.code) == c.status, "%s (%d): status %d, want %d", cudaGetErrorName(c.code),
          static_cast<int>(c.code), static_cast<int>(ptx::launch_status(c.code)), static_cast<int>(c.status));
  }
}

// Without a driver the runtime answers with an error; with a card the build must have code for it
// or say so.
TEST(the_runtime_answers_without_a_driver) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    CHECK(error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice, "%s",
          cudaGetErrorString(error));
    printf("     no GPU here: %s\n", cudaGetErrorString(error));
    return;
  }
  for (int device = 0; device < count; device++) {
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    char message[252];
    sie_status status = sie_cuda_arch_refusal(major, minor, message, sizeof message);
    printf("     device %d, %d.%d: %s\n", device, major, minor, status == SIE_OK ? "accepted" : message);
  }
}

int main(int argc, char **argv) { return check::run_tests(argc, argv); }
