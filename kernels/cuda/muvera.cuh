// muvera — the fixed dimensional encoding of each sequence's token vectors, as an output row.
//   The formulas and the tables are at sie_muvera_args (kernels/ops.h). The launcher runs up to
//   four steps: with normalize, the tokens' norms (row_norms.cu); with center_tokens, the
//   sequences' means (pool_output.cuh, or below for tokens divided by their norms); the partition
//   of every token in every repetition (muvera_partition.cuh); and this kernel: sums, means and
//   filling (muvera_block.cuh), the count sketch, the output.
// Shapes   x [T, C], row stride ≥ C; tables as sie_muvera_args, the sketch by output; items [B].
//          1 ≤ C ≤ 2²⁰ (8192 with center_tokens); k ≤ 10; P ≤ 4096; F ≤ 2²⁰; T ≤ 2²⁶.
// Types    x bf16 | f16 | f32; outputs as output_rows.cuh.
// Alias    none.
// Cost     a document of 128 tokens of 128 dimensions, R 40, k 6, sketch to 10,240: 2.6 MB of x
//          from L1 or L2, 2.9 MB of the sketch's tables from L2, half of that where two documents
//          share them, 40 KB written. 1000 documents: 4.1 GB, 0.4 ms at the 10 TB/s of L2 (0.5 ms
//          with one a CTA). An output waits for its place in the table, then for a source: two
//          trips of some 270 clocks, 20 times a repetition and a thread for two documents (40 for
//          one); with those for its tokens 1.4 ms for 1000 documents, two a multiprocessor (2.4
//          ms): predict_muvera (cost.h).
// Plan     a CTA has one sequence or, with a sketch whose intermediates fit in shared memory twice,
//          two. 8 warps a sequence, repetition after repetition, share out the repetition's
//          partitions; no atomics: each partition belongs to one warp. With a sketch, all threads
//          then gather outputs, thread t the outputs t, t + threads, …, from the blocks of both
//          sequences by one reading of the tables. Block and row lie in shared memory where 96 KiB
//          hold them (two of each: what the device has), else in a slot of scratch that belongs to
//          the CTA, which then takes several sequences.
// Order    tokens ascend within a partition, places within an output: bits depend on the item
//          alone. A projection comes after the sum over tokens, and for documents after the
//          division by their number.
// Error    |y − ref| ≤ 4e-6·max|y| while no token changes its partition (muvera_partition.cuh).
// Source   Dhulipala 2024 §2, arXiv:2405.19504; the Gray code and the sketch of google/graph-mining
#ifndef SIE_KERNELS_CUDA_MUVERA_CUH
#define SIE_KERNELS_CUDA_MUVERA_CUH

#include "cuda/muvera_block.cuh"
#include "cuda/output_rows.cuh"

namespace sie_cuda {

constexpr int muvera_threads = row_threads;      // of a sequence
constexpr size_t muvera_shared_max = 96 * 1024;  // every target's CTA may have 99 KiB
constexpr int32_t muvera_slots = 128;            // CTAs at most, where intermediates lie in scratch
constexpr int32_t projected_max = 4096;

struct MuveraJob {
  sie_rows seqs;
  const int32_t *cu_seqlens;
  sie_tensor x;
  TokenShift shift;
  const uint16_t *partitions;  // [R, stride]
  int64_t stride;
  int32_t c, repetitions, bits;
  BlockForm form;
  const int32_t *ams, *sketch_first, *sketch_source;
  int32_t columns;  // F
  bool sketch;
  // The floats of a CTA in shared memory, or in its slot of scratch where they are not there; 0 for
  // none.
  int32_t shared_row, shared_block;
  int64_t slot_row, slot_block;
  float *slots;
  const sie_out_item *items;
  void *out;
};

// A row of f32 anywhere, 16-byte aligned, with room for whole octets.
struct FloatRow {
  const float *row;
  SIE_DEVICE void read(int32_t octet, float (&v)[8]) const {
    const float4 low = ptx::load_anywhere<float4>(row + 8 * octet),
                 high = ptx::load_anywhere<float4>(row + 8 * octet + 4);
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
  }
};

// mean[b, c] = Σ x/norm over the tokens of sequence b, ascending, divided by their number; zeros
// without tokens.
__global__ void __launch_bounds__(muvera_threads, 4)
    muvera_mean_kernel(const sie_rows seqs, const int32_t *cu_seqlens, const sie_tensor x, int32_t c,
                       const float *norm, float *mean) {
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  const int64_t b = blockIdx.x;
  if (b >= *seqs.n) return;
  const int32_t first = cu_seqlens[b], tokens = cu_seqlens[b + 1] - first;
  for (int32_t column = static_cast<int32_t>(threadIdx.x); column < c; column += muvera_threads) {
    float sum = 0.0f;
    for (int32_t t = 0; t < tokens; t++)
      sum += __fdiv_rn(load_element(element_at(x, first + t, column), x.dtype, 0), norm[first + t]);
    mean[b * c + column] = tokens > 0 ? __fdiv_rn(sum, static_cast<float>(tokens)) : 0.0f;
  }
}

// Where the rows and blocks of a CTA's sequences lie: the first one's, and how far on the next one's.
struct Encodings {
  float *row, *block;
  int32_t row_step, block_step;
};

// The seat among those of a CTA of the sequence that this thread's warp fills the blocks of.
template <int Docs>
SIE_DEVICE int32_t own_seat() {
  if constexpr (Docs == 1) {
    return 0;
  } else {
    return static_cast<int32_t>(threadIdx.x) / muvera_threads;
  }
}

// Of the seats' sequences b, …, below `sequences`, the own one; behind them the last.
template <int Docs>
SIE_DEVICE int32_t own_sequence(int32_t b, int32_t sequences) {
  if constexpr (Docs == 1) {
    return b;
  } else {
    return min(b + own_seat<Docs>(), sequences - 1);
  }
}

// Adds what the blocks of repetition r contribute to each output, places ascending.
template <int Docs>
SIE_DEVICE void add_sketch(const MuveraJob &job, int32_t r, const Encodings &of) {
  const int32_t *const first = job.sketch_first + static_cast<int64_t>(r) * (job.columns + 1);
  for (int32_t j = static_cast<int32_t>(threadIdx.x); j < job.columns; j += Docs * muvera_threads) {
    const int32_t end = first[j + 1];
    float sum[Docs];
#pragma unroll
    for (int d = 0; d < Docs; d++) sum[d] = of.row[d * of.row_step + j];
    for (int32_t e = first[j]; e < end; e++) {
      const int32_t place = job.sketch_source[e];
      const int32_t at = place < 0 ? ~place : place;
#pragma unroll
      for (int d = 0; d < Docs; d++) {
        const float v = of.block[d * of.block_step + at];
        sum[d] += place < 0 ? -v : v;
      }
    }
#pragma unroll
    for (int d = 0; d < Docs; d++) of.row[d * of.row_step + j] = sum[d];
  }
}

// The encodings of sequences b, …, below `sequences`, to their rows. A seat behind the last sequence has the last
// one's encoding.
template <int Docs>
SIE_DEVICE void encode_sequences(const MuveraJob &job, int32_t b, int32_t sequences,
                                 const ProjectionSpace &space, const Encodings &of) {
  const int32_t seat = own_seat<Docs>(), own = own_sequence<Docs>(b, sequences);
  const int32_t thread = static_cast<int32_t>(threadIdx.x) % muvera_threads;
  const int32_t first = job.cu_seqlens[own], tokens = job.cu_seqlens[own + 1] - first;
  float *const row = of.row + seat * of.row_step, *const sketched = of.block + seat * of.block_step;
  // Without any token there need be no tables. A sequence without tokens beside one that has some adds zeros.
  const bool none = job.cu_seqlens[b] == job.cu_seqlens[min(b + Docs, sequences)];
  if (none || job.sketch) {
    for (int32_t j = thread; j < job.columns; j += muvera_threads) row[j] = 0.0f;
  }
  if (none) return;
  const float *const shift =
      job.shift.mean != nullptr ? job.shift.mean + static_cast<int64_t>(own) * job.c : job.shift.center;
  const int32_t width = job.form.projected != 0 ? job.form.projected : job.c;
  const uint32_t partitions = 1u << job.bits, warp = static_cast<uint32_t>(thread) / 32;
  const uint32_t from = warp * partitions / row_warps, until = (warp + 1) * partitions / row_warps;
  for (int32_t r = 0; r < job.repetitions; r++) {
    const BlockTokens tokens_of = {
        job.x, job.shift.norm, shift, first, tokens, job.c, job.partitions + r * job.stride + first};
    float *const block = job.sketch ? sketched : row + static_cast<int64_t>(r) * partitions * width;
    const int32_t *const ams = job.form.projected != 0 ? job.ams + static_cast<int64_t>(r) * job.c : nullptr;
    fill_partitions(tokens_of, job.form, ams, from, until, space, block + static_cast<int64_t>(from) * width);
    if (!job.sketch) continue;
    __syncthreads();
    add_sketch<Docs>(job, r, of);
    __syncthreads();  // the blocks may be overwritten
  }
}

template <int Docs>
__global__ void __launch_bounds__(Docs *muvera_threads, 2 / Docs) muvera_kernel(const MuveraJob job) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  double *const reductions = reinterpret_cast<double *>(shared);
  float *const shared_rows = reinterpret_cast<float *>(reductions + Docs * row_warps * output_reductions);
  float *const shared_blocks = shared_rows + Docs * job.shared_row;
  const int32_t projection = projection_floats(job.c, job.form.projected);
  float *const projections = shared_blocks + Docs * job.shared_block;
  const ProjectionSpace space = projection_space(
      projections + static_cast<int32_t>(threadIdx.x / 32) * projection, job.c, job.form.projected);
  Encodings of = {shared_rows, shared_blocks, job.shared_row, job.shared_block};
  if constexpr (Docs == 1) {
    float *const slot = job.slots + static_cast<int64_t>(blockIdx.x) * (job.slot_row + job.slot_block);
    if (job.shared_row == 0) of.row = slot;
    if (job.shared_block == 0) of.block = slot + job.slot_row;
  }
  const int32_t sequences = *job.seqs.n, seat = own_seat<Docs>();
  for (int64_t b = Docs * static_cast<int64_t>(blockIdx.x); b < sequences;
       b += Docs * static_cast<int64_t>(gridDim.x)) {
    encode_sequences<Docs>(job, static_cast<int32_t>(b), sequences, space, of);
    __syncthreads();
    if (b + seat < sequences) {
      RowThreads<row_warps> threads(static_cast<uint32_t>(seat),
                                    reductions + seat * row_warps * output_reductions);
      write_output(FloatRow{of.row + seat * of.row_step}, job.columns, job.items[b + seat], job.out,
                   &threads);
    }
    __syncthreads();  // rows and reductions may be overwritten
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_MUVERA_CUH
