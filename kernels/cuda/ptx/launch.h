// launch.h — starts a kernel; host side only.
//
//   return SIE_LAUNCH((attention_kernel<64, 4>), dim3(tiles, heads), 128, shared_bytes, share->on,
//                     p, q, …);
//
// A kernel started with on->pdl != 0 may run before its predecessor in the stream has finished: its
// first statement is ptx::grid_dependency_wait() (grid_dependency.h has the exception). All kernels of
// this project have it.
#ifndef SIE_KERNELS_CUDA_PTX_LAUNCH_H
#define SIE_KERNELS_CUDA_PTX_LAUNCH_H

#ifndef __CUDACC__
#include <new>
#endif

#include "cuda/ptx/device.h"
#include "cuda/ptx/launch_status.h"
#include "ops.h"

// SIE_LAUNCH(kernel, grid, block, shared_bytes, on, arguments...) → sie_status
//   kernel        a __global__ function; in parentheses when its template arguments hold a comma
//   grid, block   dim3 or a number; every extent ≥ 1
//   shared_bytes  dynamic shared memory of a CTA; above 48 KiB the limit of the kernel is raised on
//                 the current device, at each launch (idempotent, no state in the process)
//   on            const sie_stream *, borrowed; its device is current
// Asynchronous. SIE_UNSUPPORTED: the device has too little shared memory, or the binary has no code
// for it; SIE_INVALID_ARGUMENT: on is NULL; SIE_DEVICE_LOST: any sticky error; SIE_INTERNAL: a
// launch that CUDA refuses.
#define SIE_LAUNCH(kernel, grid, block, shared_bytes, on, ...) \
  SIE_LAUNCH_CLUSTER(kernel, 1, grid, block, shared_bytes, on, ##__VA_ARGS__)

// The same with CTAs in clusters of `cluster` along x (sm_90; grid.x is a multiple of it).
#define SIE_LAUNCH_CLUSTER(kernel, cluster, grid, block, shared_bytes, on, ...)             \
  ::ptx::launch(#kernel, (kernel),                                                          \
                ::ptx::LaunchShape{dim3(grid), dim3(block), static_cast<uint32_t>(cluster), \
                                   static_cast<size_t>(shared_bytes)},                      \
                on, ##__VA_ARGS__)

namespace ptx {

struct LaunchShape {
  dim3 grid, block;
  uint32_t cluster;
  size_t shared_bytes;
};

template <class T>
struct AsDeclared {
  using type = T;
};

#ifdef __CUDACC__

// The status of a launch or of what prepares one. Takes the error out of the runtime, so that nobody
// finds it behind a later call: a sticky one answers every call again.
inline sie_status taken(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return launch_status(error);
}

template <class... P>
sie_status launch(const char *, void (*kernel)(P...), const LaunchShape &shape, const sie_stream *on,
                  typename AsDeclared<P>::type... arguments) {
  if (on == nullptr) return SIE_INVALID_ARGUMENT;
  if (shape.shared_bytes > 48 * 1024) {
    cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(shape.shared_bytes));
    const sie_status status = taken(error);
    if (error == cudaErrorInvalidValue) return SIE_UNSUPPORTED;
    if (status != SIE_OK) return status;
  }
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (on->pdl != 0) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = shape.cluster;
    attributes[count].val.clusterDim.y = 1;
    attributes[count++].val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(on->stream);
  config.attrs = attributes;
  config.numAttrs = count;
  return taken(cudaLaunchKernelEx(&config, kernel, arguments...));
}

#else

template <class... P>
sie_status launch(const char *name, void (*kernel)(P...), const LaunchShape &shape, const sie_stream *on,
                  typename AsDeclared<P>::type... arguments) {
  if (on == nullptr) return SIE_INVALID_ARGUMENT;
  auto thread = [=] { kernel(arguments...); };
  using Thread = decltype(thread);
  auto call = [](const void *body) { (*static_cast<const Thread *>(body))(); };
  simt::Launch launch = {name,
                         shape.grid,
                         shape.block,
                         shape.cluster,
                         shape.shared_bytes,
                         on->sm,
                         on->pdl != 0,
                         reinterpret_cast<const void *>(kernel)};
  if (on->stream == nullptr) return simt::launch(launch, call, &thread);
  auto *body = new (std::nothrow) Thread(thread);
  if (body == nullptr) return SIE_OUT_OF_MEMORY;
  auto destroy = [](void *p) { delete static_cast<Thread *>(p); };
  return simt::launch_in_stream(on->stream, launch, call, body, destroy);
}

#endif

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_LAUNCH_H
