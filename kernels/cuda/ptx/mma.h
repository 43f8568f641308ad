// mma.h — D = A·B + D on tensor cores, one warp: A [16, K], B [K, 8], D [16, 8] in f32.
//
//   bf16, f16  K = 16 (sm_80)
//   e4m3       K = 32 (sm_89; on sm_90 use wgmma: mma unpacks e4m3 to f16 there)
//
// Fragments, lane l, with g = l/4 and t = l%4 (16-bit types; two elements a register, the lower
// index low):
//   a[0] rows g,   k 2t, 2t+1      a[1] row g+8, same k      a[2], a[3] the same with k + 8
//   b0   k 2t, 2t+1, column g      b1   k + 8
//   d[0], d[1] row g, columns 2t, 2t+1      d[2], d[3] row g+8
// e4m3: four elements a register, k 4t … 4t+3, and + 16 in place of + 8. The whole warp calls. The
// order of the sum is the hardware's: fixed, not IEEE sequential. Source: PTX ISA 9.0, mma.m16n8k16
// and mma.m16n8k32.
#ifndef SIE_KERNELS_CUDA_PTX_MMA_H
#define SIE_KERNELS_CUDA_PTX_MMA_H

#include "cuda/ptx/device.h"

namespace ptx {

#define SIE_PTX_MMA(SHAPE, TYPES)                                                     \
  asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPES                        \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

template <Operand T>
SIE_DEVICE void mma_m16n8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifndef __CUDACC__
  simt::mma(static_cast<simt::Element>(T), d, a, b0, b1);
#else
  if (T == Operand::bf16) {
    SIE_PTX_MMA("m16n8k16", "bf16.bf16");
  } else if (T == Operand::f16) {
    SIE_PTX_MMA("m16n8k16", "f16.f16");
  } else {
#if SIE_PTX_SM89
    SIE_PTX_MMA("m16n8k32", "e4m3.e4m3");
#else
    unsupported();
#endif
  }
#endif
}

#undef SIE_PTX_MMA

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_MMA_H
