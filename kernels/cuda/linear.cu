// linear.cu — the launcher of linear (ops.h): the GEMM of the device's family.
//   class F32    linear_f32.h, on every device
//   sm_90 … 99   gemm_sm90.h: wgmma, TMA
//   all others   gemm_sm80.h: mma.sync (fp8 on sm_89 and from sm_120 on)
// The family chooses the tile by gemm_tiles.h; the choice never changes a bit of the result.
#include "cuda/gemm_sm80.h"
#include "cuda/gemm_sm90.h"
#include "cuda/linear.h"
#include "cuda/linear_f32.h"

namespace sie_cuda {

sie_status linear(const sie_linear_args *args, const sie_share *share) {
  if (args == nullptr || share == nullptr || share->on == nullptr) return SIE_INVALID_ARGUMENT;
  if (share->part != 0 || share->parts != 1) return SIE_INVALID_ARGUMENT;
  const sie_stream *on = share->on;
  if (args->w != nullptr && args->w->compute == SIE_COMPUTE_F32) return linear_f32(args, on);
  if (on->sm / 10 == 9) return gemm_sm90_run(gemm_sm90_choose(args, on), args, on);
  return gemm_sm80_run(gemm_sm80_choose(args, on), args, on);
}

}  // namespace sie_cuda
