// gemm_sm90_norm.h — linear_norm by one kernel on Hopper (gemm_sm90_norm_kernel.cuh), for classes BF16 and
// F16.
//
// All forms give the bits of linear and layernorm, one behind the other (gemm_sm90_norm_test.cc): the choice changes
// speed alone and may depend on the rows.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_NORM_H
#define SIE_KERNELS_CUDA_GEMM_SM90_NORM_H

#include "cuda/gemm_call.h"
#include "ops.h"

namespace sie_cuda {

// A tile of gemm_sm90_norm_tiles.h.
struct GemmSm90NormForm {
  const char *name;
  int32_t rows, columns, warpgroup_rows, cluster;
  int32_t code;  // bytes of its kernel, as gemm_sm90_code.h has them
};

enum GemmSm90NormIndex : int32_t {
  GEMM_SM90_NORM_64X192 = 0,
  GEMM_SM90_NORM_64X192_FOUR,
  GEMM_SM90_NORM_128X192,
  GEMM_SM90_NORM_128X192_FOUR,
  GEMM_SM90_NORM_128X128_EIGHT,
  GEMM_SM90_NORM_128X256_FOUR,
  GEMM_SM90_NORM_COUNT
};

// The forms by index; NULL past the last.
const GemmSm90NormForm *gemm_sm90_norm_form(int32_t index);

// Whether the form takes the call, which linear_norm has checked: a row is as wide as its cluster; LayerNorm;
// no gate, activation or addend; a residual of y's type, which is x's; x, y and residual at multiples of 16
// bytes, and bias, γ and β too.
bool gemm_sm90_norm_takes(int32_t form, const sie_linear_norm_args *args, const sie_stream *on);

// The form that the cost model finds fastest for a row of n columns, k of x and so many rows, −1 where linear
// and layernorm are faster or no form is so wide.
int32_t gemm_sm90_norm_pick(uint32_t compute, int64_t rows, int64_t n, int64_t k, const sie_stream &on);

// linear_norm by one form; no scratch. Host function, asynchronous. SIE_UNSUPPORTED: a form that does not take the
// call. Nothing is written behind row *n.
sie_status gemm_sm90_norm_run(int32_t form, const sie_linear_norm_args *args, const sie_stream *on);

// One function a class, in the files of instances.
sie_status gemm_sm90_norm_bf16(int32_t form, const GemmCall &call, const sie_layernorm_args &norm);
sie_status gemm_sm90_norm_f16(int32_t form, const GemmCall &call, const sie_layernorm_args &norm);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_NORM_H
