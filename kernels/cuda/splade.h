// splade.h — the launcher of SPLADE maxima, for the tables, and what it passes to the instances of
// its GEMM.
//
// It refuses before it launches what gemm_call refuses of the linear inside. SIE_INVALID_ARGUMENT
// also: a share that is not the whole or has no stream, and missing pointers. SIE_UNSUPPORTED also:
// y that is not f32, class F32, more than 2²⁰ columns, FP8 on GPUs without a product of e4m3 (sm_80
// … 88, 100 … 119), and devices below sm_80. No sequences launch nothing.
#ifndef SIE_KERNELS_CUDA_SPLADE_H
#define SIE_KERNELS_CUDA_SPLADE_H

#include "cuda/gemm_call.h"
#include "cuda/gemm_sm80_instances.h"
#include "cuda/gemm_sm90_launch.h"

namespace sie_cuda {

sie_status splade(const sie_splade_args *, const sie_share *);

// The destination of the maxima.
struct SpladeTarget {
  const int32_t *seqs;        // *n, on the device
  const int32_t *cu_seqlens;  // [*seqs + 1]
  float *y;                   // [B, y_ld], zeros at the start
  int64_t y_ld;
};

// All arguments of a launch without wgmma; the kernel's one parameter. Of the epilogue only n and
// bias are read.
struct SpladeSm80Args {
  GemmSm80Args gemm;
  SpladeTarget to;
};

// A tile variant as the launcher sees it.
struct SpladeSm80Instance {
  int32_t rows, columns, line;
  sie_status (*launch)(const SpladeSm80Args &, uint32_t ctas, const sie_stream *);
};

// In order from the largest tile; a tile also takes the rows of a smaller one.
constexpr int32_t splade_sm80_16bit_count = 3, splade_sm80_fp8_count = 2;
extern const SpladeSm80Instance splade_sm80_bf16[splade_sm80_16bit_count];
extern const SpladeSm80Instance splade_sm80_f16[splade_sm80_16bit_count];
extern const SpladeSm80Instance splade_sm80_fp8[splade_sm80_fp8_count];

// The tile of sm_90 for so many rows at most. One tile of rows has none for the other half of a pair; from there on
// these pairs are as fast as any by the cost model: 16,384 rows in bf16 970 us, by 128 x 128 alone 1,194.
constexpr int32_t splade_sm90_tile(bool fp8, int64_t rows) {
  if (rows <= 64) return GEMM_SM90_PINGPONG_64X128;
  if (rows <= 128) return GEMM_SM90_PINGPONG_128X128;
  return fp8 ? GEMM_SM90_PINGPONG_128X128_PAIR : GEMM_SM90_PINGPONG_128X192_PAIR;
}

// On sm_90, one function a class.
sie_status splade_sm90_bf16(const GemmCall &call, const SpladeTarget &to);
sie_status splade_sm90_f16(const GemmCall &call, const SpladeTarget &to);
sie_status splade_sm90_e4m3(const GemmCall &call, const SpladeTarget &to);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_SPLADE_H
