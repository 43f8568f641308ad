// gemm_pack.h — the memory layout of a linear weight for the CUDA GEMMs, and its packing on the
// host.
//
// One layout serves every architecture, so a packed weight file serves all GPUs. It is W as the
// checkpoint has it, row-major [N, K] ("K-major"). Every row is padded with zeros to a whole number
// of 128-byte lines, and the row count with zero rows to a multiple of 128:
//
//   rows     n_padded × k_padded elements      F32: f32;  16-bit classes: bf16 or f16;  FP8: e4m3
//   scales   n_padded × f32, at scale_offset   FP8 only: W[n, k] ≈ scales[n]·e4m3[n, k]
//
// 128 bytes is the TMA swizzle line, a K step of wgmma (64 × 16 bit, 128 × 8 bit) and the promotion
// interval of the fp8 class; a kernel that copies 16-byte pieces needs no bound check in K. 128
// rows is the largest power of two that a tile of weights has: a kernel with tiles of at most 128
// rows needs no bound check in N when it reads (it does when it writes). Rounding is to nearest,
// ties to even. The e4m3 rows and their scales are those of sie_tensor with scale_group −1 (ops.h);
// padding rows have zero scales and elements.
#ifndef SIE_KERNELS_CUDA_GEMM_PACK_H
#define SIE_KERNELS_CUDA_GEMM_PACK_H

#include <stdint.h>

namespace sie_cuda {

struct GemmLayout {
  int64_t n_padded, k_padded;  // in rows and elements; k_padded is the row stride
  int64_t element;             // bytes an element
  int64_t scale_offset;        // bytes from the start to scales; -1: the class has none
  int64_t bytes;               // all of it
};

// Fills the layout of an [n, k] weight, n, k ≥ 1. Returns false where GPUs lack the class
// (sie_compute INT8).
bool gemm_layout(uint32_t compute, int64_t n, int64_t k, GemmLayout *layout);

// The table's packed_bytes (-1: no such class) and pack (ops.h), host memory.
int64_t gemm_packed_bytes(uint32_t compute, int64_t n, int64_t k);
void gemm_pack(uint32_t compute, int64_t n, int64_t k, int64_t n0, int64_t rows, const float *src, int64_t ld,
               void *dst);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_PACK_H
