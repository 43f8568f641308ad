// fast_math.h — the approximations of the special function unit, with the error that the PTX manual
// states. A kernel that uses one says so in its Error line. The emulator computes them exactly and
// rounds once.
#ifndef SIE_KERNELS_CUDA_PTX_FAST_MATH_H
#define SIE_KERNELS_CUDA_PTX_FAST_MATH_H

#include "cuda/ptx/device.h"

namespace ptx {

// 2^x within 2 ulp; 2^−∞ = 0, subnormal results are 0.
SIE_DEVICE float exp2_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return simt::flush(exp2f(simt::flush(x)));
#endif
}

// 1/x within 1 ulp; subnormals are 0.
SIE_DEVICE float reciprocal_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return simt::flush(simt::divide(1.0f, simt::flush(x)));
#endif
}

// 1/√x within 2^−22.9 relative.
SIE_DEVICE float rsqrt_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return simt::divide(1.0f, sqrtf(simt::flush(x)));
#endif
}

// tanh x within 2^−11 relative.
SIE_DEVICE float tanh_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return tanhf(x);
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_FAST_MATH_H
