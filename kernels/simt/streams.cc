// streams.cc — launches that wait for their turn in another library's stream.
#include <new>

#include "simt/machine.h"

namespace simt {

namespace {

StreamSink sink = nullptr;

struct Waiting {
  Launch launch;
  void (*thread)(const void *body);
  void *body;
  void (*destroy)(void *body);
};

void run(void *kernel) {
  const Waiting *waiting = static_cast<const Waiting *>(kernel);
  const Launch &launch = waiting->launch;
  // The shape was accepted at the launch, and nothing else can fail.
  const sie_status status = simt::launch(launch, waiting->thread, waiting->body);
  if (status != SIE_OK)
    fail("kernel %s was accepted at its launch and answers %d now", launch.kernel, status);
}

void destroy(void *kernel) {
  Waiting *waiting = static_cast<Waiting *>(kernel);
  waiting->destroy(waiting->body);
  delete waiting;
}

}  // namespace

void set_stream_sink(StreamSink new_sink) { __atomic_store_n(&sink, new_sink, __ATOMIC_RELEASE); }

sie_status launch_in_stream(void *stream, const Launch &launch, void (*thread)(const void *body), void *body,
                            void (*destroy_body)(void *body)) {
  StreamSink to = __atomic_load_n(&sink, __ATOMIC_ACQUIRE);
  sie_status status = check_shape(launch);
  Waiting *waiting = nullptr;
  if (status == SIE_OK && to == nullptr) status = simt::launch(launch, thread, body);
  if (status == SIE_OK && to != nullptr) {
    waiting = new (std::nothrow) Waiting{launch, thread, body, destroy_body};
    status = waiting != nullptr ? to(stream, run, waiting, destroy, launch.pdl) : SIE_OUT_OF_MEMORY;
    if (status == SIE_OK) return SIE_OK;
  }
  delete waiting;
  destroy_body(body);
  return status;
}

}  // namespace simt
