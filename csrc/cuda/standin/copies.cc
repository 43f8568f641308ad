// copies.cc — copies and sets, at once or in a stream.
//
// Copies without a stream belong to the default stream. As in the driver, it waits for every stream
// that was not made non-blocking, and for no other. A program that reads the results of a
// non-blocking stream must wait for it; and one whose kernels run in such a stream must wait for the
// default stream after a copy from pageable memory to the device, which returns when the memory is
// staged.
#include <string.h>

#include "cuda/standin/standin.h"

namespace standin {

namespace {

struct Side {
  DevicePointer device = 0;  // if host is null
  void *host = nullptr;
  uint8_t *p() const {
    return host != nullptr ? static_cast<uint8_t *>(host) : reinterpret_cast<uint8_t *>(device);
  }
};

Side on_device(DevicePointer p) { return {p, nullptr}; }
Side on_host(const void *p) { return {0, const_cast<void *>(p)}; }

void check(const Context *context, const Side &side, size_t bytes, bool pinned, const char *what) {
  if (side.host != nullptr) {
    check_host_range(context, side.host, bytes, pinned, what);
  } else {
    check_device_range(context, side.device, bytes, what);
  }
}

void check_copy(const Context *context, const Side &to, const Side &from, size_t bytes, bool pinned) {
  check(context, to, bytes, pinned, "copy to");
  check(context, from, bytes, pinned, "copy from");
}

// Stages pageable memory, and writes it to the device some time after the call has returned.
int transfer(const std::shared_ptr<Context> &context, const Side &to, const Side &from, size_t bytes) {
  if (context->transfers == nullptr) context->transfers = start_stream(context, 0, 0);
  auto staged = std::make_shared<std::vector<uint8_t>>(from.p(), from.p() + bytes);
  auto run = [to, staged] { memcpy(to.p(), staged->data(), staged->size()); };
  return submit(context->transfers.get(), {Operation::copy, run, nullptr, 0});
}

// Copies in the default stream; the copy is done on return, but for one from pageable memory to the
// device, which is then staged and done in time for what follows in the default stream.
int copy_now(Call *call, const Side &to, const Side &from, size_t bytes) {
  if (call->refusal() != 0) return call->refusal();
  if (int code = forbidden_while_capturing(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)) return code;
  if (bytes == 0) return CUDA_SUCCESS;
  const Context *context = call->context().get();
  check_copy(context, to, from, bytes, false);
  drain(call->lock(), context, true);
  if (context->device->lost != 0) return context->device->lost;
  if (from.host != nullptr && !is_pinned(from.host)) return transfer(call->context(), to, from, bytes);
  call->lock().unlock();
  memmove(to.p(), from.p(), bytes);
  return CUDA_SUCCESS;
}

int copy_later(Call *call, const Side &to, const Side &from, size_t bytes, CUstream handle) {
  if (handle == nullptr) return copy_now(call, to, from, bytes);
  if (call->refusal() != 0) return call->refusal();
  const std::shared_ptr<Stream> stream = stream_of(handle);
  if (stream == nullptr || stream->context != call->context()) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_SUCCESS;
  const std::shared_ptr<Context> context = call->context();
  check_copy(context.get(), to, from, bytes, true);
  auto run = [=] {
    {
      // A graph runs long after it was captured.
      std::unique_lock<std::mutex> lock(state().mutex);
      check_copy(context.get(), to, from, bytes, true);
    }
    memmove(to.p(), from.p(), bytes);
  };
  return submit(stream.get(), {Operation::copy, run, nullptr, 0});
}

template <class T>
void fill(DevicePointer p, T value, size_t count) {
  T *to = reinterpret_cast<T *>(p);
  for (size_t i = 0; i < count; i++) to[i] = value;
}

template <class T>
int set_now(Call *call, DevicePointer p, T value, size_t count) {
  if (call->refusal() != 0) return call->refusal();
  if (int code = forbidden_while_capturing(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)) return code;
  if (p % sizeof(T) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0) return CUDA_SUCCESS;
  check_device_range(call->context().get(), p, count * sizeof(T), "set");
  drain(call->lock(), call->context().get(), true);
  fill(p, value, count);
  return call->context()->device->lost;
}

template <class T>
int set_later(Call *call, DevicePointer p, T value, size_t count, CUstream handle) {
  if (handle == nullptr) return set_now(call, p, value, count);
  if (call->refusal() != 0) return call->refusal();
  const std::shared_ptr<Stream> stream = stream_of(handle);
  if (stream == nullptr || stream->context != call->context()) return CUDA_ERROR_INVALID_HANDLE;
  if (p % sizeof(T) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0) return CUDA_SUCCESS;
  const std::shared_ptr<Context> context = call->context();
  check_device_range(context.get(), p, count * sizeof(T), "set");
  auto run = [=] {
    {
      std::unique_lock<std::mutex> lock(state().mutex);
      check_device_range(context.get(), p, count * sizeof(T), "set");
    }
    fill(p, value, count);
  };
  return submit(stream.get(), {Operation::copy, run, nullptr, 0});
}

}  // namespace

}  // namespace standin

using namespace standin;

STANDIN_API int cuMemcpyHtoD_v2(DevicePointer to, const void *from, size_t bytes) {
  Call call("cuMemcpyHtoD_v2");
  return copy_now(&call, on_device(to), on_host(from), bytes);
}

STANDIN_API int cuMemcpyDtoH_v2(void *to, DevicePointer from, size_t bytes) {
  Call call("cuMemcpyDtoH_v2");
  return copy_now(&call, on_host(to), on_device(from), bytes);
}

STANDIN_API int cuMemcpyDtoD_v2(DevicePointer to, DevicePointer from, size_t bytes) {
  Call call("cuMemcpyDtoD_v2");
  return copy_now(&call, on_device(to), on_device(from), bytes);
}

STANDIN_API int cuMemcpyHtoDAsync_v2(DevicePointer to, const void *from, size_t bytes, CUstream stream) {
  Call call("cuMemcpyHtoDAsync_v2");
  return copy_later(&call, on_device(to), on_host(from), bytes, stream);
}

STANDIN_API int cuMemcpyDtoHAsync_v2(void *to, DevicePointer from, size_t bytes, CUstream stream) {
  Call call("cuMemcpyDtoHAsync_v2");
  return copy_later(&call, on_host(to), on_device(from), bytes, stream);
}

STANDIN_API int cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes, CUstream stream) {
  Call call("cuMemcpyDtoDAsync_v2");
  return copy_later(&call, on_device(to), on_device(from), bytes, stream);
}

STANDIN_API int cuMemsetD8_v2(DevicePointer p, unsigned char value, size_t count) {
  Call call("cuMemsetD8_v2");
  return set_now(&call, p, value, count);
}

STANDIN_API int cuMemsetD16_v2(DevicePointer p, unsigned short value, size_t count) {
  Call call("cuMemsetD16_v2");
  return set_now(&call, p, value, count);
}

STANDIN_API int cuMemsetD32_v2(DevicePointer p, unsigned value, size_t count) {
  Call call("cuMemsetD32_v2");
  return set_now(&call, p, value, count);
}

STANDIN_API int cuMemsetD8Async(DevicePointer p, unsigned char value, size_t count, CUstream stream) {
  Call call("cuMemsetD8Async");
  return set_later(&call, p, value, count, stream);
}

STANDIN_API int cuMemsetD16Async(DevicePointer p, unsigned short value, size_t count, CUstream stream) {
  Call call("cuMemsetD16Async");
  return set_later(&call, p, value, count, stream);
}

STANDIN_API int cuMemsetD32Async(DevicePointer p, unsigned value, size_t count, CUstream stream) {
  Call call("cuMemsetD32Async");
  return set_later(&call, p, value, count, stream);
}
