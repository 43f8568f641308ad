// gemm_sm80_tile.cuh — one tile of x·Wᵀ on mma.sync: global → stages of shared memory → fragments →
// sums.
//
//   acc[r, c] = Σ_k x[row0 + r, k]·w[column0 + c, k]   from 0, k ascending by one mma (16; e4m3 32)
//
// A stage holds one line (64 or 128 bytes of k) of each of the tile's rows of x and w. Copies are
// cp.async of 16 bytes, Stages − 1 lines ahead, one barrier a line. Fragments come by ldmatrix, one
// mma step ahead. In a line the 16-byte pieces are permuted by their row, so that the 8 rows of an
// ldmatrix matrix and the pieces that a quarter warp writes lie in different banks:
//   Line 128   piece p of row r at r·128 + 16·(p ^ (r % 8))
//   Line 64    piece p of row r at r·64 + 16·(p ^ (r / 2 % 4)): two rows share the 128 bytes of all
//              banks
// Elements outside the operands (rows ≥ *rows, W's rows ≥ N, k ≥ K) are zero in shared memory. For
// x they are not read; W has zeros there (gemm_pack.h).
#ifndef SIE_KERNELS_CUDA_GEMM_SM80_TILE_CUH
#define SIE_KERNELS_CUDA_GEMM_SM80_TILE_CUH

#include "cuda/gemm_epilogue.cuh"
#include "cuda/gemm_sm80_instances.h"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/mma.h"

namespace sie_cuda {

// Rows × Columns a CTA, by WarpsR × WarpsC warps of one rectangle each.
template <ptx::Operand T, int Rows, int Columns, int WarpsR, int WarpsC, int Line, int Stages, int MinCtas>
struct GemmSm80Tile {
  static constexpr ptx::Operand operand = T;
  static constexpr bool e4m3 = T == ptx::Operand::e4m3;
  static constexpr int rows = Rows, columns = Columns, line = Line, stages = Stages, min_ctas = MinCtas;
  static constexpr int warps_c = WarpsC, warps_r = WarpsR, threads = 32 * WarpsR * WarpsC;
  static constexpr int warp_rows = Rows / WarpsR, warp_columns = Columns / WarpsC;
  static constexpr int tiles_r = warp_rows / 16, tiles_c = warp_columns / 8;  // mma tiles of a warp
  static constexpr int steps = Line / 32;                                     // mma steps in a line
  static constexpr int pieces = Line / 16, rows_a_pass = threads / pieces;
  static constexpr int x_copies = Rows / rows_a_pass, w_copies = Columns / rows_a_pass;  // a thread and stage
  static constexpr int scale_bytes = e4m3 ? (Rows * 4 + 127) / 128 * 128 : 0;
  static constexpr int stage_bytes = (Rows + Columns) * Line + scale_bytes;
  // The epilogue's slabs (gemm_sm80.cuh) take the place of the stages.
  static constexpr int slab_rows = 16 * WarpsR, slab_stride = Columns + 8;
  static constexpr int slab_bytes = slab_rows * slab_stride * 4;
  static constexpr int shared_bytes =
      stage_bytes * Stages > 2 * slab_bytes ? stage_bytes * Stages : 2 * slab_bytes;

  static_assert(Line == 64 || Line == 128, "a swizzle exists for these");
  static_assert(!e4m3 || Line == 128, "a line is a promotion interval");
  static_assert(Rows % rows_a_pass == 0 && Columns % rows_a_pass == 0 && rows_a_pass % 8 == 0,
                "whole passes");
  static_assert(warp_rows % 16 == 0 && warp_columns % 16 == 0, "ldmatrix takes 16 rows at a time");
  static_assert(Stages >= 2 && steps >= 2, "copies run ahead of reads");
  static_assert(!e4m3 || Rows <= threads, "one thread copies one scale");
};

template <int Line>
SIE_DEVICE uint32_t swizzle(uint32_t row, uint32_t piece) {
  return row * Line + ((Line == 128 ? piece ^ (row & 7u) : piece ^ (row >> 1 & 3u)) << 4);
}

// One thread's share of the copies: the same piece of every rows_a_pass-th row.
template <class Tile>
struct GemmSm80Copies {
  const uint8_t *x, *w;  // its first rows, at its piece of line 0
  int64_t x_pass, w_pass;
  const float *scale;         // e4m3 in blocks: of row `thread`
  uint32_t x_valid, w_valid;  // bit i: pass i exists
  uint32_t at;                // in a stage
  int32_t piece_bytes, k_bytes;
  bool copies_scale, scale_valid;

  SIE_DEVICE GemmSm80Copies(const GemmSm80Args &a, int64_t row0, int32_t column0, int32_t n) {
    uint32_t thread = threadIdx.x, row = thread / Tile::pieces, piece = thread % Tile::pieces;
    piece_bytes = static_cast<int32_t>(16 * piece);
    k_bytes = a.k_bytes;
    x_pass = a.x_row * Tile::rows_a_pass;
    w_pass = a.w_row * Tile::rows_a_pass;
    x = a.x + (row0 + row) * a.x_row + piece_bytes;
    w = a.w + (static_cast<int64_t>(column0) + row) * a.w_row + piece_bytes;
    at = swizzle<Tile::line>(row, piece);
    x_valid = w_valid = 0;
#pragma unroll
    for (int i = 0; i < Tile::x_copies; i++) {
      if (row0 + row + i * Tile::rows_a_pass < n) x_valid |= 1u << i;
    }
#pragma unroll
    for (int i = 0; i < Tile::w_copies; i++) {
      if (column0 + static_cast<int32_t>(row) + i * Tile::rows_a_pass < a.epilogue.n) w_valid |= 1u << i;
    }
    copies_scale = Tile::e4m3 && a.block_scales && thread < Tile::rows;
    scale_valid = row0 + thread < n;
    scale = a.x_scale + (row0 + thread) * a.x_scale_ld;
  }

  SIE_DEVICE void issue(uint32_t stage, int32_t line) const {
    const int64_t offset = static_cast<int64_t>(line) * Tile::line;
    const int32_t in_k = max(0, min(16, k_bytes - static_cast<int32_t>(offset) - piece_bytes));
#pragma unroll
    for (int i = 0; i < Tile::x_copies; i++) {
      ptx::cp_async_16_head(stage + at + i * Tile::rows_a_pass * Tile::line, x + i * x_pass + offset,
                            (x_valid >> i & 1u) != 0 ? in_k : 0);
    }
#pragma unroll
    for (int i = 0; i < Tile::w_copies; i++) {
      ptx::cp_async_16(stage + at + (Tile::rows + i * Tile::rows_a_pass) * Tile::line,
                       w + i * w_pass + offset, (w_valid >> i & 1u) != 0);
    }
    if (copies_scale) {
      ptx::cp_async_4(stage + (Tile::rows + Tile::columns) * Tile::line + threadIdx.x * 4, scale + line,
                      scale_valid);
    }
  }
};

// The operands of a warp in one mma step.
template <class Tile>
struct GemmSm80Fragments {
  uint32_t a[Tile::tiles_r][4];
  uint32_t b[Tile::tiles_c / 2][4];  // two tiles of 8 columns each

  // a_at, b_at: the lane's rows at step 0. A step is 32 bytes of k, two pieces: bit 5 of the
  // swizzled address.
  SIE_DEVICE void load(uint32_t a_at, uint32_t b_at, int step) {
#pragma unroll
    for (int i = 0; i < Tile::tiles_r; i++) {
      ptx::ldmatrix_x4(
          a[i], (a_at ^ static_cast<uint32_t>(step << 5)) + static_cast<uint32_t>(i * 16 * Tile::line));
    }
#pragma unroll
    for (int i = 0; i < Tile::tiles_c / 2; i++) {
      ptx::ldmatrix_x4(
          b[i], (b_at ^ static_cast<uint32_t>(step << 5)) + static_cast<uint32_t>(i * 16 * Tile::line));
    }
  }

  SIE_DEVICE void multiply(float (&acc)[Tile::tiles_r][Tile::tiles_c][4]) const {
#pragma unroll
    for (int r = 0; r < Tile::tiles_r; r++) {
#pragma unroll
      for (int c = 0; c < Tile::tiles_c; c++) {
        ptx::mma_m16n8<Tile::operand>(acc[r][c], a[r], b[c / 2][c % 2 * 2], b[c / 2][c % 2 * 2 + 1]);
      }
    }
  }
};

// Computes acc as above for the warp's rectangle, fragments as in mma.h. stages: the address of
// shared_bytes of shared memory; `memory`: the same as a pointer. The whole CTA calls; shared
// memory is free again when all threads have passed a barrier afterwards.
template <class Tile>
SIE_DEVICE void gemm_sm80_tile(const GemmSm80Args &a, int64_t row0, int32_t column0, int32_t n,
                               const unsigned char *memory, float (&acc)[Tile::tiles_r][Tile::tiles_c][4]) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t warp_row = warp / Tile::warps_c * Tile::warp_rows;
  const uint32_t warp_column = warp % Tile::warps_c * Tile::warp_columns;
  const uint32_t stages = ptx::shared_address(memory);
  // Matrices of A: rows 0-7 and 8-15 of piece 0, then of piece 1; of B: pieces 0 and 1 of rows 0-7,
  // then of 8-15.
  const uint32_t a_at = stages + swizzle<Tile::line>(warp_row + lane % 16, lane / 16);
  const uint32_t b_at = stages + Tile::rows * Tile::line +
                        swizzle<Tile::line>(warp_column + lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const GemmSm80Copies<Tile> copies(a, row0, column0, n);
  GemmSm80Fragments<Tile> fragments[2];

#pragma unroll
  for (int i = 0; i < Tile::stages - 1; i++) {
    if (i < a.lines) copies.issue(stages + i * Tile::stage_bytes, i);
    ptx::cp_async_commit();
  }
#pragma unroll
  for (int r = 0; r < Tile::tiles_r; r++) {
#pragma unroll
    for (int c = 0; c < Tile::tiles_c; c++) {
#pragma unroll
      for (int i = 0; i < 4; i++) acc[r][c][i] = 0.0f;
    }
  }
  ptx::cp_async_wait<Tile::stages - 2>();
  __syncthreads();
  fragments[0].load(a_at, b_at, 0);

  uint32_t read = 0, write = (Tile::stages - 1) * Tile::stage_bytes;
  for (int32_t line = 0; line < a.lines; line++) {
    const uint32_t next =
        read + Tile::stage_bytes == Tile::stages * Tile::stage_bytes ? 0 : read + Tile::stage_bytes;
    float inner[Tile::e4m3 ? Tile::tiles_r : 1][Tile::e4m3 ? Tile::tiles_c : 1][4];
    float scale[Tile::e4m3 ? Tile::tiles_r : 1][2];
    if constexpr (Tile::e4m3) {
      const float *scales =
          reinterpret_cast<const float *>(memory + read + (Tile::rows + Tile::columns) * Tile::line);
#pragma unroll
      for (int r = 0; r < Tile::tiles_r; r++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          // Read before this line's barrier: after it the stage is refilled.
          scale[r][half] = a.block_scales
                               ? ptx::load_shared<float>(scales + warp_row + r * 16 + half * 8 + lane / 4)
                               : 1.0f;
        }
#pragma unroll
        for (int c = 0; c < Tile::tiles_c; c++) {
#pragma unroll
          for (int i = 0; i < 4; i++) inner[r][c][i] = 0.0f;
        }
      }
    }
#pragma unroll
    for (int step = 0; step < Tile::steps; step++) {
      if (step == Tile::steps - 1) {
        // The next line has arrived for all threads, and all have left this one, which the next
        // iteration overwrites.
        ptx::cp_async_wait<Tile::stages - 2>();
        __syncthreads();
        fragments[(step + 1) % 2].load(a_at + next, b_at + next, 0);
      } else {
        fragments[(step + 1) % 2].load(a_at + read, b_at + read, step + 1);
      }
      if (step == 0) {
        if (line + Tile::stages - 1 < a.lines) copies.issue(stages + write, line + Tile::stages - 1);
        ptx::cp_async_commit();
      }
      if constexpr (Tile::e4m3) {
        fragments[step % 2].multiply(inner);
      } else {
        fragments[step % 2].multiply(acc);
      }
    }
    if constexpr (Tile::e4m3) {
#pragma unroll
      for (int r = 0; r < Tile::tiles_r; r++) {
#pragma unroll
        for (int c = 0; c < Tile::tiles_c; c++) {
#pragma unroll
          for (int i = 0; i < 4; i++)
            acc[r][c][i] = gemm_promote(scale[r][i / 2], inner[r][c][i], acc[r][c][i]);
        }
      }
    }
    write = read;
    read = next;
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM80_TILE_CUH
