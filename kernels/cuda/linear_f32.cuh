// linear_f32 — y = act(x·Wᵀ + bias + addend) + residual in f32, or with a gate: the heads behind
// pooling.
//   acc = fma(x[r, k], W[c, k], acc) for k = 0 … K − 1; bias, addend, activation, gate, residual
//   and rounding as in gemm_epilogue.cuh
// Shapes   x [R, K], W [N, K] packed (gemm_pack.h), y [R, N] or with a gate [R, N/2]. R ≥ 0 read
//          from *rows, K, N ≥ 1. R is sequences, not tokens. Rows of y from *rows on are not
//          touched.
// Types    x, W, bias, addend f32; residual, y: f32 | bf16 | f16. Alias: y may be residual.
// Align    x: pointer and row stride 16 bytes. The rest any; 16-byte runs where pointers and
//          strides allow.
// Cost     2·R·N·K flop on the FMA units, 4·N·K bytes of W. R = 64, N = K = 768: 75.5 MFLOP, 1.1 µs
//          at 67 TFLOP/s; 2.4 MB, 0.8 µs at 3.0 TB/s; and a chain of 768 FMAs of 4 clocks, 1.8 µs
//          at 1.7 GHz, which no tiling shortens. A CTA issues 5 slots a step of k and quarter SM,
//          and its 16 reads of four floats take two passes through shared memory each: 9.5 clocks
//          a step, 7,300 for K = 768, on 96 SMs at once → bound by shared memory, at 40 % of
//          67 TFLOP/s in large batches.
// Plan     a CTA of 4 warps per 16×32 outputs, so that a batch of 64 fills the card; 2×2 outputs a
//          thread: as many chains as one FMA's latency. x and W pass in lines of 32 of k through
//          six stages of shared memory (five under way: 800 clocks of work), rows 144 bytes apart
//          so that the eight columns of a quarter warp read all banks. Then the sums pass through
//          shared memory once more, and half of the threads have 8 neighbouring columns of y each.
// Grid     1D, tile rows first: CTAs that run together share W.
// Error    |y − ref| ≤ sie_tol_dot, sie_tol_act of class F32 (common/tol.h): GELU by erfc here,
//          within 2e-7·max(1, |z|); the other activations as activation.cuh. One order of
//          additions: a row's bits are its own.
#ifndef SIE_KERNELS_CUDA_LINEAR_F32_CUH
#define SIE_KERNELS_CUDA_LINEAR_F32_CUH

#include "cuda/gemm_epilogue.cuh"
#include "cuda/linear_f32.h"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/read_four.cuh"

namespace sie_cuda {

constexpr int32_t f32_rows = 16, f32_columns = 32;  // of a CTA's tile
constexpr int32_t f32_threads = 128, f32_min_ctas = 2;
constexpr int32_t f32_line = 32;    // elements of k a stage holds: a line of gemm_pack.h
constexpr int32_t f32_stride = 36;  // elements between the rows of a stage and of the sums
constexpr int32_t f32_stage = (f32_rows + f32_columns) * f32_stride;
constexpr int32_t f32_stages = 6;
constexpr int32_t f32_shared_bytes = f32_stages * f32_stage * 4;

// x·Φ(x). Below x = −14 Φ is 0; the bound keeps −∞ from becoming a NaN.
SIE_DEVICE float gelu_erf_f32(float x) {
  return __fmul_rn(__fmul_rn(0.5f, fmaxf(x, -14.0f)), erfcf(__fmul_rn(x, -0.70710678118654752f)));
}

// activate and gated (activation.cuh), accurate enough for results that stay f32.
template <int32_t Act>
SIE_DEVICE float activate_f32(float x) {
  return Act == SIE_ACT_GELU_ERF ? gelu_erf_f32(x) : activate<Act>(x);
}
template <int32_t Gate>
SIE_DEVICE float gated_f32(float gate, float up) {
  return Gate == SIE_GATE_GEGLU ? __fmul_rn(gelu_erf_f32(gate), up) : gated<Gate>(gate, up);
}

// The sources and destinations of a thread's copies into a stage: 16 bytes of a row of x and of two
// rows of W.
struct LinearF32Copies {
  const uint8_t *x, *w;
  int64_t w_pass;      // bytes between the two rows
  int32_t bytes_left;  // of a row of x from the piece's first on
  int32_t at;          // in a stage
  bool row_exists;

  SIE_DEVICE LinearF32Copies(const LinearF32Args &a, int64_t row0, int32_t column0, int32_t n) {
    const int32_t row = static_cast<int32_t>(threadIdx.x) / 8, piece = static_cast<int32_t>(threadIdx.x) % 8;
    x = a.x + (row0 + row) * a.x_row + piece * 16;
    w = a.w + (static_cast<int64_t>(column0) + row) * a.w_row + piece * 16;
    w_pass = a.w_row * f32_rows;
    bytes_left = a.k * 4 - piece * 16;
    at = row * f32_stride + piece * 4;
    row_exists = row0 + row < n;
  }

  // Copies line `line` to a stage. Behind K there are zeros: W is packed with them, for x they are
  // written here.
  SIE_DEVICE void issue(float *stage, int32_t line) const {
    const int64_t offset = static_cast<int64_t>(line) * (f32_line * 4);
    const int32_t read = row_exists ? max(0, min(16, bytes_left - static_cast<int32_t>(offset))) : 0;
    ptx::cp_async_16_head(ptx::shared_address(stage + at), x + offset, read);
#pragma unroll
    for (int i = 0; i < f32_columns / f32_rows; i++) {
      ptx::cp_async_16(stage + at + (i + 1) * f32_rows * f32_stride, w + i * w_pass + offset);
    }
  }
};

// Multiplies one line: row is the first of the thread's rows in a stage, column the first of its
// columns; the second ones are 4 and 8 further.
SIE_DEVICE void f32_multiply(const float *stage, int32_t row, int32_t column, float (&acc)[2][2]) {
  const float *x = stage + row * f32_stride, *w = stage + (f32_rows + column) * f32_stride;
#pragma unroll
  for (int k = 0; k < f32_line; k += 4) {
    float xs[2][4], ws[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      read_four(x + i * 4 * f32_stride + k, xs[i]);
      read_four(w + i * 8 * f32_stride + k, ws[i]);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int c = 0; c < 2; c++) acc[r][c] = __fmaf_rn(xs[r][j], ws[c][j], acc[r][c]);
      }
    }
  }
}

// The tile's sums → y: a thread has 8 columns of y in a row, out of 16 columns of W behind a gate.
template <bool Gate>
SIE_DEVICE void f32_store(const GemmEpilogue &e, const float *sums, int64_t row0, int32_t column0,
                          int32_t n) {
  constexpr int32_t run = Gate ? 16 : 8, runs_a_row = f32_columns / run;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  if (thread >= f32_rows * runs_a_row) return;  // whole warps
  const int32_t sums_row = thread / runs_a_row, column = thread % runs_a_row * run;
  const int32_t y_column = (column0 + column) / (Gate ? 2 : 1);
  const int64_t row = row0 + sums_row;
  const bool stored = row < n;  // of columns behind the last, the calls below use none
  float v[8] = {};
  if (stored) {
    float z[run];
#pragma unroll
    for (int i = 0; i < run; i += 4) {
      float q[4];
      read_four(sums + sums_row * f32_stride + column + i, q);
#pragma unroll
      for (int j = 0; j < 4; j++) z[i + j] = q[j];
    }
    gemm_add_bias(e, column0 + column, z);
    gemm_add_addend_run(e, row, column0 + column, z);
    if constexpr (Gate) {
      with_gate(e.gate, [&](auto gate) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = gated_f32<decltype(gate)::value>(z[2 * i], z[2 * i + 1]);
      });
    } else {
      with_activation(e.act, [&](auto act) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = activate_f32<decltype(act)::value>(z[i]);
      });
    }
    gemm_add_residual_run(e, row, y_column, v);
  }
  gemm_store_run(e, row, y_column, stored, v);
}

namespace {

__global__ void __launch_bounds__(f32_threads, f32_min_ctas)
    linear_f32_kernel(const __grid_constant__ LinearF32Args a) {
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();  // takes effect when the last round of CTAs has begun
  SIE_DYNAMIC_SHARED(memory);
  float *const stages = reinterpret_cast<float *>(memory);
  const int32_t n = *a.rows, id = static_cast<int32_t>(blockIdx.x);
  const int64_t row0 = static_cast<int64_t>(id % a.row_tiles) * f32_rows;
  const int32_t column0 = id / a.row_tiles * f32_columns;
  if (row0 >= n) return;

  const LinearF32Copies copies(a, row0, column0, n);
  const int32_t lines = (a.k + f32_line - 1) / f32_line;
#pragma unroll
  for (int i = 0; i < f32_stages - 1; i++) {
    if (i < lines) copies.issue(stages + i * f32_stage, i);
    ptx::cp_async_commit();
  }
  // Warps as 2×2 rectangles of 8×16; in a warp, four rows and eight columns of threads.
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t row = thread / 64 * 8 + thread % 32 / 8, column = thread / 32 % 2 * 16 + thread % 8;
  float acc[2][2] = {};
  int32_t read = 0, write = (f32_stages - 1) * f32_stage;
  for (int32_t line = 0; line < lines; line++) {
    // The line has arrived for all threads, and all have left the previous stage, which is
    // refilled.
    ptx::cp_async_wait<f32_stages - 2>();
    __syncthreads();
    if (line + f32_stages - 1 < lines) copies.issue(stages + write, line + f32_stages - 1);
    ptx::cp_async_commit();
    f32_multiply(stages + read, row, column, acc);
    write = read;
    read = read + f32_stage == f32_stages * f32_stage ? 0 : read + f32_stage;
  }
  __syncthreads();  // the last line has been read
#pragma unroll
  for (int r = 0; r < 2; r++) {
#pragma unroll
    for (int c = 0; c < 2; c++)
      ptx::store_shared(stages + (row + 4 * r) * f32_stride + column + 8 * c, acc[r][c]);
  }
  __syncthreads();
  if (a.epilogue.gate != SIE_GATE_NONE) {
    f32_store<true>(a.epilogue, stages, row0, column0, n);
  } else {
    f32_store<false>(a.epilogue, stages, row0, column0, n);
  }
}

}  // namespace

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_LINEAR_F32_CUH
