// gemm_sm90 — z = x·Wᵀ on Hopper's tensor cores, and through gemm_epilogue.cuh
// y = act(z + bias + addend) + residual.
//   16-bit   z[r,n] = Σ_k x[r,k]·W[n,k], one f32 chain: wgmma m64nNk16 in ascending k
//   FP8      z[r,n] = Σ_g s[r,g]·(Σ_k∈g x·w): a block g of 128 columns is four wgmma m64nNk32 from
//            zero, then one FMA into f32 registers (s = 1 where x has one scale a row, which the
//            epilogue multiplies)
// Shapes   x [R, K], W [N, K] packed (gemm_pack.h), y [R, N] or gated [R, N/2]. R ≥ 0 read on the
//          device; N, K ≥ 1.
// Types    x, W bf16 | f16 | e4m3; y, residual bf16 | f16 | f32, y also e4m3 with scales per 1×128
//          block.
// Align    x: base 16 B, row stride a multiple of 16 B (TMA). y, residual: any; wide stores where
//          both are multiples of 16 B.
// Cost     2·R·N·K flop, (R·K + N·K + R·N)·element bytes → at R = 16k, BERT shapes bound by the
//          tensor cores: 3072×768 98 µs at 790 TFLOP/s, bytes 44 µs at 3.0 TB/s.
// Plan     persistent CTAs of three warpgroups. One warp of the last brings K steps of 128 bytes by
//          TMA into a ring of stages (full and empty barriers); the other two warpgroups compute.
//          Ping-pong: each owns every second tile, so that one stores while the other multiplies;
//          `turn` barriers order their main loops (without them a parity wait could be a whole ring
//          early). Cooperative: each owns one half of the rows of every tile, for tiles whose
//          accumulators do not fit one warpgroup. Pairs of CTAs may share W by multicast. Rows
//          reach y through 2 KiB of swizzled staging a warp (16 rows × 128 bytes) and a TMA store;
//          where fewer than 16 rows are left, by guarded stores: nothing is written behind row *n.
//          Epilogues of models are kernels of their own, with all types constant (Sm90Form); one
//          kernel more does whatever else is asked for, in small code. The hot ones get bias and
//          scales from the producer, and each warp asks for the first two pieces of its residual
//          before its main loop: they come into the staging that their rows of y leave from.
// Class    K order, instruction K, promotion and the epilogue's rounding are the same in every
//          tile, schedule and cluster and in the skinny form (gemm_sm90_skinny.cuh): results are
//          equal bit for bit.
// Error    16-bit: f32 sums of exact products (tensor cores truncate addends, ≤ 2⁻²³ of the largest
//          each).
// Not done x's block scales K-major in shared memory by TMA. 512 bytes a stage fit no tile that keeps its
//          stages (704 bytes are left of 227 KiB), every writer and reader of scales would change, and
//          the model (cost.h, scale_clocks) finds nothing to gain: they are asked for ahead of a step's
//          first products, whose 284 clocks hide the 270 of L2. In the skinny form products take 144 a
//          step; it asks two steps ahead.
// Source   CUTLASS sm90 ping-pong schedule (PTX ISA 9.0 §9.7.15 wgmma; §5.5 tensors); promotion:
//          DeepSeek-V3, arXiv:2412.19437 §3.3.2.
#ifndef SIE_KERNELS_CUDA_GEMM_SM90_CUH
#define SIE_KERNELS_CUDA_GEMM_SM90_CUH

#include "cuda/gemm_epilogue.cuh"
#include "cuda/gemm_sm90_tiles.h"
#include "cuda/ptx/fence.h"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/registers.h"
#include "cuda/ptx/special.h"
#include "cuda/ptx/tma.h"
#include "cuda/ptx/wgmma.h"

namespace sie_cuda {

// The types of x, W and the sums; the same in every form.
template <ptx::Operand T>
struct Sm90Class {
  static constexpr ptx::Operand operand = T;
  static constexpr bool promoted = T == ptx::Operand::e4m3;
  static constexpr int step = T == ptx::Operand::e4m3 ? 128 : 64;  // columns of K a stage holds: 128 bytes
};

// 128-byte lines: the part of a row in a stage, and a row of the store's staging.
constexpr int sm90_line = 128;
constexpr int sm90_atom = 1024;  // eight swizzled lines
constexpr int sm90_warpgroup = 128;
constexpr int sm90_threads = 3 * sm90_warpgroup;
constexpr int sm90_staging = 16 * sm90_line;  // of one warp, one of two
constexpr int sm90_staging_all = 8 * 2 * sm90_staging;
constexpr int sm90_shared_limit = 227 * 1024;

// A tile of gemm_sm90_tiles.h in a class: what it takes of registers and shared memory. FP8 keeps a
// block of sums in addition to those it is promoted into, so that a wgmma has 128 columns.
template <class Class, class Shape>
struct Sm90Tile : Class {
  static constexpr bool cooperative = Shape::schedule == Sm90Schedule::cooperative;
  // Whether the CTAs of a cluster are neighbours along N and have whole rows of y (gemm_sm90_norm_kernel.cuh):
  // they share x, not W.
  static constexpr bool whole_rows = false;
  static constexpr int rows = Shape::rows, columns = Shape::columns, cluster = Shape::cluster;
  static constexpr int width = Class::promoted ? 128 : Shape::width;
  static constexpr int warpgroup_rows = sm90_warpgroup_rows<Shape>;
  static constexpr int blocks_m = warpgroup_rows / 64, blocks_n = columns / width;
  static constexpr int blocks = blocks_m * blocks_n;
  static constexpr int sums = width / 2;  // registers of a block
  static constexpr int x_bytes = rows * sm90_line, w_bytes = columns * sm90_line;
  static constexpr int stage_bytes = x_bytes + w_bytes;
  // Bias and W's scales of a tile's columns; of the tiles of both warpgroups where they take turns.
  static constexpr int vectors = cooperative ? 1 : 2;
  static constexpr int vector_floats = columns * (Class::promoted ? 2 : 1);
  static constexpr int vector_bytes = vectors * vector_floats * 4;
  static constexpr int barrier_bytes = 320;
  static constexpr int rest_bytes = sm90_staging_all + vector_bytes + barrier_bytes;
  static constexpr int stages_fit = (sm90_shared_limit - rest_bytes) / stage_bytes;
  static constexpr int stages = stages_fit < 8 ? stages_fit : 8;
  static constexpr int shared_bytes = stages * stage_bytes + rest_bytes;
  // The consumer warps of a tile, and those that free a stage, in every CTA that this CTA's TMA writes into.
  static constexpr int warps = cooperative ? 8 : 4, releases = warps * cluster;
  // The registers that threads of producer and consumers keep of their first 168:
  // 128·p + 256·c = 384·168.
  static constexpr int producer_registers = blocks * sums > 128 ? 24 : 40;
  static constexpr int consumer_registers = blocks * sums > 128 ? 240 : 232;
  static_assert(warpgroup_rows % 64 == 0 && columns % width == 0 && columns <= 256 && stages >= 3,
                "a tile that fits");
  static_assert((columns / cluster) % 8 == 0, "a share of W is whole atoms");
};

// Kernel arguments other than the tensor maps.
struct Sm90Gemm {
  const int32_t *rows;  // *n
  int32_t tiles_n;
  int32_t steps;             // of K
  const float *block_scale;  // FP8, x in 1×128 blocks: [R, steps]; else NULL
  const float *row_scale;    // FP8, x with one scale a row: [R]; else NULL
  const float *w_scale;      // FP8: [N]
  GemmEpilogue epilogue;
};

// The order of tiles: bands of 8 row tiles, column by column in a band. Tiles that are close in
// time, and so the CTAs of one wave, share rows of x and of W in L2. It depends on the shape alone.
struct Sm90Order {
  int32_t tiles_m, tiles_n, total;
  SIE_DEVICE void at(int32_t index, int32_t *m, int32_t *n) const {
    constexpr int32_t band = 8;
    int32_t of_band = band * tiles_n;
    int32_t first = index / of_band * band, rest = index % of_band;
    int32_t height = min(band, tiles_m - first);
    *m = first + rest % height;
    *n = rest / height;
  }
};

template <class Tile>
SIE_DEVICE Sm90Order sm90_order(int32_t rows, const Sm90Gemm &g) {
  const int32_t tile_rows = Tile::rows * (Tile::whole_rows ? 1 : Tile::cluster),
                tiles_m = (rows + tile_rows - 1) / tile_rows;
  return {tiles_m, g.tiles_n, tiles_m * g.tiles_n};
}

// The number of tile `count` of a CTA or cluster: every CTA takes one of each gridDim.x tiles.
template <class Tile>
SIE_DEVICE int32_t sm90_tile(int32_t count) {
  return (ptx::block_index() + count * static_cast<int32_t>(gridDim.x)) / Tile::cluster;
}

// The ring of stages as one role steps through it; one register. The parities of the barriers
// alternate from round to round.
template <int Stages>
struct Sm90Ring {
  int32_t at = 0;  // 0 … 2·Stages − 1
  SIE_DEVICE int32_t stage() const { return at < Stages ? at : at - Stages; }
  SIE_DEVICE uint32_t parity() const { return at < Stages ? 0u : 1u; }
  SIE_DEVICE void next() { at = at + 1 == 2 * Stages ? 0 : at + 1; }
  SIE_DEVICE void skip(int32_t steps) { at = (at + steps) % (2 * Stages); }
};

template <class Tile>
struct Sm90Shared {
  unsigned char *stage;                    // [stages][x tile, w tile]
  unsigned char *staging;                  // [8 warps][2][16 lines]
  float *vectors;                          // [vectors][bias, of FP8 W's scales too]
  uint64_t *full, *empty;                  // [stages]
  uint64_t *turn;                          // [2]: of the warpgroups
  uint64_t *vectors_full, *vectors_empty;  // [vectors]
  uint64_t *residual;                      // [8 warps][2]: of the pieces of staging
  uint64_t *counted;                       // [8 warps][2]: of the cluster's sums; of whole rows alone
  SIE_DEVICE explicit Sm90Shared(unsigned char *base)
      : stage(base),
        staging(base + Tile::stages * Tile::stage_bytes),
        vectors(reinterpret_cast<float *>(staging + sm90_staging_all)),
        full(reinterpret_cast<uint64_t *>(staging + sm90_staging_all + Tile::vector_bytes)),
        empty(full + Tile::stages),
        turn(empty + Tile::stages),
        vectors_full(turn + 2),
        vectors_empty(vectors_full + 2),
        residual(vectors_empty + 2),
        counted(residual + 16) {}
};

// Where the vectors of a CTA's tile number `count` are, and the parity of their barriers.
template <class Tile>
struct Sm90Vectors {
  int32_t at;
  uint32_t parity;
  SIE_DEVICE explicit Sm90Vectors(int32_t count)
      : at(count % Tile::vectors), parity(static_cast<uint32_t>(count / Tile::vectors) & 1u) {}
  // Whether there are any: of FP8 W's scales always.
  SIE_DEVICE static bool exist(const Sm90Gemm &g) { return Tile::promoted || g.epilogue.bias != nullptr; }
};

// ---- producer: one thread

// Brings bias and W's scales of a tile's columns. Called behind the tile's last step: the warps that may still
// read those before have begun this tile by then, unless it is a short one.
template <class Tile>
SIE_DEVICE void sm90_bring_vectors(const Sm90Shared<Tile> &shared, const Sm90Gemm &g, int32_t count,
                                   int32_t column) {
  if (!Sm90Vectors<Tile>::exist(g)) return;
  const Sm90Vectors<Tile> vectors(count);
  const float *bias = g.epilogue.bias;
  const uint32_t bytes = static_cast<uint32_t>(min(Tile::columns, g.epilogue.n - column)) * 4u;
  float *to = shared.vectors + vectors.at * Tile::vector_floats;
  uint64_t *full = shared.vectors_full + vectors.at;
  ptx::mbarrier_wait(shared.vectors_empty + vectors.at, vectors.parity ^ 1);
  ptx::mbarrier_arrive_expect(full, (bias != nullptr ? bytes : 0u) + (Tile::promoted ? bytes : 0u));
  if (bias != nullptr) ptx::bulk_load(to, bias + column, bytes, full);
  if (Tile::promoted) ptx::bulk_load(to + Tile::columns, g.w_scale + column, bytes, full);
}

// Announces a step of K of a tile whose first column of W is `column`, and brings W's part of it, which the CTAs
// of a cluster bring in shares; of whole rows each its own.
template <class Tile>
SIE_DEVICE void sm90_bring_w(const Sm90Shared<Tile> &shared, const ptx::TensorMap *w_map, int stage,
                             int32_t column, int32_t k) {
  constexpr int share = Tile::columns / Tile::cluster;  // rows of W
  const int32_t rank = Tile::cluster == 1 ? 0 : static_cast<int32_t>(ptx::cluster_rank());
  unsigned char *w = shared.stage + stage * Tile::stage_bytes + Tile::x_bytes + rank * share * sm90_line;
  uint64_t *full = shared.full + stage;
  ptx::mbarrier_arrive_expect(full, Tile::stage_bytes);
  if constexpr (Tile::whole_rows) {
    ptx::tma_load_2d(shared.stage + stage * Tile::stage_bytes + Tile::x_bytes, w_map, rank * Tile::columns,
                     k * Tile::step, full);
  } else if constexpr (Tile::cluster == 1) {
    ptx::tma_load_2d(w, w_map, column, k * Tile::step, full);
  } else {
    ptx::tma_load_2d_multicast(w, w_map, column + rank * share, k * Tile::step, full,
                               (1 << Tile::cluster) - 1);
  }
}

// Brings W of the first tile's first steps and returns how many, as many as there are stages. It goes ahead of
// the grid's wait: no kernel before writes W, nor the count of rows, on which the place of the tile depends.
template <class Tile>
SIE_DEVICE int32_t sm90_produce_ahead(const Sm90Shared<Tile> &shared, const ptx::TensorMap *w_map,
                                      const Sm90Gemm &g) {
  const Sm90Order order = sm90_order<Tile>(*g.rows, g);
  const int32_t index = sm90_tile<Tile>(0);
  if (index >= order.total) return 0;
  int32_t m, n;
  order.at(index, &m, &n);
  const int32_t ahead = min(g.steps, Tile::stages);
#pragma unroll 1
  for (int32_t k = 0; k < ahead; k++) sm90_bring_w(shared, w_map, k, n * Tile::columns, k);
  return ahead;
}

// Hot: the epilogue takes bias and scales from shared memory. ahead: what sm90_produce_ahead returned.
template <class Tile, bool Hot>
SIE_DEVICE void sm90_produce(const Sm90Shared<Tile> &shared, const ptx::TensorMap *x_map,
                             const ptx::TensorMap *w_map, const Sm90Gemm &g, int32_t ahead) {
  const int32_t rank = Tile::cluster == 1 ? 0 : static_cast<int32_t>(ptx::cluster_rank());
  const Sm90Order order = sm90_order<Tile>(*g.rows, g);
  Sm90Ring<Tile::stages> ring;
  for (int32_t count = 0;; count++) {
    const int32_t index = sm90_tile<Tile>(count);
    if (index >= order.total) break;
    int32_t m, n;
    order.at(index, &m, &n);
    constexpr int share = Tile::rows / Tile::cluster;  // of x, of whole rows
    const int32_t row =
        Tile::whole_rows ? m * Tile::rows + rank * share : (m * Tile::cluster + rank) * Tile::rows;
    // Unrolled, it would not fit the 24 registers that the largest tiles leave.
#pragma unroll 1
    for (int32_t k = 0; k < g.steps; k++) {
      if (k >= ahead) {
        ptx::mbarrier_wait(shared.empty + ring.stage(), ring.parity() ^ 1);
        sm90_bring_w(shared, w_map, ring.stage(), n * Tile::columns, k);
      }
      unsigned char *x = shared.stage + ring.stage() * Tile::stage_bytes;
      if constexpr (Tile::whole_rows) {
        ptx::tma_load_2d_multicast(x + rank * share * sm90_line, x_map, row, k * Tile::step,
                                   shared.full + ring.stage(), (1 << Tile::cluster) - 1);
      } else {
        ptx::tma_load_2d(x, x_map, row, k * Tile::step, shared.full + ring.stage());
      }
      ring.next();
    }
    ahead = 0;  // of the first tile alone
    if constexpr (Hot && !Tile::whole_rows) sm90_bring_vectors<Tile>(shared, g, count, n * Tile::columns);
  }
}

// ---- consumers: a warpgroup

// The place of a consumer warp's part of a tile: its first row, and the tile's first column of W.
struct Sm90Place {
  int32_t row, column;
};

// Frees a stage for the producers of all CTAs that write into it. Each warp of the warpgroup calls.
template <class Tile>
SIE_DEVICE void sm90_release(uint64_t *empty) {
  if constexpr (Tile::cluster == 1) {
    if (ptx::lane_id() == 0) ptx::mbarrier_arrive(empty);
  } else {
    if (ptx::lane_id() < Tile::cluster) ptx::mbarrier_arrive_cluster(empty, ptx::lane_id());
  }
}

// The products of one stage for block (m, n) of the warpgroup, in ascending K.
template <class Tile>
SIE_DEVICE void sm90_multiply(float (&d)[Tile::sums], uint64_t x, uint64_t w, int m, int n, int k,
                              bool accumulate) {
  ptx::wgmma<Tile::operand, Tile::width>(
      d, ptx::wgmma_advance(x, static_cast<uint32_t>(m * 64 * sm90_line + k * 32)),
      ptx::wgmma_advance(w, static_cast<uint32_t>(n * Tile::width * sm90_line + k * 32)), accumulate);
}

// 16-bit classes: the tensor core's own sums; one group of products is in flight while the next is
// issued.
template <class Tile>
SIE_DEVICE void sm90_sum(float (&z)[Tile::blocks][Tile::sums], const Sm90Shared<Tile> &shared,
                         Sm90Ring<Tile::stages> *ring, int32_t x_offset, int32_t steps,
                         uint64_t *turn_of_other) {
  uint64_t *previous = nullptr;
  for (int32_t step = 0; step < steps; step++) {
    const unsigned char *stage = shared.stage + ring->stage() * Tile::stage_bytes;
    uint64_t x = ptx::wgmma_descriptor(stage + x_offset, ptx::Swizzle::b128, sm90_atom);
    uint64_t w = ptx::wgmma_descriptor(stage + Tile::x_bytes, ptx::Swizzle::b128, sm90_atom);
    ptx::mbarrier_wait(shared.full + ring->stage(), ring->parity());
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) {
#pragma unroll
      for (int b = 0; b < Tile::blocks; b++) {
        sm90_multiply<Tile>(z[b], x, w, b / Tile::blocks_n, b % Tile::blocks_n, k, (step | k) != 0);
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (step != 0) sm90_release<Tile>(previous);
    previous = shared.empty + ring->stage();
    ring->next();
  }
  if (turn_of_other != nullptr && ptx::lane_id() == 0) ptx::mbarrier_arrive(turn_of_other);
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int b = 0; b < Tile::blocks; b++) ptx::wgmma_keep(z[b]);
  sm90_release<Tile>(previous);
}

// FP8: adds the sums of a block of 128 columns, scaled, to those in registers. row is the first of
// the two rows that this thread holds in block 0 (the other is 8 further).
template <class Tile>
SIE_DEVICE void sm90_sum_promoted(float (&z)[Tile::blocks][Tile::sums], const Sm90Shared<Tile> &shared,
                                  Sm90Ring<Tile::stages> *ring, int32_t x_offset, const Sm90Gemm &g,
                                  int32_t row, int32_t rows, uint64_t *turn_of_other) {
#pragma unroll
  for (int b = 0; b < Tile::blocks; b++) {
#pragma unroll
    for (int i = 0; i < Tile::sums; i++) z[b][i] = 0.0f;
  }
  for (int32_t step = 0; step < g.steps; step++) {
    float scale[Tile::blocks_m][2];
#pragma unroll
    for (int m = 0; m < Tile::blocks_m; m++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        int32_t r = row + m * 64 + half * 8;
        scale[m][half] = 1.0f;
        if (g.block_scale != nullptr && r < rows)
          scale[m][half] = g.block_scale[static_cast<int64_t>(r) * g.steps + step];
      }
    }
    const unsigned char *stage = shared.stage + ring->stage() * Tile::stage_bytes;
    uint64_t x = ptx::wgmma_descriptor(stage + x_offset, ptx::Swizzle::b128, sm90_atom);
    uint64_t w = ptx::wgmma_descriptor(stage + Tile::x_bytes, ptx::Swizzle::b128, sm90_atom);
    ptx::mbarrier_wait(shared.full + ring->stage(), ring->parity());
#pragma unroll
    for (int b = 0; b < Tile::blocks; b++) {
      float block[Tile::sums];
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; k++) {
        sm90_multiply<Tile>(block, x, w, b / Tile::blocks_n, b % Tile::blocks_n, k, k != 0);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::wgmma_keep(block);
#pragma unroll
      for (int i = 0; i < Tile::sums; i++) {
        z[b][i] = gemm_promote(scale[b / Tile::blocks_n][i / 2 % 2], block[i], z[b][i]);
      }
    }
    sm90_release<Tile>(shared.empty + ring->stage());
    ring->next();
  }
  if (turn_of_other != nullptr && ptx::lane_id() == 0) ptx::mbarrier_arrive(turn_of_other);
}

// What a kernel's epilogue does beside scales and bias (Sm90Ending). The hot ones are those of models: the
// types are constants, y has whole lines of 128 bytes. `any` does everything, slower (gemm_sm90_any.cuh).
enum class Sm90Form {
  any,
  plain,
  residual,      // of y's type
  residual_f32,  // and y in f32
  gelu,          // by erf
  swiglu,
  geglu,
};

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_GEMM_SM90_CUH
