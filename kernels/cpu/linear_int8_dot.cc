// linear_int8_dot — y = act(s_x·s_w·(x_q·W_qᵀ − zero·sum) + bias + addend) + residual by SDOT.
//   or, with a gate, g(even columns)·(odd columns) + residual in N/2 columns
// Shapes   x [R, K], W packed [N, K], addend, residual, y [R, N], strides ≥ columns. R ≥ 0 any;
//          N ≥ 1; 1 ≤ K ≤ 65,536.
// Types    x u8 with scale and zero per row, outliers or none (their excess joins the sum);
//          residual f32 | bf16; y f32 | bf16 | u8.
// Alias    residual may be y (float).
// Align    packed data 64 B; rows any.
// Cost     2·R·N·K op, 32 of them in an SDOT.
// Plan     blocks of 5 rows × 16 columns: 20 accumulators, 5 vectors of 16 in K of each row, whose
//          fours SDOT takes by number, and a load of weights for every 5 products.
// Numeric  sums are exact, so blocks, panels and shares cannot change a result; it is AVX2's.
// Error    quantisation; then one rounding of the sum, one FMA, the activation (math.h).
#include "int8_finish_neon.h"
#include "kernels_int8.h"

namespace sie_cpu {
namespace {

using namespace SIE_ISA_NS;

constexpr int kRows = 5;

template <int R>
inline void step(const char *a, int64_t ld, const char *b, int32x4_t (*c)[4]) {
  for (int quarter = 0; quarter < 4; quarter++, b += 256) {  // 16 of K
    int8x16_t x[R];
#pragma GCC unroll 5
    for (int r = 0; r < R; r++) x[r] = centred(a + r * ld + 16 * quarter);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      const int8_t *const at = reinterpret_cast<const int8_t *>(b) + 16 * j;
      const int8x16_t w0 = vld1q_s8(at), w1 = vld1q_s8(at + 64), w2 = vld1q_s8(at + 128),
                      w3 = vld1q_s8(at + 192);
#pragma GCC unroll 5
      for (int r = 0; r < R; r++) {
        c[r][j] = vdotq_laneq_s32(c[r][j], w0, x[r], 0);
        c[r][j] = vdotq_laneq_s32(c[r][j], w1, x[r], 1);
        c[r][j] = vdotq_laneq_s32(c[r][j], w2, x[r], 2);
        c[r][j] = vdotq_laneq_s32(c[r][j], w3, x[r], 3);
      }
    }
  }
}

template <int R>
void tile_sums(const Int8Block &block, int32_t *sums) {
  int32x4_t c[R][4];
#pragma GCC unroll 5
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) c[r][j] = vdupq_n_s32(0);
  }
  const char *a = block.a, *b = block.b;
  const int64_t whole = block.a_tail != nullptr ? block.steps - 1 : block.steps;
  for (int64_t s = 0; s < whole; s++) {
    step<R>(a, block.a_ld, b, c);
    a += kInt8Step;
    b += kInt8StepBytes;
  }
  if (block.a_tail != nullptr) step<R>(block.a_tail, kInt8Step, b, c);
#pragma GCC unroll 5
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) vst1q_s32(sums + 32 * r + 4 * j, c[r][j]);
  }
}

struct Kernel : NeonTerms {
  static constexpr int rows = kRows, panels = 1;

  static void sums(const Int8Block &block, int32_t *sums) {
    static constexpr void (*tiles[kRows])(const Int8Block &, int32_t *) = {
        tile_sums<1>, tile_sums<2>, tile_sums<3>, tile_sums<4>, tile_sums<5>};
    tile_by_tile(tiles[block.rows - 1], block, sums);
  }
};

}  // namespace

sie_status linear_int8_dot(const sie_linear_args *a, const sie_share *share) {
  return int8_linear(a, share, product<Kernel>, Kernel::rows);
}

}  // namespace sie_cpu
