// device.h — the language, the shared memory and the targets, for every device source.
//
// Under nvcc this is CUDA. Under g++ the emulator (kernels/simt) supplies the language, and every
// wrapper of this folder is a call into it: one source, two compilers. Only this folder holds
// inline PTX or <<<>>>.
//
// Rules for a kernel that both compilers accept
//   - dynamic shared memory only, declared by SIE_DYNAMIC_SHARED;
//   - threads synchronise through the wrappers alone (no spinning on memory);
//   - pointers given to shared-memory wrappers point into the CTA's dynamic shared memory;
//   - arrays that are registers on the device (fragments, accumulators) are indexed by constants
//     after unrolling.
#ifndef SIE_KERNELS_CUDA_PTX_DEVICE_H
#define SIE_KERNELS_CUDA_PTX_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define SIE_DEVICE __device__ __forceinline__
#else
#include "simt/language.h"
#include "simt/simt.h"
#define SIE_DEVICE inline
#endif

// Wrappers of instructions that a target lacks still compile for it, and trap there. A launcher
// checks sie_stream.sm before it launches, so such a trap is a bug. The emulator aborts instead.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SIE_PTX_SM90A 1 /* wgmma, setmaxnreg */
#else
#define SIE_PTX_SM90A 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SIE_PTX_SM90 1 /* TMA, clusters, stmatrix, programmatic launch */
#else
#define SIE_PTX_SM90 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define SIE_PTX_SM89 1 /* e4m3 conversions and mma */
#else
#define SIE_PTX_SM89 0
#endif

// SIE_DYNAMIC_SHARED(name): `unsigned char *name`, the CTA's dynamic shared memory, 1024-byte
// aligned, of the size given to SIE_LAUNCH. Contents are undefined at the start (0xff under
// emulation: NaN in every type).
#ifdef __CUDACC__
#define SIE_DYNAMIC_SHARED(name)                                              \
  extern __shared__ __align__(1024) unsigned char sie_dynamic_shared_bytes[]; \
  unsigned char *name = sie_dynamic_shared_bytes
#else
#define SIE_DYNAMIC_SHARED(name) unsigned char *name = ::simt::dynamic_shared()
#endif

namespace ptx {

// Element type of tensor-core operands and of packed registers.
enum class Operand { bf16, f16, e4m3 };

// The 32-bit address of a byte of this CTA's shared memory. The address forms of the wrappers take
// it, for loops that step through shared memory by constants.
SIE_DEVICE uint32_t shared_address(const void *shared) {
#ifdef __CUDACC__
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
#else
  return simt::shared_address(shared);
#endif
}

// Ends the kernel with an error: an instruction the target lacks was reached.
SIE_DEVICE void unsupported() {
#ifdef __CUDACC__
  asm volatile("trap;");
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_DEVICE_H
