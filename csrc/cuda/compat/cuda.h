/* cuda.h — found before the toolkit's cuda.h when gorgonia.org/cu is compiled (CGO_CFLAGS);
 * declares five functions as they were before CUDA 13.
 *
 * cu v0.9.6 calls them by their plain names with the old arguments. The headers of CUDA 13 define
 * the plain names as macros for newer functions with other arguments. The driver still has the old
 * functions. */
#ifndef SIE_CSRC_CUDA_COMPAT_CUDA_H
#define SIE_CSRC_CUDA_COMPAT_CUDA_H

#include_next <cuda.h>

#if CUDA_VERSION >= 13000
#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
#define cuCtxCreate cuCtxCreate_v2
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuMemAdvise(CUdeviceptr p, size_t bytes, CUmem_advise advice, CUdevice device);
CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t bytes, CUdevice device, CUstream stream);
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count);
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);
#endif

#endif /* SIE_CSRC_CUDA_COMPAT_CUDA_H */
