// cp_async.h — copies from global to shared memory that do not pass through registers (sm_80).
//
// A copy belongs to the thread that issues it. cp_async_commit closes a group of the thread's
// copies since the last commit (an empty group counts). cp_async_wait<N> returns when at most the N
// youngest groups are in flight. Other threads see the bytes after the issuer's wait and a barrier.
// Between issue and wait the destination is undefined: the emulator poisons it, and copies at a
// random moment. Both addresses are aligned to the size. With valid false the destination is zeroed
// and nothing is read. The _head forms read the first `read` bytes, 0 … size, and write zeros
// behind them; the rest of the source is not read.
#ifndef SIE_KERNELS_CUDA_PTX_CP_ASYNC_H
#define SIE_KERNELS_CUDA_PTX_CP_ASYNC_H

#include "cuda/ptx/device.h"

namespace ptx {

// 16 bytes that bypass L1 (cp.async.cg).
SIE_DEVICE void cp_async_16(uint32_t shared, const void *global, bool valid = true) {
#ifdef __CUDACC__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
               : "memory");
#else
  simt::cp_async(shared, global, 16, valid ? 16 : 0);
#endif
}

SIE_DEVICE void cp_async_16_head(uint32_t shared, const void *global, int32_t read) {
#ifdef __CUDACC__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(__cvta_generic_to_global(global)), "r"(read)
               : "memory");
#else
  simt::cp_async(shared, global, 16, static_cast<uint32_t>(read));
#endif
}

// 8 or 4 bytes through L1 (cp.async.ca).
SIE_DEVICE void cp_async_8(uint32_t shared, const void *global, bool valid = true) {
#ifdef __CUDACC__
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared),
               "l"(__cvta_generic_to_global(global)), "r"(valid ? 8 : 0)
               : "memory");
#else
  simt::cp_async(shared, global, 8, valid ? 8 : 0);
#endif
}

SIE_DEVICE void cp_async_4(uint32_t shared, const void *global, bool valid = true) {
#ifdef __CUDACC__
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared),
               "l"(__cvta_generic_to_global(global)), "r"(valid ? 4 : 0)
               : "memory");
#else
  simt::cp_async(shared, global, 4, valid ? 4 : 0);
#endif
}

// The same by pointer into the CTA's shared memory.
SIE_DEVICE void cp_async_16(void *shared, const void *global, bool valid = true) {
  cp_async_16(shared_address(shared), global, valid);
}
SIE_DEVICE void cp_async_8(void *shared, const void *global, bool valid = true) {
  cp_async_8(shared_address(shared), global, valid);
}
SIE_DEVICE void cp_async_4(void *shared, const void *global, bool valid = true) {
  cp_async_4(shared_address(shared), global, valid);
}

SIE_DEVICE void cp_async_commit() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  simt::cp_async_commit();
#endif
}

template <int N>
SIE_DEVICE void cp_async_wait() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#else
  simt::cp_async_wait(N);
#endif
}

// Every copy of the thread, committed or not.
SIE_DEVICE void cp_async_wait_all() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  simt::cp_async_commit();
  simt::cp_async_wait(0);
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_CP_ASYNC_H
