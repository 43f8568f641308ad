// lstm.cu — launcher.
#include "cuda/lstm.cuh"

#include "cuda/gemm_pack.h"
#include "cuda/places.h"
#include "cuda/row_launch.cuh"

namespace sie_cuda {

sie_status lstm(const sie_lstm_args *args, const sie_share *share) {
  const sie_lstm_args &a = *args;
  bool empty;
  const sie_status status = check_launch(share, a.seqs, &empty);
  if (status != SIE_OK) return status;
  LstmArgs call = {};
  int32_t directions = 0;
  for (int32_t reverse = 0; reverse < 2; reverse++) {
    const sie_packed *const w = reverse != 0 ? a.w_reverse : a.w;
    if (w == nullptr) continue;
    const bool fits = w->compute == SIE_COMPUTE_F32 && w->n == 4 * a.h && w->k == a.h;
    if (!fits || missing(empty, w->data)) return SIE_INVALID_ARGUMENT;
    call.w[directions] = static_cast<const float *>(w->data);
    call.reverse[directions++] = reverse;
  }
  if (directions == 0 || a.h < 1 || a.rows.cap < 0 || missing(empty, a.seqs.n, a.cu_seqlens))
    return SIE_INVALID_ARGUMENT;
  const bool no_rows = empty || a.rows.cap == 0;
  if (!valid_rows(a.gates, 4 * a.h * directions, no_rows) || !valid_rows(a.y, a.h * directions, no_rows))
    return SIE_INVALID_ARGUMENT;
  GemmLayout layout;
  if (!is_float(a.gates.dtype) || !is_float(a.y.dtype) || a.h > SIE_MAX_GPU_LSTM || a.rows.cap > INT32_MAX ||
      !gemm_layout(SIE_COMPUTE_F32, 4 * a.h, a.h, &layout))
    return SIE_UNSUPPORTED;
  if (no_rows) return SIE_OK;
  call.seqs = a.seqs;
  call.cu_seqlens = a.cu_seqlens;
  call.gates = a.gates;
  call.y = a.y;
  call.w_row = layout.k_padded;
  call.h = static_cast<int32_t>(a.h);
  call.h_stride = lstm_h_stride(call.h);
  call.groups = static_cast<int32_t>((a.seqs.cap + lstm_seqs - 1) / lstm_seqs);
  // Clusters where an SM has the shared memory for them: not on sm_120. Groups are at most 2²⁹.
  int64_t grid = int64_t{call.groups} * directions;
  const bool cluster = share->on->sm >= 90 && share->on->sm < 120 && call.h <= lstm_cluster_hidden &&
                       grid <= INT32_MAX / lstm_cluster;
  if (cluster) grid *= lstm_cluster;
  if (cluster) {
    call.units = lstm_units_each(call.h);
    return SIE_LAUNCH_CLUSTER(lstm_cluster_kernel, lstm_cluster, static_cast<uint32_t>(grid),
                              lstm_cluster_threads, lstm_cluster_bytes(call.h), share->on, call);
  }
  return SIE_LAUNCH(lstm_kernel, static_cast<uint32_t>(grid), lstm_threads, lstm_shared_bytes(call.h),
                    share->on, call);
}

}  // namespace sie_cuda
