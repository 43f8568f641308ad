// gemm_sm90_store — stores values in registers to rows of y: the second half of the wide form's
// epilogue.
//
// Finished values (gemm_sm90_finish.cuh) leave through two 2 KiB pieces of staging in turn: 16 rows
// of one 128-byte line. The line's 16-byte chunks are swizzled by the row, as TMA expects; this
// also keeps the warp's writes free of bank conflicts. A piece is stored by one TMA store where its
// 16 rows all exist, else by guarded 16-byte stores. Only the warp itself ever waits for it.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_STORE_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_STORE_CUH

#include "cuda/gemm_sm90_finish.cuh"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/opaque.h"

namespace sie_cuda {

// A byte of staging, by line (row of the 16) and byte in the line.
SIE_DEVICE unsigned char *sm90_staged(unsigned char *piece, int line, int byte) {
  return piece + line * sm90_line + ((byte / 16 ^ line % 8) * 16 + byte % 16);
}

// Stores one warp's 16 rows to y.
struct Sm90Writer {
  unsigned char *staging;  // two pieces
  const ptx::TensorMap *y_map;
  bool by_tma;  // all 16 rows exist, and y has a map
  int32_t row, rows;

  // Returns piece `count` of a tile, once the store that last read its memory has done so. The
  // stores of the previous tile have had a main loop's time.
  SIE_DEVICE unsigned char *claim(int count) const {
    if (ptx::lane_id() == 0) {
      if (count == 0) {
        ptx::tma_store_wait_read<0>();
      } else {
        ptx::tma_store_wait_read<1>();
      }
    }
    ptx::sync_warp();
    return staging + count % 2 * sm90_staging;
  }

  // Stores the written piece to columns [column, column + 128/element) of y, as far as y has them.
  SIE_DEVICE void send(const GemmEpilogue &e, unsigned char *piece, int32_t element, int32_t column) const {
    if (by_tma) ptx::fence_proxy_async();
    ptx::sync_warp();
    if (by_tma) {
      if (ptx::lane_id() == 0) ptx::tma_store_2d(y_map, piece, row, column);
    } else {
      store(e, piece, element, column);
    }
    // Commits also where TMA has nothing to do: claim counts pieces.
    if (ptx::lane_id() == 0) ptx::tma_store_commit();
  }

 private:
  SIE_DEVICE void store(const GemmEpilogue &e, unsigned char *piece, int32_t element, int32_t column) const {
    int32_t of_chunk = 16 / element;
    bool wide = (e.wide & GEMM_WIDE_Y) != 0 && e.y_type != SIE_F8E4M3;
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
      int chunk = static_cast<int>(ptx::lane_id()) + 32 * i, line = chunk / 8, byte = chunk % 8 * 16;
      int32_t first = column + chunk % 8 * of_chunk, bound = e.columns - first;
      if (row + line >= rows || bound <= 0) continue;
      unsigned char *y = static_cast<unsigned char *>(e.y) + ((row + line) * e.y_ld + first) * element;
      if (wide && bound >= of_chunk) {
        ptx::store_global(y, ptx::load_shared<uint4>(sm90_staged(piece, line, byte)));
      } else {
        store_some(y, piece, line, byte, element, bound < of_chunk ? bound : of_chunk);
      }
    }
  }

  SIE_DEVICE static void store_some(unsigned char *y, unsigned char *piece, int line, int byte,
                                    int32_t element, int32_t count) {
#pragma unroll 1
    for (int32_t i = 0; i < count; i++) {
      const unsigned char *from = sm90_staged(piece, line, byte + i * element);
      if (element == 4) {
        ptx::store_global(y + i * 4, ptx::load_shared<uint32_t>(from));
      } else if (element == 2) {
        ptx::store_global(y + i * 2, ptx::load_shared<uint16_t>(from));
      } else {
        y[i] = *from;
      }
    }
  }
};

// ---- values → pieces; column: of y, of the first eighth; sent: pieces of the tile before these

// bf16 or f16: 64 columns a piece.
template <class Tile, bool Gated, int Eighths, ptx::Operand Y>
SIE_DEVICE void sm90_write_16(float (&z)[Tile::blocks][Tile::sums], int m, int first, const GemmEpilogue &e,
                              const Sm90Writer &to, int sent, int32_t column) {
  constexpr int of_piece = Gated ? 16 : 8;
  int lane = static_cast<int>(ptx::lane_id());
#pragma unroll
  for (int p = 0; p < Eighths / of_piece; p++) {
    unsigned char *piece = to.claim(sent + p);
#pragma unroll
    for (int i = 0; i < of_piece; i += Gated ? 1 : 2) {
      const float *v = sm90_eighth<Tile>(z, m, first + p * of_piece + i);
      if constexpr (Gated) {
        int byte = (4 * i + lane % 4) * 2;
        ptx::store_shared(sm90_staged(piece, lane / 4, byte), ptx::to_16<Y>(v[0]));
        ptx::store_shared(sm90_staged(piece, lane / 4 + 8, byte), ptx::to_16<Y>(v[2]));
      } else {
        const float *w = sm90_eighth<Tile>(z, m, first + p * of_piece + i + 1);
        uint32_t r[4] = {ptx::pack2<Y>(v[0], v[1]), ptx::pack2<Y>(v[2], v[3]), ptx::pack2<Y>(w[0], w[1]),
                         ptx::pack2<Y>(w[2], w[3])};
        ptx::stmatrix_x4(sm90_staged(piece, lane % 16, (i + lane / 16) * 16), r);
      }
    }
    to.send(e, piece, 2, column + p * 64);
  }
}

// f32: 32 columns a piece.
template <class Tile, bool Gated, int Eighths>
SIE_DEVICE void sm90_write_f32(float (&z)[Tile::blocks][Tile::sums], int m, int first, const GemmEpilogue &e,
                               const Sm90Writer &to, int sent, int32_t column) {
  constexpr int of_piece = Gated ? 8 : 4;
  int lane = static_cast<int>(ptx::lane_id());
#pragma unroll
  for (int p = 0; p < Eighths / of_piece; p++) {
    unsigned char *piece = to.claim(sent + p);
#pragma unroll
    for (int i = 0; i < of_piece; i++) {
      const float *v = sm90_eighth<Tile>(z, m, first + p * of_piece + i);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        if constexpr (Gated) {
          ptx::store_shared(sm90_staged(piece, lane / 4 + 8 * half, (4 * i + lane % 4) * 4), v[2 * half]);
        } else {
          ptx::store_shared(sm90_staged(piece, lane / 4 + 8 * half, (8 * i + lane % 4 * 2) * 4),
                            make_float2(v[2 * half], v[2 * half + 1]));
        }
      }
    }
    to.send(e, piece, 4, column + p * 32);
  }
}

// e4m3: 128 columns a piece, which share a scale in each row. The four lanes of a row hold them
// all.
template <class Tile, bool Gated>
SIE_DEVICE void sm90_write_e4m3(float (&z)[Tile::blocks][Tile::sums], int m, int first, const GemmEpilogue &e,
                                const Sm90Writer &to, int sent, int32_t column) {
  constexpr int of_piece = Gated ? 32 : 16;
  int lane = static_cast<int>(ptx::lane_id());
  unsigned char *piece = to.claim(sent);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < of_piece; i++) {
      const float *v = sm90_eighth<Tile>(z, m, first + i) + 2 * half;
      // Columns behind the last count too: they are 0, or NaN, which fmaxf drops.
      largest = fmaxf(largest, fabsf(v[0]));
      if (!Gated) largest = fmaxf(largest, fabsf(v[1]));
    }
    largest = fmaxf(largest, ptx::shuffle_xor(largest, 1));
    largest = fmaxf(largest, ptx::shuffle_xor(largest, 2));
    float scale = e4m3_scale(largest), inverse = e4m3_inverse(scale);
    int line = lane / 4 + 8 * half;
    if (lane % 4 == 0 && to.row + line < to.rows && column < e.columns) {
      e.y_scale[(to.row + line) * e.y_scale_ld + column / 128] = scale;
    }
#pragma unroll
    for (int i = 0; i < of_piece; i++) {
      const float *v = sm90_eighth<Tile>(z, m, first + i) + 2 * half;
      if constexpr (Gated) {
        *sm90_staged(piece, line, 4 * i + lane % 4) = ptx::to_e4m3(__fmul_rn(v[0], inverse));
      } else {
        ptx::store_shared(sm90_staged(piece, line, 8 * i + lane % 4 * 2),
                          ptx::pack_e4m3x2(__fmul_rn(v[0], inverse), __fmul_rn(v[1], inverse)));
      }
    }
  }
  to.send(e, piece, 1, column);
}

// The whole tile of a warpgroup. row: the warp's first of the tile; column: the tile's first of W.
template <class Tile, Sm90Form Form>
SIE_DEVICE void sm90_store(float (&z)[Tile::blocks][Tile::sums], const Sm90Gemm &g, unsigned char *staging,
                           const ptx::TensorMap *y_map, int32_t row, int32_t rows, int32_t column) {
  constexpr bool is_gated = Form == Sm90Form::gated;
  // The columns of W that make 64 of y are finished at once: few enough that their loads fit the
  // registers left.
  constexpr int columns = is_gated ? 128 : 64, eighths = columns / 8;
  static_assert(Tile::columns % columns == 0, "whole groups");
  const GemmEpilogue &e = g.epilogue;
  int lane = static_cast<int>(ptx::lane_id());
#pragma unroll
  for (int m = 0; m < Tile::blocks_m; m++) {
    int32_t top = ptx::opaque(row + 64 * m);
    const Sm90Writer to = {staging, y_map, g.y_by_tma != 0 && top + 16 <= rows, top, rows};
#pragma unroll
    for (int group = 0; group < Tile::columns / columns; group++) {
      int first = group * eighths;
      int32_t c = ptx::opaque(column + group * columns), y_column = is_gated ? c / 2 : c;
      // In halves where the sums leave few registers.
      constexpr int parts = Tile::blocks * Tile::sums > 128 ? 2 : 1;
#pragma unroll
      for (int part = 0; part < parts; part++) {
        sm90_finish<Tile, Form, eighths / parts>(z, m, first + part * eighths / parts, g,
                                                 {top + lane / 4, rows, lane % 4},
                                                 ptx::opaque(c + part * columns / parts));
      }
      const int sent = m * (Tile::columns / columns) + group;  // pieces of 64 columns
      if (e.y_type == SIE_BF16) {
        sm90_write_16<Tile, is_gated, eighths, ptx::Operand::bf16>(z, m, first, e, to, sent, y_column);
      } else if (e.y_type == SIE_F16) {
        sm90_write_16<Tile, is_gated, eighths, ptx::Operand::f16>(z, m, first, e, to, sent, y_column);
      } else if (e.y_type == SIE_F32) {
        sm90_write_f32<Tile, is_gated, eighths>(z, m, first, e, to, 2 * sent, y_column);
      } else if (group % 2 == 1 && Tile::columns % (2 * columns) == 0) {
        sm90_write_e4m3<Tile, is_gated>(z, m, first - eighths, e, to, sent / 2, y_column - 64);
      }
    }
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_STORE_CUH
