// gemm_sm90_finish — turns sums in registers into values of y, in place: the first half of the wide
// form's hot epilogues. What each of them does is fixed when it is compiled (Sm90Ending).
//
// A warp holds 16 rows of each 64-row block of its warpgroup's tile. Thread l holds the rows l/4
// and l/4 + 8 and in every eight columns the pair 2(l%4), +1 (wgmma.h). The warp finishes a group
// of columns at a time, so that the loads of a group fit the registers that the sums leave.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_FINISH_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_FINISH_CUH

#include "cuda/gemm_sm90.cuh"
#include "cuda/gemm_sm90_pairs.cuh"

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

// Sums → z for `Eighths` eighths from `first` on; column: of W, of the first.
template <class Tile, int Eighths>
SIE_DEVICE void sm90_add_bias(float (&z)[Tile::blocks][Tile::sums], int m, int first, const Sm90Gemm &g,
                              Sm90Rows at, int32_t column) {
  const float *p = g.epilogue.bias;
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
    if (p != nullptr) bias = sm90_pair(p + c);
    if (Tile::promoted) scale = sm90_pair(g.w_scale + c);
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

// v + residual, without a gate; column: of y.
template <class Tile, class Ending, int Eighths>
SIE_DEVICE void sm90_add_residual(float (&z)[Tile::blocks][Tile::sums], int m, int first,
                                  const GemmEpilogue &e, Sm90Rows at, int32_t column) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (at.row + 8 * half >= at.rows) continue;
    const char *row = static_cast<const char *>(e.residual) +
                      ((at.row + 8 * half) * e.residual_ld + column + 2 * at.t) * Ending::element;
#pragma unroll
    for (int i = 0; i < Eighths; i++) {
      float *v = sm90_eighth<Tile>(z, m, first + i) + 2 * half;
      const float2 r = sm90_residual_pair<Ending::residual>(row + 8 * i * Ending::element);
      v[0] = gemm_add_residual(v[0], r.x);
      v[1] = gemm_add_residual(v[1], r.y);
    }
  }
}

// Turns sums into values of y. Behind a gate a pair of columns becomes one, in registers 0 and 2 of
// its eighth.
template <class Tile, class Ending, int Eighths>
SIE_DEVICE void sm90_finish(float (&z)[Tile::blocks][Tile::sums], int m, int first, const Sm90Gemm &g,
                            Sm90Rows at, int32_t column) {
  sm90_add_bias<Tile, Eighths>(z, m, first, g, at, column);
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
    sm90_add_residual<Tile, Ending, Eighths>(z, m, first, g.epilogue, at, column);
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_FINISH_CUH
