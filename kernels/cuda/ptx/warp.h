// warp.h — exchanges and reductions between the lanes of a warp.
//
// mask names the lanes that take part: all of them call with the same mask, and none has exited.
// The emulator aborts where a lane is missing, calls with another mask, or is not in its own mask;
// a device hangs or computes rubbish. A value shuffled from a lane outside the mask is undefined
// (poison under emulation).
#ifndef SIE_KERNELS_CUDA_PTX_WARP_H
#define SIE_KERNELS_CUDA_PTX_WARP_H

#include "cuda/ptx/device.h"

namespace ptx {

constexpr uint32_t full_warp = 0xffffffffu;

SIE_DEVICE uint32_t lane_id() { return threadIdx.x & 31u; }  // blocks have one dimension, or x % 32 = 0

// T is any 4- or 8-byte type of the language: float, int, unsigned, 64-bit integers.
template <class T>
SIE_DEVICE T shuffle_xor(T value, int lane_mask, uint32_t mask = full_warp) {
#ifdef __CUDACC__
  return __shfl_xor_sync(mask, value, lane_mask);
#else
  simt::shuffle(simt::Shuffle::exclusive_or, mask, &value, sizeof value, lane_mask);
  return value;
#endif
}

// From lane `source` of the warp.
template <class T>
SIE_DEVICE T shuffle_from(T value, int source, uint32_t mask = full_warp) {
#ifdef __CUDACC__
  return __shfl_sync(mask, value, source);
#else
  simt::shuffle(simt::Shuffle::from, mask, &value, sizeof value, source);
  return value;
#endif
}

// From lane + delta; the last delta lanes keep their own.
template <class T>
SIE_DEVICE T shuffle_down(T value, unsigned delta, uint32_t mask = full_warp) {
#ifdef __CUDACC__
  return __shfl_down_sync(mask, value, delta);
#else
  simt::shuffle(simt::Shuffle::down, mask, &value, sizeof value, static_cast<int>(delta));
  return value;
#endif
}

// From lane − delta; the first delta lanes keep their own.
template <class T>
SIE_DEVICE T shuffle_up(T value, unsigned delta, uint32_t mask = full_warp) {
#ifdef __CUDACC__
  return __shfl_up_sync(mask, value, delta);
#else
  simt::shuffle(simt::Shuffle::up, mask, &value, sizeof value, static_cast<int>(delta));
  return value;
#endif
}

// Bit l: predicate of lane l.
SIE_DEVICE uint32_t ballot(bool predicate, uint32_t mask = full_warp) {
#ifdef __CUDACC__
  return __ballot_sync(mask, predicate);
#else
  return simt::ballot(mask, predicate);
#endif
}

SIE_DEVICE bool warp_any(bool predicate, uint32_t mask = full_warp) { return ballot(predicate, mask) != 0; }
SIE_DEVICE bool warp_all(bool predicate, uint32_t mask = full_warp) {
  return ballot(predicate, mask) == mask;
}

// redux.sync: over the lanes of mask, the same result in each.
SIE_DEVICE uint32_t reduce_add(uint32_t value, uint32_t mask = full_warp) {
#ifdef __CUDACC__
  return __reduce_add_sync(mask, value);
#else
  return simt::reduce(simt::Reduce::add, mask, value);
#endif
}
SIE_DEVICE uint32_t reduce_min(uint32_t value, uint32_t mask = full_warp) {
#ifdef __CUDACC__
  return __reduce_min_sync(mask, value);
#else
  return simt::reduce(simt::Reduce::min, mask, value);
#endif
}
SIE_DEVICE uint32_t reduce_max(uint32_t value, uint32_t mask = full_warp) {
#ifdef __CUDACC__
  return __reduce_max_sync(mask, value);
#else
  return simt::reduce(simt::Reduce::max, mask, value);
#endif
}
SIE_DEVICE uint32_t reduce_or(uint32_t value, uint32_t mask = full_warp) {
#ifdef __CUDACC__
  return __reduce_or_sync(mask, value);
#else
  return simt::reduce(simt::Reduce::bit_or, mask, value);
#endif
}

// Orders the shared and global memory accesses of the lanes of mask.
SIE_DEVICE void sync_warp(uint32_t mask = full_warp) {
#ifdef __CUDACC__
  __syncwarp(mask);
#else
  simt::sync_warp(mask);
#endif
}

// One lane of a converged warp (the first): true there, false in the others.
SIE_DEVICE bool elect_one() {
#if SIE_PTX_SM90
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.b32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(elected));
  return elected != 0;
#else
  sync_warp();
  return lane_id() == 0;
#endif
}

// Butterfly over the whole warp, fixed order 16, 8, 4, 2, 1: the same bits in every lane and every
// run.
SIE_DEVICE float warp_sum(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += shuffle_xor(value, step);
  return value;
}
SIE_DEVICE float warp_max(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, shuffle_xor(value, step));
  return value;
}
SIE_DEVICE float warp_min(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = fminf(value, shuffle_xor(value, step));
  return value;
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_WARP_H
