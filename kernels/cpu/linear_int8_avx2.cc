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
#include "int8_linear.h"
#include "kernels_int8.h"
#include "math.h"

namespace sie_cpu {
namespace {

using namespace SIE_ISA_NS;

constexpr int kRows = 3;

struct Block {
  const char *a, *a_tail, *b;
  int64_t a_ld, steps;
};

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
void tile_sums(const Block &block, int32_t *sums) {
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

void block_sums(const Block &block, int rows, int32_t *sums) {
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

Vec activate(Vec x, int32_t act) {
  switch (act) {
    case SIE_ACT_GELU_ERF:
      return gelu_erf(x);
    case SIE_ACT_TANH:
      return vtanh(x);
    case SIE_ACT_GELU_TANH:
      return gelu_tanh(x);
    case SIE_ACT_RELU:
      return relu(x);
    case SIE_ACT_SILU:
      return silu(x);
    default:
      return x;
  }
}

/* What row r's outlier adds to the sums of the eight columns from `column` on. */
__m256i outlier_sums(const sie_linear_args *a, const Int8Weight &w, int64_t r, int64_t column) {
  if (a->x.outlier == nullptr) return _mm256_setzero_si256();
  const sie_outlier x = a->x.outlier[r];
  const Int8OutlierPlace place = int8_outlier_place(x.column);
  const char *const at = w.panels + column / kInt8Panel * w.steps * kInt8StepBytes + place.offset +
                         column % kInt8Panel / 16 * (kInt8StepBytes / 2) + column % 16 * 4;
  const __m256i bytes = _mm256_load_si256(reinterpret_cast<const __m256i *>(at));
  const __m256i weights = _mm256_srai_epi32(_mm256_sll_epi32(bytes, _mm_cvtsi32_si128(place.shift)), 24);
  return _mm256_mullo_epi32(_mm256_set1_epi32(x.excess), weights);
}

/* x·Wᵀ + bias + addend in columns [column, column + count) of row r, 0 < count <= 8; sums at the
 * first of them. */
Vec biased(const sie_linear_args *a, const Int8Weight &w, const int32_t *sums, int64_t r, int64_t column,
           int64_t count) {
  const __m256i zero = _mm256_set1_epi32(a->x.zero[r]);
  const __m256i sum = _mm256_add_epi32(_mm256_load_si256(reinterpret_cast<const __m256i *>(sums)),
                                       outlier_sums(a, w, r, column));
  const __m256i wsum = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(w.sum + column));
  const Vec difference = _mm256_cvtepi32_ps(_mm256_sub_epi32(sum, _mm256_mullo_epi32(zero, wsum)));
  const Vec bias = a->bias == nullptr ? vset(0.0f) : vload_row(a->bias, column, column + count);
  const Vec z = vfma(difference, vset(a->x.scale[r]) * vload(w.scale + column), bias);
  return a->addend.p == nullptr ? z
                                : z + vload_row(row_of<const float>(a->addend, r), column, column + count);
}

/* Columns [column, column + count) of row r of y, 0 < count <= 8. */
void store(const sie_linear_args *a, Vec y, int64_t r, int64_t column, int64_t count) {
  const int64_t end = column + count;
  if (a->residual.p != nullptr) {
    y = y + (a->residual.dtype == SIE_F32 ? vload_row(row_of<const float>(a->residual, r), column, end)
                                          : vload_row(row_of<const Bf16>(a->residual, r), column, end));
  }
  if (a->y.dtype == SIE_F32) {
    vstore_row(row_of<float>(a->y, r), column, end, y);
  } else {
    vstore_row(row_of<Bf16>(a->y, r), column, end, y);
  }
}

/* Columns [column, column + count) of row r, 0 < count <= 32. */
void finish(const sie_linear_args *a, const Int8Weight &w, const int32_t *sums, int64_t r, int64_t column,
            int64_t count) {
  for (int64_t c = 0; c < count; c += kLanes) {
    const int64_t here = count - c < kLanes ? count - c : kLanes;
    store(a, activate(biased(a, w, sums + c, r, column + c, here), a->act), r, column + c, here);
  }
}

/* The same with a gate: count is even, and y gets half as many columns. */
void finish_gated(const sie_linear_args *a, const Int8Weight &w, const int32_t *sums, int64_t r,
                  int64_t column, int64_t count) {
  for (int64_t c = 0; c < count; c += 2 * kLanes) {
    const int64_t left = count - c, here = left < kLanes ? left : kLanes;
    const int64_t there = left - here < kLanes ? left - here : kLanes;
    const Vec x = biased(a, w, sums + c, r, column + c, here);
    const Vec more = there > 0 ? biased(a, w, sums + c + kLanes, r, column + c + kLanes, there) : vset(0.0f);
    Vec gate, up;
    vsplit_pairs(x, more, &gate, &up);
    store(a, activate(gate, act_of_gate(a->gate)) * up, r, (column + c) / 2, (here + there) / 2);
  }
}

void product(const sie_linear_args *a, const char *tails, int64_t panel_begin, int64_t panel_end) {
  alignas(64) int32_t sums[kRows * kInt8Panel];
  const Int8Weight w = int8_weight(a->w);
  const int64_t rows = *a->rows.n;
  Block block = {};
  block.a_ld = a->x.ld;
  block.steps = w.steps;
  for (int64_t panel = panel_begin; panel < panel_end; panel++) {
    const int64_t column = panel * kInt8Panel, columns = a->n - column < 32 ? a->n - column : 32;
    for (int64_t row = 0; row < rows; row += kRows) {
      const int count = static_cast<int>(rows - row < kRows ? rows - row : kRows);
      block.a = static_cast<const char *>(a->x.p) + row * block.a_ld;
      block.a_tail = tails != nullptr ? tails + row * kInt8Step : nullptr;
      block.b = w.panels + panel * w.steps * kInt8StepBytes;
      block_sums(block, count, sums);
      block.b += kInt8StepBytes / 2;
      block_sums(block, count, sums + 16);
      for (int r = 0; r < count; r++)
        (a->gate != SIE_GATE_NONE ? finish_gated : finish)(a, w, sums + 32 * r, row + r, column, columns);
    }
  }
}

}  // namespace

sie_status linear_int8_avx2(const sie_linear_args *a, const sie_share *share) {
  return int8_linear(a, share, product);
}

}  // namespace sie_cpu
