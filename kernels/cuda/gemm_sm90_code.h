// gemm_sm90_code.h — the bytes of code of gemm_sm90's wide kernels, which the cost model charges for.
//
// nvcc 13.0 made them for sm_90a: kernels/budgets/13.0/hot/90a.txt has the numbers, and
// tools/kernels/test_kernels.py says where these are off by more than a twentieth. Class F16 has those of
// BF16, a tile of one CTA has those of its pair.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_CODE_H
#define SIE_KERNELS_CUDA_GEMM_SM90_CODE_H

#include "cuda/cost.h"
#include "cuda/gemm_sm90_variants.h"

namespace sie_cuda {

constexpr int32_t sm90_forms = 7;  // of Sm90Form: any, plain, residual, residual_f32, gelu, swiglu, geglu

struct GemmSm90Code {
  bool fp8;
  int32_t rows, columns;      // of the tile
  int32_t bytes[sm90_forms];  // 0: the tile has no such form, and `any` does it
};

constexpr GemmSm90Code gemm_sm90_codes[] = {
    {false, 64, 128, {62848, 20608, 27392, 35072, 30848, 25088, 27648}},
    {false, 128, 128, {71040, 29056, 39936, 54784, 49536, 38144, 43264}},
    {false, 128, 192, {37120, 33664, 48768, 67712, 64512, 0, 0}},
    {false, 128, 256, {84224, 25856, 36992, 50176, 46336, 34304, 39552}},
    {true, 64, 128, {63744, 22912, 29568, 37504, 39168, 0, 0}},
    {true, 128, 128, {70656, 34688, 45440, 61312, 65408, 0, 0}},
    {true, 128, 256, {88192, 32768, 43520, 58880, 63232, 42112, 47232}},
};

// The form whose kernel does the work (Sm90Ending): of the gates GeGLU's, the larger one.
constexpr int32_t gemm_sm90_form(const GemmWork &w) {
  const int32_t y = w.residual_bytes == 4 ? 4 : (w.fp8 && w.activated ? 1 : 2);
  if (w.y_bytes != y || (w.activated && w.residual_bytes != 0)) return 0;
  if (w.activated) return w.gated ? 6 : 4;
  return w.residual_bytes == 0 ? 1 : (w.residual_bytes == 2 ? 2 : (w.residual_bytes == 4 ? 3 : 0));
}

// The bytes of the kernel that a tile of so many rows and columns has for the work; 0: no such tile.
constexpr int32_t gemm_sm90_code(int32_t rows, int32_t columns, const GemmWork &w) {
  for (const GemmSm90Code &c : gemm_sm90_codes) {
    if (c.fp8 != w.fp8 || c.rows != rows || c.columns != columns) continue;
    const int32_t own = c.bytes[gemm_sm90_form(w)];
    return own != 0 ? own : c.bytes[0];
  }
  return 0;
}

// The tile of a variant for the work, as the cost model takes it; not of the skinny form.
constexpr GemmTileShape gemm_sm90_shape(const GemmSm90Variant &v, const GemmWork &w) {
  return {v.rows, v.columns, v.warpgroup_rows, v.cluster, gemm_sm90_code(v.rows, v.columns, w)};
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_CODE_H
