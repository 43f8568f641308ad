// linear_int8_avx2 — y = act(s_x·s_w·(x_q·W_qᵀ − zero·sum) + bias + addend) + residual in 16-bit
// products.
//   or, with a gate, g(even columns)·(odd columns) + residual in N/2 columns
// Shapes   x [R, K], W packed [N, K], addend, residual, y [R, N], strides ≥ columns. R ≥ 0 any;
//          N ≥ 1; 1 ≤ K ≤ 65,536.
// Types    x u8 with scale and zero per row, outliers or none (their excess joins the sum);
//          residual f32 | bf16; y f32 | bf16 | u8.
// Alias    residual may be y (float).
// Align    packed data 64 B; rows any.
// Cost     2·R·N·K op at about 40 op a cycle.
// Plan     vpmaddubsw saturates (2·255·127 does not fit 16 bits), so both sides widen to 16 bits
//          and meet in vpmaddwd: a vector holds 4 columns × 2 half sums. Blocks of 3 rows × 16
//          columns: 12 accumulators.
// Numeric  sums are exact, so blocks, panels and shares cannot change a result.
// Error    quantisation; then one rounding of the sum, one FMA, the activation (math.h).
#include "int8_finish.h"
#include "kernels_int8.h"

namespace sie_cpu {
namespace {

using namespace SIE_ISA_NS;

constexpr int kRows = 3;

template <int R>
inline void step(const char *a, int64_t ld, const char *b, __m256i (*c)[4]) {
  for (int k = 0; k < kInt8Step / 4; k++) {
    __m256i x[R];
    for (int r = 0; r < R; r++) {
      int32_t v;
      memcpy(&v, a + r * ld + 4 * k, 4);
      x[r] = _mm256_cvtepu8_epi16(_mm_set1_epi32(v));
    }
    for (int j = 0; j < 4; j++) {
      const __m256i w =
          _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i *>(b + 64 * k + 16 * j)));
      for (int r = 0; r < R; r++) c[r][j] = _mm256_add_epi32(c[r][j], _mm256_madd_epi16(x[r], w));
    }
  }
}

/* R rows × 16 columns (one tile of a panel) into sums [R][32]. */
template <int R>
void tile_sums(const Int8Block &block, int32_t *sums) {
  __m256i c[R][4];
  for (int r = 0; r < R; r++)
    for (int j = 0; j < 4; j++) c[r][j] = _mm256_setzero_si256();
  const char *a = block.a, *b = block.b;
  const int64_t whole = block.a_tail != nullptr ? block.steps - 1 : block.steps;
  for (int64_t s = 0; s < whole; s++) {
    step<R>(a, block.a_ld, b, c);
    a += kInt8Step;
    b += kInt8StepBytes;
  }
  if (block.a_tail != nullptr) step<R>(block.a_tail, kInt8Step, b, c);
  for (int r = 0; r < R; r++)
    for (int j = 0; j < 4; j += 2) { /* halves meet: columns 0 1 4 5 2 3 6 7, then in order */
      const __m256i h = _mm256_hadd_epi32(c[r][j], c[r][j + 1]);
      _mm256_store_si256(reinterpret_cast<__m256i *>(sums + 32 * r + 4 * j),
                         _mm256_permute4x64_epi64(h, 0xd8));
    }
}

struct Kernel {
  static constexpr int rows = kRows;

  static void sums(const Int8Block &block, int rows, int32_t *sums) {
    switch (rows) {
      case 1:
        tile_sums<1>(block, sums);
        break;
      case 2:
        tile_sums<2>(block, sums);
        break;
      default:
        tile_sums<3>(block, sums);
        break;
    }
  }

  static Vec difference(const Int8Terms &t) {
    __m256i sum = _mm256_load_si256(reinterpret_cast<const __m256i *>(t.sums));
    if (t.weights != nullptr) {
      const __m256i bytes = _mm256_load_si256(reinterpret_cast<const __m256i *>(t.weights));
      const __m256i weights = _mm256_srai_epi32(_mm256_sll_epi32(bytes, _mm_cvtsi32_si128(t.shift)), 24);
      sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(_mm256_set1_epi32(t.excess), weights));
    }
    const __m256i weight_sums = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(t.weight_sums));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(sum, _mm256_mullo_epi32(_mm256_set1_epi32(t.zero), weight_sums)));
  }
};

}  // namespace

sie_status linear_int8_avx2(const sie_linear_args *a, const sie_share *share) {
  return int8_linear(a, share, product<Kernel>);
}

}  // namespace sie_cpu
