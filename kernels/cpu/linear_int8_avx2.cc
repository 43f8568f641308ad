// linear_int8_avx2 — y = act(s_x·s_w·(x_q·W_qᵀ − zero·sum) + bias + addend) + residual in 16-bit
// products.
//   or, with a gate, g(even columns)·(odd columns) + residual in N/2 columns
// Shapes   x [R, K], W packed [N, K], addend, residual, y [R, N], strides ≥ columns. R ≥ 0 any;
//          N ≥ 1; 1 ≤ K ≤ 65,536.
// Types    x u8 with scale and zero per row, outliers or none (their excess joins the sum);
//          residual f32 | bf16; y f32 | bf16 | u8.
// Alias    residual may be y (float).
// Align    packed data 64 B; rows any.
// Cost     2·R·N·K op at about 50 op a cycle.
// Plan     vpmaddubsw saturates (2·255·127 does not fit 16 bits), so both sides widen to 16 bits
//          and meet in vpmaddwd: a vector holds 4 columns × 2 half sums. x is widened once for
//          four panels, in parts of K, and read four values at a time; a weight is widened for six
//          rows. Blocks of 6 rows × 8 columns: 12 accumulators.
// Numeric  sums are exact, so blocks, panels and shares cannot change a result.
// Error    quantisation; then one rounding of the sum, one FMA, the activation (math.h).
#include "int8_finish.h"
#include "kernels_int8.h"

namespace sie_cpu {
namespace {

using namespace SIE_ISA_NS;

constexpr int kRows = 6, kPanels = 4, kColumns = kPanels * kInt8Panel;
// Steps of K of which x is widened at a time: 12 KiB, which stay in L1 beside the weights of 8 columns.
constexpr int64_t kWideSteps = 16;
constexpr int64_t kWide = kWideSteps * kInt8Step;

/* count bytes, a multiple of 64, as 16-bit numbers. */
inline void widen(const char *a, int64_t count, int16_t *wide) {
  for (int64_t k = 0; k < count; k += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(a + k));
    _mm256_store_si256(reinterpret_cast<__m256i *>(wide + k), _mm256_cvtepu8_epi16(bytes));
  }
}

inline __m256i weights_at(const char *b) {
  return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i *>(b)));
}

/* *c += x. In assembly because GCC 12 moves sums of the loop below to the stack and back. */
inline void add_to(__m256i *c, __m256i x) { asm volatile("vpaddd %1, %0, %0" : "+x"(*c) : "x"(x)); }

/* Adds `steps` steps of R rows × 8 columns to sums [R][kColumns]. x: [R][kWide]; b: the first bytes of the
 * columns. */
template <int R>
void add_steps(const int16_t *x, const char *b, int64_t steps, int32_t *sums) {
  __m256i c[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; r++) c[r][0] = c[r][1] = _mm256_setzero_si256();
  for (int64_t s = 0; s < steps; s++, b += kInt8StepBytes, x += kInt8Step) {
    for (int k = 0; k < kInt8Step; k += 4) {
      const __m256i w0 = weights_at(b + 16 * k), w1 = weights_at(b + 16 * k + 16);
#pragma GCC unroll 6
      for (int r = 0; r < R; r++) {
        int64_t four;
        memcpy(&four, x + r * kWide + k, sizeof four);
        const __m256i here = _mm256_set1_epi64x(four);
        add_to(&c[r][0], _mm256_madd_epi16(here, w0));
        add_to(&c[r][1], _mm256_madd_epi16(here, w1));
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; r++) { /* halves meet: columns 0 1 4 5 2 3 6 7, then in order */
    const __m256i h = _mm256_permute4x64_epi64(_mm256_hadd_epi32(c[r][0], c[r][1]), 0xd8);
    __m256i *const at = reinterpret_cast<__m256i *>(sums + kColumns * r);
    _mm256_store_si256(at, _mm256_add_epi32(_mm256_load_si256(at), h));
  }
}

template <int R>
void block_sums(const Int8Block &block, int32_t *sums) {
  alignas(32) int16_t x[R * kWide];
  memset(sums, 0, sizeof(int32_t) * R * kColumns);
  for (int64_t first = 0; first < block.steps; first += kWideSteps) {
    const int64_t steps = block.steps - first < kWideSteps ? block.steps - first : kWideSteps;
    const bool cut = block.a_tail != nullptr && first + steps == block.steps;
    for (int r = 0; r < R; r++) {
      const int64_t whole = (steps - (cut ? 1 : 0)) * kInt8Step;
      widen(block.a + r * block.a_ld + first * kInt8Step, whole, x + r * kWide);
      if (cut) widen(block.a_tail + r * kInt8Step, kInt8Step, x + r * kWide + whole);
    }
    for (int tile = 0; tile < 2 * block.panels; tile++) {
      const char *const b = block.panel(tile / 2) + first * kInt8StepBytes + tile % 2 * (kInt8StepBytes / 2);
      add_steps<R>(x, b, steps, sums + 16 * tile);
      add_steps<R>(x, b + 32, steps, sums + 16 * tile + 8);
    }
  }
}

struct Kernel {
  static constexpr int rows = kRows, panels = kPanels;

  static void sums(const Int8Block &block, int32_t *sums) {
    static constexpr void (*blocks[kRows])(const Int8Block &, int32_t *) = {
        block_sums<1>, block_sums<2>, block_sums<3>, block_sums<4>, block_sums<5>, block_sums<6>};
    blocks[block.rows - 1](block, sums);
  }

  static Vec difference(const Int8Terms &t) {
    __m256i sum = _mm256_load_si256(reinterpret_cast<const __m256i *>(t.sums));
    if (t.weights != nullptr) {
      const __m256i bytes = _mm256_load_si256(reinterpret_cast<const __m256i *>(t.weights));
      const __m256i weights = _mm256_srai_epi32(_mm256_sll_epi32(bytes, _mm_cvtsi32_si128(t.shift)), 24);
      sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(_mm256_set1_epi32(t.excess), weights));
    }
    const __m256i weight_sums = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(t.weight_sums));
    return _mm256_cvtepi32_ps(
        _mm256_sub_epi32(sum, _mm256_mullo_epi32(_mm256_set1_epi32(t.zero), weight_sums)));
  }
};

}  // namespace

sie_status linear_int8_avx2(const sie_linear_args *a, const sie_share *share) {
  return int8_linear(a, share, product<Kernel>, Kernel::rows);
}

}  // namespace sie_cpu
