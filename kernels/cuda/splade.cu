// splade.cu — the zeros that maxima start from, and the launcher.
#include "cuda/splade.h"

#include "cuda/gemm_call.h"
#include "cuda/rows.cuh"

namespace sie_cuda {

namespace {

constexpr int32_t zero_columns = row_threads * 4 * 4;  // of a CTA

// y[b, v] = 0. Four columns a thread at a time, 16 bytes where a row allows it.
__global__ void __launch_bounds__(row_threads, 4)
    splade_zero_kernel(const sie_rows seqs, float *y, int64_t ld, int32_t n) {
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  const int64_t b = blockIdx.x;
  if (b >= *seqs.n) return;
  const int32_t first = static_cast<int32_t>(blockIdx.y) * zero_columns;
  const int32_t end = min(n, first + zero_columns);
  for (int32_t column = first + static_cast<int32_t>(threadIdx.x) * 4; column < end;
       column += row_threads * 4) {
    float *const to = y + b * ld + column;
    if (column + 4 <= end && ptx::aligned_for<uint4>(to)) {
      ptx::store_global(to, make_uint4(0, 0, 0, 0));
      continue;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if (column + j < end) to[j] = 0.0f;
    }
  }
}

struct Table {
  const SpladeSm80Instance *instances;
  int32_t count;
};

Table table_of(uint32_t compute) {
  switch (compute) {
    case SIE_COMPUTE_BF16:
      return {splade_sm80_bf16, splade_sm80_16bit_count};
    case SIE_COMPUTE_F16:
      return {splade_sm80_f16, splade_sm80_16bit_count};
    case SIE_COMPUTE_FP8:
      return {splade_sm80_fp8, splade_sm80_fp8_count};
    default:
      return {nullptr, 0};
  }
}

// The linear that computes the logits; y stands for them.
sie_linear_args linear_of(const sie_splade_args &a) {
  sie_linear_args linear = {};
  linear.rows = a.tokens;
  linear.n = a.n;
  linear.k = a.k;
  linear.x = a.x;
  linear.w = a.w;
  linear.bias = a.bias;
  linear.y = a.y;
  return linear;
}

sie_status launch_sm90(const GemmCall &call, const SpladeTarget &to) {
  switch (call.args->w->compute) {
    case SIE_COMPUTE_BF16:
      return splade_sm90_bf16(call, to);
    case SIE_COMPUTE_F16:
      return splade_sm90_f16(call, to);
    default:
      return splade_sm90_e4m3(call, to);
  }
}

sie_status launch_sm80(const sie_splade_args &a, const GemmCall &call, const SpladeTarget &to) {
  const Table table = table_of(a.w->compute);
  // The smallest tile that holds all rows, or the largest.
  int32_t variant = table.count - 1;
  while (variant > 0 && table.instances[variant].rows < a.tokens.cap) variant--;
  const SpladeSm80Instance &instance = table.instances[variant];
  const int64_t row_tiles = divide_up(a.tokens.cap, instance.rows),
                column_tiles = divide_up(a.n, instance.columns);
  if (row_tiles * column_tiles > INT32_MAX) return SIE_UNSUPPORTED;

  SpladeSm80Args args = {};
  args.gemm.rows = a.tokens.n;
  args.gemm.x = static_cast<const uint8_t *>(a.x.p);
  args.gemm.w = static_cast<const uint8_t *>(a.w->data);
  args.gemm.x_row = a.x.ld * call.layout.element;
  args.gemm.w_row = call.layout.k_padded * call.layout.element;
  args.gemm.x_scale = a.x.scale;
  args.gemm.w_scale = call.w_scale;
  args.gemm.block_scales = call.block_scales;
  args.gemm.x_scale_ld = call.block_scales ? divide_up(a.k, 128) : 1;
  args.gemm.k_bytes = static_cast<int32_t>(a.k * call.layout.element);
  args.gemm.lines = static_cast<int32_t>(divide_up(args.gemm.k_bytes, instance.line));
  args.gemm.row_tiles = static_cast<int32_t>(row_tiles);
  args.gemm.column_tiles = static_cast<int32_t>(column_tiles);
  args.gemm.epilogue = call.epilogue;
  args.to = to;
  return instance.launch(args, static_cast<uint32_t>(row_tiles * column_tiles), call.on);
}

}  // namespace

sie_status splade(const sie_splade_args *args, const sie_share *share) {
  const sie_splade_args &a = *args;
  bool empty;
  sie_status status = check_launch(share, a.seqs, &empty);
  if (status != SIE_OK) return status;
  if (missing(empty, a.seqs.n, a.cu_seqlens, a.y.p, a.tokens.n)) return SIE_INVALID_ARGUMENT;
  if (a.y.dtype != SIE_F32) return SIE_UNSUPPORTED;
  const sie_linear_args linear = linear_of(a);
  GemmCall call;
  status = gemm_call(&linear, share->on, &call);
  if (status != SIE_OK) return status;
  const int32_t sm = share->on->sm;
  if (table_of(a.w->compute).count == 0 || a.n > max_columns) return SIE_UNSUPPORTED;
  const bool hopper = sm / 10 == 9;
  if (a.w->compute == SIE_COMPUTE_FP8 && !hopper && sm != 89 && sm < 120) return SIE_UNSUPPORTED;
  if (empty) return SIE_OK;
  const dim3 grid(static_cast<uint32_t>(a.seqs.cap), static_cast<uint32_t>(divide_up(a.n, zero_columns)));
  status = SIE_LAUNCH(splade_zero_kernel, grid, row_threads, 0, share->on, a.seqs,
                      static_cast<float *>(a.y.p), a.y.ld, static_cast<int32_t>(a.n));
  if (status != SIE_OK || a.tokens.cap == 0) return status;
  const SpladeTarget to = {a.seqs.n, a.cu_seqlens, static_cast<float *>(a.y.p), a.y.ld};
  return hopper ? launch_sm90(call, to) : launch_sm80(a, call, to);
}

}  // namespace sie_cuda
