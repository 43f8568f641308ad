// splade_sm90 — y[b, v] = max(0, max over the tokens i of sequence b of (x_i·Wᵀ + bias)[v]) on
// Hopper's tensor cores.
//   z as in gemm_sm90.cuh, then bias and scales as in gemm_epilogue.cuh
// Shapes   x [T, K], W [N, K] packed (gemm_pack.h), y [B, N], zeros before the launch. T read from
//          *rows, K, N ≥ 1.
// Types    x, W: bf16 | f16 | e4m3, scales of x by row or 1×128 block. bias, y f32. A NaN does not
//          count in the maximum.
// Alias    none.
// Align    x: base 16 B, row stride a multiple of 16 B (TMA). y, bias any.
// Cost     2·T·N·K flop: 16,384 tokens with BERT's vocabulary (30,522 × 768) 768 GFLOP, 0.97 ms at
//          790 TFLOP/s. A tile's maximum, some 750 issue slots a warp at 192 columns, hides behind the
//          other warpgroup's 8,900 clocks of products.
// Plan     gemm_sm90's warpgroups in turn on tiles of their own, with the barriers of form `any`
//          (timeline: gemm_sm90_kernel.cuh); in place of the store each warp
//          takes the maximum of its 16 rows of every 64 as splade_sm80.cuh does: in registers,
//          three shuffles, one integer maximum a column and sequence into y. More than 128 rows are
//          shared out in pairs of CTAs, which bring each tile of W once (splade_sm90_tile).
// Error    that of gemm_sm90: rounding is monotone, so bias and scales after the maximum give the
//          bits that they would have given before it.
// Source   Formal 2021, arXiv:2109.10086 §3
#ifndef SIE_KERNELS_CUDA_SPLADE_SM90_CUH
#define SIE_KERNELS_CUDA_SPLADE_SM90_CUH

#include "cuda/gemm_sm90_launch.cuh"
#include "cuda/ptx/atomic.h"
#include "cuda/sequence_of.cuh"
#include "cuda/splade.h"

namespace sie_cuda {

// Rows [first, last) of sequence b, all among the 16 of the warp in 64-row block m, which begin at
// `top`.
template <class Tile>
SIE_DEVICE void sm90_splade_sequence(float (&z)[Tile::blocks][Tile::sums], int m, const Sm90Gemm &g,
                                     const SpladeTarget &to, int32_t top, int32_t column0, int32_t b,
                                     int32_t first, int32_t last) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id());
  const int32_t from = first - top - lane / 4, until = last - top - lane / 4;
  const bool low = from <= 0 && until > 0, high = from <= 8 && until > 8;
  const GemmEpilogue &e = g.epilogue;
#pragma unroll
  for (int group = 0; group < Tile::columns / 64; group++) {
    float own[2] = {-INFINITY,
                    -INFINITY};  // of columns 2·(lane % 4) and + 1 of eighth lane / 4: the lane's to write
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const float *v = sm90_eighth<Tile>(z, m, group * 8 + i);
#pragma unroll
      for (int c = 0; c < 2; c++) {
        float most = fmaxf(low ? v[c] : -INFINITY, high ? v[2 + c] : -INFINITY);
#pragma unroll
        for (int step = 4; step < 32; step *= 2) most = fmaxf(most, ptx::shuffle_xor(most, step));
        if (lane / 4 == i) own[c] = most;
      }
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const int32_t column = column0 + group * 64 + lane / 4 * 8 + lane % 4 * 2 + c;
      if (column >= e.n) continue;
      const float bias = e.bias != nullptr ? e.bias[column] : 0.0f;
      const float logit =
          Tile::promoted ? gemm_z_scaled(own[c], 1.0f, g.w_scale[column], bias) : gemm_z(own[c], bias);
      if (logit > 0.0f) {
        ptx::reduce_max_global(reinterpret_cast<int32_t *>(to.y + b * to.y_ld + column),
                               __float_as_int(logit));
      }
    }
  }
}

// The whole tile of a warpgroup. row: the warp's first of the tile; column: the tile's first of W.
template <class Tile>
SIE_DEVICE void sm90_splade(float (&z)[Tile::blocks][Tile::sums], const Sm90Gemm &g, const SpladeTarget &to,
                            int32_t row, int32_t rows, int32_t column) {
  static_assert(Tile::columns % 64 == 0, "whole groups of eight eighths");
  const int32_t seqs = *to.seqs, lane = static_cast<int32_t>(ptx::lane_id());
#pragma unroll
  for (int m = 0; m < Tile::blocks_m; m++) {
    const int32_t top = ptx::opaque(row + 64 * m), bottom = min(rows, top + 16);
    if (top >= bottom) continue;
    if (Tile::promoted && g.row_scale != nullptr) {
      const float low = top + lane / 4 < bottom ? g.row_scale[top + lane / 4] : 1.0f,
                  high = top + lane / 4 + 8 < bottom ? g.row_scale[top + lane / 4 + 8] : 1.0f;
#pragma unroll
      for (int i = 0; i < Tile::columns / 8; i++) {
        float *v = sm90_eighth<Tile>(z, m, i);
#pragma unroll
        for (int c = 0; c < 2; c++) {
          v[c] = __fmul_rn(v[c], low);
          v[2 + c] = __fmul_rn(v[2 + c], high);
        }
      }
    }
    int32_t first = top;
    for (int32_t b = sequence_of(to.cu_seqlens, seqs, top).index; first < bottom && b < seqs; b++) {
      const int32_t last = min(bottom, to.cu_seqlens[b + 1]);
      if (first < last) sm90_splade_sequence<Tile>(z, m, g, to, top, column, b, first, last);
      first = last;
    }
  }
}

namespace {

// Finishes the tiles of a consumer warpgroup.
template <class Tile>
struct SpladeFinish {
  const Sm90Gemm &g;
  const SpladeTarget &to;
  SIE_DEVICE void begin(const Sm90Place &) const {}
  SIE_DEVICE void operator()(float (&z)[Tile::blocks][Tile::sums], const Sm90Place &place, int32_t) const {
    sm90_splade<Tile>(z, g, to, place.row, *g.rows, place.column);
  }
};

template <class Tile>
__global__ void __launch_bounds__(sm90_threads, 1)
    splade_sm90_kernel(const __grid_constant__ ptx::TensorMap x_map,
                       const __grid_constant__ ptx::TensorMap w_map, const __grid_constant__ Sm90Gemm g,
                       const __grid_constant__ SpladeTarget to) {
#if !defined(__CUDA_ARCH__) || SIE_PTX_SM90A
  SIE_DYNAMIC_SHARED(base);
  const Sm90Shared<Tile> shared(base);
  sm90_roles<Tile, false>(shared, &x_map, &w_map, g, [&] {
    SpladeFinish<Tile> finish = {g, to};
    sm90_consume(shared, g, finish);
  });
#endif
}

template <class Tile>
sie_status splade_sm90_launch(const GemmCall &call, const SpladeTarget &to) {
  ptx::TensorMap x, w;
  const sie_status status =
      sm90_operand_maps(call, Tile::step, Tile::rows, Tile::columns / Tile::cluster, &x, &w);
  if (status != SIE_OK) return status;
  Sm90Gemm g = sm90_arguments(call, Tile::step);
  const int64_t tiles_n = divide_up(call.args->n, Tile::columns);
  const int64_t tiles = divide_up(call.args->rows.cap, Tile::rows * Tile::cluster) * tiles_n;
  if (tiles > INT32_MAX / 4) return SIE_UNSUPPORTED;
  g.tiles_n = static_cast<int32_t>(tiles_n);
  int64_t clusters = call.on->multiprocessors / Tile::cluster;
  if (clusters < 1) clusters = 1;
  if (clusters > tiles) clusters = tiles;
  return SIE_LAUNCH_CLUSTER((splade_sm90_kernel<Tile>), Tile::cluster, clusters * Tile::cluster, sm90_threads,
                            Tile::shared_bytes, call.on, x, w, g, to);
}

template <class Class>
sie_status splade_sm90_class(const GemmCall &call, const SpladeTarget &to) {
  switch (splade_sm90_tile(Class::promoted, call.args->rows.cap)) {
    case GEMM_SM90_PINGPONG_64X128:
      return splade_sm90_launch<Sm90Tile<Class, Sm90Pingpong64x128>>(call, to);
    case GEMM_SM90_PINGPONG_128X128:
      return splade_sm90_launch<Sm90Tile<Class, Sm90Pingpong128x128>>(call, to);
    case GEMM_SM90_PINGPONG_128X128_PAIR:
      if constexpr (Class::promoted)
        return splade_sm90_launch<Sm90Tile<Class, Sm90Pingpong128x128Pair>>(call, to);
      return SIE_UNSUPPORTED;
    default:
      if constexpr (!Class::promoted)
        return splade_sm90_launch<Sm90Tile<Class, Sm90Pingpong128x192Pair>>(call, to);
      return SIE_UNSUPPORTED;
  }
}

}  // namespace

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_SPLADE_SM90_CUH
