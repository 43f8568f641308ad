// gemm_sm90_store — from sums in registers to rows of y: the epilogue of the wide form, warp by warp.
//
// A warp holds 16 rows of each 64-row block of its warpgroup's tile; thread l the rows l/4 and l/4 + 8 and in
// every eight columns the pair 2(l%4), +1 (wgmma.h). Values are finished in place, a group of columns at a
// time, and leave through two 2 KiB pieces of staging in turn: 16 rows of one 128-byte line, its 16-byte
// chunks swizzled by the row as TMA expects (and as keeps the warp's writes free of bank conflicts). A piece
// goes out as one TMA store where its 16 rows all exist, else by guarded 16-byte stores. Only the warp itself
// ever waits for it.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_STORE_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_STORE_CUH

#include "cuda/gemm_epilogue.cuh"
#include "cuda/gemm_sm90.cuh"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/opaque.h"

namespace sie_cuda {

// A staged byte: line (row of the 16) and byte in the line.
SIE_DEVICE unsigned char *sm90_staged(unsigned char *piece, int line, int byte) {
  return piece + line * sm90_line + ((byte / 16 ^ line % 8) * 16 + byte % 16);
}

// The way of one warp's 16 rows to y.
struct Sm90Writer {
  unsigned char *staging;  // two pieces
  const ptx::TensorMap *y_map;
  bool by_tma;  // all 16 rows exist, and y has a map
  int32_t row, rows;

  // Piece `count` of a tile, once the store that last read its memory has done so. Those of the tile before
  // have had a main loop's time.
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

  // The written piece to columns [column, column + 128/element) of y, as far as y has them.
  SIE_DEVICE void send(const GemmEpilogue &e, unsigned char *piece, int32_t element, int32_t column) const {
    if (by_tma) ptx::fence_proxy_async();
    ptx::sync_warp();
    if (by_tma) {
      if (ptx::lane_id() == 0) ptx::tma_store_2d(y_map, piece, row, column);
    } else {
      store(e, piece, element, column);
    }
    // Also where TMA has nothing to do: claim counts pieces.
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

// Registers of a thread that make `Columns` columns of one 64-row block: eight columns are four registers, of
// which (r, c), (r, c + 1), (r + 8, c), (r + 8, c + 1). The group that starts at eighth `first` of row block
// m.
template <class Tile>
SIE_DEVICE float *sm90_eighth(float (&z)[Tile::blocks][Tile::sums], int m, int eighth) {
  constexpr int per_block = Tile::width / 8;
  return &z[m * Tile::blocks_n + eighth / per_block][eighth % per_block * 4];
}

// Two neighbouring columns of W's vector p (bias, scales). Whole: p is aligned and has both.
template <bool Whole>
SIE_DEVICE float2 sm90_pair(const float *p, int32_t column, int32_t n) {
  if (Whole) {
    uint2 bits = ptx::load_global_nc<uint2>(p + column);
    return make_float2(__uint_as_float(bits.x), __uint_as_float(bits.y));
  }
  return make_float2(column < n ? p[column] : 0.0f, column + 1 < n ? p[column + 1] : 0.0f);
}

template <bool Whole>
SIE_DEVICE float2 sm90_residual_f32(const float *p, int32_t bound) {
  if (Whole) return ptx::load_global<float2>(p);
  return make_float2(bound > 0 ? p[0] : 0.0f, bound > 1 ? p[1] : 0.0f);
}

// Element and its right neighbour of a row of the residual; Whole as above. Type: of the residual.
template <int32_t Type, bool Whole>
SIE_DEVICE float2 sm90_residual(const void *row, int32_t column, int32_t columns) {
  if (Type == SIE_F32)
    return sm90_residual_f32<Whole>(static_cast<const float *>(row) + column, columns - column);
  const uint16_t *p = static_cast<const uint16_t *>(row) + column;
  uint32_t bits;
  if (Whole) {
    bits = ptx::load_global<uint32_t>(p);
  } else {
    bits = (column < columns ? p[0] : 0u) | (column + 1 < columns ? static_cast<uint32_t>(p[1]) << 16 : 0u);
  }
  return Type == SIE_BF16 ? ptx::unpack_bf16x2(bits) : ptx::unpack_f16x2(bits);
}

// Any residual, with looks at its type and at each column; `second` says whether the neighbour exists.
SIE_DEVICE float2 sm90_residual_any(const GemmEpilogue &e, int64_t row, int32_t column, bool second) {
  const int32_t columns = column + (second ? 2 : 1);
  const void *of_row =
      static_cast<const char *>(e.residual) + row * e.residual_ld * (e.residual_type == SIE_F32 ? 4 : 2);
  if (e.residual_type == SIE_F32) return sm90_residual<SIE_F32, false>(of_row, column, columns);
  if (e.residual_type == SIE_BF16) return sm90_residual<SIE_BF16, false>(of_row, column, columns);
  return sm90_residual<SIE_F16, false>(of_row, column, columns);
}

// Rounds and stores one or two columns of y (f32, bf16, f16), element by element where y is not aligned.
SIE_DEVICE void sm90_store_pair(const GemmEpilogue &e, int64_t row, int32_t column, bool second, float2 v) {
  const int64_t at = row * e.y_ld + column;
  const bool wide = second && (e.wide & GEMM_WIDE_Y) != 0 && column % 2 == 0;
  if (e.y_type == SIE_F32) {
    float *p = static_cast<float *>(e.y) + at;
    if (wide) return ptx::store_global(p, v);
    p[0] = v.x;
    if (second) p[1] = v.y;
  } else {
    uint16_t *p = static_cast<uint16_t *>(e.y) + at;
    uint32_t bits = e.y_type == SIE_BF16 ? ptx::pack_bf16x2(v.x, v.y) : ptx::pack_f16x2(v.x, v.y);
    if (wide) return ptx::store_global(p, bits);
    p[0] = static_cast<uint16_t>(bits);
    if (second) p[1] = static_cast<uint16_t>(bits >> 16);
  }
}

// ---- sums → values, in place

// What a thread needs to finish its two rows of one 64-row block.
struct Sm90Rows {
  int32_t row, rows;  // the first row; the other is 8 further
  int t;              // lane % 4
};

// Sums → z for `Eighths` eighths from `first` on; column: of W, of the first.
template <class Tile, int Eighths, bool Whole>
SIE_DEVICE void sm90_add_bias(float (&z)[Tile::blocks][Tile::sums], int m, int first, const Sm90Gemm &g,
                              Sm90Rows at, int32_t column) {
  const GemmEpilogue &e = g.epilogue;
  float row_scale[2] = {1.0f, 1.0f};
  if (Tile::promoted && g.row_scale != nullptr) {
    if (at.row < at.rows) row_scale[0] = g.row_scale[at.row];
    if (at.row + 8 < at.rows) row_scale[1] = g.row_scale[at.row + 8];
  }
#pragma unroll
  for (int i = 0; i < Eighths; i++) {
    float *v = sm90_eighth<Tile>(z, m, first + i);
    int32_t c = column + 8 * i + 2 * at.t;
    float2 bias = make_float2(0.0f, 0.0f), scale = bias;
    if (e.bias != nullptr) bias = sm90_pair<Whole>(e.bias, c, e.n);
    if (Tile::promoted) scale = sm90_pair<Whole>(g.w_scale, c, e.n);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      if (Tile::promoted) {
        v[2 * half] = gemm_z_scaled(v[2 * half], row_scale[half], scale.x, bias.x);
        v[2 * half + 1] = gemm_z_scaled(v[2 * half + 1], row_scale[half], scale.y, bias.y);
      } else {
        v[2 * half] = gemm_z(v[2 * half], bias.x);
        v[2 * half + 1] = gemm_z(v[2 * half + 1], bias.y);
      }
    }
  }
}

template <class Tile, Sm90Form Form, int Eighths, int32_t Type, bool Whole>
SIE_DEVICE void sm90_add_residual(float (&z)[Tile::blocks][Tile::sums], int m, int first,
                                  const GemmEpilogue &e, Sm90Rows at, int32_t column) {
  constexpr int element = Type == SIE_F32 ? 4 : 2;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (at.row + 8 * half >= at.rows) continue;
    const void *row = static_cast<const char *>(e.residual) + (at.row + 8 * half) * e.residual_ld * element;
#pragma unroll
    for (int i = 0; i < Eighths; i++) {
      float *v = sm90_eighth<Tile>(z, m, first + i) + 2 * half;
      if (Form == Sm90Form::gated) {
        // One column a lane: its right neighbour is not wanted.
        int32_t c = column / 2 + 4 * i + at.t;
        v[0] = gemm_add_residual(v[0], sm90_residual<Type, false>(row, c, min(e.columns, c + 1)).x);
      } else {
        float2 r = sm90_residual<Type, Whole>(row, column + 8 * i + 2 * at.t, e.columns);
        v[0] = gemm_add_residual(v[0], r.x);
        v[1] = gemm_add_residual(v[1], r.y);
      }
    }
  }
}

template <class Tile, Sm90Form Form, int Eighths, int32_t Type>
SIE_DEVICE void sm90_add_residual(float (&z)[Tile::blocks][Tile::sums], int m, int first,
                                  const GemmEpilogue &e, Sm90Rows at, int32_t column) {
  if (Form != Sm90Form::gated && (e.wide & GEMM_WIDE_RESIDUAL) != 0 && column + 8 * Eighths <= e.columns) {
    sm90_add_residual<Tile, Form, Eighths, Type, true>(z, m, first, e, at, column);
  } else {
    sm90_add_residual<Tile, Form, Eighths, Type, false>(z, m, first, e, at, column);
  }
}

// Sums → values of y. Behind a gate a pair of columns becomes one, in registers 0 and 2 of its eighth.
template <class Tile, Sm90Form Form, int Eighths>
SIE_DEVICE void sm90_finish(float (&z)[Tile::blocks][Tile::sums], int m, int first, const Sm90Gemm &g,
                            Sm90Rows at, int32_t column) {
  const GemmEpilogue &e = g.epilogue;
  if ((e.bias == nullptr || (e.wide & GEMM_WIDE_BIAS) != 0) && column + 8 * Eighths <= e.n) {
    sm90_add_bias<Tile, Eighths, true>(z, m, first, g, at, column);
  } else {
    sm90_add_bias<Tile, Eighths, false>(z, m, first, g, at, column);
  }
  if constexpr (Form == Sm90Form::activated) {
    with_activation(e.act, [&](auto act) {
#pragma unroll
      for (int i = 0; i < Eighths; i++) {
        float *v = sm90_eighth<Tile>(z, m, first + i);
#pragma unroll
        for (int r = 0; r < 4; r++) v[r] = activate<decltype(act)::value>(v[r]);
      }
    });
  }
  if constexpr (Form == Sm90Form::gated) {
    with_gate(e.gate, [&](auto gate) {
#pragma unroll
      for (int i = 0; i < Eighths; i++) {
        float *v = sm90_eighth<Tile>(z, m, first + i);
        v[0] = gated<decltype(gate)::value>(v[0], v[1]);
        v[2] = gated<decltype(gate)::value>(v[2], v[3]);
      }
    });
  }
  if (e.residual == nullptr) return;
  if (e.residual_type == SIE_F32) {
    sm90_add_residual<Tile, Form, Eighths, SIE_F32>(z, m, first, e, at, column);
  } else if (e.residual_type == SIE_BF16) {
    sm90_add_residual<Tile, Form, Eighths, SIE_BF16>(z, m, first, e, at, column);
  } else {
    sm90_add_residual<Tile, Form, Eighths, SIE_F16>(z, m, first, e, at, column);
  }
}

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

// e4m3: 128 columns a piece, which share a scale in each row. The four lanes of a row hold them all.
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
      int32_t c = column + (Gated ? 4 * i + lane % 4 : 8 * i + lane % 4 * 2);
      if (c < e.columns) largest = fmaxf(largest, fabsf(v[0]));
      if (!Gated && c + 1 < e.columns) largest = fmaxf(largest, fabsf(v[1]));
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
  // Columns of W that make 64 of y: finished at once, few enough that what they load fits the registers left.
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
      // In halves, where sums leave few registers.
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
