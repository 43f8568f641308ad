// attention_part.cuh — the narrow kernel of attention.cuh for a part of a list on sm_90: the tall items
// or the short ones. The same steps, and the same bits.
#ifndef SIE_KERNELS_CUDA_ATTENTION_PART_CUH
#define SIE_KERNELS_CUDA_ATTENTION_PART_CUH

#include "cuda/attention.cuh"

namespace sie_cuda {
namespace {

template <ptx::Operand T, int D, int kWarps, With kWith>
__global__ void __launch_bounds__(kWarps * 32,
                                  (kWith == With::nothing ? attention_warps(D) : (D <= 64 ? 12 : 8)) / kWarps)
    attention_part_kernel(const __grid_constant__ AttentionParams p) {
#if !defined(__CUDA_ARCH__) || SIE_PTX_SM90A
  attend_items<T, D, kWarps, kWith, true>(p);
#endif
}

// Host.
template <int D, int kWarps, With kWith>
sie_status attention_start_part(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                const sie_stream *on, const AttentionParams &params) {
  const dim3 grid(static_cast<unsigned>(params.heads), static_cast<unsigned>(ctas));
  if (dtype == SIE_BF16)
    return SIE_LAUNCH((attention_part_kernel<ptx::Operand::bf16, D, kWarps, kWith>), grid, kWarps * 32,
                      shape.shared_bytes, on, params);
  return SIE_LAUNCH((attention_part_kernel<ptx::Operand::f16, D, kWarps, kWith>), grid, kWarps * 32,
                    shape.shared_bytes, on, params);
}

template <int D, With kWith>
sie_status attention_start_part_with(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                     const sie_stream *on, const AttentionParams &params) {
  if constexpr (D <= 128) {
    if (shape.warps == 8) return attention_start_part<D, 8, kWith>(dtype, shape, ctas, on, params);
  }
  return attention_start_part<D, 4, kWith>(dtype, shape, ctas, on, params);
}

template <int D>
sie_status attention_start_part(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                const sie_stream *on, const AttentionParams &params) {
  return params.prefix_k != nullptr
             ? attention_start_part_with<D, With::prefix>(dtype, shape, ctas, on, params)
             : attention_start_part_with<D, With::nothing>(dtype, shape, ctas, on, params);
}

}  // namespace
}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_PART_CUH
