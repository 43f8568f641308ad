// gemm_sm80 — y = act(x·Wᵀ + bias) + residual on mma.sync, or with a gate: a linear without wgmma.
//   acc = Σ_k x[r, k]·W[c, k]; bias, addend, activation, gate, residual and rounding as in
//   gemm_epilogue.cuh
// Shapes   x [R, K], W [N, K] packed (gemm_pack.h), y [R, N] or with a gate [R, N/2]. R ≥ 0 read
//          from *rows, K, N ≥ 1. Rows of y from *rows on are not touched.
// Types    x, W: bf16 | f16 (m16n8k16) | e4m3 (m16n8k32; sm_89, sm_120) with scales of x by row or
//          1×128 block and of W by row. bias f32; residual, y: f32 | bf16 | f16; y also e4m3 with
//          scales by 1×128 block. Alias: y may be residual.
// Align    x: pointer and row stride 16 bytes. The rest any; 16-byte runs where pointers and
//          strides allow.
// Cost     2·R·N·K flop. At 128×128, 16 of k are 16·16,384 multiply-adds a CTA: 256 clocks of an
//          A100's tensor cores (1024 a clock and SM). In that time it takes 8 KiB from L2 (32 bytes
//          a clock, of about 47 available) and 24 KiB through shared memory (8 written, 16 read by
//          4 warps of 64×64: 192 clocks). BERT-base FFN1 (R = 16,384, N = 3072, K = 768):
//          77.3 GFLOP, 248 µs at 312 TFLOP/s against 65 µs of memory traffic → compute bound.
//          Target ≥ 70 % of peak there (218 TFLOP/s, 354 µs): 3072 tiles are 14.2 rounds of 216
//          resident CTAs, 95 % of a whole number; the epilogue of one CTA (64 KiB through shared
//          memory and back, with GELU ≈ 3,000 issue slots of a quarter SM) hides behind the main
//          loop of the other (12,300 clocks at K = 768).
// Plan     a CTA computes one tile (gemm_sm80_tile.cuh). The accumulators then pass, 16 rows a warp
//          at a time, through two slabs of shared memory in f32; after that each lane has 8
//          neighbouring columns of y for bias, activation, residual and one 16-byte store. Two CTAs
//          an SM at the large tiles, so that one computes while the other stores.
// Grid     1D, grouped: 8 tile rows take each tile column of W before the next, so that a wave of
//          216 CTAs keeps 8·128 rows of x and 27·128 of W in L2. Sized by rows.cap; tiles from
//          *rows on exit at once.
// Error    f32 accumulation in the tensor cores, sequential in k by steps of 16 (e4m3: 32, and by
//          128 in f32): within sie_tol_dot; activations as activation.cuh; one rounding to y's
//          type. Every tile variant gives the same bits.
// Source   PTX ISA 9.0 (mma, ldmatrix, cp.async); grouped order: Tillet 2019,
//          doi:10.1145/3315508.3329973.
#ifndef SIE_KERNELS_CUDA_GEMM_SM80_CUH
#define SIE_KERNELS_CUDA_GEMM_SM80_CUH

#include "cuda/gemm_sm80_tile.cuh"
#include "cuda/ptx/grid_dependency.h"

namespace sie_cuda {

// Whether this target runs the kernels. sm_90 has wgmma; there and on the sm_100 family mma.sync of
// e4m3 is not an instruction but conversions to f16 before another one.
#if !defined(__CUDA_ARCH__)
template <bool E4m3>
constexpr bool gemm_sm80_here = true;
#else
template <bool E4m3>
constexpr bool gemm_sm80_here =
    __CUDA_ARCH__ / 100 != 9 && (!E4m3 || __CUDA_ARCH__ / 10 == 89 || __CUDA_ARCH__ >= 1200);
#endif

// The place in a slab of column c of slab row r, in floats. Chunks of four columns are permuted
// within groups of four chunks, so that a quarter warp reads its runs (every second chunk, or every
// fourth behind a gate) from all banks. Rows are 32 bytes more than a multiple of 128 apart, so
// that a half warp writes fragments to all banks.
template <class Tile>
SIE_DEVICE int32_t slab_at(int32_t row, int32_t column) {
  int32_t chunk = column / 4;
  return row * Tile::slab_stride + (chunk ^ (chunk / 8 % 4)) * 4 + column % 4;
}

template <class Tile, int Count>
SIE_DEVICE void slab_read(const float *slab, int32_t row, int32_t column, float (&v)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; i += 4) {
    float4 q = ptx::load_shared<float4>(slab + slab_at<Tile>(row, column + i));
    v[i] = q.x;
    v[i + 1] = q.y;
    v[i + 2] = q.z;
    v[i + 3] = q.w;
  }
}

// acc → z for Count columns of W.
template <class Tile, int Count>
SIE_DEVICE void gemm_sm80_z(const GemmSm80Args &a, int64_t row, bool exists, int32_t column,
                            float (&v)[Count]) {
  if constexpr (Tile::e4m3) {
    float row_scale = exists && !a.block_scales ? a.x_scale[row] : 1.0f;
    gemm_scale_add_bias(a.epilogue, row_scale, a.w_scale, column, v);
  } else {
    gemm_add_bias(a.epilogue, column, v);
  }
}

// One slab: tile rows warp_rows·i + first … + 15 for each row of warps i. Whole warps stay together
// (e4m3 needs it).
template <class Tile, bool Gate>
SIE_DEVICE void gemm_sm80_store(const GemmSm80Args &a, const float *slab, int64_t row0, int32_t column0,
                                int32_t first, int32_t n) {
  constexpr int32_t run = Gate ? 16 : 8, runs_a_row = Tile::columns / run,
                    runs = Tile::slab_rows * runs_a_row;
  static_assert(runs % 32 == 0, "whole warps");
#pragma unroll 1
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < runs; i += Tile::threads) {
    int32_t slab_row = i / runs_a_row, column = i % runs_a_row * run;
    int64_t row = row0 + slab_row / 16 * Tile::warp_rows + first + slab_row % 16;
    int32_t y_column = (column0 + column) / (Gate ? 2 : 1);
    bool stored = row < n && y_column < a.epilogue.columns;
    float v[8] = {};
    if (stored) {
      if constexpr (Gate) {
        float z[16];
        slab_read<Tile>(slab, slab_row, column, z);
        gemm_sm80_z<Tile>(a, row, row < n, column0 + column, z);
        gemm_add_addend_run(a.epilogue, row, column0 + column, z);
        gemm_gate_run(a.epilogue, z, v);
      } else {
        slab_read<Tile>(slab, slab_row, column, v);
        gemm_sm80_z<Tile>(a, row, row < n, column0 + column, v);
        gemm_add_addend_run(a.epilogue, row, column0 + column, v);
        gemm_activate_run(a.epilogue, v);
      }
      gemm_add_residual_run(a.epilogue, row, y_column, v);
    }
    gemm_store_run(a.epilogue, row, y_column, stored, v);
  }
}

template <class Tile>
SIE_DEVICE void gemm_sm80_body(const GemmSm80Args &a, unsigned char *memory) {
  const int32_t n = *a.rows;
  // Tiles in the order of the grid: groups of 8 tile rows, in a group column by column.
  const int32_t id = static_cast<int32_t>(blockIdx.x), group_tiles = 8 * a.column_tiles;
  const int32_t first_tile = id / group_tiles * 8, group_rows = min(8, a.row_tiles - first_tile);
  const int64_t row0 = static_cast<int64_t>(first_tile + id % group_tiles % group_rows) * Tile::rows;
  const int32_t column0 = id % group_tiles / group_rows * Tile::columns;
  if (row0 >= n) return;

  float acc[Tile::tiles_r][Tile::tiles_c][4];
  gemm_sm80_tile<Tile>(a, row0, column0, n, memory, acc);

  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t slab_row = warp / Tile::warps_c * 16 + lane / 4;
  const int32_t slab_column = warp % Tile::warps_c * Tile::warp_columns + lane % 4 * 2;
  __syncthreads();  // the last fragments have been read
#pragma unroll
  for (int r = 0; r < Tile::tiles_r; r++) {
    // Two slabs take turns: the barrier of the next slice shows that this one has been read.
    float *slab = reinterpret_cast<float *>(memory) + r % 2 * (Tile::slab_bytes / 4);
#pragma unroll
    for (int c = 0; c < Tile::tiles_c; c++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        ptx::store_shared(slab + slab_at<Tile>(slab_row + half * 8, slab_column + c * 8),
                          make_float2(acc[r][c][2 * half], acc[r][c][2 * half + 1]));
      }
    }
    __syncthreads();
    if (a.epilogue.gate != SIE_GATE_NONE) {
      gemm_sm80_store<Tile, true>(a, slab, row0, column0, r * 16, n);
    } else {
      gemm_sm80_store<Tile, false>(a, slab, row0, column0, r * 16, n);
    }
  }
}

namespace {

template <class Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::min_ctas)
    gemm_sm80_kernel(const __grid_constant__ GemmSm80Args a) {
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();  // takes effect when the last round of CTAs has begun
  SIE_DYNAMIC_SHARED(memory);
  if constexpr (gemm_sm80_here<Tile::e4m3>) {
    gemm_sm80_body<Tile>(a, memory);
  } else {
    ptx::unsupported();
  }
}

}  // namespace

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM80_CUH
