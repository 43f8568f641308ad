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
//          from L1 or L2, 2.9 MB of the sketch's tables from L2, 40 KB written. 1000 documents:
//          some 1 ms, bound by L2.
// Plan     a CTA of 8 warps a sequence, repetition after repetition. The warps share out a
//          repetition's partitions; no atomics: each partition belongs to one warp. With a sketch,
//          thread t then gathers outputs t, t + 256, … from the block. Block and row lie in shared
//          memory where 96 KiB hold them, else in a slot of scratch that belongs to the CTA, which
//          then takes several sequences.
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

constexpr int muvera_threads = row_threads;
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

// Adds what the block of repetition r contributes to each output, places ascending.
SIE_DEVICE void add_sketch(const MuveraJob &job, int32_t r, const float *block, float *row) {
  const int32_t *const first = job.sketch_first + static_cast<int64_t>(r) * (job.columns + 1);
  for (int32_t j = static_cast<int32_t>(threadIdx.x); j < job.columns; j += muvera_threads) {
    const int32_t end = first[j + 1];
    float sum = row[j];
    for (int32_t e = first[j]; e < end; e++) {
      const int32_t place = job.sketch_source[e];
      sum += place < 0 ? -block[~place] : block[place];
    }
    row[j] = sum;
  }
}

// The encoding of one sequence, to row.
SIE_DEVICE void encode_sequence(const MuveraJob &job, int64_t b, const ProjectionSpace &space,
                                float *sketched, float *row) {
  const int32_t first = job.cu_seqlens[b], tokens = job.cu_seqlens[b + 1] - first;
  // Zeros for an empty sequence, and for the sketch to add to.
  if (tokens <= 0 || job.sketch) {
    for (int32_t j = static_cast<int32_t>(threadIdx.x); j < job.columns; j += muvera_threads) row[j] = 0.0f;
  }
  if (tokens <= 0) return;
  const float *const shift = job.shift.mean != nullptr ? job.shift.mean + b * job.c : job.shift.center;
  const int32_t width = job.form.projected != 0 ? job.form.projected : job.c;
  const uint32_t partitions = 1u << job.bits, warp = threadIdx.x / 32;
  const uint32_t from = warp * partitions / row_warps, until = (warp + 1) * partitions / row_warps;
  for (int32_t r = 0; r < job.repetitions; r++) {
    const BlockTokens own = {
        job.x, job.shift.norm, shift, first, tokens, job.c, job.partitions + r * job.stride + first};
    float *const block = job.sketch ? sketched : row + static_cast<int64_t>(r) * partitions * width;
    const int32_t *const ams = job.form.projected != 0 ? job.ams + static_cast<int64_t>(r) * job.c : nullptr;
    fill_partitions(own, job.form, ams, from, until, space, block + static_cast<int64_t>(from) * width);
    if (!job.sketch) continue;
    __syncthreads();
    add_sketch(job, r, block, row);
    __syncthreads();  // the block may be overwritten
  }
}

__global__ void __launch_bounds__(muvera_threads, 2) muvera_kernel(const MuveraJob job) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  double *const reductions = reinterpret_cast<double *>(shared);
  float *const shared_row = reinterpret_cast<float *>(reductions + row_warps * output_reductions);
  float *const shared_block = shared_row + job.shared_row;
  const int32_t projection = projection_floats(job.c, job.form.projected);
  float *const projections = shared_block + job.shared_block;
  const ProjectionSpace space = projection_space(
      projections + static_cast<int32_t>(threadIdx.x / 32) * projection, job.c, job.form.projected);
  float *const slot = job.slots + static_cast<int64_t>(blockIdx.x) * (job.slot_row + job.slot_block);
  float *const row = job.shared_row != 0 ? shared_row : slot;
  float *const block = job.shared_block != 0 ? shared_block : slot + job.slot_row;
  const int32_t sequences = *job.seqs.n;
  for (int64_t b = blockIdx.x; b < sequences; b += gridDim.x) {
    encode_sequence(job, b, space, block, row);
    __syncthreads();
    RowThreads<row_warps> threads(0, reductions);
    write_output(FloatRow{row}, job.columns, job.items[b], job.out, &threads);
    __syncthreads();  // row and reductions may be overwritten
  }
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_MUVERA_CUH
