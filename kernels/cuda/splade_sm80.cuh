// splade_sm80 — y[b, v] = max(0, max over the tokens i of sequence b of (x_i·Wᵀ + bias)[v]) on
// mma.sync.
//   acc as in gemm_sm80.cuh; z = acc + bias[v], e4m3 ((total·s_x[i])·s_w[v]) + bias[v], as in
//   gemm_epilogue.cuh
// Shapes   x [T, K], W [N, K] packed (gemm_pack.h), y [B, N], zeros before the launch. T read from
//          *rows, K, N ≥ 1.
// Types    x, W: bf16 | f16 | e4m3 (sm_89, sm_120), scales of x by row or 1×128 block. bias, y f32.
//          A NaN does not count in the maximum.
// Alias    none.
// Align    x: pointer and row stride 16 bytes. y, bias any.
// Cost     2·T·N·K flop: a batch of 16,384 tokens with BERT's vocabulary (30,522 × 768) 768 GFLOP,
//          3.1 ms at 80 % of 312 TFLOP/s. Logits [T, N] in f32 would be 2.0 GB, and writing and
//          reading them would take 1.0 ms more on an 80 GB card; y of 128 sequences is 15.6 MB. A
//          warp's maximum takes 150 instructions a lane and sequence, its products 1,600 at
//          K = 768.
// Plan     a CTA computes one tile (gemm_sm80_tile.cuh). Its sums stay in registers: for each
//          sequence that has rows among the warp's 16 to 64, a lane takes the largest of its rows'
//          sums; three shuffles combine the eight lanes of a column; then bias, and one integer
//          maximum a column into y. Values are > 0, so their bits order as they do, and no order of
//          arrival changes a bit. Most logits of a SPLADE head are below 0 and end here.
// Grid     as gemm_sm80.
// Error    that of gemm_sm80: rounding is monotone, so bias and scales after the maximum give the
//          bits that they would have given before it.
// Source   Formal 2021, arXiv:2109.10086 §3: max pooling; the logarithm is output_sparse's.
#ifndef SIE_KERNELS_CUDA_SPLADE_SM80_CUH
#define SIE_KERNELS_CUDA_SPLADE_SM80_CUH

#include "cuda/gemm_sm80.cuh"
#include "cuda/ptx/atomic.h"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/launch.h"
#include "cuda/sequence_of.cuh"
#include "cuda/splade.h"

namespace sie_cuda {

// Rows [first, last) of sequence b, all among the warp's, which begin at `top`.
template <class Tile>
SIE_DEVICE void splade_sequence(const SpladeSm80Args &a, const float (&acc)[Tile::tiles_r][Tile::tiles_c][4],
                                int32_t top, int32_t column0, int32_t b, int32_t first, int32_t last) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id());
  const int32_t from = first - top - lane / 4, until = last - top - lane / 4;
  const GemmEpilogue &e = a.gemm.epilogue;
  static_assert(Tile::tiles_c <= 8, "eight lanes a column, one for each tile of columns");
  float own[2] = {-INFINITY,
                  -INFINITY};  // of columns 2·(lane % 4) and + 1 of tile lane / 4: the lane's to write
#pragma unroll
  for (int c = 0; c < Tile::tiles_c; c++) {
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int r = 0; r < 2 * Tile::tiles_r; r++) {
      if (8 * r >= from && 8 * r < until) {
        most[0] = fmaxf(most[0], acc[r / 2][c][r % 2 * 2]);
        most[1] = fmaxf(most[1], acc[r / 2][c][r % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int step = 4; step < 32; step *= 2) most[i] = fmaxf(most[i], ptx::shuffle_xor(most[i], step));
      if (lane / 4 == c) own[i] = most[i];
    }
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int32_t column = column0 + lane / 4 * 8 + lane % 4 * 2 + i;
    if (column >= e.n) continue;
    const float bias = e.bias != nullptr ? e.bias[column] : 0.0f;
    const float z =
        Tile::e4m3 ? gemm_z_scaled(own[i], 1.0f, a.gemm.w_scale[column], bias) : gemm_z(own[i], bias);
    if (z > 0.0f) {
      ptx::reduce_max_global(reinterpret_cast<int32_t *>(a.to.y + b * a.to.y_ld + column), __float_as_int(z));
    }
  }
}

template <class Tile>
SIE_DEVICE void splade_sm80_body(const SpladeSm80Args &a, unsigned char *memory) {
  const int32_t n = *a.gemm.rows;
  // Tiles in the order of the grid: groups of 8 tile rows, in a group column by column.
  const int32_t id = static_cast<int32_t>(blockIdx.x), group_tiles = 8 * a.gemm.column_tiles;
  const int32_t first_tile = id / group_tiles * 8, group_rows = min(8, a.gemm.row_tiles - first_tile);
  const int64_t row0 = static_cast<int64_t>(first_tile + id % group_tiles % group_rows) * Tile::rows;
  const int32_t column0 = id % group_tiles / group_rows * Tile::columns;
  if (row0 >= n) return;

  float acc[Tile::tiles_r][Tile::tiles_c][4];
  gemm_sm80_tile<Tile>(a.gemm, row0, column0, n, memory, acc);

  const int32_t warp = static_cast<int32_t>(threadIdx.x / 32), lane = static_cast<int32_t>(ptx::lane_id());
  const int32_t top = static_cast<int32_t>(row0) + warp / Tile::warps_c * Tile::warp_rows;
  const int32_t bottom = min(n, top + Tile::warp_rows);
  const int32_t column = column0 + warp % Tile::warps_c * Tile::warp_columns;
  if (top >= bottom) return;
  if (Tile::e4m3 && !a.gemm.block_scales) {
#pragma unroll
    for (int r = 0; r < 2 * Tile::tiles_r; r++) {
      const int32_t row = top + 8 * r + lane / 4;
      const float scale = row < bottom ? a.gemm.x_scale[row] : 1.0f;
#pragma unroll
      for (int c = 0; c < Tile::tiles_c; c++) {
#pragma unroll
        for (int i = 0; i < 2; i++)
          acc[r / 2][c][r % 2 * 2 + i] = __fmul_rn(acc[r / 2][c][r % 2 * 2 + i], scale);
      }
    }
  }
  const int32_t seqs = *a.to.seqs;
  int32_t first = top;
  for (int32_t b = sequence_of(a.to.cu_seqlens, seqs, top).index; first < bottom && b < seqs; b++) {
    const int32_t last = min(bottom, a.to.cu_seqlens[b + 1]);
    if (first < last) splade_sequence<Tile>(a, acc, top, column, b, first, last);
    first = last;
  }
}

namespace {

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::min_ctas)
    splade_sm80_kernel(const __grid_constant__ SpladeSm80Args a) {
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();  // takes effect when the last round of CTAs has begun
  SIE_DYNAMIC_SHARED(memory);
  if constexpr (gemm_sm80_here<Tile::e4m3>) {
    splade_sm80_body<Tile>(a, memory);
  } else {
    ptx::unsupported();
  }
}

template <class Tile>
sie_status splade_sm80_launch(const SpladeSm80Args &a, uint32_t ctas, const sie_stream *on) {
  return SIE_LAUNCH((splade_sm80_kernel<Tile>), ctas, Tile::threads, Tile::stage_bytes * Tile::stages, on, a);
}

}  // namespace

}  // namespace sie_cuda

// In a .cu file of one class: the entry of a table; as SIE_GEMM_SM80_INSTANCE.
#define SIE_SPLADE_SM80_INSTANCE(OPERAND, R, C, WR, WC, L, S, M) \
  {R, C, L, splade_sm80_launch<GemmSm80Tile<ptx::Operand::OPERAND, R, C, WR, WC, L, S, M>>}

#define SIE_SPLADE_SM80_16BIT(OPERAND)                          \
  {SIE_SPLADE_SM80_INSTANCE(OPERAND, 128, 128, 2, 2, 64, 3, 2), \
   SIE_SPLADE_SM80_INSTANCE(OPERAND, 64, 64, 2, 2, 128, 3, 3),  \
   SIE_SPLADE_SM80_INSTANCE(OPERAND, 16, 32, 1, 2, 128, 8, 3)}

#endif  // SIE_KERNELS_CUDA_SPLADE_SM80_CUH
