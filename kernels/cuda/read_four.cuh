// read_four.cuh — four neighbouring floats of shared memory, by one access.
#ifndef SIE_KERNELS_CUDA_READ_FOUR_CUH
#define SIE_KERNELS_CUDA_READ_FOUR_CUH

#include "cuda/ptx/vector.h"

namespace sie_cuda {

SIE_DEVICE void read_four(const float *from, float (&v)[4]) {
  const float4 q = ptx::load_shared<float4>(from);
  v[0] = q.x;
  v[1] = q.y;
  v[2] = q.z;
  v[3] = q.w;
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_READ_FOUR_CUH
