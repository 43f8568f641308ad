// e4m3_scale.cuh — the scale of e4m3 elements, of a row or of a block (sie_tensor).
#ifndef SIE_KERNELS_CUDA_E4M3_SCALE_CUH
#define SIE_KERNELS_CUDA_E4M3_SCALE_CUH

#include "cuda/ptx/device.h"

namespace sie_cuda {

// The scale of elements whose largest magnitude is given, and the factor that they are multiplied by.
SIE_DEVICE float e4m3_scale(float largest) {
  const float scale = __fdiv_rn(largest, 448.0f);
  return scale < 7.888609052210118e-31f ? 1.0f : scale;  // 2⁻¹⁰⁰
}
SIE_DEVICE float e4m3_inverse(float scale) { return __fdiv_rn(1.0f, scale); }

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_E4M3_SCALE_CUH
