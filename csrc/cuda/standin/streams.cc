// streams.cc — streams, each a thread, and events.
#include <stdlib.h>

#include "cuda/standin/standin.h"

namespace standin {

namespace {

constexpr unsigned non_blocking = 1;                  // CU_STREAM_NON_BLOCKING
constexpr unsigned blocking_sync = 1, no_timing = 2;  // of events
constexpr unsigned event_flags = blocking_sync | no_timing;

// Sleeps for up to `most` microseconds, one time in two. So the order of two streams changes if no
// event orders them.
void dawdle(unsigned most, uint64_t *random) {
  *random ^= *random << 13;
  *random ^= *random >> 7;
  *random ^= *random << 17;
  if (most == 0 || (*random & 1) == 0) return;
  const timespec time = {0, static_cast<long>((*random >> 1) % (most + 1)) * 1000};
  nanosleep(&time, nullptr);
}

// Carries out one operation of a device that is not lost; without the lock.
void carry_out(Operation *operation, Device *device) {
  int code = 0;
  {
    std::unique_lock<std::mutex> lock(state().mutex);
    code = injected_execution(operation->kind);
    if (code != 0) lose(device, code);
  }
  if (code == 0) operation->run();
}

// The thread of a stream. On a lost device it finishes operations without doing them.
void work(std::shared_ptr<Stream> stream) {
  State &s = state();
  Device *device = stream->context->device;
  uint64_t random = stream->number * 0x9e3779b97f4a7c15u + 1;
  std::unique_lock<std::mutex> lock(s.mutex);
  for (;;) {
    s.changed.wait(lock, [&] { return !stream->queue.empty() || stream->closing; });
    if (stream->queue.empty()) break;
    Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    Event *event = operation.event.get();
    switch (operation.kind) {
      case Operation::wait:
        s.changed.wait(lock, [&] { return event->completed >= operation.ticket || device->lost != 0; });
        break;
      case Operation::record:
        if (event->completed < operation.ticket) event->completed = operation.ticket;
        clock_gettime(CLOCK_MONOTONIC, &event->time);
        break;
      default:
        if (device->lost != 0) break;
        const unsigned delay = s.delay;
        lock.unlock();
        dawdle(delay, &random);
        carry_out(&operation, device);
        lock.lock();
    }
    stream->finished++;
    s.changed.notify_all();
    // The operation may hold a kernel's closure, which must be destroyed without the lock.
    lock.unlock();
    operation = {};
    lock.lock();
  }
  stream->context->streams.erase(stream);
  s.changed.notify_all();
}

int make_stream(Call *call, CUstream *handle, unsigned flags, int priority) {
  if (call->refusal() != 0) return call->refusal();
  if (handle == nullptr || flags > non_blocking) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Stream> stream = start_stream(call->context(), flags, priority);
  state().streams[stream.get()] = stream;
  *handle = reinterpret_cast<CUstream>(stream.get());
  return CUDA_SUCCESS;
}

std::shared_ptr<Event> event_of(const void *handle) {
  auto it = state().events.find(handle);
  return it != state().events.end() ? it->second : nullptr;
}

// Invalidates a capture that was asked for something that it cannot hold.
int spoil(Stream *stream, int code) {
  stream->capture->invalidated = true;
  return code;
}

int elapsed(Call *call, float *milliseconds, const void *from, const void *to) {
  if (call->refusal() != 0) return call->refusal();
  const std::shared_ptr<Event> events[2] = {event_of(from), event_of(to)};
  for (const auto &event : events) {
    if (event == nullptr || (event->flags & no_timing) != 0 || event->recorded == 0)
      return CUDA_ERROR_INVALID_HANDLE;
    if (event->completed < event->recorded) return CUDA_ERROR_NOT_READY;
  }
  *milliseconds = 1e3f * static_cast<float>(events[1]->time.tv_sec - events[0]->time.tv_sec) +
                  1e-6f * static_cast<float>(events[1]->time.tv_nsec - events[0]->time.tv_nsec);
  return CUDA_SUCCESS;
}

}  // namespace

std::shared_ptr<Stream> stream_of(CUstream handle) {
  auto it = state().streams.find(handle);
  return it != state().streams.end() ? it->second : nullptr;
}

std::shared_ptr<Stream> start_stream(const std::shared_ptr<Context> &context, unsigned flags, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  stream->number = ++state().streams_made;
  context->streams.insert(stream);
  std::thread(work, stream).detach();
  return stream;
}

int submit(Stream *stream, Operation operation) {
  if (stream->capture != nullptr) {
    if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->capture->operations.push_back(std::move(operation));
    return CUDA_SUCCESS;
  }
  stream->queue.push_back(std::move(operation));
  stream->submitted++;
  state().changed.notify_all();
  return CUDA_SUCCESS;
}

void drain(std::unique_lock<std::mutex> &lock, const Context *context, bool blocking_only) {
  std::vector<std::pair<std::shared_ptr<Stream>, uint64_t>> ends;
  for (const auto &stream : context->streams) {
    if (!blocking_only || (stream->flags & non_blocking) == 0) ends.emplace_back(stream, stream->submitted);
  }
  for (const auto &[stream, end] : ends) {
    state().changed.wait(lock, [&, &stream = stream, &end = end] { return stream->finished >= end; });
  }
}

}  // namespace standin

using namespace standin;

STANDIN_API int cuStreamCreate(CUstream *handle, unsigned flags) {
  Call call("cuStreamCreate");
  return make_stream(&call, handle, flags, 0);
}

STANDIN_API int cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority) {
  Call call("cuStreamCreateWithPriority");
  return make_stream(&call, handle, flags, priority);
}

// Returns at once; operations already submitted are still done.
STANDIN_API int cuStreamDestroy_v2(CUstream handle) {
  Call call("cuStreamDestroy_v2");
  if (call.refusal_to_free() != 0) return call.answer(call.refusal_to_free());
  const std::shared_ptr<Stream> stream = stream_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  stream->closing = true;
  stream->capture = nullptr;
  state().streams.erase(handle);
  state().changed.notify_all();
  return call.answer(CUDA_SUCCESS);
}

STANDIN_API int cuStreamQuery(CUstream handle) {
  Call call("cuStreamQuery");
  if (call.refusal() != 0) return call.refusal();
  const std::shared_ptr<Stream> stream = stream_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) return spoil(stream.get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return stream->finished == stream->submitted ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

STANDIN_API int cuStreamSynchronize(CUstream handle) {
  Call call("cuStreamSynchronize");
  if (call.refusal() != 0) return call.refusal();
  if (handle == nullptr) {  // the default stream, which waits for blocking ones
    if (int code = forbidden_while_capturing(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)) return code;
    drain(call.lock(), call.context().get(), true);
    return call.context()->device->lost;
  }
  const std::shared_ptr<Stream> stream = stream_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) return spoil(stream.get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const uint64_t end = stream->submitted;
  state().changed.wait(call.lock(), [&] { return stream->finished >= end; });
  return stream->context->device->lost;
}

STANDIN_API int cuStreamWaitEvent(CUstream handle, const void *event_handle, unsigned flags) {
  Call call("cuStreamWaitEvent");
  if (call.refusal() != 0) return call.refusal();
  const std::shared_ptr<Stream> stream = stream_of(handle);
  const std::shared_ptr<Event> event = event_of(event_handle);
  if (stream == nullptr || event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  // A capture is of one stream. A captured event would join this stream to the other's capture, and
  // an event from outside would make the capture depend on work outside it: both are refused.
  if (stream->capture != nullptr && !event->captured)
    return spoil(stream.get(), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  if (stream->capture == nullptr && event->captured) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr || event->recorded == 0) return CUDA_SUCCESS;
  return submit(stream.get(), {Operation::wait, nullptr, event, event->recorded});
}

STANDIN_API int cuStreamGetFlags(CUstream handle, unsigned *flags) {
  Call call("cuStreamGetFlags");
  if (call.refusal() != 0) return call.refusal();
  const std::shared_ptr<Stream> stream = stream_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

STANDIN_API int cuStreamGetPriority(CUstream handle, int *priority) {
  Call call("cuStreamGetPriority");
  if (call.refusal() != 0) return call.refusal();
  const std::shared_ptr<Stream> stream = stream_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

STANDIN_API int cuEventCreate(void **handle, unsigned flags) {
  Call call("cuEventCreate");
  if (call.refusal() != 0) return call.refusal();
  if (handle == nullptr || flags > event_flags) return CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_shared<Event>();
  event->context = call.context();
  event->flags = flags;
  state().events[event.get()] = event;
  *handle = event.get();
  return CUDA_SUCCESS;
}

STANDIN_API int cuEventDestroy_v2(void *handle) {
  Call call("cuEventDestroy_v2");
  if (call.refusal_to_free() != 0) return call.answer(call.refusal_to_free());
  return call.answer(state().events.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

STANDIN_API int cuEventRecord(void *handle, CUstream stream_handle) {
  Call call("cuEventRecord");
  if (call.refusal() != 0) return call.refusal();
  const std::shared_ptr<Event> event = event_of(handle);
  const std::shared_ptr<Stream> stream = stream_of(stream_handle);
  if (event == nullptr || stream == nullptr || event->context != stream->context)
    return CUDA_ERROR_INVALID_HANDLE;
  event->captured = stream->capture != nullptr;
  if (event->captured) return CUDA_SUCCESS;  // the order of the stream implies it
  return submit(stream.get(), {Operation::record, nullptr, event, ++event->recorded});
}

STANDIN_API int cuEventQuery(void *handle) {
  Call call("cuEventQuery");
  if (call.refusal() != 0) return call.refusal();
  if (int code = forbidden_while_capturing()) return code;
  const std::shared_ptr<Event> event = event_of(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return event->completed >= event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

STANDIN_API int cuEventSynchronize(void *handle) {
  Call call("cuEventSynchronize");
  if (call.refusal() != 0) return call.refusal();
  if (int code = forbidden_while_capturing()) return code;
  const std::shared_ptr<Event> event = event_of(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t ticket = event->recorded;
  Device *device = event->context->device;
  state().changed.wait(call.lock(), [&] { return event->completed >= ticket || device->lost != 0; });
  return device->lost;
}

STANDIN_API int cuEventElapsedTime_v2(float *milliseconds, const void *from, const void *to) {
  Call call("cuEventElapsedTime_v2");
  return elapsed(&call, milliseconds, from, to);
}

STANDIN_API int cuEventElapsedTime(float *milliseconds, const void *from, const void *to) {
  Call call("cuEventElapsedTime");
  return elapsed(&call, milliseconds, from, to);
}

// Appends a kernel of kernels/simt to the stream. The kernel runs each time the stream reaches it
// and is destroyed once; neither if a code is returned. The call counts and fails as
// cuLaunchKernelEx, which the CUDA runtime would call. programmatic: with the launch attribute that
// lets it start under the end of the kernel before.
STANDIN_API int sie_standin_enqueue(void *handle, void (*run)(void *), void *kernel, void (*destroy)(void *),
                                    bool programmatic) {
  Call call("cuLaunchKernelEx");
  if (call.refusal() != 0) return call.refusal();
  const std::shared_ptr<Stream> stream = stream_of(static_cast<CUstream>(handle));
  if (stream == nullptr || stream->context != call.context()) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr && stream->capture->invalidated)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture == nullptr) {
    state().launched++;
    state().launched_programmatic += programmatic;
  }
  const std::shared_ptr<void> owned(kernel, destroy);
  return submit(stream.get(),
                {Operation::kernel, [owned, run] { run(owned.get()); }, nullptr, 0, programmatic});
}
