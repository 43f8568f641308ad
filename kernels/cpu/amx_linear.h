/* amx_linear.h — the loops that the AMX linears share: rows in K steps of 64 bytes against packed
 * panels of 32 columns. The epilogue of one block runs during the product of the next.
 *
 *   Product  dp<C, A, B>(): the tile multiply
 *   Form     start(&pending, sums, row, rows, panel) describes the epilogue of a block;
 *            finish(&pending, to) finishes its rows up to `to`; Form::Pending has `rows` and `next`
 * Both types work on bytes here: a step is 64 bytes of each row (32 bf16, 64 u8) and two tiles of
 * the panel. */
#ifndef SIE_KERNELS_CPU_AMX_LINEAR_H
#define SIE_KERNELS_CPU_AMX_LINEAR_H

#include <immintrin.h>

#include "amx_tile.h"
#include "epilogue_avx512.h"
#include "linear_part.h"

namespace sie_cpu {

enum { kStepRowBytes = 64, kStepBytes = 2048, kBlockSums = kBlockRows * kPanelColumns };

struct AmxBlock {
  const char *a, *a_tail, *b, *prefetch;
  int64_t a_ld, steps;
  int prefetch_lines; /* a step */
};

/* Sums the tiles of one block of 16·RowTiles rows × 32 columns into sums [32][32], four bytes an
 * element. */
template <int RowTiles, class Product, class Form>
inline void amx_block(const Form &form, const AmxBlock &block, typename Form::Pending *pending, void *sums) {
  amx_zero<0>();
  amx_zero<1>();
  if (RowTiles == 2) {
    amx_zero<2>();
    amx_zero<3>();
  }
  const char *a = block.a, *b = block.b, *prefetch = block.prefetch;
  int64_t a_ld = block.a_ld;
  const int64_t per_step = ((int64_t)(pending->rows - pending->next) << 16) / block.steps + 1;
  int64_t due = (int64_t)pending->next << 16;
  for (int64_t s = 0; s < block.steps; s++) {
    if (s == block.steps - 1 && block.a_tail) {
      a = block.a_tail;
      a_ld = kStepRowBytes;
    }
    amx_load<6>(b, 64);
    amx_load<4>(a, a_ld);
    Product::template dp<0, 4, 6>();
    amx_load<7>(b + 1024, 64);
    Product::template dp<1, 4, 7>();
    if (RowTiles == 2) {
      amx_load<5>(a + 16 * a_ld, a_ld);
      Product::template dp<2, 5, 6>();
      Product::template dp<3, 5, 7>();
    }
    for (int l = 0; l < block.prefetch_lines; l++) _mm_prefetch(prefetch + 64 * l, _MM_HINT_T1);
    prefetch += 64 * block.prefetch_lines;
    b += kStepBytes;
    a += kStepRowBytes;
    due += per_step;
    const int to = (int)(due >> 16);
    form.finish(pending, to < pending->rows ? to : pending->rows);
  }
  form.finish(pending, pending->rows);
  char *const c = (char *)sums;
  amx_store<0>(c, 128);
  amx_store<1>(c + 64, 128);
  if (RowTiles == 2) {
    amx_store<2>(c + 16 * 128, 128);
    amx_store<3>(c + 16 * 128 + 64, 128);
  }
}

/* Rows [row0, row0 + count) times all panels. The last block's epilogue is left in *pending. */
template <class Product, class Form>
inline void amx_slab(const LinearOperands &x, const Form &form, int64_t row0, int64_t count,
                     char (*sums)[4 * kBlockSums], int *turn, typename Form::Pending *pending) {
  const int64_t full = count / kBlockRows, tail = count % kBlockRows, blocks = full + (tail != 0);
  AmxTileConfig full_config, tail_config;
  amx_config(&full_config, 16, 16);
  amx_config(&tail_config, tail > 16 || tail == 0 ? 16 : (int)tail, tail > 16 ? (int)tail - 16 : 16);
  amx_load_config(full ? &full_config : &tail_config);

  AmxBlock block = {};
  block.a_ld = x.a_ld;
  block.steps = x.steps;
  for (int64_t panel = x.panel_begin; panel < x.panel_end; panel++) {
    block.b = x.packed + panel * x.steps * kStepBytes;
    /* Fetches the next panel, a part of it in each block. With one or two blocks the tile loads
     * alone keep the memory busy, and prefetches would only take their slots. */
    block.prefetch = block.b + x.steps * kStepBytes;
    block.prefetch_lines = blocks <= 2 ? 0 : (int)((kStepBytes / 64 + blocks - 1) / blocks);
    for (int64_t i = 0; i < blocks; i++) {
      const int64_t row = row0 + i * kBlockRows;
      block.a = x.a + row * x.a_ld;
      block.a_tail = x.a_tail ? x.a_tail + row * kStepRowBytes : nullptr;
      char *const s = sums[*turn];
      *turn ^= 1;
      if (i < full) {
        amx_block<2, Product>(form, block, pending, s);
      } else {
        if (full) amx_load_config(&tail_config);
        if (tail > 16)
          amx_block<2, Product>(form, block, pending, s);
        else
          amx_block<1, Product>(form, block, pending, s);
        if (full) amx_load_config(&full_config);
      }
      block.prefetch += x.steps * 64 * block.prefetch_lines;
      form.start(pending, s, row, i < full ? (int)kBlockRows : (int)tail, panel);
    }
  }
}

/* The whole product. Rows go in slabs that stay in half of a 2 MB second-level cache while all
 * panels pass. */
template <class Product, class Form>
inline void amx_linear(const LinearOperands &x, const Form &form) {
  alignas(64) char sums[2][4 * kBlockSums];
  typename Form::Pending pending = {};
  int turn = 0;
  int64_t slab = (1 << 20) / (x.steps * kStepRowBytes) / kBlockRows * kBlockRows;
  if (slab < 2 * kBlockRows) slab = 2 * kBlockRows;
  for (int64_t row = 0; row < x.rows; row += slab)
    amx_slab<Product>(x, form, row, x.rows - row < slab ? x.rows - row : slab, sums, &turn, &pending);
  form.finish(&pending, pending.rows);
  amx_release();
}

}  // namespace sie_cpu

#endif /* SIE_KERNELS_CPU_AMX_LINEAR_H */
