// muvera_partition — the partition of every token in every repetition of an encoding (muvera.cuh).
//   s[i] = Σ_c x[c]·simhash[r,c,i] in f32, ascending c
//   g = 0, then for i = 0 … k−1: g = 2g + ((s[i] > 0) xor (g mod 2))
//   x is first divided by its norm, then the mean of its sequence or `center` is subtracted, where
//   the caller asks for it
// Shapes   x [T, C]; simhash [R, C, k]; partitions [R, stride], stride ≥ T a multiple of 8.
//          0 ≤ k ≤ 10.
// Types    x bf16 | f16 | f32; partitions u16.
// Cost     2·T·C·R·k flop → bound by f32 FMA: T = 128,000, C = 128, R = 40, k = 6: 7.9 GFLOP,
//          0.12 ms at 67 TFLOP/s. Tensor cores could do it with split operands, but not in this
//          order.
// Plan     a CTA of 128 threads takes 128 tokens and 8 repetitions; 64 columns of both at a time
//          lie in shared memory, tokens transposed. A thread has 8 tokens of one repetition: 8·k
//          sums, fed by 2 + k shared loads a column.
// Error    a token whose sum rounding moves across 0 changes partition: |s| < ~1e-6·‖x‖·‖plane‖.
#ifndef SIE_KERNELS_CUDA_MUVERA_PARTITION_CUH
#define SIE_KERNELS_CUDA_MUVERA_PARTITION_CUH

#include "cuda/rows.cuh"

namespace sie_cuda {

constexpr int partition_threads = 128;
constexpr int partition_tokens = 128;     // of a CTA
constexpr int partition_repetitions = 8;  // of a CTA
constexpr int partition_columns = 64;     // in shared memory at a time
constexpr int partition_bits_max = 10;

// The divisor of every token, and what is then subtracted: row `sequence` of `mean`, or `center`,
// or nothing.
struct TokenShift {
  const float *norm;    // [T] or NULL
  const float *center;  // [C] or NULL
  const float *mean;    // [B, C] or NULL
};

struct PartitionJob {
  sie_rows tokens, seqs;
  const int32_t *cu_seqlens;
  sie_tensor x;
  int32_t c, repetitions;
  const float *simhash;
  TokenShift shift;
  uint16_t *partitions;
  int64_t stride;
};

constexpr size_t partition_shared_bytes(int bits) {
  return sizeof(float) * partition_columns *
         static_cast<size_t>(partition_tokens + partition_repetitions * bits);
}

// Columns [begin, begin + partition_columns) of the CTA's tokens, transposed: [column][token];
// zeros outside.
SIE_DEVICE void load_tokens(const PartitionJob &job, int64_t token, int32_t sequence, int32_t begin,
                            float *tokens) {
  const bool present = token < *job.tokens.n;
  const float norm = job.shift.norm != nullptr && present ? job.shift.norm[token] : 1.0f;
  const float *const shift =
      job.shift.mean != nullptr ? job.shift.mean + static_cast<int64_t>(sequence) * job.c : job.shift.center;
  for (int32_t column = begin; column < begin + partition_columns; column += 8) {
    float v[8];
    load_octet_any(job.x, token, column, present ? job.c : 0, v);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      if (job.shift.norm != nullptr) v[j] = __fdiv_rn(v[j], norm);
      if (shift != nullptr && present && column + j < job.c) v[j] -= shift[column + j];
      tokens[(column - begin + j) * partition_tokens + static_cast<int32_t>(threadIdx.x)] = v[j];
    }
  }
}

// The same columns of the CTA's repetitions: [column][bit][repetition].
template <int K>
SIE_DEVICE void load_planes(const PartitionJob &job, int32_t repetition, int32_t begin, float *planes) {
  static_assert(K > 0, "without bits there are no planes");
  constexpr int32_t run = partition_columns * K;  // of one repetition, contiguous
  for (int32_t at = static_cast<int32_t>(threadIdx.x); at < run * partition_repetitions;
       at += partition_threads) {
    const int32_t r = at / run, rest = at % run;  // rest = column·K + bit
    const bool present = repetition + r < job.repetitions && begin + rest / K < job.c;
    const int64_t from = (static_cast<int64_t>(repetition + r) * job.c + begin) * K + rest;
    planes[rest * partition_repetitions + r] = present ? job.simhash[from] : 0.0f;
  }
}

template <int K>
__global__ void __launch_bounds__(partition_threads, K > 9 ? 3 : 4)
    muvera_partition_kernel(const PartitionJob job) {
  ptx::grid_dependency_wait();
  SIE_DYNAMIC_SHARED(shared);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * partition_tokens;
  if (first >= *job.tokens.n) return;
  const int32_t first_repetition = static_cast<int32_t>(blockIdx.y) * partition_repetitions;
  float *const tokens = reinterpret_cast<float *>(shared);
  float *const planes = tokens + partition_columns * partition_tokens;

  // When loading, thread t has token t; its sequence matters where each sequence has a mean of its
  // own.
  const int64_t own = first + threadIdx.x;
  int32_t sequence = 0;
  for (int lane = 0; lane < 32 && job.shift.mean != nullptr; lane++) {
    const int64_t t = own - ptx::lane_id() + lane;
    if (t >= *job.tokens.n) break;  // for the whole warp
    const Sequence found = sequence_of(job.cu_seqlens, *job.seqs.n, static_cast<int32_t>(t));
    if (static_cast<int>(ptx::lane_id()) == lane) sequence = found.index;
  }

  const int32_t r = static_cast<int32_t>(threadIdx.x) % partition_repetitions;
  const int32_t eight = static_cast<int32_t>(threadIdx.x) / partition_repetitions;  // of the CTA's tokens
  float sum[8][K > 0 ? K : 1] = {};
  if constexpr (K > 0) {
    for (int32_t begin = 0; begin < job.c; begin += partition_columns) {
      if (begin > 0) __syncthreads();
      load_tokens(job, own, sequence, begin, tokens);
      load_planes<K>(job, first_repetition, begin, planes);
      __syncthreads();
#pragma unroll 2
      for (int32_t column = 0; column < partition_columns; column++) {
        float x[8], plane[K];
        const float *const of = tokens + column * partition_tokens + 8 * eight;
        const float4 low = ptx::load_shared<float4>(of), high = ptx::load_shared<float4>(of + 4);
        x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
        x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
#pragma unroll
        for (int i = 0; i < K; i++) plane[i] = planes[(column * K + i) * partition_repetitions + r];
#pragma unroll
        for (int t = 0; t < 8; t++) {
#pragma unroll
          for (int i = 0; i < K; i++) sum[t][i] = __fmaf_rn(x[t], plane[i], sum[t][i]);
        }
      }
    }
  }
  ptx::grid_dependency_launch();

  uint32_t g[8] = {};
#pragma unroll
  for (int t = 0; t < 8; t++) {
#pragma unroll
    for (int i = 0; i < K; i++) g[t] = 2 * g[t] + ((sum[t][i] > 0.0f ? 1u : 0u) ^ (g[t] & 1u));
  }
  const int64_t token = first + 8 * eight;
  if (first_repetition + r >= job.repetitions || token >= job.stride) return;
  ptx::store_global(job.partitions + (first_repetition + r) * job.stride + token,
                    make_uint4(g[0] | g[1] << 16, g[2] | g[3] << 16, g[4] | g[5] << 16, g[6] | g[7] << 16));
}

}  // namespace sie_cuda

#endif  // SIE_KERNELS_CUDA_MUVERA_PARTITION_CUH
