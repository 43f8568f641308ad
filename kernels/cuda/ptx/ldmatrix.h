// ldmatrix.h — 8×8 matrices of 16-bit elements between shared memory and fragments; whole warps
// only.
//
// A matrix is eight rows of 16 bytes anywhere in shared memory, each 16-byte aligned. Lane 8m + r
// gives the row r of matrix m (x1: lanes 0-7, x2: 0-15, x4: all; the other lanes' addresses are not
// used). Afterwards lane l holds of each matrix the elements (row l/4, columns 2(l%4), +1), the
// lower column in the low half: one register of an mma operand. _trans: the transposed matrix,
// elements (rows 2(l%4), +1, column l/4). Bytes of e4m3 load alike, as pairs. Source: PTX ISA 9.0,
// ldmatrix and stmatrix.
#ifndef SIE_KERNELS_CUDA_PTX_LDMATRIX_H
#define SIE_KERNELS_CUDA_PTX_LDMATRIX_H

#include "cuda/ptx/device.h"

namespace ptx {

SIE_DEVICE void ldmatrix_x1(uint32_t (&r)[1], uint32_t row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(row) : "memory");
#else
  simt::ldmatrix(r, 1, false, row);
#endif
}

SIE_DEVICE void ldmatrix_x2(uint32_t (&r)[2], uint32_t row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(row)
               : "memory");
#else
  simt::ldmatrix(r, 2, false, row);
#endif
}

SIE_DEVICE void ldmatrix_x4(uint32_t (&r)[4], uint32_t row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
#else
  simt::ldmatrix(r, 4, false, row);
#endif
}

SIE_DEVICE void ldmatrix_x1_trans(uint32_t (&r)[1], uint32_t row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(r[0])
               : "r"(row)
               : "memory");
#else
  simt::ldmatrix(r, 1, true, row);
#endif
}

SIE_DEVICE void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(row)
               : "memory");
#else
  simt::ldmatrix(r, 2, true, row);
#endif
}

SIE_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
#else
  simt::ldmatrix(r, 4, true, row);
#endif
}

// stmatrix (sm_90): from fragments to shared memory, where the caller's are visible after the
// warp's next barrier.
SIE_DEVICE void stmatrix_x2(uint32_t row, const uint32_t (&r)[2]) {
#ifndef __CUDACC__
  simt::stmatrix(r, 2, false, row);
#elif SIE_PTX_SM90
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(r[0]), "r"(r[1])
               : "memory");
#else
  unsupported();
#endif
}

SIE_DEVICE void stmatrix_x4(uint32_t row, const uint32_t (&r)[4]) {
#ifndef __CUDACC__
  simt::stmatrix(r, 4, false, row);
#elif SIE_PTX_SM90
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
#else
  unsupported();
#endif
}

SIE_DEVICE void stmatrix_x4_trans(uint32_t row, const uint32_t (&r)[4]) {
#ifndef __CUDACC__
  simt::stmatrix(r, 4, true, row);
#elif SIE_PTX_SM90
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
#else
  unsupported();
#endif
}

// The same by pointer into the CTA's shared memory.
SIE_DEVICE void ldmatrix_x1(uint32_t (&r)[1], const void *row) { ldmatrix_x1(r, shared_address(row)); }
SIE_DEVICE void ldmatrix_x2(uint32_t (&r)[2], const void *row) { ldmatrix_x2(r, shared_address(row)); }
SIE_DEVICE void ldmatrix_x4(uint32_t (&r)[4], const void *row) { ldmatrix_x4(r, shared_address(row)); }
SIE_DEVICE void ldmatrix_x1_trans(uint32_t (&r)[1], const void *row) {
  ldmatrix_x1_trans(r, shared_address(row));
}
SIE_DEVICE void ldmatrix_x2_trans(uint32_t (&r)[2], const void *row) {
  ldmatrix_x2_trans(r, shared_address(row));
}
SIE_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row) {
  ldmatrix_x4_trans(r, shared_address(row));
}
SIE_DEVICE void stmatrix_x2(void *row, const uint32_t (&r)[2]) { stmatrix_x2(shared_address(row), r); }
SIE_DEVICE void stmatrix_x4(void *row, const uint32_t (&r)[4]) { stmatrix_x4(shared_address(row), r); }
SIE_DEVICE void stmatrix_x4_trans(void *row, const uint32_t (&r)[4]) {
  stmatrix_x4_trans(shared_address(row), r);
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_LDMATRIX_H
