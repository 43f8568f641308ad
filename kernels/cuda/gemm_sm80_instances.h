// gemm_sm80_instances.h — what the launcher passes to the tile variants. Private to gemm_sm80*.
#ifndef SIE_KERNELS_CUDA_GEMM_SM80_INSTANCES_H
#define SIE_KERNELS_CUDA_GEMM_SM80_INSTANCES_H

#include "cuda/gemm_sm80.h"

namespace sie_cuda {

// All arguments of a launch; the kernel's one parameter.
struct GemmSm80Args {
  const int32_t *rows;   // *n, on the device
  const uint8_t *x, *w;  // 16-byte aligned
  const float *x_scale;  // e4m3: [R, x_scale_ld]
  const float *w_scale;  // e4m3: [N padded to 128]
  int64_t x_row, w_row;  // bytes between rows
  int64_t x_scale_ld;    // 1: one scale a row; else blocks a row
  int32_t k_bytes;       // of a row of x
  int32_t lines;         // ⌈k_bytes/Line⌉
  int32_t row_tiles, column_tiles;
  bool block_scales;  // x_scale is per 1×128 block
  GemmEpilogue epilogue;
};

// A variant as the launcher sees it.
struct GemmSm80Instance {
  GemmSm80Variant shape;
  int32_t line;         // bytes of k a stage holds
  int32_t min_ctas;     // an SM, as far as registers go
  int32_t shared_rows;  // lines through shared memory a stage: written once, read by each warp in need
  int32_t shared_bytes;
  sie_status (*launch)(const GemmSm80Args &, uint32_t ctas, const sie_stream *);
};

constexpr int32_t gemm_sm80_16bit_count = 6, gemm_sm80_fp8_count = 4;
extern const GemmSm80Instance gemm_sm80_bf16[gemm_sm80_16bit_count];
extern const GemmSm80Instance gemm_sm80_f16[gemm_sm80_16bit_count];
extern const GemmSm80Instance gemm_sm80_fp8[gemm_sm80_fp8_count];

}  // namespace sie_cuda

// Used in a .cu file of one class: the table entry of an instance. R, C: rows and columns; WR, WC:
// warps; L: line; S: stages; M: the CTAs an SM that registers must leave room for.
#define SIE_GEMM_SM80_INSTANCE(OPERAND, R, C, WR, WC, L, S, M)               \
  {{#R "x" #C "x" #L "s" #S, R, C},                                          \
   L,                                                                        \
   M,                                                                        \
   R + C + WC * R + WR * C,                                                  \
   GemmSm80Tile<ptx::Operand::OPERAND, R, C, WR, WC, L, S, M>::shared_bytes, \
   gemm_sm80_launch<GemmSm80Tile<ptx::Operand::OPERAND, R, C, WR, WC, L, S, M>>}

#define SIE_GEMM_SM80_16BIT(OPERAND)                          \
  {SIE_GEMM_SM80_INSTANCE(OPERAND, 128, 256, 2, 4, 64, 4, 1), \
   SIE_GEMM_SM80_INSTANCE(OPERAND, 128, 128, 2, 2, 64, 3, 2), \
   SIE_GEMM_SM80_INSTANCE(OPERAND, 64, 128, 2, 2, 64, 4, 3),  \
   SIE_GEMM_SM80_INSTANCE(OPERAND, 64, 64, 2, 2, 128, 3, 3),  \
   SIE_GEMM_SM80_INSTANCE(OPERAND, 32, 32, 2, 2, 128, 6, 3),  \
   SIE_GEMM_SM80_INSTANCE(OPERAND, 16, 32, 1, 2, 128, 8, 3)}

#endif  // SIE_KERNELS_CUDA_GEMM_SM80_INSTANCES_H
