// gemm_sm90_any — the wide form's epilogue for what no hot form does: an addend, other types and
// activations, columns or alignments that leave no whole lines.
//
// The types are looked up when it runs, so its code has to be there once. Registers cannot be
// indexed by a number that is not constant; so each warp puts 1,024 sums at a time into its staging
// (16 rows of 64 columns; what is quantised in blocks of 128 columns of y: 8 of 128, gated 4 of
// 256), and from there every lane takes eight neighbouring columns of y of one row through
// gemm_epilogue.cuh, as the other families do.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_ANY_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_ANY_CUH

#include "cuda/gemm_sm90_finish.cuh"
#include "cuda/ptx/opaque.h"

namespace sie_cuda {

// The sums that a warp stages at once: two pieces of f32.
constexpr int sm90_slab = 2 * sm90_staging / 4;

// Four neighbouring sums of a staged slab of `Columns`; chunks are swizzled by the line, which keeps the
// warp's accesses free of most bank conflicts.
template <int Columns>
SIE_DEVICE unsigned char *sm90_slab_chunk(unsigned char *slab, int line, int chunk) {
  return slab + line * Columns * 4 + (chunk ^ line % 8) * 16;
}

// Stages `Columns` columns of the sums: part `at` of them, counted along the columns and then by 64-row
// block, and of its 16 rows those from `top` on.
template <class Tile, int Columns>
SIE_DEVICE void sm90_stage_slab(float (&z)[Tile::blocks][Tile::sums], unsigned char *slab, int at, int top,
                                int lane) {
  constexpr int across = Tile::columns / Columns, lines = sm90_slab / Columns;
#pragma unroll
  for (int part = 0; part < Tile::blocks_m * across; part++) {
    if (part != at) continue;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int line = lane / 4 + 8 * half - top;
      if (line < 0 || line >= lines) continue;
#pragma unroll
      for (int i = 0; i < Columns / 8; i++) {
        const float *v = sm90_eighth<Tile>(z, part / across, part % across * (Columns / 8) + i) + 2 * half;
        ptx::store_shared(sm90_slab_chunk<Columns>(slab, line, 2 * i + lane % 4 / 2) + lane % 2 * 8,
                          make_float2(v[0], v[1]));
      }
    }
  }
}

// Sums of `Width` neighbouring columns of W → y; 16 behind a gate, else 8. stored: the row and the columns exist.
template <class Tile, int Columns, int Width>
SIE_DEVICE void sm90_finish_run(unsigned char *slab, int line, int first, const Sm90Gemm &g, int64_t row,
                                int32_t column, bool stored) {
  const GemmEpilogue &e = g.epilogue;
  float z[Width];
#pragma unroll
  for (int i = 0; i < Width; i += 4) {
    const float4 q = ptx::load_shared<float4>(sm90_slab_chunk<Columns>(slab, line, (first + i) / 4));
    z[i] = q.x;
    z[i + 1] = q.y;
    z[i + 2] = q.z;
    z[i + 3] = q.w;
  }
  float v[8] = {};
  if (stored) {
    if constexpr (Tile::promoted) {
      gemm_scale_add_bias(e, g.row_scale != nullptr ? g.row_scale[row] : 1.0f, g.w_scale, column, z);
    } else {
      gemm_add_bias(e, column, z);
    }
    gemm_add_addend_run(e, row, column, z);
    if constexpr (Width == 16) {
      gemm_gate_run(e, z, v);
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) v[i] = z[i];
      gemm_activate_run(e, v);
    }
    gemm_add_residual_run(e, row, column / (Width / 8), v);
  }
  gemm_store_run(e, row, column / (Width / 8), stored, v);
}

// The whole tile of a warpgroup in slabs of `Columns` columns of W.
template <class Tile, int Columns, int Width>
SIE_DEVICE void sm90_store_slabs(float (&z)[Tile::blocks][Tile::sums], const Sm90Gemm &g, unsigned char *slab,
                                 int32_t row, int32_t rows, int32_t column, int lane) {
  constexpr int across = Tile::columns / Columns, lines = sm90_slab / Columns, runs = Columns / Width;
#pragma unroll 1
  for (int part = 0; part < Tile::blocks_m * across; part++) {
    const int32_t c = column + part % across * Columns;
#pragma unroll 1
    for (int top = 0; top < 16; top += lines) {
      const int32_t r = row + part / across * 64 + top;
      if (r >= rows || c >= g.epilogue.n) continue;
      sm90_stage_slab<Tile, Columns>(z, slab, part, top, lane);
      ptx::sync_warp();
#pragma unroll 1
      for (int i = lane; i < lines * runs; i += 32) {
        const int line = i / runs, first = i % runs * Width;
        sm90_finish_run<Tile, Columns, Width>(slab, line, first, g, r + line, c + first,
                                              r + line < rows && c + first < g.epilogue.n);
      }
      ptx::sync_warp();
    }
  }
}

// The whole tile of a warpgroup. row: the warp's first of the tile; column: the tile's first of W. What is
// derived from opaque numbers is computed here: before FP8's main loop its registers are taken. 192 sums of
// 16-bit classes spill with opaque numbers, and not without.
template <class Tile>
SIE_DEVICE void sm90_store_any(float (&z)[Tile::blocks][Tile::sums], const Sm90Gemm &g,
                               unsigned char *staging, int32_t row, int32_t rows, int32_t column) {
  const bool blocks = g.epilogue.y_type == SIE_F8E4M3;
  const auto late = [](int32_t x) { return Tile::promoted ? ptx::opaque(x) : x; };
  const int lane = late(static_cast<int32_t>(ptx::lane_id()));
  unsigned char *slab = staging + late(ptx::thread_index() / 32) * 2 * sm90_staging;
  row = late(row);
  column = late(column);
  if (g.epilogue.gate == SIE_GATE_NONE) {
    if constexpr (Tile::columns % 128 == 0) {
      if (blocks) return sm90_store_slabs<Tile, 128, 8>(z, g, slab, row, rows, column, lane);
    }
    sm90_store_slabs<Tile, 64, 8>(z, g, slab, row, rows, column, lane);
  } else if constexpr (Tile::columns % 128 == 0) {
    if constexpr (Tile::columns % 256 == 0) {
      if (blocks) return sm90_store_slabs<Tile, 256, 16>(z, g, slab, row, rows, column, lane);
    }
    sm90_store_slabs<Tile, 64, 16>(z, g, slab, row, rows, column, lane);
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_ANY_CUH
