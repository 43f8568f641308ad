// vector.h — wide accesses to global and shared memory. V is uint4, uint2 or uint32_t: 16, 8 or 4
// bytes, one instruction, aligned to its size (the emulator aborts on a misaligned one, a device
// traps).
#ifndef SIE_KERNELS_CUDA_PTX_VECTOR_H
#define SIE_KERNELS_CUDA_PTX_VECTOR_H

#include "cuda/ptx/device.h"

namespace ptx {

// Whether p may be read and written as a V.
template <class V>
SIE_DEVICE bool aligned_for(const void *p) {
  return reinterpret_cast<uintptr_t>(p) % sizeof(V) == 0;
}

template <class V>
SIE_DEVICE V load_global(const void *global) {
#ifndef __CUDACC__
  simt::check_global(global, sizeof(V));
#endif
  return *static_cast<const V *>(global);
}

// Reads only where valid; elsewhere returns zeros for any pointer.
template <class V>
SIE_DEVICE V load_global_or_zero(const void *global, bool valid) {
  V v = {};
  if (valid) v = load_global<V>(global);
  return v;
}

// The count of a batch's rows. Loads that stand before this one are asked for before it: the compiler
// may not move them behind it, as it does with loads whose results only a branch on the count uses.
SIE_DEVICE int32_t load_count(const int32_t *global) {
#ifdef __CUDACC__
  int32_t n;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(n) : "l"(__cvta_generic_to_global(global)) : "memory");
  return n;
#else
  return *global;
#endif
}

// ld.global.nc: through the read-only path. Only for memory that no running kernel writes: weights
// and tables. With programmatic launch the previous kernel still runs, so never for its results.
template <class V>
SIE_DEVICE V load_global_nc(const void *global);

#ifdef __CUDACC__
template <>
SIE_DEVICE uint4 load_global_nc<uint4>(const void *global) {
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(__cvta_generic_to_global(global)));
  return v;
}
template <>
SIE_DEVICE uint2 load_global_nc<uint2>(const void *global) {
  uint2 v;
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(__cvta_generic_to_global(global)));
  return v;
}
template <>
SIE_DEVICE uint32_t load_global_nc<uint32_t>(const void *global) {
  uint32_t v;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(global)));
  return v;
}
#else
template <class V>
SIE_DEVICE V load_global_nc(const void *global) {
  return load_global<V>(global);
}
#endif

// The same for what this multiprocessor reads once: it takes no place in L1, where other rows stay.
SIE_DEVICE uint32_t load_global_once(const void *global) {
#ifdef __CUDACC__
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];"
               : "=r"(v)
               : "l"(__cvta_generic_to_global(global)));
  return v;
#else
  return load_global<uint32_t>(global);
#endif
}

template <class V>
SIE_DEVICE void store_global(void *global, const V &v) {
#ifndef __CUDACC__
  simt::check_global(global, sizeof(V));
#endif
  *static_cast<V *>(global) = v;
}

// st.global.v4: 16 bytes by one instruction. store_global leaves nvcc free to tear a store into four of 4
// bytes at a stride of 16, four times the write transactions, where the values come from different places
// (13.0 did so in attention, on 80 to 90a). It is also free to move that one among others; with this one
// everywhere layernorm and embed_layernorm spill registers.
SIE_DEVICE void store_global_whole(void *global, const uint4 &v) {
#ifdef __CUDACC__
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(global)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
#else
  store_global(global, v);
#endif
}

// From global or shared memory, whichever it is.
template <class V>
SIE_DEVICE V load_anywhere(const void *from) {
#ifndef __CUDACC__
  simt::check_global(from, sizeof(V));
#endif
  return *static_cast<const V *>(from);
}

template <class V>
SIE_DEVICE void store_anywhere(void *to, const V &v) {
#ifndef __CUDACC__
  simt::check_global(to, sizeof(V));
#endif
  *static_cast<V *>(to) = v;
}

template <class V>
SIE_DEVICE V load_shared(const void *shared) {
#ifndef __CUDACC__
  simt::check_shared(shared, sizeof(V));
#endif
  return *static_cast<const V *>(shared);
}

template <class V>
SIE_DEVICE void store_shared(void *shared, const V &v) {
#ifndef __CUDACC__
  simt::check_shared(shared, sizeof(V));
#endif
  *static_cast<V *>(shared) = v;
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_VECTOR_H
