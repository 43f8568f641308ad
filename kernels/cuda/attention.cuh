// attention — y = softmax(scale·q·kᵀ − slope·|i − j| + bias[j − i])·v, per sequence and head, over
// the visible keys.
//   s_j = q·k_j,  p_j = 2^(c·s_j − max c·s),  y = Σ p_j·v_j / Σ p_j
//   with c = scale·log₂e (attention_block.cuh)
// Shapes   q, y [Rq, H·D], k, v [Rkv, Hkv·D], prefix_k, prefix_v [Rp, Hkv·D], any row strides; D 32,
//          64, 128, 256. Head h reads key head h·Hkv/H. The Lkv keys of a sequence are its prefix's,
//          if it has one, then its own. Query i of Lq stands at position i + Lkv − Lq, or at i with
//          queries_first; y is zero where it sees no key. bias [H, 2·reach + 1] f32, D 32, 64, 128,
//          and without prefixes.
// Types    bf16 | f16, all one; sums, scores and exponentials f32; p rounded to the operands' type
//          for p·v.
// Alias    none.
// Align    pointers 16 B, row strides 8 elements; else SIE_UNSUPPORTED.
// Cost     4·Lq·Lkv·D flop and Lq·Lkv exponentials a head; 8·D bytes a token and head, each once:
//          L/2 flop/B for every D. H100 (3.0 TB/s), 16k tokens, 12 heads of 64: 100.7 MB = 33.6 µs
//          at every length, so 192 TFLOP/s at L = 128 (aim 40 µs, 85 %), 384 at 256 (45 µs). From
//          512 on the tensor cores bound it: 25.8 GFLOP at ~500 TFLOP/s of mma.sync and,
//          overlapped, 16 exponentials a clock; aim 280, then 330.
// Plan     a warp owns 16 query rows. The scores of a block of 64 keys (32 at D = 256) stay in its
//          registers and become the A operand of p·v; the softmax is online. Three forms, by the
//          item's own keys:
//            warp   ≤ 32 keys: a warp of its own for each (sequence, head), no CTA barrier;
//            short  keys and values stay in shared memory and are read once for all of the item's
//                   rows. The first block is used while the rest arrives; the next round's queries
//                   arrive during this round's last block;
//            tiled  any length: 64 or 128 rows at a time against two slots, one barrier a block.
//          All take the same steps in the same order (attend), so neither the form nor the rows of
//          an item nor the warps of a CTA change a bit. A head's CTAs take the list's items in
//          turn, costliest first; the heads of an item run side by side and share its lines in L2.
//          On sm_90, D = 64, 128 and 256, items of few keys have a launch of their own: in CTAs of the
//          shape that long ones want, half of the warps would have no rows. The longest ones have a
//          form and bits of their own there (attention_sm90.cuh).
//          A relative bias has instances of its own: a head's row of it stays in L1, read by
//          distance, and the other instances have none of its registers. So have prefixes: each row
//          of a block is copied from its own segment, so blocks, forms and bits are those of the
//          same keys in one segment.
// Memory   queries 16·D·2 B a warp; a block of keys and values 4·64·D B: 72 KiB at D = 64, 256
//          keys, 4 warps. L2 → SM at L = 512, D = 64: 128 rows a round read keys four times,
//          200 MB, 36 µs of 5.5 TB/s: hidden.
// Error    |y − ref| ≤ tol (common/tol.h): dot products f32, p 2⁻⁹ (bf16) or 2⁻¹² (f16), exp2 2
//          ulp, store. Non-finite rows of an item spoil that item alone, possibly also where a mask
//          hides them.
// Source   Dao 2023, arXiv:2307.08691 (online softmax, rows split over warps); the slopes: Press
//          2021, arXiv:2108.12409.
#ifndef SIE_KERNELS_CUDA_ATTENTION_CUH
#define SIE_KERNELS_CUDA_ATTENTION_CUH

#include "cuda/attention_unit.cuh"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/launch.h"
#include "cuda/ptx/opaque.h"

namespace sie_cuda {

namespace {

// warp: one warp does a unit of at most 32 keys and 32 query rows, in its own part of shared
// memory.
template <ptx::Operand T, int D, With kWith>
SIE_DEVICE void attention_warp(const AttentionParams &p, const Unit<D> &unit, uint32_t shared, int lane) {
  constexpr uint32_t kTile = kAttentionWarpKeys * D * 2;
  uint32_t k_tile = shared, v_tile = shared + kTile, q_tile = shared + 2 * kTile;
  copy_queries<D>(p, unit, 0, q_tile, lane);
  if (unit.queries(p).count > kWarpRows) copy_queries<D>(p, unit, kWarpRows, q_tile + kTile / 2, lane);
  copy_keys<D, kAttentionWarpKeys, 32, kWith>(p, unit, 0, k_tile, lane);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  ptx::sync_warp();
  for (int row = 0; row < unit.queries(p).count; row += kWarpRows) {
    Queries<D> q;
    Rows<D> rows;
    Sight sight = unit.sight(p, row, kWarpRows);
    q.take(q_tile + static_cast<uint32_t>(row * D * 2), lane);
    rows.clear();
    if (sight.sees(0, kAttentionWarpKeys)) {
      attend<T, D, kAttentionWarpKeys, kWith == With::bias>(rows, q, sight, unit.scale(p), 0, k_tile, v_tile,
                                                            lane);
    }
    store_unit_rows<T, D>(p, unit, rows, row, lane);
  }
}

// The warp's first row of a round.
SIE_DEVICE int warp_row(int thread) { return (thread >> 5) * kWarpRows; }

// short and tiled: a CTA does a unit. Where each block of the item's keys has a slot of its own
// (short), the blocks are read once for all rows; otherwise (tiled) they pass through two slots for
// each round of rows. It is one function: two would keep so many shared values alive that registers
// spill.
template <ptx::Operand T, int D, int kWarps, With kWith>
SIE_DEVICE void attention_cta(const AttentionParams &p, const Unit<D> &unit, uint32_t queries, uint32_t ring,
                              int thread) {
  constexpr int kKeys = kBlockKeys<D>, kRows = kWarps * kWarpRows;
  constexpr uint32_t kSlot = 2 * kKeys * D * 2;
  const uint32_t q_tile = queries + static_cast<uint32_t>(warp_row(thread) * D * 2);
  Blocks blocks = unit.visible(p, 0, unit.queries(p).count);
  const bool resident = blocks.count <= p.resident_blocks;
  for (int round = 0; round < unit.queries(p).count; round += kRows) {
    const bool arriving = !resident || round == 0;
    if (!resident) {
      if (round > 0) __syncthreads();  // queries and slots are free again
      blocks = unit.visible(p, round, kRows);
    }
    if (arriving || !Queries<D>::kKept) {
      ptx::sync_warp();
      copy_queries<D>(p, unit, round + warp_row(thread), q_tile, thread & 31);
    }
    if (arriving) {
      copy_keys<D, kKeys, kWarps * 32, kWith>(p, unit, blocks.key, ring, thread);
      ptx::cp_async_commit();
      for (int i = 1; resident && i < blocks.count; i++) {
        copy_keys<D, kKeys, kWarps * 32, kWith>(p, unit, blocks.key + i * kKeys,
                                                ring + static_cast<uint32_t>(i) * kSlot, thread);
      }
      ptx::cp_async_commit();
      ptx::cp_async_wait<1>();
      __syncthreads();
    } else {
      ptx::cp_async_wait_all();  // the warp's own queries
      ptx::sync_warp();
    }
    Queries<D> q;
    Rows<D> rows;
    q.take(q_tile, thread & 31);
    rows.clear();
    const Sight sight = unit.sight(p, round + warp_row(thread), kWarpRows);
    int key = blocks.key;
    for (int i = 0; i < blocks.count; i++, key += kKeys) {
      if (arriving && (resident ? i == 1 : i > 0)) {
        ptx::cp_async_wait<0>();
        __syncthreads();  // the block is here for all, and all have left the one before
      }
      if (!resident && i + 1 < blocks.count) {
        copy_keys<D, kKeys, kWarps * 32, kWith>(p, unit, key + kKeys,
                                                ring + (~static_cast<uint32_t>(i) & 1) * kSlot, thread);
        ptx::cp_async_commit();
      }
      if (Queries<D>::kKept && resident && i + 1 == blocks.count && round + kRows < unit.queries(p).count) {
        ptx::sync_warp();  // all lanes hold their queries: the tile takes the next round's
        copy_queries<D>(p, unit, round + kRows + warp_row(thread), q_tile, thread & 31);
      }
      if (!sight.sees(key, kKeys)) continue;
      uint32_t slot = ring + static_cast<uint32_t>(resident ? i : i & 1) * kSlot;
      attend<T, D, kKeys, kWith == With::bias>(rows, q, sight, unit.scale(p), key, slot, slot + kSlot / 2,
                                               ptx::opaque(thread & 31));
    }
    int late = ptx::opaque(thread);
    store_unit_rows<T, D>(p, unit, rows, round + warp_row(late), late & 31);
  }
}

template <int D>
constexpr uint32_t kWarpBytes = attention_warp_bytes(D);

// Registers for 16 warps an SM at D ≤ 64 (128 each; at 64 Blackwell has 12, where that spills, and
// so has sm_80 as compiled by nvcc 12.4), for 8 beyond.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 1000 || (__CUDA_ARCH__ == 800 && __CUDACC_VER_MAJOR__ < 13))
constexpr int attention_warps(int head_dim) { return head_dim < 64 ? 16 : (head_dim == 64 ? 12 : 8); }
#else
constexpr int attention_warps(int head_dim) { return head_dim <= 64 ? 16 : 8; }
#endif

// What a CTA does; each kernel below is an instance.
// kPart: of the list those items alone that the parameters name.
template <ptx::Operand T, int D, int kWarps, With kWith, bool kPart = false>
SIE_DEVICE void attend_items(const AttentionParams &p) {
  constexpr int kRows = kWarps * kWarpRows;
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  SIE_DYNAMIC_SHARED(shared_bytes);
  uint32_t shared = ptx::shared_address(shared_bytes);
  const unsigned per_cta = static_cast<unsigned>(p.warp_units);
  unsigned share = blockIdx.y;
  if constexpr (kPart) share += ptx::load_global<uint32_t>(p.first);
  for (;; share += gridDim.y) {
    // Read anew each time, like the items.
    uint2 items = ptx::load_global<uint2>(kPart ? p.range : &p.work->cta_items);
    if (share >= items.x + (items.y + per_cta - 1) / per_cta) return;
    if (!kPart && share != blockIdx.y) __syncthreads();  // shared memory is free again
    int thread = static_cast<int>(threadIdx.x);
    if (share < items.x) {
      attention_cta<T, D, kWarps, kWith>(p, Unit<D>{share}, shared, shared + kRows * D * 2, thread);
    } else {
      unsigned warp = threadIdx.x / 32, index = (share - items.x) * per_cta + warp;
      if (warp < per_cta && index < items.y) {
        attention_warp<T, D, kWith>(p, Unit<D>{items.x + index}, shared + warp * kWarpBytes<D>, thread & 31);
      }
    }
    if (kPart) __syncthreads();  // the same; here nobody needs to remember the first share
  }
}

template <ptx::Operand T, int D, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, attention_warps(D) / kWarps)
    attention_kernel(const __grid_constant__ AttentionParams p) {
  attend_items<T, D, kWarps, With::nothing>(p);
}

// With a relative bias. Its addresses take registers, so up to D = 64 a multiprocessor has 12 warps.
template <ptx::Operand T, int D, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, (D <= 64 ? 12 : 8) / kWarps)
    attention_bias_kernel(const __grid_constant__ AttentionParams p) {
  attend_items<T, D, kWarps, With::bias>(p);
}

// Over keys in two segments, whose second address takes registers as well.
template <ptx::Operand T, int D, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, (D <= 64 ? 12 : 8) / kWarps)
    attention_prefix_kernel(const __grid_constant__ AttentionParams p) {
  attend_items<T, D, kWarps, With::prefix>(p);
}

// Host.
template <int D, int kWarps>
sie_status attention_start(int32_t dtype, const AttentionShape &shape, int64_t ctas, const sie_stream *on,
                           const AttentionParams &params) {
  const dim3 grid(static_cast<unsigned>(params.heads), static_cast<unsigned>(ctas));
  if (dtype == SIE_BF16)
    return SIE_LAUNCH((attention_kernel<ptx::Operand::bf16, D, kWarps>), grid, kWarps * 32,
                      shape.shared_bytes, on, params);
  return SIE_LAUNCH((attention_kernel<ptx::Operand::f16, D, kWarps>), grid, kWarps * 32, shape.shared_bytes,
                    on, params);
}

template <int D, int kWarps>
sie_status attention_start_bias(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                const sie_stream *on, const AttentionParams &params) {
  const dim3 grid(static_cast<unsigned>(params.heads), static_cast<unsigned>(ctas));
  if (dtype == SIE_BF16)
    return SIE_LAUNCH((attention_bias_kernel<ptx::Operand::bf16, D, kWarps>), grid, kWarps * 32,
                      shape.shared_bytes, on, params);
  return SIE_LAUNCH((attention_bias_kernel<ptx::Operand::f16, D, kWarps>), grid, kWarps * 32,
                    shape.shared_bytes, on, params);
}

template <int D, int kWarps>
sie_status attention_start_prefix(int32_t dtype, const AttentionShape &shape, int64_t ctas,
                                  const sie_stream *on, const AttentionParams &params) {
  const dim3 grid(static_cast<unsigned>(params.heads), static_cast<unsigned>(ctas));
  if (dtype == SIE_BF16)
    return SIE_LAUNCH((attention_prefix_kernel<ptx::Operand::bf16, D, kWarps>), grid, kWarps * 32,
                      shape.shared_bytes, on, params);
  return SIE_LAUNCH((attention_prefix_kernel<ptx::Operand::f16, D, kWarps>), grid, kWarps * 32,
                    shape.shared_bytes, on, params);
}

}  // namespace
}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_CUH
