// attention_disentangled — y = softmax(scale·(q·kᵀ + q·K_b + k·Q_b))·v per sequence and head, b the row
// of the tables K and Q by distance (DeBERTa).
//   s_ij = k_j·Q_b + q_i·K_b + q_i·k_j,  b = buckets[clamp(i − j, −reach, reach) + reach]
//   the softmax and its product with v as in attention_block.cuh
// Shapes   as attention's, a key head for each head, D 32, 64, 128; K, Q [position_rows, H·D], one of
//          which may be absent; buckets [2·reach + 1] i32, every entry a row of the tables (the
//          recording checks that, a launcher cannot).
// Types    bf16 | f16, all one, the tables included; products, scores and exponentials f32.
// Mask     full.
// Alias    none.
// Align    pointers 16 B, row strides 8 elements; else SIE_UNSUPPORTED.
// Cost     a block of 64 queries and 64 keys has 127 diagonals. A warp multiplies its 16 queries with
//          the 79 rows of K that they meet, and 16 of the keys with 79 rows of Q: with padding to 80,
//          2·D·(2 + 2·80/64) flop a pair, 2.25 times attention's. H100, 16k tokens of L = 512, 12 heads
//          of 64: 58 GFLOP, 165 µs at 350 TFLOP/s of mma.sync. L2 → SM 384 KiB for each 64 queries and
//          head where L1 keeps no row of a table: 1.2 GB, 220 µs of 5.5 TB/s; neighbouring blocks share
//          half of those rows.
// Plan     a CTA of four warps takes 64 queries against blocks of 64 keys in two slots. For each block:
//            keys     warp w multiplies keys 16w … 16w + 15 with the rows of Q by distance. Product
//                     (key, distance) is the term of one pair: it goes to that pair's place in a
//                     64 × 64 matrix in shared memory. Barrier.
//            queries  each warp takes the terms of its 16 queries as the start of its scores, then puts
//                     the products of its queries with the rows of K in their place and adds those.
//            scores   q·kᵀ is added by the tensor cores; softmax and values as in attention.
//          A row of a table is read where it is needed, through L1, eight distances at a time, the next
//          ones while these are multiplied; so it takes neither shared memory nor a barrier. A lane
//          reads 16 neighbouring bytes of a row: columns 8t … 8t + 7 of each 32 (t = lane%4) take the
//          places of columns 2t, 2t + 1, 2t + 8, 2t + 9 of two steps of the product, and the other
//          operand's columns are read in the same order. Distances that share a row are multiplied
//          each: a product by diagonal needs no search, and costs every block the same.
//          The list of work is attention's. Items of few keys, there for single warps, are taken as
//          others are: all items have one form, so the list changes no bit.
// Memory   64 queries 128·D B, terms 17 KiB, a slot of keys and values 256·D B: 57 KiB at D = 64, 41
//          where no item has more than 64 keys. Terms of pairs without a key or a query are not
//          written: their scores are masked, or their rows not stored.
// Order    each term is one product over D in the order above, Q's is the start, K's is added, then
//          q·k on top in ascending steps. A row's bits depend on its query, its position and its item's
//          keys alone.
// Error    as attention's, with 3·D for D.
// Source   He 2021 §3, arXiv:2006.03654.
#ifndef SIE_KERNELS_CUDA_ATTENTION_DISENTANGLED_CUH
#define SIE_KERNELS_CUDA_ATTENTION_DISENTANGLED_CUH

#include "cuda/attention_disentangled.h"
#include "cuda/attention_unit.cuh"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/launch.h"

namespace sie_cuda {

namespace {

// One head's rows of a table by distance.
template <int D>
struct TableRows {
  const uint16_t *head;  // row 0, the head's first column
  int64_t ld;
  const int32_t *bucket;  // of distance 0
  int reach;

  // This lane's part of the row of `distance`: of each 32 columns eight.
  SIE_DEVICE void load(uint4 (&part)[D / 32], int distance, int lane) const {
    const int held = max(-reach, min(reach, distance));
    const uint32_t row = ptx::load_global_nc<uint32_t>(bucket + held);
    const uint16_t *at = head + row * ld + (lane & 3) * 8;
#pragma unroll
    for (int i = 0; i < D / 32; i++) part[i] = ptx::load_global_nc<uint4>(at + 32 * i);
  }
};

// Sixteen rows of a tile in shared memory as A operands, their columns in the order of
// TableRows::load.
template <int D>
struct TileRows {
  uint4 upper[D / 32], lower[D / 32];  // of rows lane/4 and lane/4 + 8

  SIE_DEVICE void load(const unsigned char *tile, int first, int lane) {
    const int row = first + (lane >> 2), key = chunk_key<D>(row);  // that of row + 8 as well
    const unsigned char *at = tile + row * D * 2;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
      const int chunk = ((4 * i + (lane & 3)) ^ key) * 16;
      upper[i] = ptx::load_shared<uint4>(at + chunk);
      lower[i] = ptx::load_shared<uint4>(at + 8 * D * 2 + chunk);
    }
  }
};

// The terms of 64 queries and 64 keys. Rows lie apart by four banks more than all of them, so that
// neighbours on a diagonal are stored to different banks.
struct Terms {
  static constexpr int kSide = kDisentangledRows, kLd = kDisentangledTermsLd;
  float *all;

  SIE_DEVICE void put(int query, int key, float term) const {
    if (static_cast<unsigned>(query) < kSide && static_cast<unsigned>(key) < kSide)
      ptx::store_shared(all + query * kLd + key, term);
  }
  // Adds the terms of sixteen queries to scores that lie as an accumulator of mma does.
  SIE_DEVICE void add_to(float (&s)[kSide / 8][4], int query, int lane) const {
    const float *row = all + (query + (lane >> 2)) * kLd + 2 * (lane & 3);
#pragma unroll
    for (int i = 0; i < kSide / 8; i++) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float2 terms = ptx::load_shared<float2>(row + 8 * r * kLd + 8 * i);
        s[i][2 * r] += terms.x;
        s[i][2 * r + 1] += terms.y;
      }
    }
  }
};

// Multiplies sixteen rows with the table's rows of the distances first + n, from ≤ n < to and some
// beyond to whole eights, and gives each product to put(row, n, product).
template <ptx::Operand T, int D, class Put>
SIE_DEVICE void multiply_by_distance(const TileRows<D> &rows, const TableRows<D> &table, int first, int from,
                                     int to, int lane, Put put) {
  uint4 next[D / 32];
  int n = from / 8 * 8;
  table.load(next, first + n + (lane >> 2), lane);
#pragma unroll 1
  for (; n < to; n += 8) {
    uint4 part[D / 32];
#pragma unroll
    for (int i = 0; i < D / 32; i++) part[i] = next[i];
    if (n + 8 < to) table.load(next, first + n + 8 + (lane >> 2), lane);
    float product[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
      const uint4 upper = rows.upper[i], lower = rows.lower[i];
      const uint32_t a[4] = {upper.x, lower.x, upper.y, lower.y}, b[4] = {upper.z, lower.z, upper.w, lower.w};
      ptx::mma_m16n8<T>(product, a, part[i].x, part[i].y);
      ptx::mma_m16n8<T>(product, b, part[i].z, part[i].w);
    }
#pragma unroll
    for (int e = 0; e < 4; e++) put((lane >> 2) + (e >> 1) * 8, n + 2 * (lane & 3) + (e & 1), product[e]);
  }
}

template <int D>
SIE_DEVICE TableRows<D> table_rows(const DisentangledParams &p, const PositionTable &table) {
  return TableRows<D>{table.rows + int64_t{blockIdx.x} * D, table.ld, p.bucket, p.reach};
}

// Puts k_j·Q_b of the warp's keys from `first` on and all queries. `distance` is that of query 0 and
// key 0 of the block, which has that many queries and keys.
template <ptx::Operand T, int D>
SIE_DEVICE void put_terms_of_keys(const DisentangledParams &p, const Terms &terms,
                                  const unsigned char *k_tile, int distance, int queries, int keys, int first,
                                  int lane) {
  // Query i and the warp's key j are n = last + i − j distances farther than query 0 and its last key.
  constexpr int kLast = kWarpRows - 1;
  const int from = max(0, kWarpRows - (keys - first)), to = kLast + queries;
  TileRows<D> rows;
  rows.load(k_tile, first, lane);
  multiply_by_distance<T, D>(rows, table_rows<D>(p, p.pos_query), distance - first - kLast, from, to, lane,
                             [&](int j, int n, float term) { terms.put(n + j - kLast, first + j, term); });
}

// Puts q_i·K_b of the warp's queries from `first` on and all keys.
template <ptx::Operand T, int D>
SIE_DEVICE void put_terms_of_queries(const DisentangledParams &p, const Terms &terms,
                                     const unsigned char *q_tile, int distance, int queries, int keys,
                                     int first, int lane) {
  // The warp's query i and key j are n = last + i − j distances farther than its query 0 and the
  // block's last key.
  constexpr int kLast = Terms::kSide - 1;
  const int from = max(0, Terms::kSide - keys), to = kLast + queries;
  TileRows<D> rows;
  rows.load(q_tile, first, lane);
  multiply_by_distance<T, D>(rows, table_rows<D>(p, p.pos_key), distance + first - kLast, from, to, lane,
                             [&](int i, int n, float term) { terms.put(first + i, kLast + i - n, term); });
}

// Up to 64 queries of an item, from `round` on, against all of its keys.
template <ptx::Operand T, int D>
SIE_DEVICE void attend_round(const DisentangledParams &p, const Unit<D> &unit, int round,
                             unsigned char *shared, int thread) {
  constexpr int kKeys = kBlockKeys<D>, kSlot = 2 * kKeys * D * 2, kThreads = kDisentangledThreads;
  static_assert(kKeys == Terms::kSide, "a block has as many keys as queries");
  const AttentionParams &a = p.attention;
  const Terms terms = {reinterpret_cast<float *>(shared + kDisentangledRows * D * 2)};
  unsigned char *const ring = shared + kDisentangledRows * D * 2 + kDisentangledTermsBytes;
  const int lane = thread & 31, first = thread / 32 * kWarpRows;
  const uint32_t q_tile = ptx::shared_address(shared) + static_cast<uint32_t>(first * D * 2);
  const Sight all = unit.sight(a, round, kDisentangledRows), sight = unit.sight(a, round + first, kWarpRows);
  Rows<D> rows;
  rows.clear();
  if (all.keys > 0) {
    copy_queries<D>(a, unit, round + first, q_tile, lane);
    copy_keys<D, kKeys, kThreads, With::nothing>(a, unit, 0, ptx::shared_address(ring), thread);
    ptx::cp_async_commit();
  }
  for (int key = 0, slot = 0; key < all.keys; key += kKeys, slot ^= 1) {
    const unsigned char *const k_tile = ring + slot * kSlot;
    const int keys = min(kKeys, all.keys - key), distance = all.position - key;
    ptx::cp_async_wait<0>();
    __syncthreads();  // the block is here for all, and all have left the one before and its terms
    if (key + kKeys < all.keys) {
      copy_keys<D, kKeys, kThreads, With::nothing>(
          a, unit, key + kKeys, ptx::shared_address(ring) + static_cast<uint32_t>((slot ^ 1) * kSlot),
          thread);
      ptx::cp_async_commit();
    }
    float s[kKeys / 8][4] = {};
    if (p.pos_query.rows != nullptr) {
      if (first < keys) put_terms_of_keys<T, D>(p, terms, k_tile, distance, all.rows, keys, first, lane);
      __syncthreads();
      terms.add_to(s, first, lane);
      ptx::sync_warp();  // all lanes have their terms: the places are free
    }
    if (sight.rows <= 0) continue;
    if (p.pos_key.rows != nullptr) {
      put_terms_of_queries<T, D>(p, terms, shared, distance, sight.rows, keys, first, lane);
      ptx::sync_warp();
      terms.add_to(s, first, lane);
    }
    Queries<D> q;
    q.take(q_tile, lane);
    const uint32_t tile = ptx::shared_address(k_tile);
    add_products<T, D, kKeys>(s, q, tile, lane);
    if (!sight.sees_all(key, kKeys)) mask<kKeys>(s, sight, key, lane);
    exponentiate<D, kKeys>(s, rows, a.scale_log2);
    weigh<T, D, kKeys>(rows, s, tile + kSlot / 2, lane);
  }
  store_unit_rows<T, D>(a, unit, rows, round + first, lane);
  __syncthreads();  // queries, slots and terms are free again
}

// Registers for 12 warps a multiprocessor at D ≤ 64, for 8 beyond.
template <ptx::Operand T, int D>
__global__ void __launch_bounds__(kDisentangledThreads, D <= 64 ? 3 : 2)
    attention_disentangled_kernel(const __grid_constant__ DisentangledParams p) {
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  SIE_DYNAMIC_SHARED(shared);
  const uint2 items = ptx::load_global<uint2>(p.attention.work);
  for (unsigned item = blockIdx.y; item < items.x + items.y; item += gridDim.y) {
    const Unit<D> unit = {item};
    const int queries = unit.queries(p.attention).count;
    for (int round = 0; round < queries; round += kDisentangledRows)
      attend_round<T, D>(p, unit, round, shared, static_cast<int>(threadIdx.x));
  }
}

// Host.
template <int D>
sie_status attention_start_disentangled(int32_t dtype, int64_t shared_bytes, int64_t ctas,
                                        const sie_stream *on, const DisentangledParams &params) {
  const dim3 grid(static_cast<unsigned>(params.attention.heads), static_cast<unsigned>(ctas));
  if (dtype == SIE_BF16)
    return SIE_LAUNCH((attention_disentangled_kernel<ptx::Operand::bf16, D>), grid, kDisentangledThreads,
                      shared_bytes, on, params);
  return SIE_LAUNCH((attention_disentangled_kernel<ptx::Operand::f16, D>), grid, kDisentangledThreads,
                    shared_bytes, on, params);
}

}  // namespace
}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_ATTENTION_DISENTANGLED_CUH
