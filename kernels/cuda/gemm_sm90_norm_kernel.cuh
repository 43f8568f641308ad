// gemm_sm90_norm_kernel — y = norm(round(x·Wᵀ + bias + residual))·(offset + γ) + β on Hopper: the wide form
// (gemm_sm90.cuh), whose clusters hold whole rows of y and normalise them before they are stored.
//   norm     LayerNorm (layernorm.cuh), of rows that were rounded to y's type as the linear stores them
// Shapes   x [R, K], W [N, K] packed; residual, y [R, N]; bias, γ, β [N]. N is 384, 768 or 1,024.
// Types    x, W, residual, y all bf16 or all f16.
// Align    x, residual, y: base and row stride multiples of 16 B; bias, γ, β: 16 B.
// Alias    y may be the residual.
// Cost     the wide form's, of y and residual as there; nothing more is moved. 9 instructions an element and
//          two exchanges in a cluster more: BERT-base out, R = 16k: 30 µs for 29 + 15 (docs/adr/0046).
// Plan     the CTAs of a cluster have the same rows and each its own columns. Each brings a share of x's
//          rows of a step, by multicast, and all of its W. A consumer warp adds bias and residual in place,
//          rounds, and keeps the values in pairs: 96 registers of what were 192. It sums its rows in the
//          order of norm_order.cuh: a group is its CTA's columns, or half of them. The warps of one number in all CTAs have the same rows and send each other their sums,
//          then those of the squares of differences, by st.async: four rows in 16 bytes, to itself too.
//          Then rows leave as the wide form's. bias, γ and β of a CTA's columns come once.
// Class    bit for bit the linear and the layernorm behind it.
// Error    theirs.
// Timeline beside those of gemm_sm90_kernel.cuh; a warp and its counterparts, c of a warp is a barrier that
//          counts the bytes of all CTAs, c[0] of sums and c[1] of squares:
//   begin     ask for the first two pieces of the residual, when the stores of the tile before have read
//   epilogue  all pieces: wait residual · y over the sums, in registers · ask for the piece two further
//             sums to all at their c[0] · wait c[0] · squares to all at their c[1] · wait c[1]
//             all pieces: when the store before the last has read · y into staging · TMA store
//          No barrier guards what c[0] counts against the next tile's sums: who sends those has got the
//          squares of all, and who sent squares had read all sums; so c[1] by the sums of the next tile.
//          A main loop waits for main loops of its own tile and of those before, an epilogue for main loops
//          of its own tile: no wait closes a circle.
// Source   docs/adr/0046; PTX ISA 9.0, st.async
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_NORM_KERNEL_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_NORM_KERNEL_CUH

#include "cuda/gemm_sm90_kernel.cuh"
#include "cuda/gemm_sm90_norm_tiles.h"
#include "cuda/norm_order.cuh"
#include "cuda/ptx/cluster_store.h"

namespace sie_cuda {

// A tile of gemm_sm90_norm_tiles.h in a class, in whole rows.
template <class Class, class Shape>
struct Sm90NormTile : Sm90Tile<Class, Shape> {
  using Base = Sm90Tile<Class, Shape>;
  static constexpr bool whole_rows = true;
  // bias, γ and β of the CTA's columns.
  static constexpr int vectors = 1, vector_floats = 3 * Base::columns, vector_bytes = vector_floats * 4;
  static constexpr int barrier_bytes = 448;
  // Four rows of one warp from one CTA; of a warp's tile, once of sums and once of squares.
  static constexpr int packets = Base::blocks_m * 4, exchange_packets = Base::cluster * packets;
  static constexpr int exchange_bytes = 8 * 2 * exchange_packets * 16;
  static constexpr int rest_bytes = sm90_staging_all + vector_bytes + barrier_bytes + exchange_bytes;
  static constexpr int stages_fit = (sm90_shared_limit - rest_bytes) / Base::stage_bytes;
  static constexpr int stages = stages_fit < 8 ? stages_fit : 8;
  static constexpr int shared_bytes = stages * Base::stage_bytes + rest_bytes;
  // Groups of norm_order.cuh in the CTA's columns.
  static constexpr int groups = Base::columns == 256 ? 2 : 1, group_octets = Base::columns / 8 / groups;
  static_assert(stages >= 3 && (38 + 2 * stages) * 8 <= barrier_bytes, "a tile that fits");
  static_assert(Base::blocks_n == 1 && Base::blocks_m <= 2, "a warp's rows are one block or two");
  static_assert(Base::rows / Base::cluster % 8 == 0, "shares of x are whole atoms");
};

// Kernel arguments beside the linear's.
struct Sm90Norm {
  const float *gamma, *beta;  // [N]; beta may be NULL
  float eps, weight_offset;
};

// A thread's values of y before the norm, rounded, in pairs of columns: of block m, eighth and row half.
template <class Tile>
using Sm90Rounded = uint32_t[Tile::blocks_m][Tile::columns / 8][2];

// Finishes the tiles of a consumer warp.
template <class Tile, class Ending>
class Sm90NormWriter {
 public:
  SIE_DEVICE Sm90NormWriter(const Sm90Shared<Tile> &shared, const Sm90Gemm &g, const Sm90Norm &norm,
                            const ptx::TensorMap *y_map, const ptx::TensorMap *r_map)
      : shared_(shared), g_(g), norm_(norm), y_map_(y_map), r_map_(r_map) {}

  // Brings bias, γ and β of the CTA's columns, the first of which is `column`. One thread calls.
  SIE_DEVICE void bring_vectors(int32_t column) const {
    const float *const from[3] = {g_.epilogue.bias, norm_.gamma, norm_.beta};
    constexpr uint32_t bytes = Tile::columns * 4;
    uint32_t all = 0;
    for (int i = 0; i < 3; i++) all += from[i] != nullptr ? bytes : 0u;
    ptx::mbarrier_arrive_expect(shared_.vectors_full, all);
#pragma unroll
    for (int i = 0; i < 3; i++) {
      if (from[i] != nullptr)
        ptx::bulk_load(shared_.vectors + i * Tile::columns, from[i] + column, bytes, shared_.vectors_full);
    }
  }

  // Asks for the first two pieces of the residual.
  SIE_DEVICE void begin(const Sm90Place &place) const {
    const int down = blocks_down(place.row, *g_.rows);
    ask(read_, 0, place, down);
    ask(read_ + 1, 1, place, down);
  }

  // The tile; count: the CTA's number of it.
  SIE_DEVICE void operator()(float (&z)[Tile::blocks][Tile::sums], const Sm90Place &place, int32_t count) {
    const int down = blocks_down(place.row, *g_.rows);
    ptx::mbarrier_wait(shared_.vectors_full, 0);
    Sm90Rounded<Tile> v;
    round(z, v, place, down);
    const uint32_t parity = static_cast<uint32_t>(Tile::cooperative ? count : count / 2) & 1u;
    const float columns = static_cast<float>(Tile::columns * Tile::cluster);
    float mean[Tile::blocks_m][2] = {}, factor[Tile::blocks_m][2];
    exchange<false>(v, mean, parity, factor);
    hide(v);
    each_row([&](int m, int half) { mean[m][half] = __fdiv_rn(factor[m][half], columns); });
    exchange<true>(v, mean, parity, factor);
    hide(v);
    each_row([&](int m, int half) {
      const float variance = __fdiv_rn(factor[m][half], columns);
      factor[m][half] = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(variance, norm_.eps)));
    });
    store(v, mean, factor, place, down);
  }

 private:
  static constexpr int eighths = Ending::columns / 8, pieces = Tile::columns / Ending::columns;
  static constexpr ptx::Operand type = Ending::y == SIE_F16 ? ptx::Operand::f16 : ptx::Operand::bf16;

  template <class F>
  SIE_DEVICE static void each_row(const F &f) {
#pragma unroll
    for (int m = 0; m < Tile::blocks_m; m++) {
#pragma unroll
      for (int half = 0; half < 2; half++) f(m, half);
    }
  }

  SIE_DEVICE int blocks_down(int32_t row, int32_t rows) const {
    return row < rows ? min(Tile::blocks_m, (rows - row + 63) / 64) : 0;
  }

  // The warp's piece of staging by number, and the barrier of its residual.
  SIE_DEVICE unsigned char *staging(uint32_t number) const {
    return shared_.staging + (ptx::thread_index() / 32 * 2 + static_cast<int>(number % 2)) * sm90_staging;
  }
  SIE_DEVICE uint64_t *residual(uint32_t number) const {
    return shared_.residual + ptx::thread_index() / 32 * 2 + number % 2;
  }

  // Asks for the residual of a piece of the tile, where there is one, when the warp is done with what was in its
  // memory. number: since the start. A tile's pieces go block by block, then along the columns.
  SIE_DEVICE void ask(uint32_t number, int piece, const Sm90Place &place, int down) const {
    ptx::sync_warp();
    if (piece >= pieces * down || ptx::lane_id() != 0) return;
    ptx::tma_store_wait_read<0>();
    ptx::mbarrier_arrive_expect(residual(number), sm90_staging);
    const int m = piece & (down - 1), p = piece >> (down - 1);  // down is 1 or 2
    ptx::tma_load_2d(staging(number), r_map_, place.row + 64 * m, place.column + p * Ending::columns,
                     residual(number));
  }

  // Ends what was derived from the values: kept until the next time that it is used, it does not fit the registers.
  SIE_DEVICE static void hide(Sm90Rounded<Tile> &v) {
    each_row([&](int m, int half) {
#pragma unroll
      for (int i = 0; i < Tile::columns / 8; i++)
        v[m][i][half] = static_cast<uint32_t>(ptx::opaque(static_cast<int32_t>(v[m][i][half])));
    });
  }

  // Sums → values of y before the norm, rounded as a store to y would.
  SIE_DEVICE void round(float (&z)[Tile::blocks][Tile::sums], Sm90Rounded<Tile> &to, const Sm90Place &place,
                        int down) {
    const int lane = static_cast<int>(ptx::lane_id());
#pragma unroll
    for (int p = 0; p < pieces; p++) {
#pragma unroll
      for (int m = 0; m < Tile::blocks_m; m++) {
        if (m >= down) {
#pragma unroll
          for (int i = p * eighths; i < (p + 1) * eighths; i++) to[m][i][0] = to[m][i][1] = 0;
          continue;
        }
        ptx::mbarrier_wait(residual(read_), read_ / 2 % 2);
#pragma unroll
        for (int part = 0; part < 2; part++) {
          const int first = p * eighths + part * (eighths / 2);
          sm90_finish<Tile, Ending, eighths / 2>(z, m, first, p * eighths, g_, {0, 0, lane % 4},
                                                 shared_.vectors, staging(read_));
#pragma unroll
          for (int i = first; i < first + eighths / 2; i++) {
            const float *v = sm90_eighth<Tile>(z, m, i);
#pragma unroll
            for (int half = 0; half < 2; half++)
              to[m][i][half] = ptx::pack2<type>(v[2 * half], v[2 * half + 1]);
          }
        }
        read_++;
        ask(read_ + 1, p * down + m + 2, place, down);
      }
    }
  }

  // A thread's sum over one group of its CTA's columns (norm_order.cuh), of values or of squares of their
  // differences from the mean, before the quad's.
  template <bool Squares>
  SIE_DEVICE static float sum_of_group(const Sm90Rounded<Tile> &v, float mean, int m, int half, int group) {
    const auto pair = [&](int octet) {
      const float2 two = ptx::unpack2<type>(v[m][group * Tile::group_octets + octet][half]);
      if constexpr (Squares) return norm_pair_of_squares(__fsub_rn(two.x, mean), __fsub_rn(two.y, mean));
      return norm_pair(two.x, two.y);
    };
    const auto of_place = [&](int o) {
      if constexpr (Tile::group_octets == 16) return __fadd_rn(pair(o), pair(8 + o));
      return __fadd_rn(__fadd_rn(pair(o), pair(16 + o)), pair(8 + o));
    };
    float four[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float first = __fadd_rn(of_place(4 * i), of_place(4 * i + 1));
      four[i] = __fadd_rn(first, __fadd_rn(of_place(4 * i + 2), of_place(4 * i + 3)));
    }
    return __fadd_rn(four[0], four[1]);
  }

  // Sums over whole rows, the same in all CTAs: of_row[m][0] of row l/4 in block m, [1] of the row 8 further.
  template <bool Squares>
  SIE_DEVICE void exchange(const Sm90Rounded<Tile> &v, const float (&mean)[Tile::blocks_m][2],
                           uint32_t parity, float (&of_row)[Tile::blocks_m][2]) const {
    const uint32_t lane = ptx::lane_id(),
                   slot = static_cast<uint32_t>(ptx::thread_index()) / 32 * 2 + Squares;
    uint64_t *counted = shared_.counted + slot;
    float4 *from_all = reinterpret_cast<float4 *>(shared_.counted + 16) + slot * Tile::exchange_packets;
    float groups[Tile::groups][Tile::blocks_m][2];
#pragma unroll
    for (int group = 0; group < Tile::groups; group++) {
      each_row([&](int m, int half) {
        groups[group][m][half] = sum_of_group<Squares>(v, mean[m][half], m, half, group);
      });
    }
    ptx::sync_warp();  // ptxas sees that the lanes are together, and has all that follows only once
    each_row([&](int m, int half) {
      const auto quad = [&](int group) { return norm_both<2>(norm_both<1>(groups[group][m][half])); };
      of_row[m][half] = quad(0);
      if constexpr (Tile::groups == 2) of_row[m][half] = __fadd_rn(of_row[m][half], quad(1));
    });
    // A packet has rows q, q + 8, q + 1 and q + 9 of a block, for an even quad q. Of two blocks the even quad sends
    // the first, the odd one the second; a quad's lanes send to different CTAs.
    const bool odd = lane / 4 % 2 != 0;
    constexpr int last = Tile::blocks_m - 1;
    const float own[2] = {odd ? of_row[last][0] : of_row[0][0], odd ? of_row[last][1] : of_row[0][1]};
    float others[2];
#pragma unroll
    for (int half = 0; half < 2; half++)
      others[half] = ptx::shuffle_xor(odd ? of_row[0][half] : of_row[last][half], 4);
    const float4 packet = odd ? make_float4(others[0], others[1], own[0], own[1])
                              : make_float4(own[0], own[1], others[0], others[1]);
    float4 *to = from_all + ptx::cluster_rank() * Tile::packets + (last > 0 && odd ? 4 : 0) + lane / 8;
    if (last > 0 || !odd) {
#pragma unroll
      for (uint32_t rank = 0; rank < Tile::cluster; rank += 4) {
        if (rank + lane % 4 < Tile::cluster) ptx::store_cluster_async(to, rank + lane % 4, packet, counted);
      }
    }
    if (lane == 0) ptx::mbarrier_arrive_expect(counted, Tile::exchange_packets * 16);
    ptx::mbarrier_wait(counted, parity);
#pragma unroll
    for (int m = 0; m < Tile::blocks_m; m++) {
      float2 sums[Tile::cluster];
#pragma unroll
      for (int rank = 0; rank < Tile::cluster; rank++) {
        const float4 *of = from_all + rank * Tile::packets + 4 * m + lane / 8;
        sums[rank] = ptx::load_shared<float2>(reinterpret_cast<const float2 *>(of) + odd);
      }
#pragma unroll
      for (int width = 1; width < Tile::cluster; width *= 2) {
#pragma unroll
        for (int rank = 0; rank < Tile::cluster; rank += 2 * width) {
          sums[rank].x = __fadd_rn(sums[rank].x, sums[rank + width].x);
          sums[rank].y = __fadd_rn(sums[rank].y, sums[rank + width].y);
        }
      }
      of_row[m][0] = sums[0].x;
      of_row[m][1] = sums[0].y;
    }
  }

  // Rounded values → y, and its stores.
  SIE_DEVICE void store(const Sm90Rounded<Tile> &v, const float (&mean)[Tile::blocks_m][2],
                        const float (&factor)[Tile::blocks_m][2], const Sm90Place &place, int down) const {
    const int lane = static_cast<int>(ptx::lane_id());
    const int32_t rows = *g_.rows;
    const float *gammas = shared_.vectors + Tile::columns, *betas = gammas + Tile::columns;
#pragma unroll
    for (int p = 0; p < pieces; p++) {
#pragma unroll
      for (int m = 0; m < Tile::blocks_m; m++) {
        if (m >= down) break;
        unsigned char *piece = staging(static_cast<uint32_t>(p * down + m));
        // What lay there has been read: by the store before the last, or by the other lanes.
        if (lane == 0) ptx::tma_store_wait_read<1>();
        ptx::sync_warp();
#pragma unroll
        for (int i = 0; i < eighths; i += 2) {
          uint32_t r[4];  // two eighths of two rows
#pragma unroll
          for (int j = 0; j < 2; j++) {
            const int eighth = p * eighths + i + j, at = 8 * eighth + 2 * (lane % 4);
            const float2 gamma = ptx::load_shared<float2>(gammas + at);
            float2 beta = make_float2(0.0f, 0.0f);
            if (norm_.beta != nullptr) beta = ptx::load_shared<float2>(betas + at);
            const float2 weight =
                make_float2(__fadd_rn(norm_.weight_offset, gamma.x), __fadd_rn(norm_.weight_offset, gamma.y));
#pragma unroll
            for (int half = 0; half < 2; half++) {
              const float2 two = ptx::unpack2<type>(v[m][eighth][half]);
              const float x = __fmul_rn(__fsub_rn(two.x, mean[m][half]), factor[m][half]),
                          y = __fmul_rn(__fsub_rn(two.y, mean[m][half]), factor[m][half]);
              r[2 * j + half] =
                  ptx::pack2<type>(__fmaf_rn(x, weight.x, beta.x), __fmaf_rn(y, weight.y, beta.y));
            }
          }
          ptx::stmatrix_x4(sm90_staged(piece, lane % 16, (i + lane / 16) * 16), r);
        }
        sm90_send<Ending>(g_.epilogue, y_map_, piece, ptx::opaque(place.row + 64 * m), rows,
                          ptx::opaque(place.column + p * Ending::columns));
      }
    }
  }

  const Sm90Shared<Tile> &shared_;
  const Sm90Gemm &g_;
  const Sm90Norm &norm_;
  const ptx::TensorMap *y_map_, *r_map_;
  uint32_t read_ = 0;  // pieces of the residual
};

template <class Tile>
__global__ void __launch_bounds__(sm90_threads, 1)
    gemm_sm90_norm_kernel(const __grid_constant__ ptx::TensorMap x_map,
                          const __grid_constant__ ptx::TensorMap w_map,
                          const __grid_constant__ ptx::TensorMap y_map,
                          const __grid_constant__ ptx::TensorMap r_map, const __grid_constant__ Sm90Gemm g,
                          const __grid_constant__ Sm90Norm norm) {
#if !defined(__CUDA_ARCH__) || SIE_PTX_SM90A
  SIE_DYNAMIC_SHARED(base);
  const Sm90Shared<Tile> shared(base);
  if (threadIdx.x == 0) {
    ptx::tma_prefetch(&y_map);
    ptx::tma_prefetch(&r_map);
  }
  sm90_roles<Tile, true>(shared, &x_map, &w_map, g, [&] {
    Sm90NormWriter<Tile, Sm90Ending<Tile, Sm90Form::residual>> finish(shared, g, norm, &y_map, &r_map);
    Sm90Place first;  // a CTA without tiles waits for nothing that it asked for
    if (threadIdx.x == 0 && sm90_place<Tile>(0, g, &first)) finish.bring_vectors(first.column);
    sm90_consume(shared, g, finish);
    if (ptx::lane_id() == 0) ptx::tma_store_wait<0>();
  });
#endif
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_NORM_KERNEL_CUH
