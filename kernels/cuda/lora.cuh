// lora — y = (x·Aᵀ)·Bᵀ with the adapter of each row's sequence, several in one batch; zeros without
// one or with rank 0.
// Shapes   x [R, K], y [R, N], row strides ≥ columns; A [rank, K], B [N, rank] dense; adapter [B];
//          cu_seqlens [B+1], or NULL where x has one row a sequence. R ≥ 0 read from *rows; K,
//          N ≥ 1; 0 ≤ rank ≤ max_rank ≤ 512.
// Types    x, A, B bf16 | f16, one type; y f32.
// Alias    none.
// Align    any; 16-byte loads of x and A, 4-byte ones of B and 8-byte stores where pointers and
//          strides allow.
// Cost     2·R·rank·(K + N) flop and 2·R·K + 4·R·N bytes → memory bound by y to rank ~200. R =
//          16,384, K = N = 1024, rank 16: 1.1 GFLOP, 3 µs at 400 TFLOP/s; 101 MB, 34 µs at
//          3.0 TB/s. A short batch is a chain of K/32 loads by one warp for 16 rows, some 10 µs at
//          K = 1024, which no tiling here shortens.
// Plan     a CTA of 4 warps for 64 rows and a range of columns; where row tiles are few, columns
//          are dealt to more CTAs, each with a t of its own. Neighbouring sequences with one
//          adapter are one segment; a tile that holds several segments runs once for each, and
//          stores that segment's rows only. First t = x·Aᵀ, a warp 16 rows: mma.sync with fragments
//          straight from memory. Each lane loads eight neighbouring k of a row, which serve as k of
//          two products (the same places in x and A, so only the order of the sum changes). t is
//          stored to shared memory in x's type; then each warp takes 16 columns of y in turn for
//          all 64 rows, t by ldmatrix, B from memory.
// Error    sie_tol_dot of K for t, half a step of x's type for its rounding (in f16 a t above
//          65,504 is infinite, as it is in PyTorch's f16), sie_tol_dot of rank. One order of
//          additions a row, wherever it stands.
// Source   Hu 2021 §4.1, arXiv:2106.09685; segments of a batch: Chen 2023 (Punica) §4,
//          arXiv:2310.18547; fragments as mma.h
#ifndef SIE_KERNELS_CUDA_LORA_CUH
#define SIE_KERNELS_CUDA_LORA_CUH

#include "cuda/lora.h"
#include "cuda/ptx/convert.h"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/vector.h"
#include "cuda/sequence_of.cuh"
#include "ops.h"

namespace sie_cuda {

constexpr int32_t lora_threads = 128;
// 128 registers suffice, except for compilers before 13.0, which spill one.
#if defined(__CUDACC__) && __CUDACC_VER_MAJOR__ < 13
constexpr int32_t lora_min_ctas = 3;
#else
constexpr int32_t lora_min_ctas = 4;
#endif
constexpr int32_t lora_rank_max = 512;
constexpr int32_t lora_rank_step = 64;  // columns of t a warp sums at once

struct LoraArgs {
  sie_lora_args a;
  int32_t row_tiles;
  int32_t block_columns;  // of a CTA, a multiple of lora_columns
};

// Elements between the rows of t: 16 bytes past a multiple of 32, so that eight rows lie in all
// banks.
__host__ __device__ constexpr int32_t lora_stride(int32_t rank) { return (rank + 15) / 16 * 16 + 8; }

// Rows [first, last) of x, all in one tile, that share an adapter.
struct LoraSegment {
  int32_t row0, first, last;  // row0: of the tile
  // Whether any of the tile's rows 16·i … is in the segment.
  SIE_DEVICE bool touches(int32_t i) const { return row0 + 16 * i < last && row0 + 16 * i + 16 > first; }
  SIE_DEVICE bool has(int32_t row) const { return row >= first && row < last; }
};

// Elements [k, k + 8) of a row of `bound`: zeros from bound on, which are not read. Adapter: a row
// of A or B, which no kernel writes; their address comes from memory, so that the compiler would
// not know that it is global.
template <bool Adapter>
SIE_DEVICE uint4 lora_eight(const uint16_t *row, int32_t k, int32_t bound) {
  const uint16_t *from = row + k;
  if (k + 8 <= bound && ptx::aligned_for<uint4>(from))
    return Adapter ? ptx::load_global_nc<uint4>(from) : ptx::load_global<uint4>(from);
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t low = k + 2 * i < bound ? from[2 * i] : 0u,
                   high = k + 2 * i + 1 < bound ? from[2 * i + 1] : 0u;
    pairs[i] = low | high << 16;
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// Elements k and k + 1 of a row of B in the same way, k even.
SIE_DEVICE uint32_t lora_two(const uint16_t *row, int32_t k, int32_t bound) {
  if (k + 2 <= bound && ptx::aligned_for<uint32_t>(row)) return ptx::load_global_nc<uint32_t>(row + k);
  const uint32_t low = k < bound ? row[k] : 0u, high = k + 1 < bound ? row[k + 1] : 0u;
  return low | high << 16;
}

// t [64, rank in whole 16s] = x·Aᵀ for this warp's 16 rows of the tile; rows outside the segment
// are undefined.
template <ptx::Operand T>
SIE_DEVICE void lora_down(const sie_lora_args &a, const sie_lora_pair &pair, int32_t rank,
                          const LoraSegment &segment, uint16_t *t) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32, g = static_cast<int32_t>(ptx::lane_id()) / 4,
                quarter = static_cast<int32_t>(ptx::lane_id()) % 4;
  if (!segment.touches(warp)) return;
  const int32_t k_end = static_cast<int32_t>(a.k), stride = lora_stride(rank),
                row = segment.row0 + 16 * warp + g;
  const uint16_t *x[2];
  int32_t bound[2];  // 0: a row of another segment, or none
#pragma unroll
  for (int half = 0; half < 2; half++) {
    x[half] = static_cast<const uint16_t *>(a.x.p) + (row + 8 * half) * a.x.ld;
    bound[half] = segment.has(row + 8 * half) ? k_end : 0;
  }
  for (int32_t rank0 = 0; rank0 < rank; rank0 += lora_rank_step) {
    const int32_t tiles = min(lora_rank_step, stride - 8 - rank0) / 8;
    float sum[lora_rank_step / 8][4] = {};
    for (int32_t k0 = 0; k0 < k_end; k0 += 32) {
      const int32_t k = k0 + 8 * quarter;
      const uint4 top = lora_eight<false>(x[0], k, bound[0]), low = lora_eight<false>(x[1], k, bound[1]);
      const uint32_t first[4] = {top.x, low.x, top.y, low.y}, second[4] = {top.z, low.z, top.w, low.w};
#pragma unroll
      for (int i = 0; i < lora_rank_step / 8; i++) {
        if (i >= tiles) break;
        const int32_t r = rank0 + 8 * i + g;
        const uint16_t *w = static_cast<const uint16_t *>(pair.a) + static_cast<int64_t>(r) * a.k;
        const uint4 q = lora_eight<true>(w, k, r < rank ? k_end : 0);
        ptx::mma_m16n8<T>(sum[i], first, q.x, q.y);
        ptx::mma_m16n8<T>(sum[i], second, q.z, q.w);
      }
    }
#pragma unroll
    for (int i = 0; i < lora_rank_step / 8; i++) {
      if (i >= tiles) break;
      uint16_t *to = t + (16 * warp + g) * stride + rank0 + 8 * i + 2 * quarter;
      ptx::store_shared(to, ptx::pack2<T>(sum[i][0], sum[i][1]));
      ptx::store_shared(to + 8 * stride, ptx::pack2<T>(sum[i][2], sum[i][3]));
    }
  }
}

// Columns `column` and, as far as y has it, `column` + 1 of a row of y.
SIE_DEVICE void lora_store(const sie_lora_args &a, int64_t row, int32_t column, float low, float high) {
  float *p = static_cast<float *>(a.y.p) + row * a.y.ld + column;
  if (column + 2 <= a.n && ptx::aligned_for<float2>(p)) return ptx::store_global(p, make_float2(low, high));
  if (column < a.n) p[0] = low;
  if (column + 1 < a.n) p[1] = high;
}

// y = t·Bᵀ in columns [column0, column_end), the segment's rows; a warp takes 16 columns at a time.
template <ptx::Operand T>
SIE_DEVICE void lora_up(const sie_lora_args &a, const sie_lora_pair &pair, int32_t rank,
                        const LoraSegment &segment, const uint16_t *t, int32_t column0, int32_t column_end) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32, lane = static_cast<int32_t>(ptx::lane_id()),
                g = lane / 4, quarter = lane % 4, stride = lora_stride(rank);
  const uint32_t from = ptx::shared_address(t + lane % 16 * stride + lane / 16 * 8);
  for (int32_t column = column0 + 16 * warp; column < column_end; column += lora_columns) {
    float sum[4][2][4] = {};
    for (int32_t k = 0; k < rank; k += 16) {
      uint32_t b[2][2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int32_t n = column + 8 * j + g;
        const uint16_t *w = static_cast<const uint16_t *>(pair.b) + static_cast<int64_t>(n) * rank;
        const int32_t bound = n < a.n ? rank : 0;
        b[j][0] = lora_two(w, k + 2 * quarter, bound);
        b[j][1] = lora_two(w, k + 2 * quarter + 8, bound);
      }
#pragma unroll
      for (int m = 0; m < 4; m++) {
        if (!segment.touches(m)) continue;
        uint32_t fragment[4];
        ptx::ldmatrix_x4(fragment, from + static_cast<uint32_t>((16 * m * stride + k) * 2));
        ptx::mma_m16n8<T>(sum[m][0], fragment, b[0][0], b[0][1]);
        ptx::mma_m16n8<T>(sum[m][1], fragment, b[1][0], b[1][1]);
      }
    }
#pragma unroll
    for (int m = 0; m < 4; m++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int32_t row = segment.row0 + 16 * m + 8 * half + g;
        if (!segment.has(row)) continue;
#pragma unroll
        for (int j = 0; j < 2; j++) {
          lora_store(a, row, column + 8 * j + 2 * quarter, sum[m][j][2 * half], sum[m][j][2 * half + 1]);
        }
      }
    }
  }
}

namespace {

template <ptx::Operand T>
__global__ void __launch_bounds__(lora_threads, lora_min_ctas)
    lora_kernel(const __grid_constant__ LoraArgs p) {
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();  // takes effect when the last round of CTAs has begun
  SIE_DYNAMIC_SHARED(memory);
  uint16_t *const t = reinterpret_cast<uint16_t *>(memory);
  const sie_lora_args &a = p.a;
  const int32_t rows = *a.rows.n, seqs = *a.seqs.n, id = static_cast<int32_t>(blockIdx.x);
  const int32_t row0 = id % p.row_tiles * lora_rows, column0 = id / p.row_tiles * p.block_columns;
  if (row0 >= rows) return;
  const int32_t end = min(row0 + lora_rows, rows);
  auto end_of = [&](int32_t s) { return a.cu_seqlens != nullptr ? a.cu_seqlens[s + 1] : s + 1; };
  int32_t s = a.cu_seqlens != nullptr ? sequence_of(a.cu_seqlens, seqs, row0).index : row0;
  LoraSegment segment = {row0, row0, row0};
  while (segment.last < end) {
    const int32_t adapter = a.adapter[s];
    segment.first = segment.last;
    segment.last = end_of(s);
    for (s++; segment.last < end && a.adapter[s] == adapter; s++) segment.last = end_of(s);
    segment.last = min(segment.last, end);
    if (segment.first == segment.last) continue;
    sie_lora_pair pair = {};  // of rank 0: sums of nothing
    if (adapter >= 0 && adapter < a.n_adapters) pair = a.adapters[adapter];
    const int32_t rank = min(pair.rank, a.max_rank);
    lora_down<T>(a, pair, rank, segment, t);
    __syncthreads();
    lora_up<T>(a, pair, rank, segment, t, column0, column0 + p.block_columns);
    __syncthreads();  // t has been read
  }
}

}  // namespace

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_LORA_CUH
