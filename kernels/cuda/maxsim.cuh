// maxsim — y[b] = Σ_i max_j q_i·d_j/‖d_j‖, q the rows of sequence b's query, d its own rows.
//   ‖d_j‖ = max(√Σ d², 1e-12), and 1 without normalize. A sequence without a query, without query
//   rows or without rows gives 0. A product that is NaN does not count in the maximum.
// Shapes   x [R, C], row stride ≥ C; queries [Q, C] dense, cu_queries, partner [B], y [B, 1].
//          B ≥ 0, C ≥ 1.
// Types    x bf16 | f16 | f32; queries, y f32.
// Alias    none.
// Align    any; 128-bit loads where a row allows them.
// Cost     2·Lq·Ld·C flop a pair, three times on tensor cores. 100 documents of 180 rows, C = 128,
//          Lq = 32: 441 MFLOP, 1.2 µs at the 370 TFLOP/s of mma.sync with whole tiles of rows; 4.6
//          MB of bf16, 1.5 µs at 3.0 TB/s → memory bound. A document belongs to one CTA: fewer than
//          132 leave SMs idle, and a long one delays the end (8192 rows: 2.1 MB by one SM, 27 µs).
// Plan     a CTA of 4 warps a sequence. 32 query rows at a time against 64 rows of x: lines of 32
//          columns pass through two stages of shared memory, the next one on its way in registers.
//          An f32 is the sum of parts in bf16: v₀ = bf16(v), v₁ = bf16(v − v₀), v₂ = bf16(v − v₀ −
//          v₁), each difference exact. x of bf16 is its own x₀ and q has 24 bits in three parts:
//          q₂x₀ + q₁x₀ + q₀x₀. Else q₀x₁ + q₁x₀ + q₀x₀. A warp has 16 query rows and 32 rows of
//          x; fragments by ldmatrix, from rows 144 and 208 bytes apart, so that eight of them are
//          in all banks. The four threads that load a row's line add up its squares in f32. A
//          thread keeps the maxima of its two query rows; they are combined when all rows have
//          passed, and thread 0 adds them in ascending i.
// Error    a product: x of bf16 sie_tol_dot; else that and 3·2⁻¹⁶·‖q‖·‖d‖: what x₂, q₂ and q₁x₁
//          would add, each at most 2⁻¹⁶ of |q|·|d|. Of 512 products of 128 columns the largest
//          errors are 1.4e-7 of ‖q‖·‖d‖ in bf16, 8.9e-7 in f16 and 1.1e-6 in f32 (on the emulator;
//          maxsim_error_test.cc). Then one quotient, and n roundings of the sum. A part loses what
//          lies below 2⁻¹³⁴, half the least bf16. Rows whose Σ d² leaves f32 count as infinitely
//          long; one with an element of more than 3.39e38 does not count.
// Source   Khattab 2020 §3.3, arXiv:2004.12832
#ifndef SIE_KERNELS_CUDA_MAXSIM_CUH
#define SIE_KERNELS_CUDA_MAXSIM_CUH

#include "cuda/octets.cuh"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/warp.h"

namespace sie_cuda {

constexpr int32_t maxsim_threads = 128, maxsim_min_ctas = 4;
constexpr int32_t maxsim_query_rows = 32, maxsim_rows = 64;  // of a tile
constexpr int32_t maxsim_line = 32;                          // columns a stage holds
constexpr int32_t maxsim_octets = maxsim_line / 8;           // of a row in a line; as many threads bring it
constexpr int32_t maxsim_copies = (maxsim_query_rows + maxsim_rows) * maxsim_octets / maxsim_threads;
// A stage in bf16: query rows in three parts, then rows of x in two. Elements between rows: 16 bytes past
// a multiple of 64.
constexpr int32_t maxsim_query_parts = 3, maxsim_parts = 2;
constexpr int32_t maxsim_query_stride = maxsim_query_parts * maxsim_line + 8,
                  maxsim_stride = maxsim_parts * maxsim_line + 8;
constexpr int32_t maxsim_stage = maxsim_query_rows * maxsim_query_stride + maxsim_rows * maxsim_stride;
// Two stages, the norms of two tiles, the maxima of two warps.
constexpr int32_t maxsim_shared_bytes = 2 * maxsim_stage * 2 + (2 * maxsim_rows + 2 * maxsim_query_rows) * 4;
static_assert(maxsim_threads / maxsim_octets == maxsim_query_rows, "a thread's first octet is a query's");

// A tile: query rows from `query` on, `query_rows` of them; rows of x from `first` on to `end`.
struct MaxsimTile {
  int32_t query, query_rows, first, end;
};

// Stores an octet's parts in bf16, a line's columns apart.
template <int Parts>
SIE_DEVICE void maxsim_split(const float (&v)[8], uint16_t *to) {
  float rest[8];
#pragma unroll
  for (int j = 0; j < 8; j++) rest[j] = v[j];
#pragma unroll
  for (int part = 0; part < Parts; part++) {
    const uint4 bits = pack_octet(Storage::bf16, rest);
    ptx::store_shared(to + part * maxsim_line, bits);
    if (part + 1 == Parts) break;
    float taken[8];
    unpack_octet(Storage::bf16, bits, taken);
#pragma unroll
    for (int j = 0; j < 8; j++) rest[j] = __fsub_rn(rest[j], taken[j]);
  }
}

// A thread's octets of one line on their way to a stage: one of a query row, two of rows of x, 32
// rows apart.
class MaxsimLine {
 public:
  SIE_DEVICE void load(const sie_maxsim_args &a, const MaxsimTile &tile, int32_t line) {
    const int32_t row = static_cast<int32_t>(threadIdx.x) / maxsim_octets,
                  column = line * maxsim_line + static_cast<int32_t>(threadIdx.x) % maxsim_octets * 8,
                  c = static_cast<int32_t>(a.c);
    const sie_tensor queries = {const_cast<float *>(a.queries), a.c, SIE_F32, 0, nullptr, nullptr, nullptr};
    // Rows that do not exist: zeros, and nothing is read.
    load_octet_any(queries, tile.query + row, column, row < tile.query_rows ? c : 0, v_[0]);
#pragma unroll
    for (int i = 1; i < maxsim_copies; i++) {
      const int32_t at = tile.first + row + (i - 1) * maxsim_query_rows;
      load_octet_any(a.x, at, column, at < tile.end ? c : 0, v_[i]);
    }
  }

  SIE_DEVICE void store(uint16_t *stage, bool exact) const {
    const int32_t row = static_cast<int32_t>(threadIdx.x) / maxsim_octets,
                  column = static_cast<int32_t>(threadIdx.x) % maxsim_octets * 8;
    maxsim_split<maxsim_query_parts>(v_[0], stage + row * maxsim_query_stride + column);
    uint16_t *const rows = stage + maxsim_query_rows * maxsim_query_stride;
#pragma unroll
    for (int i = 1; i < maxsim_copies; i++) {
      uint16_t *const to = rows + (row + (i - 1) * maxsim_query_rows) * maxsim_stride + column;
      if (exact) {
        maxsim_split<1>(v_[i], to);
      } else {
        maxsim_split<maxsim_parts>(v_[i], to);
      }
    }
  }

  // Adds the squares of the rows of x to this thread's share of their sums.
  SIE_DEVICE void add_squares(float (&squares)[maxsim_copies - 1]) const {
#pragma unroll
    for (int i = 1; i < maxsim_copies; i++) {
#pragma unroll
      for (int j = 0; j < 8; j++) squares[i - 1] = __fmaf_rn(v_[i][j], v_[i][j], squares[i - 1]);
    }
  }

 private:
  float v_[maxsim_copies][8];
};

// Writes the norms of a tile's rows, whose partial sums are complete, to `norms` and clears the
// partial sums.
SIE_DEVICE void maxsim_norms(float (&squares)[maxsim_copies - 1], float *norms) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < maxsim_copies - 1; i++) {
    float sum = squares[i];
    sum += ptx::shuffle_xor(sum, 1);
    sum += ptx::shuffle_xor(sum, 2);
    if (thread % maxsim_octets == 0)
      ptx::store_shared(norms + thread / maxsim_octets + i * maxsim_query_rows,
                        fmaxf(__fsqrt_rn(sum), 1e-12f));
    squares[i] = 0.0f;
  }
}

// A thread's products: query rows `query` and 8 further with rows `row` + 8·j and 1 further of x, as
// fragments of mma have them.
struct MaxsimPlace {
  int32_t lane, first_query, first_row, query, row;
  // Warps as 2×2 rectangles of 16 query rows and 32 rows of x.
  SIE_DEVICE MaxsimPlace() {
    const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
    lane = static_cast<int32_t>(threadIdx.x) % 32;
    first_query = warp / 2 * 16;
    first_row = warp % 2 * 32;
    query = first_query + lane / 4;
    row = first_row + lane % 4 * 2;
  }
};

// exact: x has one part.
SIE_DEVICE void maxsim_multiply(const uint16_t *stage, const MaxsimPlace &place, bool exact,
                                float (&dot)[4][4]) {
  const int32_t lane = place.lane;
  const uint16_t *const q = stage + (place.first_query + lane % 16) * maxsim_query_stride + lane / 16 * 8,
                        *const d = stage + maxsim_query_rows * maxsim_query_stride +
                                   (place.first_row + lane % 8 + lane / 16 * 8) * maxsim_stride +
                                   lane / 8 % 2 * 8;
  // Of the smallest product.
  const int32_t q_part = exact ? 2 * maxsim_line : 0, d_part = exact ? 0 : maxsim_line;
#pragma unroll
  for (int k = 0; k < maxsim_line; k += 16) {
    uint32_t q0[4], q1[4], q_last[4];
    ptx::ldmatrix_x4(q0, q + k);
    ptx::ldmatrix_x4(q1, q + k + maxsim_line);
    ptx::ldmatrix_x4(q_last, q + k + q_part);
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      uint32_t d0[4], d_last[4];
      ptx::ldmatrix_x4(d0, d + 8 * j * maxsim_stride + k);
      ptx::ldmatrix_x4(d_last, d + 8 * j * maxsim_stride + k + d_part);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        ptx::mma_m16n8<ptx::Operand::bf16>(dot[j + i], q_last, d_last[2 * i], d_last[2 * i + 1]);
        ptx::mma_m16n8<ptx::Operand::bf16>(dot[j + i], q1, d0[2 * i], d0[2 * i + 1]);
        ptx::mma_m16n8<ptx::Operand::bf16>(dot[j + i], q0, d0[2 * i], d0[2 * i + 1]);
      }
    }
  }
}

// Takes a tile's finished products into the thread's maxima; the products begin the next tile at 0.
// norms: NULL without normalize.
SIE_DEVICE void maxsim_keep_best(const float *norms, const MaxsimTile &tile, const MaxsimPlace &place,
                                 float (&dot)[4][4], float (&best)[2]) {
#pragma unroll
  for (int j = 0; j < 4; j++) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int32_t row = place.row + 8 * j + e;
      const bool exists = tile.first + row < tile.end;
      const float norm = norms != nullptr ? ptx::load_shared<float>(norms + row) : 1.0f;
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float &product = dot[j][2 * i + e];
        if (exists) best[i] = fmaxf(best[i], norms != nullptr ? __fdiv_rn(product, norm) : product);
        product = 0.0f;
      }
    }
  }
}

// The maxima of 32 query rows over all rows of the sequence, in `best`, [32] of shared memory, for
// all threads.
SIE_DEVICE void maxsim_best(const sie_maxsim_args &a, MaxsimTile tile, uint16_t *stages, float *norms,
                            float *best) {
  const int32_t lines = (static_cast<int32_t>(a.c) + maxsim_line - 1) / maxsim_line;
  const int32_t tiles = (tile.end - tile.first + maxsim_rows - 1) / maxsim_rows;
  const MaxsimPlace place;
  const bool exact = a.x.dtype == SIE_BF16;
  float dot[4][4] = {}, most[2] = {-INFINITY, -INFINITY}, squares[maxsim_copies - 1] = {};
  MaxsimTile next = tile;
  MaxsimLine copy;
  // Stores a line from registers to a stage; with the last line of tile `t` also its norms.
  auto put = [&](int32_t stage, int32_t t, int32_t line) {
    copy.store(stages + stage * maxsim_stage, exact);
    if (a.normalize == 0) return;
    copy.add_squares(squares);
    if (line == lines - 1) maxsim_norms(squares, norms + t % 2 * maxsim_rows);
  };
  copy.load(a, tile, 0);
  put(0, 0, 0);
  __syncthreads();
  int32_t stage = 0;
  for (int32_t t = 0; t < tiles; t++) {
    for (int32_t line = 0; line < lines; line++) {
      const bool turn = line + 1 == lines, more = !turn || t + 1 < tiles;
      if (turn) next.first = tile.first + maxsim_rows;
      const int32_t next_line = turn ? 0 : line + 1;
      if (more) copy.load(a, next, next_line);
      maxsim_multiply(stages + stage * maxsim_stage, place, exact, dot);
      if (turn) {
        maxsim_keep_best(a.normalize != 0 ? norms + t % 2 * maxsim_rows : nullptr, tile, place, dot, most);
        tile = next;
      }
      // The barrier at the end of the last round followed all reads of the other stage, and of the
      // norms two tiles back.
      stage ^= 1;
      if (more) put(stage, turn ? t + 1 : t, next_line);
      __syncthreads();
    }
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    most[i] = fmaxf(most[i], ptx::shuffle_xor(most[i], 1));
    most[i] = fmaxf(most[i], ptx::shuffle_xor(most[i], 2));
    const int32_t half = place.first_row / 32;
    if (place.lane % 4 == 0)
      ptx::store_shared(best + half * maxsim_query_rows + place.query + 8 * i, most[i]);
  }
  __syncthreads();
}

namespace {

__global__ void __launch_bounds__(maxsim_threads, maxsim_min_ctas)
    maxsim_kernel(const __grid_constant__ sie_maxsim_args a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(memory);
  uint16_t *const stages = reinterpret_cast<uint16_t *>(memory);
  float *const norms = reinterpret_cast<float *>(stages + 2 * maxsim_stage), *const best =
                                                                                 norms + 2 * maxsim_rows;
  const int64_t b = blockIdx.x;
  if (b >= *a.seqs.n) return;
  const int32_t first = a.cu_seqlens[b], end = a.cu_seqlens[b + 1], query = a.partner[b];
  const int32_t begin = query >= 0 ? a.cu_queries[query] : 0, last = query >= 0 ? a.cu_queries[query + 1] : 0;
  ptx::grid_dependency_launch();
  float sum = 0.0f;
  if (first < end) {
    for (int32_t q = begin; q < last; q += maxsim_query_rows) {
      const int32_t rows = min(last - q, maxsim_query_rows);
      maxsim_best(a, {q, rows, first, end}, stages, norms, best);
      if (threadIdx.x == 0) {
        for (int32_t i = 0; i < rows; i++)
          sum = __fadd_rn(sum, fmaxf(ptx::load_shared<float>(best + i),
                                     ptx::load_shared<float>(best + maxsim_query_rows + i)));
      }
    }
  }
  if (threadIdx.x == 0) static_cast<float *>(a.y.p)[b * a.y.ld] = sum;
}

}  // namespace

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_MAXSIM_CUH
