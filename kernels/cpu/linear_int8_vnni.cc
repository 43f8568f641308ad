// linear_int8_vnni — y = act(s_x·s_w·(x_q·W_qᵀ − zero·sum) + bias + addend) + residual with 512-bit
// vpdpbusd.
//   or, with a gate, g(even columns)·(odd columns) + residual in N/2 columns
// Shapes   x [R, K], W packed [N, K], addend, residual, y [R, N], strides ≥ columns. R ≥ 0 any;
//          N ≥ 1; 1 ≤ K ≤ 65,536.
// Types    x u8 with scale and zero per row, outliers or none (their excess joins the sum);
//          residual f32 | bf16; y f32 | bf16 | u8.
// Alias    residual may be y (float).
// Align    packed data 64 B; rows any.
// Cost     2·R·N·K op at 256 op a cycle with two multiply ports.
// Plan     panels of 32 columns outside, blocks of 12 rows inside: 24 accumulators, 2 weight
//          vectors and 12 broadcast loads for every 24 multiplies, so loads stay below their two a
//          cycle. Rows in slabs that stay in the second-level cache.
// Numeric  sums are exact (vpdpbusd without saturation), so blocks, panels and shares cannot change
//          a result.
// Error    quantisation; then one rounding of the sum, one FMA, the activation
//          (fast_math_avx512.h).
#include "int8_epilogue_avx512.h"
#include "kernels_int8.h"

namespace sie_cpu {
namespace {

enum { kRows = 12 };

struct Block {
  const char *a, *a_tail, *b, *prefetch;
  int64_t a_ld, steps;
  int prefetch_lines; /* a step */
};

/* Four bytes of row 3·i + j. Row pointers three rows apart keep the addresses in few registers. */
template <int R>
inline __m512i broadcast(const char *const *a, int64_t ld, int r, int64_t offset) {
  int32_t v;
  memcpy(&v, a[r / 3] + (r % 3) * ld + offset, 4);
  return _mm512_set1_epi32(v);
}

template <int R>
inline void step(const char *const *a, int64_t ld, const char *b, __m512i (*c)[2]) {
#pragma GCC unroll 4
  for (int k = 0; k < kInt8Step / 4; k++) {
    const __m512i b0 = _mm512_load_si512(b + 64 * k), b1 = _mm512_load_si512(b + 1024 + 64 * k);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      const __m512i x = broadcast<R>(a, ld, r, 4 * k);
      c[r][0] = _mm512_dpbusd_epi32(c[r][0], x, b0);
      c[r][1] = _mm512_dpbusd_epi32(c[r][1], x, b1);
    }
  }
}

/* R rows × 32 columns into sums [R][32]. */
template <int R>
void block_sums(const Block &block, int32_t *sums) {
  __m512i c[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) c[r][0] = c[r][1] = _mm512_setzero_si512();
  const char *a[4], *b = block.b, *prefetch = block.prefetch;
  for (int i = 0; i < 4; i++) a[i] = block.a + 3 * i * block.a_ld;
  const int64_t whole = block.a_tail ? block.steps - 1 : block.steps;
  for (int64_t s = 0; s < whole; s++) {
    for (int l = 0; l < block.prefetch_lines; l++) _mm_prefetch(prefetch + 64 * l, _MM_HINT_T1);
    prefetch += 64 * block.prefetch_lines;
    step<R>(a, block.a_ld, b, c);
    for (int i = 0; i < 4; i++) a[i] += kInt8Step;
    b += kInt8StepBytes;
  }
  if (block.a_tail) {
    for (int i = 0; i < 4; i++) a[i] = block.a_tail + 3 * i * kInt8Step;
    step<R>(a, kInt8Step, b, c);
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) {
    _mm512_store_si512(sums + 32 * r, c[r][0]);
    _mm512_store_si512(sums + 32 * r + 16, c[r][1]);
  }
}

typedef void (*BlockSums)(const Block &, int32_t *);
const BlockSums kBlockSums[kRows + 1] = {
    nullptr,       block_sums<1>, block_sums<2>, block_sums<3>,  block_sums<4>,  block_sums<5>, block_sums<6>,
    block_sums<7>, block_sums<8>, block_sums<9>, block_sums<10>, block_sums<11>, block_sums<12>};

struct Run {
  const sie_linear_args *args;
  const char *tails;
  int64_t panel_begin, panel_end;

  template <int Act, int Residual, int Out>
  void run() const {
    const Int8Weight w = int8_weight(args->w);
    const int64_t rows = *args->rows.n;
    int64_t slab = (1 << 20) / (w.steps * kInt8Step) / kRows * kRows;
    if (slab < 4 * kRows) slab = 4 * kRows;
    for (int64_t row = 0; row < rows; row += slab)
      run_slab<Act, Residual, Out>(w, row, rows - row < slab ? rows : row + slab);
  }

  template <int Act, int Residual, int Out>
  void run_slab(const Int8Weight &w, int64_t first, int64_t last) const {
    alignas(64) int32_t sums[kRows * kInt8Panel];
    const int64_t blocks = (last - first + kRows - 1) / kRows, panel_bytes = w.steps * kInt8StepBytes;
    Block block = {};
    block.a_ld = args->x.ld;
    block.steps = w.steps;
    for (int64_t panel = panel_begin; panel < panel_end; panel++) {
      const Int8Columns columns = int8_columns(args, w, panel);
      Int8OutlierWeights outlier = {};
      outlier.column = -1;
      block.b = w.panels + panel * panel_bytes;
      /* Fetches the next panel, a part of it in each block. With one or two blocks the loads alone
       * keep the memory busy, and prefetches would only take their slots. */
      block.prefetch = block.b + panel_bytes;
      block.prefetch_lines = blocks <= 2 ? 0 : (int)((kInt8StepBytes / 64 + blocks - 1) / blocks);
      for (int64_t row = first; row < last; row += kRows) {
        const int count = last - row < kRows ? (int)(last - row) : (int)kRows;
        block.a = (const char *)args->x.p + row * block.a_ld;
        block.a_tail = tails ? tails + row * kInt8Step : nullptr;
        kBlockSums[count](block, sums);
        block.prefetch += w.steps * 64 * block.prefetch_lines;
        for (int r = 0; r < count; r++)
          int8_row<Act, Residual, Out>(args, columns, sums + 32 * r, row + r, panel * kInt8Panel, &outlier);
      }
    }
  }
};

void product(const sie_linear_args *a, const char *tails, int64_t panel_begin, int64_t panel_end) {
  dispatch_epilogue(a, a->y.dtype, Run{a, tails, panel_begin, panel_end});
}

}  // namespace

sie_status linear_int8_vnni(const sie_linear_args *a, const sie_share *share) {
  return int8_linear(a, share, product, kRows);
}

}  // namespace sie_cpu
