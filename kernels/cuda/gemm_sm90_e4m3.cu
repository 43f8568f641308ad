// gemm_sm90_e4m3.cu — instances of class FP8. A block of sums beside those it is promoted into: at most 128
// columns a wgmma.
#include "cuda/gemm_sm90_launch.cuh"

namespace sie_cuda {

sie_status gemm_sm90_e4m3(int32_t variant, const GemmSm90Call &call) {
  using Class = Sm90Class<ptx::Operand::e4m3>;
  switch (variant) {
    case GEMM_SM90_PINGPONG_64X128:
      return sm90_launch<Sm90Tile<Class, 64, 128, 128, false, 1>>(call);
    case GEMM_SM90_PINGPONG_128X128:
      return sm90_launch<Sm90Tile<Class, 128, 128, 128, false, 1>>(call);
    case GEMM_SM90_PINGPONG_128X128_PAIR:
      return sm90_launch<Sm90Tile<Class, 128, 128, 128, false, 2>>(call);
    case GEMM_SM90_COOPERATIVE_128X256:
      return sm90_launch<Sm90Tile<Class, 64, 256, 128, true, 1>>(call);
    case GEMM_SM90_COOPERATIVE_128X256_PAIR:
      return sm90_launch<Sm90Tile<Class, 64, 256, 128, true, 2>>(call);
    default:
      return SIE_UNSUPPORTED;
  }
}

}  // namespace sie_cuda
