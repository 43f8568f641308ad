/* dot_linear_avx512.h — the loops that the linears on 512-bit dot products share (vpdpbusd,
 * vdpbf16ps): rows in steps of 64 bytes against packed panels of 32 columns, four bytes of a row a
 * multiply.
 *
 *   Product  Vector: sixteen sums; Sum: one; zero(); dp(c, x, b): c and the products of four bytes
 *            of a row, in every lane of x, with those of sixteen columns
 *   Form     Panel panel(p): what the blocks of panel p share;
 *            finish(&panel, sums, row, rows, p): the epilogue of a block, sums [rows][32]
 * Blocks of 12 rows: 24 accumulators, 2 weight vectors and 12 broadcast loads for every 24
 * multiplies, so loads stay below their two a cycle. */
#ifndef SIE_KERNELS_CPU_DOT_LINEAR_AVX512_H
#define SIE_KERNELS_CPU_DOT_LINEAR_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "linear_part.h"

namespace sie_cpu {
namespace {

enum { kDotRows = 12, kDotColumns = 32, kDotRowBytes = 64, kDotStepBytes = 2048 };

struct DotBlock {
  const char *a, *a_tail, *b, *prefetch;
  int64_t a_ld, steps;
  int prefetch_lines; /* a step */
};

/* Four bytes of row 3·i + j. Row pointers three rows apart keep the addresses in few registers. */
inline __m512i dot_broadcast(const char *const *a, int64_t ld, int r, int64_t offset) {
  int32_t v;
  memcpy(&v, a[r / 3] + (r % 3) * ld + offset, 4);
  return _mm512_set1_epi32(v);
}

template <class Product, int R>
inline void dot_step(const char *const *a, int64_t ld, const char *b, typename Product::Vector (*c)[2]) {
#pragma GCC unroll 4
  for (int k = 0; k < kDotRowBytes / 4; k++) {
    const __m512i b0 = _mm512_load_si512(b + 64 * k), b1 = _mm512_load_si512(b + kDotStepBytes / 2 + 64 * k);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      const __m512i x = dot_broadcast(a, ld, r, 4 * k);
      c[r][0] = Product::dp(c[r][0], x, b0);
      c[r][1] = Product::dp(c[r][1], x, b1);
    }
  }
}

/* R rows × 32 columns into sums [R][32]. */
template <class Product, int R>
void dot_block_sums(const DotBlock &block, typename Product::Sum *sums) {
  typename Product::Vector c[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) c[r][0] = c[r][1] = Product::zero();
  const char *a[4], *b = block.b, *prefetch = block.prefetch;
  for (int i = 0; i < 4; i++) a[i] = block.a + 3 * i * block.a_ld;
  const int64_t whole = block.a_tail ? block.steps - 1 : block.steps;
  for (int64_t s = 0; s < whole; s++) {
    for (int l = 0; l < block.prefetch_lines; l++) _mm_prefetch(prefetch + 64 * l, _MM_HINT_T1);
    prefetch += 64 * block.prefetch_lines;
    dot_step<Product, R>(a, block.a_ld, b, c);
    for (int i = 0; i < 4; i++) a[i] += kDotRowBytes;
    b += kDotStepBytes;
  }
  if (block.a_tail) {
    for (int i = 0; i < 4; i++) a[i] = block.a_tail + 3 * i * kDotRowBytes;
    dot_step<Product, R>(a, kDotRowBytes, b, c);
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) {
    _mm512_store_si512(sums + 32 * r, (__m512i)c[r][0]);
    _mm512_store_si512(sums + 32 * r + 16, (__m512i)c[r][1]);
  }
}

template <class Product>
struct DotBlockSums {
  typedef void (*Function)(const DotBlock &, typename Product::Sum *);
  static constexpr Function of_rows[kDotRows + 1] = {nullptr,
                                                     dot_block_sums<Product, 1>,
                                                     dot_block_sums<Product, 2>,
                                                     dot_block_sums<Product, 3>,
                                                     dot_block_sums<Product, 4>,
                                                     dot_block_sums<Product, 5>,
                                                     dot_block_sums<Product, 6>,
                                                     dot_block_sums<Product, 7>,
                                                     dot_block_sums<Product, 8>,
                                                     dot_block_sums<Product, 9>,
                                                     dot_block_sums<Product, 10>,
                                                     dot_block_sums<Product, 11>,
                                                     dot_block_sums<Product, 12>};
};

/* Rows [first, last) times all panels. */
template <class Product, class Form>
inline void dot_slab(const LinearOperands &x, const Form &form, int64_t first, int64_t last) {
  alignas(64) typename Product::Sum sums[kDotRows * kDotColumns];
  const int64_t blocks = (last - first + kDotRows - 1) / kDotRows, panel_bytes = x.steps * kDotStepBytes;
  DotBlock block = {};
  block.a_ld = x.a_ld;
  block.steps = x.steps;
  for (int64_t panel = x.panel_begin; panel < x.panel_end; panel++) {
    typename Form::Panel columns = form.panel(panel);
    block.b = x.packed + panel * panel_bytes;
    /* Fetches the next panel, a part of it in each block. With one or two blocks the loads alone
     * keep the memory busy, and prefetches would only take their slots. */
    block.prefetch = block.b + panel_bytes;
    block.prefetch_lines = blocks <= 2 ? 0 : (int)((kDotStepBytes / 64 + blocks - 1) / blocks);
    for (int64_t row = first; row < last; row += kDotRows) {
      const int count = last - row < kDotRows ? (int)(last - row) : (int)kDotRows;
      block.a = x.a + row * block.a_ld;
      block.a_tail = x.a_tail ? x.a_tail + row * kDotRowBytes : nullptr;
      DotBlockSums<Product>::of_rows[count](block, sums);
      block.prefetch += x.steps * 64 * block.prefetch_lines;
      form.finish(&columns, sums, row, count, panel);
    }
  }
}

/* The whole product. Rows go in slabs that stay in half of a 2 MB second-level cache while all
 * panels pass. */
template <class Product, class Form>
inline void dot_linear(const LinearOperands &x, const Form &form) {
  int64_t slab = (1 << 20) / (x.steps * kDotRowBytes) / kDotRows * kDotRows;
  if (slab < 4 * kDotRows) slab = 4 * kDotRows;
  for (int64_t row = 0; row < x.rows; row += slab)
    dot_slab<Product>(x, form, row, x.rows - row < slab ? x.rows : row + slab);
}

}  // namespace
}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_DOT_LINEAR_AVX512_H */
