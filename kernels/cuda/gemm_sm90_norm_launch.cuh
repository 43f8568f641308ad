// gemm_sm90_norm_launch.cuh — tensor maps, grid and launch of one instance. Included by the files of
// instances only.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_NORM_LAUNCH_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_NORM_LAUNCH_CUH

#include "cuda/cost.h"
#include "cuda/gemm_sm90_launch.cuh"
#include "cuda/gemm_sm90_norm.h"
#include "cuda/gemm_sm90_norm_kernel.cuh"

namespace sie_cuda {

namespace {

template <class Tile>
sie_status sm90_norm_launch(const GemmCall &call, const sie_layernorm_args &norm) {
  const sie_linear_args &a = *call.args;
  using Ending = Sm90Ending<Tile, Sm90Form::residual>;
  ptx::TensorMap x, w, y, r;
  sie_status status = sm90_operand_maps(call, Tile::step, Tile::rows / Tile::cluster, Tile::columns, &x, &w);
  Sm90Gemm g = sm90_arguments(call, Tile::step);
  g.tiles_n = 1;
  const GemmEpilogue &e = g.epilogue;
  if (status == SIE_OK) {
    status = ptx::tensor_map_2d(&y, e.y_type, e.y, a.rows.cap, e.columns, e.y_ld, 16, Ending::line,
                                ptx::Swizzle::b128);
  }
  if (status == SIE_OK) {
    status = ptx::tensor_map_2d(&r, e.residual_type, e.residual, a.rows.cap, e.columns, e.residual_ld, 16,
                                Ending::line, ptx::Swizzle::b128);
  }
  if (status != SIE_OK) return status;
  const int64_t tiles = divide_up(a.rows.cap, Tile::rows);
  int64_t clusters = gemm_norm_clusters(Tile::cluster, call.on->multiprocessors);
  if (clusters > tiles) clusters = tiles;
  return SIE_LAUNCH_CLUSTER((gemm_sm90_norm_kernel<Tile>), Tile::cluster, clusters * Tile::cluster,
                            sm90_threads, Tile::shared_bytes, call.on, x, w, y, r, g,
                            Sm90Norm{norm.gamma, norm.beta, norm.eps, norm.weight_offset});
}

template <class Class>
sie_status sm90_norm_launch_class(int32_t form, const GemmCall &call, const sie_layernorm_args &norm) {
  switch (form) {
    case GEMM_SM90_NORM_64X192:
      return sm90_norm_launch<Sm90NormTile<Class, Sm90Norm64x192>>(call, norm);
    case GEMM_SM90_NORM_64X192_FOUR:
      return sm90_norm_launch<Sm90NormTile<Class, Sm90Norm64x192Four>>(call, norm);
    case GEMM_SM90_NORM_128X192:
      return sm90_norm_launch<Sm90NormTile<Class, Sm90Norm128x192>>(call, norm);
    case GEMM_SM90_NORM_128X192_FOUR:
      return sm90_norm_launch<Sm90NormTile<Class, Sm90Norm128x192Four>>(call, norm);
    case GEMM_SM90_NORM_128X128_EIGHT:
      return sm90_norm_launch<Sm90NormTile<Class, Sm90Norm128x128Eight>>(call, norm);
    case GEMM_SM90_NORM_128X256_FOUR:
      return sm90_norm_launch<Sm90NormTile<Class, Sm90NormCooperative128x256Four>>(call, norm);
    default:
      return SIE_UNSUPPORTED;
  }
}

}  // namespace

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_NORM_LAUNCH_CUH
