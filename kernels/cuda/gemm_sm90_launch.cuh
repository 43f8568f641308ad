// gemm_sm90_launch.cuh — tensor maps, grid and launch of one instance. Included by the files of
// instances only.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_LAUNCH_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_LAUNCH_CUH

#include "cuda/gemm_sm90_kernel.cuh"
#include "cuda/gemm_sm90_launch.h"
#include "cuda/ptx/launch.h"

namespace sie_cuda {

namespace {

// Boxes of one 128-byte K step by box_rows rows. Columns behind K and rows behind the matrix arrive
// as zeros.
inline sie_status sm90_operand_maps(const GemmCall &call, int32_t step, int32_t x_box_rows,
                                    int32_t w_box_rows, ptx::TensorMap *x, ptx::TensorMap *w) {
  const sie_linear_args &a = *call.args;
  sie_status status =
      ptx::tensor_map_2d(x, a.x.dtype, a.x.p, a.rows.cap, a.k, a.x.ld, x_box_rows, step, ptx::Swizzle::b128);
  if (status != SIE_OK) return status;
  return ptx::tensor_map_2d(w, a.x.dtype, a.w->data, call.layout.n_padded, call.layout.k_padded,
                            call.layout.k_padded, w_box_rows, step, ptx::Swizzle::b128);
}

inline Sm90Gemm sm90_arguments(const GemmCall &call, int32_t step) {
  const sie_linear_args &a = *call.args;
  Sm90Gemm g = {};
  g.rows = a.rows.n;
  g.steps = static_cast<int32_t>(divide_up(a.k, step));
  g.w_scale = call.w_scale;
  if (g.w_scale != nullptr) (call.block_scales ? g.block_scale : g.row_scale) = a.x.scale;
  g.epilogue = call.epilogue;
  return g;
}

template <class Tile, Sm90Form Form>
sie_status sm90_launch(const GemmCall &call) {
  const sie_linear_args &a = *call.args;
  ptx::TensorMap x, w, y = {}, r = {};
  sie_status status = sm90_operand_maps(call, Tile::step, Tile::rows, Tile::columns / Tile::cluster, &x, &w);
  if (status != SIE_OK) return status;
  Sm90Gemm g = sm90_arguments(call, Tile::step);
  if constexpr (Form != Sm90Form::any) {
    using Ending = Sm90Ending<Tile, Form>;
    const GemmEpilogue &e = g.epilogue;
    status = ptx::tensor_map_2d(&y, e.y_type, e.y, a.rows.cap, e.columns, e.y_ld, 16, Ending::line,
                                ptx::Swizzle::b128);
    if (status == SIE_OK && Ending::residual != 0) {
      status = ptx::tensor_map_2d(&r, e.residual_type, e.residual, a.rows.cap, e.columns, e.residual_ld, 16,
                                  Ending::line, ptx::Swizzle::b128);
    }
    if (status != SIE_OK) return status;
  }
  const int64_t tiles_m = divide_up(a.rows.cap, Tile::rows * Tile::cluster);
  const int64_t tiles_n = divide_up(a.n, Tile::columns);
  if (tiles_m * tiles_n > INT32_MAX / 4) return SIE_UNSUPPORTED;
  g.tiles_n = static_cast<int32_t>(tiles_n);
  int64_t clusters = call.on->multiprocessors / Tile::cluster;
  if (clusters < 1) clusters = 1;
  if (clusters > tiles_m * tiles_n) clusters = tiles_m * tiles_n;
  return SIE_LAUNCH_CLUSTER((gemm_sm90_kernel<Tile, Form>), Tile::cluster, clusters * Tile::cluster,
                            sm90_threads, Tile::shared_bytes, call.on, x, w, y, r, g);
}

// Whether y's rows can be a tensor map's.
inline bool sm90_y_by_tma(const GemmEpilogue &e) {
  const int32_t element = e.y_type == SIE_F32 ? 4 : (e.y_type == SIE_F8E4M3 ? 1 : 2);
  return reinterpret_cast<uintptr_t>(e.y) % 16 == 0 && e.y_ld * element % 16 == 0;
}

// Launches the hot form, if it is what the call needs and the tile has whole lines of its y.
template <class Tile, Sm90Form Form>
bool sm90_launched(const GemmCall &call, sie_status *status) {
  using Ending = Sm90Ending<Tile, Form>;
  if constexpr (Tile::columns % Ending::columns == 0) {
    if (Ending::is(call.epilogue, sm90_y_by_tma(call.epilogue))) {
      *status = sm90_launch<Tile, Form>(call);
      return true;
    }
  }
  return false;
}

// The instance whose epilogue does what the call needs.
template <class Tile>
sie_status sm90_launch(const GemmCall &call) {
  sie_status status = SIE_OK;
  const bool hot = sm90_launched<Tile, Sm90Form::plain>(call, &status) ||
                   sm90_launched<Tile, Sm90Form::residual>(call, &status) ||
                   sm90_launched<Tile, Sm90Form::residual_f32>(call, &status) ||
                   sm90_launched<Tile, Sm90Form::gelu>(call, &status) ||
                   sm90_launched<Tile, Sm90Form::swiglu>(call, &status) ||
                   sm90_launched<Tile, Sm90Form::geglu>(call, &status);
  return hot ? status : sm90_launch<Tile, Sm90Form::any>(call);
}

// The tiles of a class. FP8 has no registers for one of 192 columns (Sm90Tile).
template <class Class>
sie_status sm90_launch_class(int32_t variant, const GemmCall &call) {
  switch (variant) {
    case GEMM_SM90_PINGPONG_64X128:
      return sm90_launch<Sm90Tile<Class, Sm90Pingpong64x128>>(call);
    case GEMM_SM90_PINGPONG_128X128:
      return sm90_launch<Sm90Tile<Class, Sm90Pingpong128x128>>(call);
    case GEMM_SM90_PINGPONG_128X128_PAIR:
      return sm90_launch<Sm90Tile<Class, Sm90Pingpong128x128Pair>>(call);
    case GEMM_SM90_PINGPONG_128X192:
      if constexpr (!Class::promoted) return sm90_launch<Sm90Tile<Class, Sm90Pingpong128x192>>(call);
      return SIE_UNSUPPORTED;
    case GEMM_SM90_PINGPONG_128X192_PAIR:
      if constexpr (!Class::promoted) return sm90_launch<Sm90Tile<Class, Sm90Pingpong128x192Pair>>(call);
      return SIE_UNSUPPORTED;
    case GEMM_SM90_COOPERATIVE_128X256:
      return sm90_launch<Sm90Tile<Class, Sm90Cooperative128x256>>(call);
    case GEMM_SM90_COOPERATIVE_128X256_PAIR:
      return sm90_launch<Sm90Tile<Class, Sm90Cooperative128x256Pair>>(call);
    default:
      return SIE_UNSUPPORTED;
  }
}

}  // namespace

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_LAUNCH_CUH
