// gemm_sm90_finish — turns sums in registers into values of y, in place: the first half of the wide
// form's hot epilogues. What each of them does is fixed when it is compiled (Sm90Ending).
//
// A warp holds 16 rows of each 64-row block of its warpgroup's tile. Thread l holds the rows l/4
// and l/4 + 8 and in every eight columns the pair 2(l%4), +1 (wgmma.h). The warp finishes a group
// of columns at a time, so that the loads of a group fit the registers that the sums leave.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_FINISH_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_FINISH_CUH

#include "cuda/gemm_sm90.cuh"
#include "cuda/ptx/ldmatrix.h"

namespace sie_cuda {

// What a form of a class makes of the sums. The 16-bit type is the operands' own, of FP8 bf16; what
// FP8's next product reads is e4m3.
template <class Class, Sm90Form Form>
struct Sm90Ending {
  static constexpr int32_t own = Class::operand == ptx::Operand::f16 ? SIE_F16 : SIE_BF16;
  static constexpr int32_t gate = Form == Sm90Form::swiglu  ? SIE_GATE_SWIGLU
                                  : Form == Sm90Form::geglu ? SIE_GATE_GEGLU
                                                            : SIE_GATE_NONE;
  static constexpr int32_t act = Form == Sm90Form::gelu ? SIE_ACT_GELU_ERF : SIE_ACT_NONE;
  static constexpr bool gated = gate != SIE_GATE_NONE;
  static constexpr int32_t residual =
      Form == Sm90Form::residual ? own : (Form == Sm90Form::residual_f32 ? SIE_F32 : 0);
  static constexpr int32_t y = Form == Sm90Form::residual_f32                      ? SIE_F32
                               : Class::promoted && (gated || act != SIE_ACT_NONE) ? SIE_F8E4M3
                                                                                   : own;
  static constexpr int32_t element = y == SIE_F32 ? 4 : (y == SIE_F8E4M3 ? 1 : 2);
  // Columns of y a line of staging, and the columns of W that make them.
  static constexpr int32_t line = sm90_line / element, columns = line * (gated ? 2 : 1);

  // Whether it is what the epilogue asks for, all of it in whole lines and by wide accesses.
  static bool is(const GemmEpilogue &e, bool y_by_tma) {
    const int32_t wide = GEMM_WIDE_BIAS | (residual != 0 ? GEMM_WIDE_RESIDUAL : 0);
    return e.y_type == y && e.residual_type == residual && e.act == act && e.gate == gate &&
           e.addend == nullptr && (e.wide & wide) == wide && y_by_tma && e.columns % line == 0;
  }
};

// A thread's four registers of eight columns, number `eighth` of 64-row block m: (r, c), (r, c +
// 1), (r + 8, c) and (r + 8, c + 1).
template <class Tile>
SIE_DEVICE float *sm90_eighth(float (&z)[Tile::blocks][Tile::sums], int m, int eighth) {
  constexpr int per_block = Tile::width / 8;
  return &z[m * Tile::blocks_n + eighth / per_block][eighth % per_block * 4];
}

// What a thread needs to finish its two rows of one 64-row block.
struct Sm90Rows {
  int32_t row, rows;  // the first row; the other is 8 further
  int t;              // lane % 4
};

// A byte of staging, by line (row of the 16) and byte in the line.
SIE_DEVICE unsigned char *sm90_staged(unsigned char *piece, int line, int byte) {
  return piece + line * sm90_line + ((byte / 16 ^ line % 8) * 16 + byte % 16);
}

// Sums → z for `Eighths` eighths from `first` on. vectors: the tile's bias, of FP8 W's scales behind it.
template <class Tile, int Eighths>
SIE_DEVICE void sm90_add_bias(float (&z)[Tile::blocks][Tile::sums], int m, int first, const Sm90Gemm &g,
                              Sm90Rows at, const float *vectors) {
  float row_scale[2] = {1.0f, 1.0f};
  if (Tile::promoted && g.row_scale != nullptr) {
    if (at.row < at.rows) row_scale[0] = g.row_scale[at.row];
    if (at.row + 8 < at.rows) row_scale[1] = g.row_scale[at.row + 8];
  }
#pragma unroll
  for (int i = 0; i < Eighths; i++) {
    float *v = sm90_eighth<Tile>(z, m, first + i);
    const float *p = vectors + 8 * (first + i) + 2 * at.t;
    float2 bias = make_float2(0.0f, 0.0f), scale = bias;
    if (g.epilogue.bias != nullptr) bias = ptx::load_shared<float2>(p);
    if (Tile::promoted) scale = ptx::load_shared<float2>(p + Tile::columns);
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

// v + residual, without a gate; the residual lies in the piece of staging as y will, whose first eighth is
// `start`. Two eighths at a time: 16 bits as ldmatrix gives them, f32 where the thread's own values go.
template <class Tile, class Ending, int Eighths>
SIE_DEVICE void sm90_add_residual(float (&z)[Tile::blocks][Tile::sums], int m, int first, int start,
                                  unsigned char *piece) {
  const int lane = static_cast<int>(ptx::lane_id());
#pragma unroll
  for (int i = first - start; i < first - start + Eighths; i += 2) {
    float *v = sm90_eighth<Tile>(z, m, start + i), *w = sm90_eighth<Tile>(z, m, start + i + 1);
    float2 r[4];  // rows l/4 and l/4 + 8 of the first eighth, and of the second
    if constexpr (Ending::residual == SIE_F32) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        r[j] = ptx::load_shared<float2>(
            sm90_staged(piece, lane / 4 + j % 2 * 8, (8 * (i + j / 2) + lane % 4 * 2) * 4));
      }
    } else {
      uint32_t bits[4];
      ptx::ldmatrix_x4(bits, sm90_staged(piece, lane % 16, (i + lane / 16) * 16));
#pragma unroll
      for (int j = 0; j < 4; j++) {
        r[j] = Ending::residual == SIE_BF16 ? ptx::unpack_bf16x2(bits[j]) : ptx::unpack_f16x2(bits[j]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      v[2 * half] = gemm_add_residual(v[2 * half], r[half].x);
      v[2 * half + 1] = gemm_add_residual(v[2 * half + 1], r[half].y);
      w[2 * half] = gemm_add_residual(w[2 * half], r[2 + half].x);
      w[2 * half + 1] = gemm_add_residual(w[2 * half + 1], r[2 + half].y);
    }
  }
}

// Turns sums into values of y. Behind a gate a pair of columns becomes one, in registers 0 and 2 of
// its eighth. start: the first eighth of the piece.
template <class Tile, class Ending, int Eighths>
SIE_DEVICE void sm90_finish(float (&z)[Tile::blocks][Tile::sums], int m, int first, int start,
                            const Sm90Gemm &g, Sm90Rows at, const float *vectors, unsigned char *piece) {
  sm90_add_bias<Tile, Eighths>(z, m, first, g, at, vectors);
#pragma unroll
  for (int i = 0; i < Eighths; i++) {
    float *v = sm90_eighth<Tile>(z, m, first + i);
    if constexpr (Ending::gated) {
      v[0] = gated<Ending::gate>(v[0], v[1]);
      v[2] = gated<Ending::gate>(v[2], v[3]);
    } else {
#pragma unroll
      for (int r = 0; r < 4; r++) v[r] = activate<Ending::act>(v[r]);
    }
  }
  if constexpr (Ending::residual != 0) {
    sm90_add_residual<Tile, Ending, Eighths>(z, m, first, start, piece);
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_FINISH_CUH
