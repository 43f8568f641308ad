// attention_sm90 — the wide form of attention.cuh on Hopper, by wgmma and TMA: D = 64, 128
// and 256, sequences of more than attention_narrow_keys keys.
//   y = softmax(scale·q·kᵀ − slope·|i − j| + bias[j − i])·v over the keys that the mask shows, block by
//   block of 128 keys, 64 at D = 256
// Shapes   as in attention.cuh, without tables by distance, and with slopes or a bias, not both, and
//          neither at D = 256; any mask;
//          windows of fewer keys than that have the narrow form; grouped heads, keys in two
//          segments, any number of queries. An item is at most 128 query rows of a sequence.
// Types    bf16 | f16; sums, scores and exponentials f32; p rounded to the operands' type.
// Align    pointers 16 B, row strides 8 elements.
// Cost     4·Lq·Lkv·D flop. 128 rows and 128 keys, D = 64: 1,024 clocks of products at 4,096 flop,
//          1,024 of exponentials at 16, side by side. The port of shared memory: 64 KiB read and 32
//          KiB written, 768 clocks. The model (cost.h) predicts for an H200 and 16k tokens, in
//          brackets for the narrow kernel: 12 heads of 64, 94 µs (86) at L = 512, 154 (169) at
//          1,024, 273 (335) at 2,048; 16 heads of 128, 171 µs (190), 297 (378), 550 (754). That is
//          79 to 82 % of FlashAttention-3 as published. ALiBi is two instructions a score more: 12
//          heads of 64, 167 µs (176) at 1,024, 299 (349) at 2,048; its loop is 1 KiB more than the
//          L0 cache of instructions holds. A bias by distance is six where a block has keys within its
//          reach of a warp's rows, elsewhere one: with T5's 128, 173 µs (190) and 298 (378).
//          Below ~700 keys (450 at D = 128, twice that in causal order) whole blocks of 128 by 128
//          and ~4,000 clocks to begin and end a tile cost more than wgmma gains. At D = 256 it gains
//          from 256 keys on: 3 heads, 54 µs (67) at 512, 178 (259) at 2,048. D = 96 is not here: no form
//          of a GPU has it, and none of the models that testdata/published has configurations of.
// Plan     persistent CTAs, one a multiprocessor, take (item, head) in turn: two warpgroups of 64
//          query rows compute, one warp loads by TMA, one copies. Scores and o stay in registers; p
//          becomes operand A there; v is operand B by rows, as it lies in memory. The softmax of a
//          block runs while its warpgroup's q·kᵀ of the next one is done and p·v of the one before
//          is under way, and while the other warpgroup's products are.
//          A block that lies in one segment, all of it the item's, comes by TMA; one with an end in
//          it is copied row by row by the second warp, zeros behind the last key: no key or value
//          of a neighbour is ever read, and 0·NaN never happens. Rows of q behind the item's are
//          read, and what they give is not stored.
// Timeline of block i; what stands in brackets is waited for.
//   load     [k_empty] k(i) → k_full     of block 0 also [q_empty] q → q_full
//            [v_empty] v(i) → v_full
//   copy     the same for blocks with an end in them: cp.async, wait, proxy fence, arrival
//   group 0  [k_full(i)] [v_full(i−1)] [turn 1]   q·k(i) and p·v(i−1) issued → turn 2
//            [q·k(i)] → k_empty(i)       mask and exponentials of i
//            [p·v(i−1)] → v_empty(i−1)   o·factor, p(i)
//   group 1  the same with turns 2 and 1: half a block later
//   end      → q_empty   [v_full(last)] p·v(last) → v_empty(last)   y
//          Full and empty barriers are mbarriers. Arrivals: q_full 1 and bytes; q_empty 4, one a
//          warp; k_full and v_full 2, load and copy, of which one has nothing to bring and arrives
//          at once; k_empty and v_empty 8. Turns are the named barriers. Both groups take part in
//          every block of an item: one that sees nothing of it frees it and hands its turn on.
// Class    a row's bits depend on its own scores alone, block by block of absolute keys: not on the
//          rows beside it, the segments, or the grid. They are not those of attention.cuh, whose
//          blocks have 64 keys: the form is chosen by the item's own number of keys.
// Error    as in attention.cuh.
// Source   Shah 2024, arXiv:2407.08608 (warpgroups in turn, products under the softmax).
#ifndef SIE_KERNELS_CUDA_ATTENTION_SM90_CUH
#define SIE_KERNELS_CUDA_ATTENTION_SM90_CUH

#include "cuda/attention_sm90.h"
#include "cuda/attention_sm90_rows.cuh"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/fence.h"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/launch.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/named_barrier.h"
#include "cuda/ptx/registers.h"
#include "cuda/ptx/tma.h"
#include "cuda/ptx/wgmma.h"

namespace sie_cuda {
namespace {

constexpr int kWideThreads = 3 * 128;
constexpr int kWideLine = 128;  // bytes of a row of the swizzle: 64 columns
constexpr uint32_t kWideAtom = 8 * kWideLine;
constexpr uint32_t kWideTurn = 1;  // named barriers 1 and 2

// Tiles of shared memory: panels of 64 columns, one after another.
template <int D>
struct WideShape {
  static constexpr int keys = wide_keys(D), scores = keys / 2, steps = keys / 16;
  static constexpr int panels = D / 64, stages = D == 64 ? 4 : (D == 128 ? 3 : 2);
  static constexpr int q_panel = kWideGroupRows * kWideLine, key_panel = keys * kWideLine;
  static constexpr int q_bytes = panels * q_panel, block_bytes = panels * key_panel;
  static constexpr int barrier_bytes = 256;
  static constexpr int shared_bytes = 2 * q_bytes + 2 * stages * block_bytes + barrier_bytes;
  static_assert(shared_bytes <= 227 * 1024 && 8 * (4 + 4 * stages) <= barrier_bytes,
                "one CTA a multiprocessor");
};

template <int D>
struct WideShared {
  using Shape = WideShape<D>;
  unsigned char *q, *k, *v;                       // [2 groups], [stages], [stages]
  uint64_t *q_full, *q_empty;                     // [2 groups]
  uint64_t *k_full, *k_empty, *v_full, *v_empty;  // [stages]
  SIE_DEVICE explicit WideShared(unsigned char *base)
      : q(base),
        k(q + 2 * Shape::q_bytes),
        v(k + Shape::stages * Shape::block_bytes),
        q_full(reinterpret_cast<uint64_t *>(v + Shape::stages * Shape::block_bytes)),
        q_empty(q_full + 2),
        k_full(q_empty + 2),
        k_empty(k_full + Shape::stages),
        v_full(k_empty + Shape::stages),
        v_empty(v_full + Shape::stages) {}
};

// The stages as one role steps through them. Every role takes every block in the same order.
template <int Stages>
struct WideRing {
  int stage = 0;
  uint32_t parity = 0;
  SIE_DEVICE void next() {
    stage = stage + 1 == Stages ? 0 : stage + 1;
    parity ^= stage == 0 ? 1u : 0u;
  }
};

// A kernel's maps, in its parameters.
struct WideMaps {
  ptx::TensorMap q, k, v;
  ptx::TensorMap prefix_k, prefix_v;  // empty without a prefix
};

// One (item, head).
template <int D>
struct WideTile {
  static constexpr int kKeys = wide_keys(D);
  int q_row, q_rows, kv_row, keys, position, prefix_row, prefix_keys;
  unsigned head;

  // Of `rows` rows from `row` on, or as many as exist.
  SIE_DEVICE Sight sight(const AttentionParams &p, int row, int rows) const {
    return Sight{position + row, max(0, min(rows, q_rows - row)), keys, p.left, p.right};
  }
  // The numbers [first, last) of the blocks that some of those rows see.
  SIE_DEVICE int2 blocks(const AttentionParams &p, int row, int rows) const {
    const Sight seen = sight(p, row, rows);
    if (seen.last() <= seen.first()) return int2{0, 0};
    return int2{seen.first() / kKeys, (seen.last() + kKeys - 1) / kKeys};
  }
  SIE_DEVICE int2 blocks(const AttentionParams &p) const { return blocks(p, 0, 2 * kWideGroupRows); }
  // Whether the block from `key` on lies in one segment, and all of it is the item's.
  SIE_DEVICE bool is_whole(int key) const {
    return key + kKeys <= keys && (key >= prefix_keys || key + kKeys <= prefix_keys);
  }
  SIE_DEVICE int kv_column(const AttentionParams &p) const {
    return static_cast<int>(head * static_cast<unsigned>(p.kv_heads) / static_cast<unsigned>(p.heads)) * D;
  }
};

// Calls take(tile) for each (item, head) of this CTA; the heads of an item run side by side.
template <int D, class Take>
SIE_DEVICE void wide_tiles(const AttentionParams &p, const Take &take) {
  const unsigned heads = static_cast<unsigned>(p.heads);
  const unsigned units = ptx::load_global<uint32_t>(&p.work->wide_items) * heads;
  for (unsigned unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const AttentionItem *item = reinterpret_cast<const AttentionItem *>(p.work + 1) + unit / heads;
    const uint4 a = ptx::load_global<uint4>(item);
    const uint4 b = ptx::load_global<uint4>(&item->position);
    take(WideTile<D>{static_cast<int>(a.x), static_cast<int>(a.y), static_cast<int>(a.z),
                     static_cast<int>(a.w), static_cast<int>(b.x), static_cast<int>(b.z),
                     static_cast<int>(b.w), unit % heads});
  }
}

// ---- the warp that loads: one thread

// Loads the panels of a tile of rows from (row, column) on and announces their bytes.
template <int Panels>
SIE_DEVICE void wide_load(unsigned char *tile, int panel_bytes, const ptx::TensorMap *map, int row,
                          int column, uint64_t *full) {
  ptx::mbarrier_arrive_expect(full, static_cast<uint32_t>(Panels * panel_bytes));
#pragma unroll
  for (int i = 0; i < Panels; i++) ptx::tma_load_2d(tile + i * panel_bytes, map, row, column + 64 * i, full);
}

// Every block is an arrival of this thread and one of the warp that copies, whichever brings it:
// neither can fall a phase behind.
template <int D>
SIE_DEVICE void wide_produce(const WideShared<D> &shared, const WideMaps &maps, const AttentionParams &p) {
  using Shape = WideShape<D>;
  WideRing<Shape::stages> ring;
  uint32_t q_parity = 0;
  wide_tiles<D>(p, [&](const WideTile<D> &tile) {
    const int2 blocks = tile.blocks(p);
    const int column = tile.kv_column(p);
#pragma unroll 1
    for (int i = blocks.x; i < blocks.y; i++) {
      const int key = i * Shape::keys;
      const bool whole = tile.is_whole(key), own = key >= tile.prefix_keys;
      const int row = own ? tile.kv_row + key - tile.prefix_keys : tile.prefix_row + key;
      const int offset = ring.stage * Shape::block_bytes;
      auto bring = [&](unsigned char *block, const ptx::TensorMap *map, uint64_t *full) {
        if (whole) {
          wide_load<Shape::panels>(block, Shape::key_panel, map, row, column, full);
        } else {
          ptx::mbarrier_arrive(full);
        }
      };
      ptx::mbarrier_wait(shared.k_empty + ring.stage, ring.parity ^ 1);
      bring(shared.k + offset, own ? &maps.k : &maps.prefix_k, shared.k_full + ring.stage);
      if (i == blocks.x) {
        for (int group = 0; group < 2; group++) {
          ptx::mbarrier_wait(shared.q_empty + group, q_parity ^ 1);
          wide_load<Shape::panels>(shared.q + group * Shape::q_bytes, Shape::q_panel, &maps.q,
                                   tile.q_row + group * kWideGroupRows, static_cast<int>(tile.head) * D,
                                   shared.q_full + group);
        }
        q_parity ^= 1;
      }
      ptx::mbarrier_wait(shared.v_empty + ring.stage, ring.parity ^ 1);
      bring(shared.v + offset, own ? &maps.v : &maps.prefix_v, shared.v_full + ring.stage);
      ring.next();
    }
  });
}

// ---- the warp that copies blocks with an end in them

// The rows of keys or values, their columns of a head.
struct WideRowsOf {
  const uint16_t *own, *prefix;
  int64_t own_ld, prefix_ld;
};

// Copies the block from `key` on as TMA would lay it; zeros behind the last key.
template <int D>
SIE_DEVICE void wide_copy(unsigned char *tile, const WideRowsOf &from, const WideTile<D> &of, int key,
                          int lane) {
  constexpr int kChunks = D / 8;
  const uint32_t shared = ptx::shared_address(tile);
#pragma unroll 4
  for (int i = lane; i < WideShape<D>::keys * kChunks; i += 32) {
    const int row = i / kChunks, chunk = i % kChunks, at = key + row;
    const uint16_t *source = at < of.prefix_keys
                                 ? from.prefix + (int64_t{of.prefix_row} + at) * from.prefix_ld
                                 : from.own + (int64_t{of.kv_row} + at - of.prefix_keys) * from.own_ld;
    const int place = chunk / 8 * WideShape<D>::key_panel + row * kWideLine + (chunk % 8 ^ row % 8) * 16;
    ptx::cp_async_16(shared + static_cast<uint32_t>(place), source + chunk * 8, at < of.keys);
  }
}

// This warp's copies but the newest N groups are there for wgmma.
template <int N>
SIE_DEVICE void wide_publish(uint64_t *full, int lane) {
  ptx::cp_async_wait<N>();
  ptx::fence_proxy_async();
  ptx::sync_warp();
  if (lane == 0) ptx::mbarrier_arrive(full);
}

template <int D>
SIE_DEVICE void wide_copies(const WideShared<D> &shared, const AttentionParams &p, int lane) {
  using Shape = WideShape<D>;
  WideRing<Shape::stages> ring;
  wide_tiles<D>(p, [&](const WideTile<D> &tile) {
    const int2 blocks = tile.blocks(p);
    const int column = tile.kv_column(p);
#pragma unroll 1
    for (int i = blocks.x; i < blocks.y; i++) {
      const int key = i * Shape::keys, offset = ring.stage * Shape::block_bytes;
      const bool whole = tile.is_whole(key);
      uint64_t *k_full = shared.k_full + ring.stage, *v_full = shared.v_full + ring.stage;
      ptx::mbarrier_wait(shared.k_empty + ring.stage, ring.parity ^ 1);
      if (whole && lane == 0) ptx::mbarrier_arrive(k_full);
      if (!whole) {
        wide_copy<D>(shared.k + offset, {p.k + column, p.prefix_k + column, p.k_ld, p.prefix_k_ld}, tile, key,
                     lane);
        ptx::cp_async_commit();
      }
      ptx::mbarrier_wait(shared.v_empty + ring.stage, ring.parity ^ 1);
      if (whole && lane == 0) ptx::mbarrier_arrive(v_full);
      if (!whole) {
        wide_copy<D>(shared.v + offset, {p.v + column, p.prefix_v + column, p.v_ld, p.prefix_v_ld}, tile, key,
                     lane);
        ptx::cp_async_commit();
        wide_publish<1>(k_full, lane);
        wide_publish<0>(v_full, lane);
      }
      ring.next();
    }
  });
}

// ---- the warpgroups that compute

// s = q·kᵀ of a block, issued.
template <ptx::Operand T, int D>
SIE_DEVICE void wide_multiply_keys(float (&s)[WideShape<D>::scores], const unsigned char *q,
                                   const unsigned char *k) {
  const uint64_t a = ptx::wgmma_descriptor(q, ptx::Swizzle::b128, kWideAtom);
  const uint64_t b = ptx::wgmma_descriptor(k, ptx::Swizzle::b128, kWideAtom);
#pragma unroll
  for (int step = 0; step < D / 16; step++) {
    ptx::wgmma<T, WideShape<D>::keys>(
        s, ptx::wgmma_advance(a, static_cast<uint32_t>(step / 4 * WideShape<D>::q_panel + step % 4 * 32)),
        ptx::wgmma_advance(b, static_cast<uint32_t>(step / 4 * WideShape<D>::key_panel + step % 4 * 32)),
        step != 0);
  }
  ptx::wgmma_commit();
}

// The accumulators of p·v: a product has at most 128 columns.
template <int D>
constexpr int kWidePieces = D <= 128 ? 1 : D / 128;
template <int D>
SIE_DEVICE auto wide_piece(float (&o)[D / 2], int piece) -> float (&)[D / 2 / kWidePieces<D>] {
  constexpr int kRegisters = D / 2 / kWidePieces<D>;
  return reinterpret_cast<float (&)[kRegisters]>(o[piece * kRegisters]);
}

// o += p·v of a block, issued.
template <ptx::Operand T, int D>
SIE_DEVICE void wide_multiply_values(float (&o)[D / 2], const uint32_t (&p)[WideShape<D>::steps][4],
                                     const unsigned char *v) {
  const uint64_t b = ptx::wgmma_descriptor_by_rows(ptx::shared_address(v), ptx::Swizzle::b128, kWideAtom,
                                                   WideShape<D>::key_panel);
#pragma unroll
  for (int step = 0; step < WideShape<D>::steps; step++) {
#pragma unroll
    for (int i = 0; i < kWidePieces<D>; i++) {
      const int at = step * 2 * static_cast<int>(kWideAtom) + i * 2 * WideShape<D>::key_panel;
      ptx::wgmma_by_rows<T, D / kWidePieces<D>>(wide_piece<D>(o, i), p[step],
                                                ptx::wgmma_advance(b, static_cast<uint32_t>(at)), 1);
    }
  }
  ptx::wgmma_commit();
}

template <int D>
SIE_DEVICE void wide_keep(float (&o)[D / 2]) {
#pragma unroll
  for (int i = 0; i < kWidePieces<D>; i++) ptx::wgmma_keep(wide_piece<D>(o, i));
}

SIE_DEVICE void wide_release(uint64_t *empty) {
  if (ptx::lane_id() == 0) ptx::mbarrier_arrive(empty);
}

// A warpgroup's own turn to issue, and the other's. Their numbers stay in a register, so that ptxas keeps the CTA
// all 16 barriers, which one CTA an SM can spare: constants chosen by a predicate took 4 to 11 KiB more code, and
// with a bias at D = 128 spills.
struct WideTurn {
  uint32_t group;
  SIE_DEVICE void wait() const { ptx::named_barrier_sync(kWideTurn + group, 256); }
  SIE_DEVICE void pass() const { ptx::named_barrier_arrive(kWideTurn + (group ^ 1), 256); }
};

// Frees a block that no row of the warpgroup sees, once all lanes have seen it come: one that is
// late would wait for the next.
template <int D>
SIE_DEVICE void wide_skip(const WideShared<D> &shared, WideRing<WideShape<D>::stages> *ring,
                          const WideTurn &turn) {
  ptx::mbarrier_wait(shared.k_full + ring->stage, ring->parity);
  ptx::mbarrier_wait(shared.v_full + ring->stage, ring->parity);
  ptx::sync_warp();
  wide_release(shared.k_empty + ring->stage);
  wide_release(shared.v_empty + ring->stage);
  turn.wait();
  turn.pass();
  ring->next();
}

// The blocks [blocks.x, blocks.y) of the warpgroup, at least one; `sight` is of the warp's rows.
template <ptx::Operand T, int D, Beside kBeside>
SIE_DEVICE void wide_attend(float (&o)[D / 2], WideRows *rows, const WideShared<D> &shared,
                            WideRing<WideShape<D>::stages> *ring, const WideTurn &turn, const Sight &sight,
                            int2 blocks, const WideTerm<kBeside> &term, float scale_log2) {
  using Shape = WideShape<D>;
  const int lane = static_cast<int>(ptx::lane_id());
  const unsigned char *q = shared.q + static_cast<int>(turn.group) * Shape::q_bytes;
  float s[Shape::scores], factor[2];
  uint32_t p[Shape::steps][4];

  ptx::mbarrier_wait(shared.k_full + ring->stage, ring->parity);
  turn.wait();
  ptx::wgmma_fence();
  wide_multiply_keys<T, D>(s, q, shared.k + ring->stage * Shape::block_bytes);
  turn.pass();
  ptx::wgmma_wait<0>();
  ptx::wgmma_keep(s);
  wide_release(shared.k_empty + ring->stage);
  int key = blocks.x * Shape::keys;
  term.add(s, sight, key, lane);
  if (!sight.sees_all(key, Shape::keys)) wide_mask(s, sight, key, lane);
  wide_exponentiate(s, rows, factor, scale_log2);  // o is zero still
  wide_fragments<T>(p, s);

  WideRing<Shape::stages> before = *ring;
  ring->next();
#pragma unroll 1
  for (int i = blocks.x + 1; i < blocks.y; i++) {
    ptx::mbarrier_wait(shared.k_full + ring->stage, ring->parity);
    ptx::mbarrier_wait(shared.v_full + before.stage, before.parity);
    turn.wait();
    ptx::wgmma_fence();
    wide_multiply_keys<T, D>(s, q, shared.k + ring->stage * Shape::block_bytes);
    wide_multiply_values<T, D>(o, p, shared.v + before.stage * Shape::block_bytes);
    turn.pass();
    ptx::wgmma_wait<1>();
    ptx::wgmma_keep(s);
    wide_release(shared.k_empty + ring->stage);
    key += Shape::keys;
    term.add(s, sight, key, lane);
    if (!sight.sees_all(key, Shape::keys)) wide_mask(s, sight, key, lane);
    wide_exponentiate(s, rows, factor, scale_log2);
    ptx::wgmma_hold(rows->l[0]);
    ptx::wgmma_hold(rows->l[1]);
    ptx::wgmma_wait<0>();
    wide_keep<D>(o);
    ptx::wgmma_keep(p);
    wide_release(shared.v_empty + before.stage);
    wide_rescale<D>(o, factor);
    wide_fragments<T>(p, s);
    before = *ring;
    ring->next();
  }
  ptx::mbarrier_wait(shared.v_full + before.stage, before.parity);
  ptx::wgmma_fence();
  wide_multiply_values<T, D>(o, p, shared.v + before.stage * Shape::block_bytes);
  ptx::wgmma_wait<0>();
  wide_keep<D>(o);
  wide_release(shared.v_empty + before.stage);
}

template <ptx::Operand T, int D, Beside kBeside>
SIE_DEVICE void wide_consume(const WideShared<D> &shared, const AttentionParams &p, uint32_t group) {
  const WideTurn turn = {group};
  const int lane = static_cast<int>(ptx::lane_id());
  // The warp's first row of the item.
  const int warp_row = static_cast<int>(threadIdx.x / 32) * kWarpRows;
  WideRing<WideShape<D>::stages> ring;
  uint32_t q_parity = 0;
  if (group == 1) turn.pass();  // group 0 begins
  wide_tiles<D>(p, [&](const WideTile<D> &tile) {
    const int2 all = tile.blocks(p);
    const int2 own = tile.blocks(p, static_cast<int>(group) * kWideGroupRows, kWideGroupRows);
    float o[D / 2];
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0.0f;
    WideRows rows;
    rows.clear();
    if (all.x < all.y) {
      ptx::mbarrier_wait(shared.q_full + group, q_parity);
      q_parity ^= 1;
      const bool some = own.x < own.y;
#pragma unroll 1
      for (int i = all.x; i < (some ? own.x : all.y); i++) wide_skip<D>(shared, &ring, turn);
      if (some)
        wide_attend<T, D, kBeside>(o, &rows, shared, &ring, turn, tile.sight(p, warp_row, kWarpRows), own,
                                   WideTerm<kBeside>(p, tile.head), p.scale_log2);
      wide_release(shared.q_empty + group);
#pragma unroll 1
      for (int i = own.y; some && i < all.y; i++) wide_skip<D>(shared, &ring, turn);
    }
    uint16_t *y = p.y + (int64_t{tile.q_row} + warp_row) * p.y_ld + int64_t{tile.head} * D;
    wide_store<T, D>(o, rows, y, p.y_ld, tile.q_rows - warp_row, lane);
  });
  if (group == 0) turn.wait();  // the last turn that group 1 has passed on
}

// What a CTA does; each kernel below is an instance.
template <ptx::Operand T, int D, Beside kBeside>
SIE_DEVICE void wide_items(const WideMaps &maps, const AttentionParams &p) {
  using Shape = WideShape<D>;
  SIE_DYNAMIC_SHARED(base);
  const WideShared<D> shared(base);
  if (threadIdx.x == 0) {
    ptx::tma_prefetch(&maps.q);
    ptx::tma_prefetch(&maps.k);
    ptx::tma_prefetch(&maps.v);
    for (int i = 0; i < 2; i++) {
      ptx::mbarrier_init(shared.q_full + i, 1);
      ptx::mbarrier_init(shared.q_empty + i, 4);
    }
    for (int i = 0; i < Shape::stages; i++) {
      ptx::mbarrier_init(shared.k_full + i, 2);
      ptx::mbarrier_init(shared.k_empty + i, 8);
      ptx::mbarrier_init(shared.v_full + i, 2);
      ptx::mbarrier_init(shared.v_empty + i, 8);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  const uint32_t warp = ptx::shuffle_from(threadIdx.x / 32, 0);
  if (warp >= 8) {
    ptx::registers_decrease<72>();
    if (threadIdx.x == 256) wide_produce<D>(shared, maps, p);
    if (warp == 9) wide_copies<D>(shared, p, static_cast<int>(ptx::lane_id()));
    ptx::sync_warp();
  } else {
    ptx::registers_increase<216>();
    wide_consume<T, D, kBeside>(shared, p, warp / 4);
  }
}

template <ptx::Operand T, int D>
__global__ void __launch_bounds__(kWideThreads, 1)
    attention_sm90_kernel(const __grid_constant__ WideMaps maps, const __grid_constant__ AttentionParams p) {
#if !defined(__CUDA_ARCH__) || SIE_PTX_SM90A
  wide_items<T, D, Beside::nothing>(maps, p);
#endif
}

// With ALiBi, whose two instructions a score the other instances do not have.
template <ptx::Operand T, int D>
__global__ void __launch_bounds__(kWideThreads, 1)
    attention_sm90_slopes_kernel(const __grid_constant__ WideMaps maps,
                                 const __grid_constant__ AttentionParams p) {
#if !defined(__CUDA_ARCH__) || SIE_PTX_SM90A
  wide_items<T, D, Beside::slopes>(maps, p);
#endif
}

// With a bias by distance.
template <ptx::Operand T, int D>
__global__ void __launch_bounds__(kWideThreads, 1)
    attention_sm90_bias_kernel(const __grid_constant__ WideMaps maps,
                               const __grid_constant__ AttentionParams p) {
#if !defined(__CUDA_ARCH__) || SIE_PTX_SM90A
  wide_items<T, D, Beside::bias>(maps, p);
#endif
}

// Host.

// A map of rows of which 64 columns are a box. Boxes of keys lie inside a sequence, which the work
// list has checked: their maps need no number of rows.
inline sie_status wide_map(ptx::TensorMap *map, const sie_tensor &x, int64_t rows, int64_t columns,
                           int box_rows) {
  return ptx::tensor_map_2d(map, x.dtype, x.p, rows, columns, x.ld, box_rows, 64, ptx::Swizzle::b128);
}

template <ptx::Operand T, int D, Beside kBeside>
constexpr auto wide_kernel() {
  if constexpr (kBeside == Beside::slopes) return attention_sm90_slopes_kernel<T, D>;
  if constexpr (kBeside == Beside::bias) return attention_sm90_bias_kernel<T, D>;
  if constexpr (kBeside == Beside::nothing) return attention_sm90_kernel<T, D>;
}

template <int D, Beside kBeside>
sie_status attention_start_wide(const sie_attention_args *a, const AttentionParams &params,
                                const sie_stream *on) {
  const int64_t columns = int64_t{a->kv_heads} * D;
  WideMaps maps = {};
  sie_status status = wide_map(&maps.q, a->q, a->q_rows.cap, int64_t{a->heads} * D, kWideGroupRows);
  if (status == SIE_OK) status = wide_map(&maps.k, a->k, INT32_MAX, columns, wide_keys(D));
  if (status == SIE_OK) status = wide_map(&maps.v, a->v, INT32_MAX, columns, wide_keys(D));
  if (a->prefix_keys != nullptr) {
    if (status == SIE_OK) status = wide_map(&maps.prefix_k, a->prefix_k, INT32_MAX, columns, wide_keys(D));
    if (status == SIE_OK) status = wide_map(&maps.prefix_v, a->prefix_v, INT32_MAX, columns, wide_keys(D));
  }
  if (status != SIE_OK) return status;
  const int64_t units = attention_max_items(a->q_rows.cap, a->seqs.cap) * a->heads;
  const int64_t ctas = units < on->multiprocessors ? units : on->multiprocessors;
  const unsigned grid = static_cast<unsigned>(ctas < 1 ? 1 : ctas);
  if (a->q.dtype == SIE_BF16)
    return SIE_LAUNCH((wide_kernel<ptx::Operand::bf16, D, kBeside>()), grid, kWideThreads,
                      WideShape<D>::shared_bytes, on, maps, params);
  return SIE_LAUNCH((wide_kernel<ptx::Operand::f16, D, kBeside>()), grid, kWideThreads,
                    WideShape<D>::shared_bytes, on, maps, params);
}

}  // namespace
}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_SM90_CUH
