// layernorm.cu — instances and launcher.
#include "cuda/layernorm.cuh"
#include "cuda/rows.h"

namespace sie_cuda {

namespace {

template <Storage S, class Shape>
sie_status launch_shape(const sie_layernorm_args &a, const sie_stream *on) {
  constexpr int V = Shape::V, W = Shape::W;
  const uint32_t grid = row_grid(a.rows.cap, W);
  if (a.residual.p != nullptr) {
    return SIE_LAUNCH((layernorm_kernel<S, V, W, true>), grid, row_threads, slot_bytes<W>(norm_reductions),
                      on, a);
  }
  return SIE_LAUNCH((layernorm_kernel<S, V, W, false>), grid, row_threads, slot_bytes<W>(norm_reductions), on,
                    a);
}

sie_status check(const sie_layernorm_args &a, bool empty) {
  if (a.c < 1 || missing(empty, a.gamma, a.rows.n) || !valid_rows(a.x, a.c, empty))
    return SIE_INVALID_ARGUMENT;
  if (a.norm != SIE_NORM_LAYER && a.norm != SIE_NORM_RMS) return SIE_INVALID_ARGUMENT;
  if (!empty && a.y.p == nullptr && a.yq.p == nullptr) return SIE_INVALID_ARGUMENT;
  if (a.c > row_columns_max) return SIE_UNSUPPORTED;
  const sie_status status = check_float_rows(a.c, a.x, a.residual, a.sum, a.y);
  return status == SIE_OK ? check_f8_rows(a.yq, a.c, -1) : status;
}

}  // namespace

sie_status layernorm(const sie_layernorm_args *args, const sie_share *share) {
  const sie_layernorm_args &a = *args;
  bool empty;
  sie_status status = check_launch(share, a.rows, &empty);
  if (status == SIE_OK) status = check(a, empty);
  if (status != SIE_OK || empty) return status;
  Storage storage = storage_of(a.c, a.x, a.residual, a.sum, a.y);
  if (!aligned_vector(a.gamma) || !aligned_vector(a.beta) || !aligned_vector(a.bias) ||
      !aligned_rows(a.yq, 1)) {
    storage = Storage::any;
  }
  return with_row_shape(a.c, [&](auto shape) {
    using Shape = decltype(shape);
    switch (storage) {
      case Storage::bf16:
        return launch_shape<Storage::bf16, Shape>(a, share->on);
      case Storage::f16:
        return launch_shape<Storage::f16, Shape>(a, share->on);
      default:
        return launch_shape<Storage::any, Shape>(a, share->on);
    }
  });
}

}  // namespace sie_cuda
