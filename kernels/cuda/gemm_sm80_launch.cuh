// gemm_sm80_launch.cuh — starts one tile variant. Included by the files of instances only.
#ifndef SIE_KERNELS_CUDA_GEMM_SM80_LAUNCH_CUH
#define SIE_KERNELS_CUDA_GEMM_SM80_LAUNCH_CUH

#include "cuda/gemm_sm80.cuh"
#include "cuda/gemm_sm80_instances.h"
#include "cuda/ptx/launch.h"

namespace sie_cuda {

namespace {

template <class Tile>
sie_status gemm_sm80_launch(const GemmSm80Args &a, uint32_t ctas, const sie_stream *on) {
  return SIE_LAUNCH((gemm_sm80_kernel<Tile>), ctas, Tile::threads, Tile::shared_bytes, on, a);
}

}  // namespace

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM80_LAUNCH_CUH
