// lstm — the recurrence of an LSTM over each sequence's rows, in one direction or both.
//   z = W_hh·h, one FMA chain an element, k ascending; z + gates[t]; c = σ(z_f)·c + σ(z_i)·tanh(z_g),
//   h = σ(z_o)·tanh(c), y[t] = h. h and c are f32 and begin at zero.
// Shapes   gates [R, 4H·D], W_hh [4H, H] packed (gemm_pack.h), y [R, H·D], D directions, row
//          strides ≥ columns; cu_seqlens [B+1]. R, B ≥ 0, 1 ≤ H ≤ 768.
// Types    gates, y bf16 | f16 | f32, each its own; W_hh of class F32.
// Alias    none.
// Align    any; W 128 bytes, as packed.
// Cost     8·R·H² flop a direction, and a chain of L steps that no form shortens. W_hh is 1 MiB at
//          H = 256, which no SM holds. In a cluster of eight CTAs each SM keeps an eighth in shared
//          memory: a step is 1,024 FMAs a thread and 320 reads of four floats, whose two passes
//          each by four warps take 2,560 clocks, and behind them the gates and a barrier of the
//          cluster, some 940: 2.1 µs for four sequences. 384 words take 0.8 ms, and 128 items four
//          rounds of the 16 clusters that 132 SMs hold. Elsewhere a CTA reads W_hh
//          from L2 in every step: 16k clocks at 64 bytes a clock, 10 µs for its four sequences,
//          whose FMAs take 8k clocks; 384 words take 3.7 ms, however many items up to some 130
//          CTAs.
// Plan     four sequences and a direction for a cluster on sm_90, to H = 320, or for a CTA. A
//          thread has one sequence and one unit with all its four gates, so that z never leaves its
//          registers; h lies twice in shared memory: a step reads one and writes the other. Both
//          forms add in the same order: their bits are equal.
//          lstm_cluster_kernel: a CTA has an eighth of the units, their rows of W_hh all the time,
//          and the whole h: a thread writes its unit's to all eight CTAs, and the cluster's barrier
//          ends the step.
//          lstm_kernel: a CTA has all units, in blocks of 64, whose rows pass in lines of 16
//          columns through three stages of shared memory, two under way, from one step into the
//          next, since W does not wait for h. Rows of a stage lie 80 bytes apart.
//          Rows of W that stay, and those of h, lie 16 bytes more than a multiple of 128 apart:
//          what a quarter warp reads at once is in all banks.
// Error    a step adds sie_tol_dot of z and the roundings of expf and tanhf; the recurrence keeps
//          the sum of those below a small multiple of the largest one. A sequence's bits do not
//          depend on those beside it.
// Source   torch.nn.LSTM
#ifndef SIE_KERNELS_CUDA_LSTM_CUH
#define SIE_KERNELS_CUDA_LSTM_CUH

#include "cuda/octets.cuh"
#include "cuda/ptx/cluster_store.h"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/fence.h"
#include "cuda/ptx/grid_dependency.h"
#include "cuda/ptx/warp.h"
#include "cuda/read_four.cuh"

namespace sie_cuda {

// All arguments of a launch.
struct LstmArgs {
  sie_rows seqs;
  const int32_t *cu_seqlens;
  sie_tensor gates, y;
  const float *w[2];  // of the directions that are there
  int32_t reverse[2];
  int64_t w_row;        // floats between rows
  int32_t h, h_stride;  // h_stride: floats from one sequence's h to the next
  int32_t groups;       // of the grid, for each direction
  int32_t units;        // of a CTA of a cluster
};

constexpr int32_t lstm_threads = 256, lstm_min_ctas = 1;
constexpr int32_t lstm_seqs = 4, lstm_units = lstm_threads / lstm_seqs;  // of a CTA, and of a block
constexpr int32_t lstm_line = 16, lstm_stride = 20;                      // floats of a row in a stage
constexpr int32_t lstm_stage = 4 * lstm_units * lstm_stride, lstm_stages = 3;

// h_stride: the four sequences are in different banks, and what a line reads behind the last unit
// is 0.
constexpr int32_t lstm_h_stride(int32_t h) { return (h + 31) / 32 * 32 + 4; }
// The stages, h twice, c.
constexpr int32_t lstm_shared_bytes(int32_t h) {
  return (lstm_stages * lstm_stage + 3 * lstm_seqs * lstm_h_stride(h)) * 4;
}
static_assert(lstm_shared_bytes(SIE_MAX_GPU_LSTM) <= 99 * 1024, "an SM of sm_86 has no more");

SIE_DEVICE float lstm_sigmoid(float x) { return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x))); }

// The gates of a unit at a row of a direction's own columns.
SIE_DEVICE void lstm_gates(const LstmArgs &a, int32_t direction, int64_t row, int32_t unit, float (&x)[4]) {
#pragma unroll
  for (int g = 0; g < 4; g++) {
    x[g] = load_element(element_at(a.gates, row, (4 * direction + g) * a.h + unit), a.gates.dtype, 0);
  }
}

// h of a unit behind a step, from its products z and gates x; *c is the cell before, then behind
// it.
SIE_DEVICE float lstm_step(const float (&z)[4], const float (&x)[4], float *c) {
  const float i = lstm_sigmoid(__fadd_rn(z[0], x[0])), f = lstm_sigmoid(__fadd_rn(z[1], x[1])),
              g = tanhf(__fadd_rn(z[2], x[2])), o = lstm_sigmoid(__fadd_rn(z[3], x[3]));
  *c = __fmaf_rn(f, *c, __fmul_rn(i, g));
  return __fmul_rn(o, tanhf(*c));
}

// The steps of four sequences in one direction, and where the thread's own stands.
struct LstmGroup {
  int32_t direction, steps, begin, end;  // rows of the thread's sequence
  bool reverse;

  // Of group `number` of the grid; steps 0: there is nothing to do.
  SIE_DEVICE LstmGroup(const LstmArgs &a, int32_t number, int32_t seq)
      : direction(number / a.groups), steps(0) {
    const int32_t first = number % a.groups * lstm_seqs, n = *a.seqs.n;
    for (int32_t s = first; s < min(first + lstm_seqs, n); s++) {
      steps = max(steps, a.cu_seqlens[s + 1] - a.cu_seqlens[s]);
    }
    const bool there = first + seq < n;
    begin = there ? a.cu_seqlens[first + seq] : 0;
    end = there ? a.cu_seqlens[first + seq + 1] : 0;
    reverse = (direction == 0 ? a.reverse[0] : a.reverse[1]) != 0;
  }
  SIE_DEVICE bool at_work(int32_t step) const { return step < end - begin; }
  SIE_DEVICE int64_t row(int32_t step) const { return reverse ? end - 1 - step : begin + step; }
};

// Issues the copies of line `at` of a step's tape, which has the lines of block 0, then those of
// block 1, …: 64 units of the four gates. Units that do not exist are zeros.
SIE_DEVICE void lstm_issue(const LstmArgs &a, const float *w, int32_t at, int32_t lines, float *stage) {
  const int32_t block = at / lines, column = at % lines * lstm_line;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int32_t row = static_cast<int32_t>(threadIdx.x) / 4 + i * lstm_units, piece = threadIdx.x % 4 * 4,
                  unit = block * lstm_units + row % lstm_units;
    const bool there = unit < a.h;
    const float *const from = w + (int64_t{row / lstm_units} * a.h + (there ? unit : 0)) * a.w_row;
    ptx::cp_async_16(stage + row * lstm_stride + piece, from + column + piece, there);
  }
}

// Adds a line: w the thread's unit, whose gates lie `gate` floats apart, h its sequence's columns.
SIE_DEVICE void lstm_multiply(const float *w, int32_t gate, const float *h, float (&z)[4]) {
#pragma unroll
  for (int k = 0; k < lstm_line; k += 4) {
    float of_h[4], of_w[4][4];
    read_four(h + k, of_h);
#pragma unroll
    for (int g = 0; g < 4; g++) read_four(w + g * gate + k, of_w[g]);
#pragma unroll
    for (int e = 0; e < 4; e++) {
#pragma unroll
      for (int g = 0; g < 4; g++) z[g] = __fmaf_rn(of_h[e], of_w[g][e], z[g]);
    }
  }
}

__global__ void __launch_bounds__(lstm_threads, lstm_min_ctas)
    lstm_kernel(const __grid_constant__ LstmArgs a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(memory);
  const int32_t thread = static_cast<int32_t>(threadIdx.x), seq = thread % lstm_seqs;
  const LstmGroup group(a, static_cast<int32_t>(blockIdx.x), seq);
  if (group.steps == 0) return;
  ptx::grid_dependency_launch();
  float *const stages = reinterpret_cast<float *>(memory);
  float *const h = stages + lstm_stages * lstm_stage;
  const int32_t h_stride = a.h_stride, h_size = lstm_seqs * h_stride;
  float *const c = h + 2 * h_size + seq * h_stride;
  for (int32_t i = thread; i < 3 * h_size; i += lstm_threads) ptx::store_shared(h + i, 0.0f);

  const float *const w = group.direction == 0 ? a.w[0] : a.w[1];
  const int32_t lines = (a.h + lstm_line - 1) / lstm_line, tape = (a.h + lstm_units - 1) / lstm_units * lines;
  int32_t issued = 0, fill = 0, read = 0;      // the next line to issue, and its and this stage
  int64_t left = int64_t{group.steps} * tape;  // lines to issue
  auto issue = [&] {
    if (left > 0) lstm_issue(a, w, issued, lines, stages + fill);
    ptx::cp_async_commit();
    left--;
    issued = issued + 1 == tape ? 0 : issued + 1;
    fill = fill + lstm_stage == lstm_stages * lstm_stage ? 0 : fill + lstm_stage;
  };
#pragma unroll
  for (int i = 0; i < lstm_stages - 1; i++) issue();

  for (int32_t step = 0; step < group.steps; step++) {
    const float *const before = h + step % 2 * h_size + seq * h_stride;
    float *const after = h + (step + 1) % 2 * h_size + seq * h_stride;
    const int64_t row = group.row(step);
    for (int32_t block = 0; block < a.h; block += lstm_units) {
      const int32_t unit = block + thread / lstm_seqs;
      const bool own = group.at_work(step) && unit < a.h;
      float x[4] = {}, z[4] = {};
      if (own) lstm_gates(a, group.direction, row, unit, x);
      for (int32_t line = 0; line < lines; line++) {
        // The line has arrived for all threads, all have left the stage before, which is refilled,
        // and of a step's first line: h is there.
        ptx::cp_async_wait<lstm_stages - 2>();
        __syncthreads();
        issue();
        lstm_multiply(stages + read + thread / lstm_seqs * lstm_stride, lstm_units * lstm_stride,
                      before + line * lstm_line, z);
        read = read + lstm_stage == lstm_stages * lstm_stage ? 0 : read + lstm_stage;
      }
      if (!own) continue;
      float cell = ptx::load_shared<float>(c + unit);
      const float state = lstm_step(z, x, &cell);
      ptx::store_shared(c + unit, cell);
      ptx::store_shared(after + unit, state);
      store_element(element_at(a.y, row, group.direction * a.h + unit), a.y.dtype, 0, state);
    }
  }
}

// ---- clusters

constexpr int32_t lstm_cluster = 8, lstm_cluster_units = 40;  // CTAs, and the most units of one
constexpr int32_t lstm_cluster_threads = lstm_cluster_units * lstm_seqs;
constexpr int32_t lstm_cluster_hidden = lstm_cluster * lstm_cluster_units;

// The units of a CTA; its rows of W, then h twice.
constexpr int32_t lstm_units_each(int32_t h) { return (h + lstm_cluster - 1) / lstm_cluster; }
constexpr int32_t lstm_cluster_bytes(int32_t h) {
  return (4 * lstm_units_each(h) + 2 * lstm_seqs) * lstm_h_stride(h) * 4;
}
static_assert(lstm_cluster_bytes(lstm_cluster_hidden) <= 227 * 1024, "an SM of sm_90 has no more");

__global__ void __launch_bounds__(lstm_cluster_threads, 1)
    lstm_cluster_kernel(const __grid_constant__ LstmArgs a) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(memory);
  const int32_t thread = static_cast<int32_t>(threadIdx.x), seq = thread % lstm_seqs,
                rank = static_cast<int32_t>(ptx::cluster_rank()), units = a.units;
  const LstmGroup group(a, static_cast<int32_t>(blockIdx.x) / lstm_cluster, seq);
  if (group.steps == 0) return;  // the whole cluster
  ptx::grid_dependency_launch();
  const int32_t stride = a.h_stride, h_size = lstm_seqs * stride, columns = stride - 4,
                place = thread / lstm_seqs, unit = rank * units + place;
  float *const rows = reinterpret_cast<float *>(memory), *const h = rows + 4 * units * stride;
  const float *const w = group.direction == 0 ? a.w[0] : a.w[1];
  // Gate g of unit u is row g·units + u; units that do not exist are zeros.
  for (int32_t i = thread; i < units * columns; i += lstm_cluster_threads) {
    const int32_t row = i / (columns / 4), piece = i % (columns / 4) * 4, of = rank * units + row % units;
    const bool there = of < a.h;
    const float *const from = w + (int64_t{row / units} * a.h + (there ? of : 0)) * a.w_row;
    ptx::cp_async_16(rows + row * stride + piece, from + piece, there);
  }
  for (int32_t i = thread; i < 2 * h_size; i += lstm_cluster_threads) ptx::store_shared(h + i, 0.0f);
  ptx::cp_async_wait_all();
  ptx::cluster_sync();  // W is there, and every h is zero before a neighbour writes to it

  float cell = 0.0f;
  for (int32_t step = 0; step < group.steps; step++) {
    const bool own = group.at_work(step) && place < units && unit < a.h;
    const int64_t row = group.row(step);
    float x[4] = {}, z[4] = {};
    if (own) {
      lstm_gates(a, group.direction, row, unit, x);
      const float *const before = h + step % 2 * h_size + seq * stride;
#pragma unroll 2
      for (int32_t k = 0; k < columns; k += lstm_line) {
        lstm_multiply(rows + place * stride + k, units * stride, before + k, z);
      }
      const float state = lstm_step(z, x, &cell);
      float *const after = h + (step + 1) % 2 * h_size + seq * stride + unit;
#pragma unroll
      for (int to = 0; to < lstm_cluster; to++) ptx::store_cluster(after, static_cast<uint32_t>(to), state);
      store_element(element_at(a.y, row, group.direction * a.h + unit), a.y.dtype, 0, state);
    }
    ptx::sync_warp();     // the cluster's barrier wants warps that are together
    ptx::cluster_sync();  // the step's h is there in every CTA, and none leaves before
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_LSTM_CUH
