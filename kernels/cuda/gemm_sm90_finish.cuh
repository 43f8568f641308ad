// gemm_sm90_finish — turns sums in registers into values of y, in place: the first half of the wide
// form's epilogue.
//
// A warp holds 16 rows of each 64-row block of its warpgroup's tile. Thread l holds the rows l/4
// and l/4 + 8 and in every eight columns the pair 2(l%4), +1 (wgmma.h). The warp finishes a group
// of columns at a time, so that the loads of a group fit the registers that the sums leave.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_FINISH_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_FINISH_CUH

#include "cuda/gemm_sm90.cuh"
#include "cuda/gemm_sm90_pairs.cuh"

namespace sie_cuda {

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

// z + addend, for the same columns.
template <class Tile, int Eighths, bool Whole>
SIE_DEVICE void sm90_add_addend(float (&z)[Tile::blocks][Tile::sums], int m, int first, const GemmEpilogue &e,
                                Sm90Rows at, int32_t column) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (at.row + 8 * half >= at.rows) continue;
    const float *row = e.addend + (at.row + 8 * half) * e.addend_ld;
#pragma unroll
    for (int i = 0; i < Eighths; i++) {
      float *v = sm90_eighth<Tile>(z, m, first + i) + 2 * half;
      const float2 a = sm90_residual<SIE_F32, Whole>(row, column + 8 * i + 2 * at.t, e.n);
      v[0] = gemm_add_addend(v[0], a.x);
      v[1] = gemm_add_addend(v[1], a.y);
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
        // One column a lane: its right neighbour is not needed.
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

// Turns sums into values of y. Behind a gate a pair of columns becomes one, in registers 0 and 2 of
// its eighth.
template <class Tile, Sm90Form Form, int Eighths>
SIE_DEVICE void sm90_finish(float (&z)[Tile::blocks][Tile::sums], int m, int first, const Sm90Gemm &g,
                            Sm90Rows at, int32_t column) {
  const GemmEpilogue &e = g.epilogue;
  if ((e.bias == nullptr || (e.wide & GEMM_WIDE_BIAS) != 0) && column + 8 * Eighths <= e.n) {
    sm90_add_bias<Tile, Eighths, true>(z, m, first, g, at, column);
  } else {
    sm90_add_bias<Tile, Eighths, false>(z, m, first, g, at, column);
  }
  if (e.addend != nullptr) {
    if ((e.wide & GEMM_WIDE_ADDEND) != 0 && column + 8 * Eighths <= e.n) {
      sm90_add_addend<Tile, Eighths, true>(z, m, first, e, at, column);
    } else {
      sm90_add_addend<Tile, Eighths, false>(z, m, first, e, at, column);
    }
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

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_FINISH_CUH
