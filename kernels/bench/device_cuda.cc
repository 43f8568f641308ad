// device_cuda.cc — the first GPU of this machine, through the CUDA runtime.
#include <cuda_runtime_api.h>

#include "bench/device.h"
#include "cuda/arch.h"

namespace device {

struct Graph {
  cudaGraphExec_t exec;
};

namespace {

cudaStream_t the_stream;
cudaEvent_t before, after;
sie_stream on = {};
std::string last;

bool worked(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return true;
  last = std::string(what) + ": " + cudaGetErrorString(error);
  (void)cudaGetLastError();
  return false;
}

double elapsed() {
  float milliseconds = 0;
  if (!worked(cudaEventRecord(after, the_stream), "event") || !worked(cudaEventSynchronize(after), "run") ||
      !worked(cudaEventElapsedTime(&milliseconds, before, after), "event")) {
    return -1;
  }
  return static_cast<double>(milliseconds);
}

}  // namespace

std::vector<int32_t> list(std::string *why_none) {
  int count = 0;
  if (!worked(cudaGetDeviceCount(&count), "no GPU")) *why_none = last;
  if (count > 0) return {0};
  if (why_none->empty()) *why_none = "no GPU";
  return {};
}

bool open(int32_t which, Info *info, std::string *why) {
  cudaDeviceProp properties;
  int driver = 0, runtime = 0;
  if (!worked(cudaSetDevice(which), "device") ||
      !worked(cudaGetDeviceProperties(&properties, which), "device") ||
      !worked(cudaDriverGetVersion(&driver), "driver") ||
      !worked(cudaRuntimeGetVersion(&runtime), "runtime")) {
    *why = last;
    return false;
  }
  char refusal[252];
  if (sie_cuda_arch_refusal(properties.major, properties.minor, refusal, sizeof refusal) != SIE_OK) {
    *why = refusal;
    return false;
  }
  if (!worked(cudaStreamCreateWithFlags(&the_stream, cudaStreamNonBlocking), "stream") ||
      !worked(cudaEventCreate(&before), "event") || !worked(cudaEventCreate(&after), "event")) {
    *why = last;
    return false;
  }
  *info = {};
  info->name = properties.name;
  info->sm = 10 * properties.major + properties.minor;
  info->multiprocessors = properties.multiProcessorCount;
  info->memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info->l2_bytes = properties.l2CacheSize;
  info->driver = driver;
  info->runtime = runtime;
  on = {the_stream, info->sm, info->multiprocessors, programmatic(info->sm, false), 0};
  return true;
}

const sie_stream *stream() { return &on; }

void *allocate(size_t bytes) {
  void *p = nullptr;
  return worked(cudaMalloc(&p, bytes > 0 ? bytes : 1), "memory") ? p : nullptr;
}

void release(void *p) { (void)worked(cudaFree(p), "memory"); }

namespace {

bool copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  return bytes == 0 || (worked(cudaMemcpyAsync(to, from, bytes, kind, the_stream), "copy") &&
                        worked(cudaStreamSynchronize(the_stream), "copy"));
}

}  // namespace

bool copy_in(void *to, const void *from, size_t bytes) {
  return copy(to, from, bytes, cudaMemcpyHostToDevice);
}
bool copy_out(void *to, const void *from, size_t bytes) {
  return copy(to, from, bytes, cudaMemcpyDeviceToHost);
}
bool copy_within(void *to, const void *from, size_t bytes) {
  return copy(to, from, bytes, cudaMemcpyDeviceToDevice);
}

sie_status finish() {
  const cudaError_t left_behind = cudaGetLastError(), stream = cudaStreamSynchronize(the_stream);
  (void)worked(left_behind, "launch");
  (void)worked(stream, "kernel");
  return finished(left_behind, stream);
}

std::string message() { return last; }

bool begin_capture() {
  on.pdl = programmatic(on.sm, true);
  return worked(cudaStreamBeginCapture(the_stream, cudaStreamCaptureModeThreadLocal), "capture");
}

Graph *end_capture() {
  cudaGraph_t graph = nullptr;
  on.pdl = programmatic(on.sm, false);
  if (!worked(cudaStreamEndCapture(the_stream, &graph), "capture")) return nullptr;
  cudaGraphExec_t exec = nullptr;
  const bool made = worked(cudaGraphInstantiate(&exec, graph, 0), "graph");
  (void)cudaGraphDestroy(graph);
  return made ? new Graph{exec} : nullptr;
}

void destroy(Graph *graph) {
  if (graph == nullptr) return;
  (void)worked(cudaGraphExecDestroy(graph->exec), "graph");
  delete graph;
}

double run(Graph *graph) {
  if (!worked(cudaEventRecord(before, the_stream), "event") ||
      !worked(cudaGraphLaunch(graph->exec, the_stream), "graph")) {
    return -1;
  }
  return elapsed();
}

double time_copy(void *to, const void *from, size_t bytes) {
  if (!worked(cudaEventRecord(before, the_stream), "event") ||
      !worked(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, the_stream), "copy")) {
    return -1;
  }
  return elapsed();
}

}  // namespace device
