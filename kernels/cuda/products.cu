// products.cu — launchers of product and dots.
#include "cuda/products.cuh"

#include "cuda/places.h"

namespace sie_cuda {

sie_status product(const sie_product_args *args, const sie_share *share) {
  const sie_product_args &a = *args;
  bool empty;
  const sie_status status = check_launch(share, a.rows, &empty);
  if (status != SIE_OK) return status;
  if (a.c < 1 || missing(empty, a.rows.n)) return SIE_INVALID_ARGUMENT;
  if (!valid_rows(a.a, a.c, empty) || !valid_rows(a.b, a.c, empty) || !valid_rows(a.y, a.c, empty))
    return SIE_INVALID_ARGUMENT;
  if (!is_float(a.a.dtype) || !is_float(a.b.dtype) || !is_float(a.y.dtype) || a.c > max_columns)
    return SIE_UNSUPPORTED;
  if (empty) return SIE_OK;
  return SIE_LAUNCH(product_kernel, row_grid(a.rows.cap, 1), row_threads, 0, share->on, a);
}

sie_status dots(const sie_dots_args *args, const sie_share *share) {
  const sie_dots_args &a = *args;
  bool empty;
  const sie_status status = check_launch(share, a.rows, &empty);
  if (status != SIE_OK) return status;
  if (a.c < 1 || missing(empty, a.rows.n)) return SIE_INVALID_ARGUMENT;
  if (!valid_rows(a.a, a.c, empty) || !valid_rows(a.b, a.c, empty) || !valid_rows(a.y, 1, empty))
    return SIE_INVALID_ARGUMENT;
  if (!is_float(a.a.dtype) || !is_float(a.b.dtype) || a.y.dtype != SIE_F32 || a.c > max_columns)
    return SIE_UNSUPPORTED;
  if (empty) return SIE_OK;
  constexpr int64_t rows = dots_warps * dots_rows;
  return SIE_LAUNCH(dots_kernel, static_cast<uint32_t>((a.rows.cap + rows - 1) / rows), dots_threads,
                    dots_shared_bytes, share->on, a);
}

}  // namespace sie_cuda
