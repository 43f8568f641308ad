// linear_int8_neon — y = act(s_x·s_w·(x_q·W_qᵀ − zero·sum) + bias + addend) + residual by SMULL and
// SADALP, for a CPU without dot products.
//   or, with a gate, g(even columns)·(odd columns) + residual in N/2 columns
// Shapes   x [R, K], W packed [N, K], addend, residual, y [R, N], strides ≥ columns. R ≥ 0 any;
//          N ≥ 1; 1 ≤ K ≤ 65,536.
// Types    x u8 with scale and zero per row, outliers or none (their excess joins the sum);
//          residual f32 | bf16; y f32 | bf16 | u8.
// Alias    residual may be y (float).
// Align    packed data 64 B; rows any.
// Cost     2·R·N·K op, 16 of them in a multiply and half an addition in pairs.
// Plan     x_q − 128 and w_q are signed bytes of at most 128 and 127, so two of their products fit
//          16 bits: those of two neighbouring fours in K are added there, then in pairs to sums of
//          32 bits. Blocks of 2 rows × 16 columns: 16 accumulators of two half sums a column.
// Numeric  sums are exact, so blocks, panels and shares cannot change a result; it is AVX2's.
// Error    quantisation; then one rounding of the sum, one FMA, the activation (math.h).
#include "int8_finish_neon.h"
#include "kernels_int8.h"

namespace sie_cpu {
namespace {

using namespace SIE_ISA_NS;

constexpr int kRows = 2;

inline int8x16_t weights_at(const char *b) { return vld1q_s8(reinterpret_cast<const int8_t *>(b)); }

// Four bytes of v, from byte 4·i on, four times.
inline int8x16_t repeated(int8x16_t v, int i) {
  const uint32x4_t words = vreinterpretq_u32_s8(v);
  switch (i) {
    case 0:
      return vreinterpretq_s8_u32(vdupq_laneq_u32(words, 0));
    case 1:
      return vreinterpretq_s8_u32(vdupq_laneq_u32(words, 1));
    case 2:
      return vreinterpretq_s8_u32(vdupq_laneq_u32(words, 2));
    default:
      return vreinterpretq_s8_u32(vdupq_laneq_u32(words, 3));
  }
}

template <int R>
inline void step(const char *a, int64_t ld, const char *b, int32x4_t (*c)[4][2]) {
  for (int quarter = 0; quarter < 4; quarter++) {  // 16 of K
    int8x16_t x[R];
#pragma GCC unroll 2
    for (int r = 0; r < R; r++) x[r] = centred(a + r * ld + 16 * quarter);
#pragma GCC unroll 2
    for (int k = 0; k < 4; k += 2) {
      int8x16_t even[R], odd[R];
#pragma GCC unroll 2
      for (int r = 0; r < R; r++) {
        even[r] = repeated(x[r], k);
        odd[r] = repeated(x[r], k + 1);
      }
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        const char *const at = b + 64 * (4 * quarter + k) + 16 * j;
        const int8x16_t w0 = weights_at(at), w1 = weights_at(at + 64);
#pragma GCC unroll 2
        for (int r = 0; r < R; r++) {
          int16x8_t low = vmull_s8(vget_low_s8(even[r]), vget_low_s8(w0)), high = vmull_high_s8(even[r], w0);
          low = vmlal_s8(low, vget_low_s8(odd[r]), vget_low_s8(w1));
          high = vmlal_high_s8(high, odd[r], w1);
          c[r][j][0] = vpadalq_s16(c[r][j][0], low);
          c[r][j][1] = vpadalq_s16(c[r][j][1], high);
        }
      }
    }
  }
}

template <int R>
void tile_sums(const Int8Block &block, int32_t *sums) {
  int32x4_t c[R][4][2];
#pragma GCC unroll 2
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) c[r][j][0] = c[r][j][1] = vdupq_n_s32(0);
  }
  const char *a = block.a, *b = block.b;
  const int64_t whole = block.a_tail != nullptr ? block.steps - 1 : block.steps;
  for (int64_t s = 0; s < whole; s++) {
    step<R>(a, block.a_ld, b, c);
    a += kInt8Step;
    b += kInt8StepBytes;
  }
  if (block.a_tail != nullptr) step<R>(block.a_tail, kInt8Step, b, c);
#pragma GCC unroll 2
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) vst1q_s32(sums + 32 * r + 4 * j, vpaddq_s32(c[r][j][0], c[r][j][1]));
  }
}

struct Kernel : NeonTerms {
  static constexpr int rows = kRows, panels = 1;

  static void sums(const Int8Block &block, int32_t *sums) {
    tile_by_tile(block.rows == 1 ? tile_sums<1> : tile_sums<2>, block, sums);
  }
};

}  // namespace

sie_status linear_int8_neon(const sie_linear_args *a, const sie_share *share) {
  return int8_linear(a, share, product<Kernel>, Kernel::rows);
}

}  // namespace sie_cpu
