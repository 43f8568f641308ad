/* driver.h — declares the functions of the CUDA driver that csrc/cuda calls, so that it compiles
 * without a toolkit, and says how their library is found.
 *
 * None of our programs is linked with libcuda, because it would not start on a machine without a
 * driver. libcuda.a (driver/) holds a stub for each function that this header and gorgonia.org/cu
 * name. The first call of any of them opens libcuda.so.1, or for tests the library that SIE_LIBCUDA
 * in the environment names, and initialises it. Without a driver every call returns what
 * sie_driver_start returns. A function that the driver is too old for returns
 * CUDA_ERROR_NOT_SUPPORTED.
 *
 * The numbers and signatures are those of the CUDA driver API. They are stable: a function that
 * changes gets a new name (_v2). Do not include this header together with cuda.h. */
#ifndef SIE_CSRC_CUDA_DRIVER_H
#define SIE_CSRC_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the library: any thread, once for the process ---- */

/* Opens and initialises the driver. Returns CUDA_SUCCESS, or the code that every later call
 * returns; CUDA_ERROR_NO_DEVICE also if there is no library. *why (lasting; why may be NULL) says
 * what was found. */
int sie_driver_start(const char **why);
/* The address of a name in the opened library, whether or not it has initialised; NULL if there is
 * none. */
void *sie_driver_symbol(const char *name);

/* ---- codes: int, as the driver returns them ---- */

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908
};

/* ---- functions ---- */

typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

int cuDriverGetVersion(int *version); /* 1000·major + 10·minor of the newest CUDA it supports */
int cuGetErrorName(int code, const char **name);
int cuGetErrorString(int code, const char **text);

enum { CU_MEMHOSTALLOC_PORTABLE = 1, CU_MEMHOSTALLOC_WRITECOMBINED = 4 };
int cuMemHostAlloc(void **p, size_t bytes, unsigned flags);
int cuMemFreeHost(void *p);

/* GLOBAL: during the capture, a call of any thread that could wait or allocate fails and
 * invalidates the capture. THREAD_LOCAL: only such calls of this thread. RELAXED: none. */
enum {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2
};
int cuStreamBeginCapture_v2(CUstream stream, int mode);
int cuStreamEndCapture(CUstream stream, CUgraph *graph);
int cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
int cuGraphLaunch(CUgraphExec exec, CUstream stream);
int cuGraphExecDestroy(CUgraphExec exec);
int cuGraphDestroy(CUgraph graph);

#ifdef __cplusplus
}
#endif

#endif /* SIE_CSRC_CUDA_DRIVER_H */
