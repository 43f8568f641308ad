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
// Cost     a document of 128 tokens of 128 dimensions, R 40, k 6, sketch to 10,240: 2.6 MB of x from
//          L1, 2.6 MB of the sketch's tables from L2, half of that where two documents share them,
//          40 KB written. Bound by instructions, some 33 a token, 80 a partition and 39 for 32
//          additions to two documents: 1000 documents 0.84 ms by predict_muvera (cost.h), 0.14 of it
//          their partitions; trips to L2 and its bytes alone would be 0.28. No card has run it.
// Plan     a CTA has one sequence or, with a sketch whose intermediates fit in shared memory twice,
//          two. 8 warps a sequence, repetition after repetition, share out the repetition's
//          partitions; no atomics: each partition belongs to one warp. With a sketch, all threads
//          then add the blocks of both sequences to their rows by one reading of the tables. Its
//          additions come in rounds of different outputs, a barrier between two, and spread over
//          the banks of shared memory (common/muvera.h); each thread asks for some ahead. Block and
//          row lie in shared memory where 96 KiB hold them (two of each: what the device has), else
//          in a slot of scratch that belongs to the CTA, which then takes several sequences.
// Order    tokens ascend within a partition, places within an output: bits depend on the item
//          alone. A projection comes after the sum over tokens, and for documents after the
//          division by their number.
// Error    |y − ref| ≤ 4e-6·max|y| while no token changes its partition (muvera_partition.cuh).
// Source   Dhulipala 2024 §2, arXiv:2405.19504; the Gray code and the sketch of google/graph-mining
#ifndef SIE_KERNELS_CUDA_MUVERA_CUH
#define SIE_KERNELS_CUDA_MUVERA_CUH

#include "common/muvera.h"
#include "cuda/muvera_block.cuh"
#include "cuda/output_rows.cuh"

namespace sie_cuda {

constexpr int muvera_threads = row_threads;  // of a sequence
// 128 registers suffice, except on sm_86 and sm_89, where they spill one and shared memory seldom holds two CTAs.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890)
template <int Docs>
constexpr int muvera_min_ctas = 1;
#else
template <int Docs>
constexpr int muvera_min_ctas = 2 / Docs;
#endif
constexpr size_t muvera_shared_max = 96 * 1024;  // every target's CTA may have 99 KiB
constexpr int32_t muvera_slots = 128;            // CTAs at most, where intermediates lie in scratch
constexpr int32_t projected_max = 4096;
constexpr uint32_t rounds = SIE_SKETCH_ROUNDS, no_addition = 0xffffffffu, one_bits = 0x3f800000u;  // of 1.0f
constexpr uint32_t round_mask = 1u << 31 | (rounds - 1);  // of no addition it leaves no round

struct MuveraJob {
  sie_rows seqs;
  const int32_t *cu_seqlens;
  sie_tensor x;
  TokenShift shift;
  const uint16_t *partitions;  // [R, stride]
  int64_t stride;
  int32_t c, repetitions, bits;
  BlockForm form;
  const int32_t *ams, *sketch_output, *sketch_source;
  int32_t columns;  // F
  bool sketch;
  bool quads;  // x is what QuadSum takes
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

// Additions of a sketch that a thread has asked for, of several chunks of one for each thread.
template <int Ahead>
struct Additions {
  uint32_t output[Ahead];  // with its round, as sketch_output has it; no_addition
  uint32_t source[Ahead];
  uint32_t last[Ahead];  // the chunk's last output with its round
};

// The additions of a repetition, to the rows of the CTA's sequences.
template <int Docs>
class Sketch {
 public:
  static constexpr int ahead = Docs == 2 ? 4 : 1;  // chunks that a thread asks for while it adds as many
  static constexpr int32_t chunk = Docs * muvera_threads;

  SIE_DEVICE Sketch(const MuveraJob &job, int64_t first, int32_t size, const Encodings &of)
      : output_(job.sketch_output + first), source_(job.sketch_source + first), size_(size) {
#pragma unroll
    for (int d = 0; d < Docs; d++)
      row_[d] = of.row + d * of.row_step, block_[d] = of.block + d * of.block_step;
  }

  // The chunks from addition `begin` on.
  SIE_DEVICE void ask(int32_t begin, Additions<ahead> &a) const {
    const int32_t own = begin + static_cast<int32_t>(threadIdx.x);
    const int32_t *const output = output_ + own, *const source = source_ + own;
    if (begin + ahead * chunk <= size_) {
#pragma unroll
      for (int i = 0; i < ahead; i++) {
        a.output[i] = ptx::load_global_once(output + i * chunk);
        a.source[i] = ptx::load_global_once(source + i * chunk);
        a.last[i] = ptx::load_global_once(output_ + begin + ((i + 1) * chunk - 1));
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < ahead; i++) {
      a.output[i] = no_addition, a.source[i] = 0;
      if (own + i * chunk < size_) {
        a.output[i] = ptx::load_global_once(output + i * chunk);
        a.source[i] = ptx::load_global_once(source + i * chunk);
      }
      a.last[i] = ptx::load_global_once(output_ + min(begin + (i + 1) * chunk, size_) - 1);
    }
  }

  // Adds all, round by round: the additions of one have different outputs, and a barrier is between two. `a` has
  // those from 0 on.
  SIE_DEVICE void add(Additions<ahead> &a) const {
    uint32_t round = 0;
    for (int32_t begin = 0; begin < size_; begin += ahead * chunk) {
      Additions<ahead> next;
      ask(begin + ahead * chunk, next);
      if (begin + ahead * chunk <= size_ && a.last[ahead - 1] % rounds == round) {
        // All are of this round.
#pragma unroll
        for (int i = 0; i < ahead; i++) add(a.output[i], a.source[i]);
      } else {
#pragma unroll
        for (int i = 0; i < ahead; i++) {
          if (begin + i * chunk >= size_) break;
          for (;;) {
            if ((a.output[i] & round_mask) == round) add(a.output[i], a.source[i]);
            if (a.last[i] % rounds == round) break;
            __syncthreads();
            round = (round + 1) % rounds;
          }
        }
      }
      a = next;
    }
  }

 private:
  // 1.0f with the sign of `source` is what the place is multiplied with: a sum or a difference, rounded once.
  SIE_DEVICE void add(uint32_t output, uint32_t source) const {
    const uint32_t place = source ^ static_cast<uint32_t>(static_cast<int32_t>(source) >> 31);
    const float sign = __uint_as_float((source & 1u << 31) | one_bits);
    const uint32_t to = output / rounds;
#pragma unroll
    for (int d = 0; d < Docs; d++) row_[d][to] = __fmaf_rn(block_[d][place], sign, row_[d][to]);
  }

  const int32_t *output_, *source_;
  int32_t size_;
  float *row_[Docs];
  const float *block_[Docs];
};

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
  const int32_t size = static_cast<int32_t>(partitions) * width;
  const uint32_t from = warp * partitions / row_warps, until = (warp + 1) * partitions / row_warps;
  for (int32_t r = 0; r < job.repetitions; r++) {
    const BlockTokens tokens_of = {
        job.x, job.shift.norm, shift, first, tokens, job.c, job.partitions + r * job.stride + first};
    float *const block = job.sketch ? sketched : row + static_cast<int64_t>(r) * partitions * width;
    const int32_t *const ams = job.form.projected != 0 ? job.ams + static_cast<int64_t>(r) * job.c : nullptr;
    float *const to = block + static_cast<int64_t>(from) * width;
    if (job.quads) {
      fill_partitions<QuadSum>(tokens_of, job.form, ams, from, until, space, to);
    } else {
      fill_partitions<PartitionSum>(tokens_of, job.form, ams, from, until, space, to);
    }
    if (!job.sketch) continue;
    const Sketch<Docs> sketch(job, static_cast<int64_t>(r) * size, size, of);
    Additions<Sketch<Docs>::ahead> additions;
    sketch.ask(0, additions);
    __syncthreads();
    sketch.add(additions);
    __syncthreads();  // the blocks may be overwritten
  }
}

template <int Docs>
__global__ void __launch_bounds__(Docs *muvera_threads, muvera_min_ctas<Docs>)
    muvera_kernel(const MuveraJob job) {
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
