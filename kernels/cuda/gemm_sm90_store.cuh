// gemm_sm90_store — stores values in registers to rows of y: the second half of the wide form's hot
// epilogues.
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
  bool by_tma;  // all 16 rows exist
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

  // Stores the written piece to columns [column, column + Ending::line) of y.
  template <class Ending>
  SIE_DEVICE void send(const GemmEpilogue &e, unsigned char *piece, int32_t column) const {
    if (by_tma) ptx::fence_proxy_async();
    ptx::sync_warp();
    if (by_tma) {
      if (ptx::lane_id() == 0) ptx::tma_store_2d(y_map, piece, row, column);
    } else {
      store<Ending>(e, piece, column);
    }
    // Commits also where TMA has nothing to do: claim counts pieces.
    if (ptx::lane_id() == 0) ptx::tma_store_commit();
  }

 private:
  template <class Ending>
  SIE_DEVICE void store(const GemmEpilogue &e, unsigned char *piece, int32_t column) const {
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
      const int chunk = static_cast<int>(ptx::lane_id()) + 32 * i, line = chunk / 8, byte = chunk % 8 * 16;
      if (row + line >= rows) continue;
      unsigned char *y =
          static_cast<unsigned char *>(e.y) + ((row + line) * e.y_ld + column) * Ending::element + byte;
      ptx::store_global_whole(y, ptx::load_shared<uint4>(sm90_staged(piece, line, byte)));
    }
  }
};

// ---- values of one piece, from eighth `first` on → staging

// bf16 or f16.
template <class Tile, class Ending>
SIE_DEVICE void sm90_write_16(float (&z)[Tile::blocks][Tile::sums], int m, int first, unsigned char *piece) {
  constexpr ptx::Operand type = Ending::y == SIE_F16 ? ptx::Operand::f16 : ptx::Operand::bf16;
  const int lane = static_cast<int>(ptx::lane_id());
#pragma unroll
  for (int i = 0; i < Ending::columns / 8; i += Ending::gated ? 1 : 2) {
    const float *v = sm90_eighth<Tile>(z, m, first + i);
    if constexpr (Ending::gated) {
      const int byte = (4 * i + lane % 4) * 2;
      ptx::store_shared(sm90_staged(piece, lane / 4, byte), ptx::to_16<type>(v[0]));
      ptx::store_shared(sm90_staged(piece, lane / 4 + 8, byte), ptx::to_16<type>(v[2]));
    } else {
      const float *w = sm90_eighth<Tile>(z, m, first + i + 1);
      const uint32_t r[4] = {ptx::pack2<type>(v[0], v[1]), ptx::pack2<type>(v[2], v[3]),
                             ptx::pack2<type>(w[0], w[1]), ptx::pack2<type>(w[2], w[3])};
      ptx::stmatrix_x4(sm90_staged(piece, lane % 16, (i + lane / 16) * 16), r);
    }
  }
}

// f32, without a gate.
template <class Tile, class Ending>
SIE_DEVICE void sm90_write_f32(float (&z)[Tile::blocks][Tile::sums], int m, int first, unsigned char *piece) {
  const int lane = static_cast<int>(ptx::lane_id());
#pragma unroll
  for (int i = 0; i < Ending::columns / 8; i++) {
    const float *v = sm90_eighth<Tile>(z, m, first + i);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      ptx::store_shared(sm90_staged(piece, lane / 4 + 8 * half, (8 * i + lane % 4 * 2) * 4),
                        make_float2(v[2 * half], v[2 * half + 1]));
    }
  }
}

// e4m3: the 128 columns of the piece, which begin at `column` of y, share a scale in each row. The four lanes of a
// row hold them all.
template <class Tile, class Ending>
SIE_DEVICE void sm90_write_e4m3(float (&z)[Tile::blocks][Tile::sums], int m, int first, unsigned char *piece,
                                const GemmEpilogue &e, const Sm90Writer &to, int32_t column) {
  constexpr int eighths = Ending::columns / 8;
  const int lane = static_cast<int>(ptx::lane_id());
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < eighths; i++) {
      const float *v = sm90_eighth<Tile>(z, m, first + i) + 2 * half;
      largest = fmaxf(largest, fabsf(v[0]));
      if (!Ending::gated) largest = fmaxf(largest, fabsf(v[1]));
    }
    largest = fmaxf(largest, ptx::shuffle_xor(largest, 1));
    largest = fmaxf(largest, ptx::shuffle_xor(largest, 2));
    const float scale = e4m3_scale(largest), inverse = e4m3_inverse(scale);
    const int line = lane / 4 + 8 * half;
    if (lane % 4 == 0 && to.row + line < to.rows) {
      e.y_scale[(to.row + line) * e.y_scale_ld + column / 128] = scale;
    }
#pragma unroll
    for (int i = 0; i < eighths; i++) {
      const float *v = sm90_eighth<Tile>(z, m, first + i) + 2 * half;
      if constexpr (Ending::gated) {
        *sm90_staged(piece, line, 4 * i + lane % 4) = ptx::to_e4m3(__fmul_rn(v[0], inverse));
      } else {
        ptx::store_shared(sm90_staged(piece, line, 8 * i + lane % 4 * 2),
                          ptx::pack_e4m3x2(__fmul_rn(v[0], inverse), __fmul_rn(v[1], inverse)));
      }
    }
  }
}

// The whole tile of a warpgroup, piece by piece. row: the warp's first of the tile; column: the tile's first of W.
template <class Tile, class Ending>
SIE_DEVICE void sm90_store(float (&z)[Tile::blocks][Tile::sums], const Sm90Gemm &g, unsigned char *staging,
                           const ptx::TensorMap *y_map, int32_t row, int32_t rows, int32_t column) {
  constexpr int pieces = Tile::columns / Ending::columns, eighths = Ending::columns / 8;
  // The columns that are finished at once: few enough that their loads fit the registers left.
  constexpr int of_part = Tile::blocks * Tile::sums > 128 ? 4 : (Ending::gated ? 16 : 8);
  constexpr int parts = eighths > of_part ? eighths / of_part : 1;
  const GemmEpilogue &e = g.epilogue;
  const int lane = static_cast<int>(ptx::lane_id());
  const int present = min(pieces, (e.n - column) / Ending::columns);  // of the tile, in W's columns
#pragma unroll
  for (int m = 0; m < Tile::blocks_m; m++) {
    const int32_t top = ptx::opaque(row + 64 * m);
    const Sm90Writer to = {staging, y_map, top + 16 <= rows, top, rows};
#pragma unroll
    for (int p = 0; p < pieces; p++) {
      if (p >= present) break;
      const int first = p * eighths;
      const int32_t c = ptx::opaque(column + p * Ending::columns), y_column = Ending::gated ? c / 2 : c;
#pragma unroll
      for (int part = 0; part < parts; part++) {
        sm90_finish<Tile, Ending, eighths / parts>(z, m, first + part * (eighths / parts), g,
                                                   {top + lane / 4, rows, lane % 4},
                                                   ptx::opaque(c + part * (Ending::columns / parts)));
      }
      unsigned char *piece = to.claim(m * present + p);
      if constexpr (Ending::y == SIE_F32) {
        sm90_write_f32<Tile, Ending>(z, m, first, piece);
      } else if constexpr (Ending::y == SIE_F8E4M3) {
        sm90_write_e4m3<Tile, Ending>(z, m, first, piece, e, to, y_column);
      } else {
        sm90_write_16<Tile, Ending>(z, m, first, piece);
      }
      to.send<Ending>(e, piece, y_column);
    }
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_STORE_CUH
