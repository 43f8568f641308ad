// graphs.cc — the capture of one stream into a list of operations, and its replay.
#include "cuda/standin/standin.h"

namespace standin {

namespace {

std::shared_ptr<const Operations> *find(std::map<const void *, std::shared_ptr<const Operations>> *all,
                                        const void *handle) {
  auto it = all->find(handle);
  return it != all->end() ? &it->second : nullptr;
}

}  // namespace

int forbidden_while_capturing(int code) {
  int answer = 0;
  for (const auto &[handle, stream] : state().streams) {
    Capture *capture = stream->capture.get();
    if (capture == nullptr) continue;
    const bool own = capture->thread == std::this_thread::get_id();
    if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
        (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && own)) {
      capture->invalidated = true;
      answer = code;
    }
  }
  return answer;
}

}  // namespace standin

using namespace standin;

STANDIN_API int cuStreamBeginCapture_v2(CUstream handle, int mode) {
  Call call("cuStreamBeginCapture_v2");
  if (call.refusal() != 0) return call.refusal();
  const std::shared_ptr<Stream> stream = stream_of(handle);
  if (stream == nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // the default stream
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture = std::make_unique<Capture>();
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  return CUDA_SUCCESS;
}

STANDIN_API int cuStreamEndCapture(CUstream handle, CUgraph *graph) {
  Call call("cuStreamEndCapture");
  if (call.refusal_to_free() != 0) return call.answer(call.refusal_to_free());
  const std::shared_ptr<Stream> stream = stream_of(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Capture *capture = stream->capture.get();
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->thread != std::this_thread::get_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  const std::unique_ptr<Capture> ended = std::move(stream->capture);
  *graph = nullptr;
  if (call.refusal() != 0) return call.refusal();  // the capture has ended anyway
  if (ended->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  auto operations = std::make_shared<const Operations>(std::move(ended->operations));
  state().graphs[operations.get()] = operations;
  *graph = reinterpret_cast<CUgraph>(const_cast<Operations *>(operations.get()));
  return CUDA_SUCCESS;
}

STANDIN_API int cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  Call call("cuGraphInstantiateWithFlags");
  if (call.refusal() != 0) return call.refusal();
  const std::shared_ptr<const Operations> *operations = find(&state().graphs, graph);
  if (operations == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != 0) return CUDA_ERROR_NOT_SUPPORTED;
  auto copy = std::make_shared<const Operations>(**operations);
  state().execs[copy.get()] = copy;
  *exec = reinterpret_cast<CUgraphExec>(const_cast<Operations *>(copy.get()));
  return CUDA_SUCCESS;
}

STANDIN_API int cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  Call call("cuGraphLaunch");
  if (call.refusal() != 0) return call.refusal();
  const std::shared_ptr<const Operations> *operations = find(&state().execs, exec);
  const std::shared_ptr<Stream> stream = stream_of(handle);
  if (operations == nullptr || stream == nullptr || stream->context != call.context()) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (stream->capture != nullptr) {
    stream->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  for (const Operation &operation : **operations) submit(stream.get(), operation);
  return CUDA_SUCCESS;
}

// Launches in flight keep their own copies of the operations.
STANDIN_API int cuGraphExecDestroy(CUgraphExec exec) {
  Call call("cuGraphExecDestroy");
  const auto *operations = find(&state().execs, exec);
  if (operations == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::shared_ptr<const Operations> until_unlocked = *operations;
  state().execs.erase(exec);
  call.lock().unlock();
  return call.answer(CUDA_SUCCESS);
}

STANDIN_API int cuGraphDestroy(CUgraph graph) {
  Call call("cuGraphDestroy");
  const auto *operations = find(&state().graphs, graph);
  if (operations == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::shared_ptr<const Operations> until_unlocked = *operations;
  state().graphs.erase(graph);
  call.lock().unlock();
  return call.answer(CUDA_SUCCESS);
}
