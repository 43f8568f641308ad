// maxsim — y[b] = Σ_i max_j q_i·d_j/‖d_j‖, q the rows of sequence b's query, d its own rows.
//   ‖d_j‖ = max(√Σ d², 1e-12), and 1 without normalize. A sequence without a query, without query
//   rows or without rows gives 0. A product that is NaN does not count in the maximum.
// Shapes   x [R, C], row stride ≥ C; queries [Q, C] dense, cu_queries, partner [B], y [B, 1].
//          B ≥ 0, C ≥ 1.
// Types    x bf16 | f16 | f32; queries, y f32.
// Alias    none.
// Align    any; 128-bit loads where a row allows them.
// Cost     2·Lq·Ld·C flop a pair on the FMA units. 100 documents of 180 rows, C = 128, Lq = 32: 147
//          MFLOP, 2.2 µs at 67 TFLOP/s; 4.6 MB of bf16, 1.5 µs at 3.0 TB/s → compute bound. With
//          four products a load of shared memory that is about half of the FMA rate. A document
//          belongs to one CTA: fewer than 132 leave SMs idle, and a long one delays the end (8192
//          rows: 67 MFLOP, some 250 µs). Tensor cores would need the f32 query in three parts of
//          bf16; this form has none.
// Plan     a CTA of 4 warps a sequence. 32 query rows at a time against 64 rows of x: lines of 32
//          columns pass through two stages of shared memory in f32, the next one on its way in
//          registers; 4×4 products a thread. Rows of a stage lie 144 bytes apart, so that the eight
//          rows of a quarter warp are in all banks. The four threads that load a row's line add up
//          its squares. A thread keeps the maxima of its four query rows; they are combined when
//          all rows have passed, and thread 0 adds them in ascending i.
// Error    sie_tol_dot a product (one FMA chain, columns ascending), one quotient, then n roundings
//          of the sum. Rows whose Σ d² leaves f32 count as infinitely long.
// Source   Khattab 2020 §3.3, arXiv:2004.12832
#ifndef SIE_KERNELS_CUDA_MAXSIM_CUH
#define SIE_KERNELS_CUDA_MAXSIM_CUH

#include "cuda/octets.cuh"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/warp.h"

namespace sie_cuda {

constexpr int32_t maxsim_threads = 128, maxsim_min_ctas = 4;
constexpr int32_t maxsim_query_rows = 32, maxsim_rows = 64;  // of a tile
constexpr int32_t maxsim_line = 32;                          // columns a stage holds
constexpr int32_t maxsim_stride = 36;                        // floats between the rows of a stage
constexpr int32_t maxsim_octets = maxsim_line / 8;           // of a row in a line; as many threads bring it
constexpr int32_t maxsim_copies = (maxsim_query_rows + maxsim_rows) * maxsim_octets / maxsim_threads;
constexpr int32_t maxsim_stage = (maxsim_query_rows + maxsim_rows) * maxsim_stride;
// Two stages, the norms of two tiles, the maxima of two warps.
constexpr int32_t maxsim_shared_bytes = (2 * maxsim_stage + 2 * maxsim_rows + 2 * maxsim_query_rows) * 4;
static_assert(maxsim_threads / maxsim_octets == maxsim_query_rows, "a thread's first octet is a query's");

// A tile: query rows from `query` on, `query_rows` of them; rows of x from `first` on to `end`.
struct MaxsimTile {
  int32_t query, query_rows, first, end;
};

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

  SIE_DEVICE void store(float *stage) const {
    const int32_t row = static_cast<int32_t>(threadIdx.x) / maxsim_octets,
                  column = static_cast<int32_t>(threadIdx.x) % maxsim_octets * 8;
#pragma unroll
    for (int i = 0; i < maxsim_copies; i++) {
      float *to = stage + (row + i * maxsim_query_rows) * maxsim_stride + column;
      ptx::store_shared(to, make_float4(v_[i][0], v_[i][1], v_[i][2], v_[i][3]));
      ptx::store_shared(to + 4, make_float4(v_[i][4], v_[i][5], v_[i][6], v_[i][7]));
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

SIE_DEVICE void maxsim_read(const float *from, float (&v)[4]) {
  const float4 q = ptx::load_shared<float4>(from);
  v[0] = q.x;
  v[1] = q.y;
  v[2] = q.z;
  v[3] = q.w;
}

// A thread's products: query rows `query` + 4·i with rows `row` + 8·j of x.
struct MaxsimPlace {
  int32_t query, row;
  // Warps as 2×2 rectangles of 16 query rows and 32 rows of x; in a warp, four query rows and eight
  // rows.
  SIE_DEVICE MaxsimPlace() {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32,
                  warp = static_cast<int32_t>(threadIdx.x) / 32;
    query = warp / 2 * 16 + lane / 8;
    row = warp % 2 * 32 + lane % 8;
  }
};

SIE_DEVICE void maxsim_multiply(const float *stage, const MaxsimPlace &place, float (&dot)[4][4]) {
  const float *q = stage + place.query * maxsim_stride,
              *d = stage + (maxsim_query_rows + place.row) * maxsim_stride;
#pragma unroll 2
  for (int k = 0; k < maxsim_line; k += 4) {
    float qs[4][4], ds[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      maxsim_read(q + i * 4 * maxsim_stride + k, qs[i]);
      maxsim_read(d + i * 8 * maxsim_stride + k, ds[i]);
    }
#pragma unroll
    for (int step = 0; step < 4; step++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) dot[i][j] = __fmaf_rn(qs[i][step], ds[j][step], dot[i][j]);
      }
    }
  }
}

// Takes a tile's finished products into the thread's maxima; the products begin the next tile at 0.
// norms: NULL without normalize.
SIE_DEVICE void maxsim_keep_best(const float *norms, const MaxsimTile &tile, const MaxsimPlace &place,
                                 float (&dot)[4][4], float (&best)[4]) {
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const int32_t row = place.row + 8 * j;
    const bool exists = tile.first + row < tile.end;
    const float norm = norms != nullptr ? ptx::load_shared<float>(norms + row) : 1.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (exists) best[i] = fmaxf(best[i], norms != nullptr ? __fdiv_rn(dot[i][j], norm) : dot[i][j]);
      dot[i][j] = 0.0f;
    }
  }
}

// The maxima of 32 query rows over all rows of the sequence, in `best`, [32] of shared memory, for
// all threads.
SIE_DEVICE void maxsim_best(const sie_maxsim_args &a, MaxsimTile tile, float *stages, float *norms,
                            float *best) {
  const int32_t lines = (static_cast<int32_t>(a.c) + maxsim_line - 1) / maxsim_line;
  const int32_t tiles = (tile.end - tile.first + maxsim_rows - 1) / maxsim_rows;
  const MaxsimPlace place;
  float dot[4][4] = {}, most[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
        squares[maxsim_copies - 1] = {};
  MaxsimTile next = tile;
  MaxsimLine copy;
  // Stores a line from registers to a stage; with the last line of tile `t` also its norms.
  auto put = [&](int32_t stage, int32_t t, int32_t line) {
    copy.store(stages + stage * maxsim_stage);
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
      maxsim_multiply(stages + stage * maxsim_stage, place, dot);
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
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int step = 4; step > 0; step /= 2) most[i] = fmaxf(most[i], ptx::shuffle_xor(most[i], step));
    const int32_t half = static_cast<int32_t>(threadIdx.x) / 32 % 2;
    if (threadIdx.x % 8 == 0)
      ptx::store_shared(best + half * maxsim_query_rows + place.query + 4 * i, most[i]);
  }
  __syncthreads();
}

namespace {

__global__ void __launch_bounds__(maxsim_threads, maxsim_min_ctas)
    maxsim_kernel(const __grid_constant__ sie_maxsim_args a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(memory);
  float *const stages = reinterpret_cast<float *>(memory), *const norms = stages + 2 * maxsim_stage,
               *const best = norms + 2 * maxsim_rows;
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
