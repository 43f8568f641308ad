// lora.h — the launcher of LoRA's products, for the tables (kernels/ops.h says what it computes).
//
// It refuses before it launches. SIE_INVALID_ARGUMENT: a missing pointer, no columns, a stride
// below them, a negative number of adapters or ranks, a share that is not the whole or has no
// stream. SIE_UNSUPPORTED: types that lora.cuh lacks, a max_rank above 512, more than 2²⁰ columns
// of x or y, 2³¹−1 rows, sequences or CTAs, and devices below sm_80. No rows launch nothing. The
// adapters are in device memory and are not checked: their dtype must be x's, their ranks at most
// max_rank.
#ifndef SIE_KERNELS_CUDA_LORA_H
#define SIE_KERNELS_CUDA_LORA_H

#include "ops.h"

namespace sie_cuda {

constexpr int32_t lora_rows = 64;     // of a tile
constexpr int32_t lora_columns = 64;  // of y a CTA's warps take in one turn, 16 each

// Returns the columns of a CTA: all of them where the tiles of rows alone give each multiprocessor
// two CTAs; at least 128.
constexpr int64_t lora_block_columns(int64_t row_tiles, int64_t n, int64_t multiprocessors) {
  const int64_t most = (n + 2 * lora_columns - 1) / (2 * lora_columns),
                wanted = 2 * multiprocessors / row_tiles;
  const int64_t blocks = wanted < 1 ? 1 : (wanted < most ? wanted : most);
  return ((n + blocks - 1) / blocks + lora_columns - 1) / lora_columns * lora_columns;
}

sie_status lora(const sie_lora_args *, const sie_share *);

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_LORA_H
