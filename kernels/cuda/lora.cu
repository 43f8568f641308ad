// lora.cu — instances and launcher.
#include "cuda/lora.cuh"

#include "cuda/gemm_call.h"
#include "cuda/lora.h"
#include "cuda/row_launch.cuh"

namespace sie_cuda {

sie_status lora(const sie_lora_args *args, const sie_share *share) {
  const sie_lora_args &a = *args;
  bool empty;
  const sie_status status = check_launch(share, a.rows, &empty);
  if (status != SIE_OK) return status;
  if (a.n < 1 || a.k < 1 || a.seqs.cap < 0 || a.n_adapters < 0 || a.max_rank < 0) return SIE_INVALID_ARGUMENT;
  if (missing(empty, a.rows.n, a.seqs.n, a.adapter) || missing(empty || a.n_adapters == 0, a.adapters))
    return SIE_INVALID_ARGUMENT;
  if (!valid_rows(a.x, a.k, empty) || !valid_rows(a.y, a.n, empty)) return SIE_INVALID_ARGUMENT;
  if ((a.x.dtype != SIE_BF16 && a.x.dtype != SIE_F16) || a.y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  if (a.max_rank > lora_rank_max || a.n > max_columns || a.k > max_columns || a.seqs.cap > INT32_MAX)
    return SIE_UNSUPPORTED;
  if (empty) return SIE_OK;
  LoraArgs p = {};
  p.a = a;
  const int64_t row_tiles = divide_up(a.rows.cap, lora_rows);
  p.row_tiles = static_cast<int32_t>(row_tiles);
  p.block_columns = static_cast<int32_t>(lora_block_columns(row_tiles, a.n, share->on->multiprocessors));
  const int64_t ctas = row_tiles * divide_up(a.n, p.block_columns);
  if (ctas > INT32_MAX) return SIE_UNSUPPORTED;
  const int32_t shared_bytes = lora_rows * lora_stride(a.max_rank) * 2;
  const uint32_t grid = static_cast<uint32_t>(ctas);
  if (a.x.dtype == SIE_BF16)
    return SIE_LAUNCH(lora_kernel<ptx::Operand::bf16>, grid, lora_threads, shared_bytes, share->on, p);
  return SIE_LAUNCH(lora_kernel<ptx::Operand::f16>, grid, lora_threads, shared_bytes, share->on, p);
}

}  // namespace sie_cuda
