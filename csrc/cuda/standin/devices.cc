// devices.cc — devices, their primary contexts, and the current context of a thread.
#include <stdio.h>
#include <string.h>

#include "cuda/standin/standin.h"

namespace standin {

std::shared_ptr<Context> &current() {
  static thread_local std::shared_ptr<Context> context;
  return context;
}

namespace {

Device *device_of(int ordinal) {
  std::deque<Device> &devices = state().devices;
  return ordinal >= 0 && ordinal < static_cast<int>(devices.size()) ? &devices[static_cast<size_t>(ordinal)]
                                                                    : nullptr;
}

CUcontext handle_of(const std::shared_ptr<Context> &context) {
  return reinterpret_cast<CUcontext>(context.get());
}

// The live context behind a handle.
std::shared_ptr<Context> context_of(CUcontext handle) {
  for (const Device &device : state().devices) {
    if (device.primary != nullptr && handle_of(device.primary) == handle) return device.primary;
  }
  return nullptr;
}

// Ends the streams' threads and frees everything that the context owns.
void destroy(std::unique_lock<std::mutex> &lock, Device *device) {
  const std::shared_ptr<Context> context = device->primary;
  for (const auto &stream : context->streams) {
    stream->closing = true;
    state().streams.erase(stream.get());
  }
  context->transfers = nullptr;
  state().changed.notify_all();
  state().changed.wait(lock, [&] { return context->streams.empty(); });
  for (auto it = state().events.begin(); it != state().events.end();) {
    it = it->second->context == context ? state().events.erase(it) : std::next(it);
  }
  free_all(context.get());
  context->destroyed = true;
  device->primary = nullptr;
  device->retained = 0;
}

// Answers a CUdevice_attribute of cuda.h.
int attribute(const Device &device, int number, int *value) {
  switch (number) {
    case 1:
      *value = 1024;
      break;  // threads a block
    case 8:
      *value = 49152;
      break;  // shared memory a block
    case 10:
      *value = 32;
      break;  // warp
    case 13:
      *value = 1755000;
      break;  // clock, kHz
    case 16:
      *value = device.multiprocessors;
      break;
    case 18:
      *value = 0;
      break;  // integrated
    case 20:
      *value = 0;
      break;  // compute mode: default
    case 32:
      *value = 1;
      break;  // ECC
    case 33:
      *value = device.ordinal + 1;
      break;  // PCI bus
    case 34:
      *value = 0;
      break;  // PCI device
    case 36:
      *value = 2619000;
      break;  // memory clock, kHz
    case 37:
      *value = 5120;
      break;  // memory bus, bits
    case 38:
      *value = 50 << 20;
      break;  // L2
    case 40:
      *value = 3;
      break;  // copy engines
    case 41:
      *value = 1;
      break;  // unified addressing
    case 50:
      *value = 0;
      break;  // PCI domain
    case 75:
      *value = device.major;
      break;
    case 76:
      *value = device.minor;
      break;
    case 97:
      *value = device.major == 9 || device.major == 10 ? 232448 : device.minor == 0 ? 166912 : 101376;
      break;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace

}  // namespace standin

using namespace standin;

STANDIN_API int cuDriverGetVersion(int *version) {
  Call call("cuDriverGetVersion", Needs::nothing);
  if (call.refusal() == 0) *version = state().driver;
  return call.refusal();
}

STANDIN_API int cuDeviceGetCount(int *count) {
  Call call("cuDeviceGetCount", Needs::nothing);
  if (call.refusal() == 0) *count = static_cast<int>(state().devices.size());
  return call.refusal();
}

STANDIN_API int cuDeviceGet(int *device, int ordinal) {
  Call call("cuDeviceGet", Needs::nothing);
  if (call.refusal() != 0) return call.refusal();
  if (device_of(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

STANDIN_API int cuDeviceGetName(char *name, int size, int device) {
  Call call("cuDeviceGetName", Needs::nothing);
  if (call.refusal() != 0) return call.refusal();
  if (device_of(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (size < 1) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, static_cast<size_t>(size), "%s", state().name.c_str());
  return CUDA_SUCCESS;
}

STANDIN_API int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  Call call("cuDeviceTotalMem_v2", Needs::nothing);
  if (call.refusal() != 0) return call.refusal();
  if (device_of(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = device_of(device)->memory;
  return CUDA_SUCCESS;
}

STANDIN_API int cuDeviceGetAttribute(int *value, int number, int device) {
  Call call("cuDeviceGetAttribute", Needs::nothing);
  if (call.refusal() != 0) return call.refusal();
  if (device_of(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return attribute(*device_of(device), number, value);
}

STANDIN_API int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  Call call("cuDeviceGetUuid_v2", Needs::nothing);
  if (call.refusal() != 0) return call.refusal();
  if (device_of(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  memset(uuid, 0x51, 15);
  uuid[15] = static_cast<unsigned char>(device);
  return CUDA_SUCCESS;
}

STANDIN_API int cuDeviceGetUuid(unsigned char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

STANDIN_API int cuDevicePrimaryCtxRetain(CUcontext *context, int ordinal) {
  Call call("cuDevicePrimaryCtxRetain", Needs::nothing);
  if (call.refusal() != 0) return call.refusal();
  Device *device = device_of(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->lost != 0) return device->lost;
  if (device->primary == nullptr) {
    device->primary = std::make_shared<Context>();
    device->primary->device = device;
  }
  device->retained++;
  *context = handle_of(device->primary);
  return CUDA_SUCCESS;
}

STANDIN_API int cuDevicePrimaryCtxRelease_v2(int ordinal) {
  Call call("cuDevicePrimaryCtxRelease_v2", Needs::nothing);
  Device *device = device_of(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--device->retained == 0) destroy(call.lock(), device);
  return call.answer(CUDA_SUCCESS);
}

STANDIN_API int cuDevicePrimaryCtxSetFlags_v2(int ordinal, unsigned flags) {
  Call call("cuDevicePrimaryCtxSetFlags_v2", Needs::nothing);
  if (call.refusal() != 0) return call.refusal();
  if (device_of(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  device_of(ordinal)->flags = flags;
  return CUDA_SUCCESS;
}

STANDIN_API int cuDevicePrimaryCtxGetState(int ordinal, unsigned *flags, int *active) {
  Call call("cuDevicePrimaryCtxGetState", Needs::nothing);
  if (call.refusal() != 0) return call.refusal();
  const Device *device = device_of(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *flags = device->flags;
  *active = device->primary != nullptr;
  return CUDA_SUCCESS;
}

STANDIN_API int cuCtxSetCurrent(CUcontext handle) {
  Call call("cuCtxSetCurrent", Needs::nothing);
  if (call.refusal() != 0) return call.refusal();
  std::shared_ptr<Context> context = context_of(handle);
  if (handle != nullptr && context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  current() = context;
  return CUDA_SUCCESS;
}

STANDIN_API int cuCtxGetCurrent(CUcontext *handle) {
  Call call("cuCtxGetCurrent", Needs::nothing);
  if (call.refusal() == 0) *handle = handle_of(call.context());
  return call.refusal();
}

STANDIN_API int cuCtxGetDevice(int *device) {
  Call call("cuCtxGetDevice");
  if (call.refusal() == 0) *device = call.context()->device->ordinal;
  return call.refusal();
}

STANDIN_API int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  Call call("cuCtxGetStreamPriorityRange");
  if (call.refusal() != 0) return call.refusal();
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

STANDIN_API int cuCtxSynchronize() {
  Call call("cuCtxSynchronize");
  if (call.refusal() != 0) return call.refusal();
  if (int code = forbidden_while_capturing()) return code;
  drain(call.lock(), call.context().get(), false);
  return call.context()->device->lost;
}
